r"""Translates Java's regular expressions into Python's, and refuses any that would mean something else. Pure.

Every member of a group applies every other member's filter itself. A filter that matches other topics here than in
Java would make two members claim one partition. Therefore nothing is guessed: a construct that is not in this list is
refused, by name and position.

    taken as in Java    literals  .  ^  $  |  ( )  (?: )  (?= )  (?! )  (?<= )  (?<! )  (?> )  (?<name> )
                        ?  *  +  {n}  {n,}  {n,m}, greedy, lazy (`+?`) and possessive (`++`)
                        [abc]  [^abc]  [a-z], with the classes below inside
                        \d \D \w \W \s \S \h \H \b \B \A \Z \z  \Q...\E  \1 to \9  \k<name>
                        \t \n \r \f \a \e \0777 \xhh \x{h..h} \uhhhh, \ before any other sign
                        \p{Lower Upper ASCII Alpha Digit Alnum Punct Graph Print Blank Cntrl XDigit Space}, \P{..}
                        (?i) (?m) (?s), to be switched on and off anywhere, and (?i: )
    refused             [a[bc]] and [a&&b], the flags x, d, u, U, other \p classes, \v \V \R \X \N \G \c,
                        \Q inside [ ], repetitions of an assertion and inside (?<= ) and (?<! ), back-references of
                        two digits, what Java itself refuses

Equal meaning is promised for ASCII text without line ends, which is what Kafka's topic names are: `.`, `$`, `(?m)`
and `\b` differ between the two beyond that. Topic names have at most 255 characters, which bounds a match,
but a filter such as `(a+)+b` takes exponential time on them, in Java as here.

Source: java.util.regex.Pattern (documentation of Java 8; behaviour compared with OpenJDK 17).

Single characters and sets of characters in Java's regular expressions: escapes and `[...]`.

A set is a tuple of inclusive ranges of code points, so that a complement can stand inside brackets, where
Python knows no negation. All of it means the same in Java 8 to 17 for ASCII text.

Source: java.util.regex.Pattern, methods `escape`, `clazz` and `range`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from rebalance.errors import UnsupportedFilter

Ranges = tuple[tuple[int, int], ...]
_LAST = 0x10FFFF


def _ranges(text: str) -> Ranges:
    """Return `a-z_` as ranges; a hyphen between two characters makes a range."""
    return tuple((ord(item[0]), ord(item[-1])) for item in re.findall(r".-.|.", text, re.DOTALL))


_DIGIT, _WORD, _SPACE = _ranges("0-9"), _ranges("0-9A-Z_a-z"), _ranges("\t-\r ")
_SHORT = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _ranges("\t \xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000")}
_POSIX = {
    "Lower": _ranges("a-z"),
    "Upper": _ranges("A-Z"),
    "ASCII": _ranges("\x00-\x7f"),
    "Alpha": _ranges("A-Za-z"),
    "Digit": _DIGIT,
    "Alnum": _ranges("0-9A-Za-z"),
    "Punct": _ranges("!-/:-@[-`{-~"),
    "Graph": _ranges("!-~"),
    "Print": _ranges(" -~"),
    "Blank": _ranges("\t "),
    "Cntrl": _ranges("\x00-\x1f\x7f"),
    "XDigit": _ranges("0-9A-Fa-f"),
    "Space": _SPACE,
}
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FAMILY = re.compile(r"[pP]\{([^}]*)\}")
_HEX = re.compile(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}")
_OCTAL = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")


class Piece(NamedTuple):
    """The meaning of an escape or a bracket: a set of characters, and where the text goes on."""

    ranges: Ranges
    end: int
    is_character: bool = True


def translate_set(ranges: Ranges, negated: bool = False) -> str:
    """Return a set of characters in Python's brackets, or one character by itself."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not negated:
        return _literal(ranges[0][0])
    inside = "".join(_literal(low) if low == high else f"{_literal(low)}-{_literal(high)}" for low, high in ranges)
    return f"[{'^' if negated else ''}{inside}]"


def read_escape(text: str, at: int, ignore_case: bool) -> Piece:
    """Return the meaning of the escape whose backslash stands at `at`, the same inside and outside brackets.

    Raises:
        UnsupportedFilter: Java refuses it, or it is not translated.
    """
    letter = text[at + 1 : at + 2]
    if letter == "":
        _refuse(text, at, "a backslash at the end")
    if letter in "pP":
        return _family(text, at, ignore_case)
    if letter.lower() in _SHORT:
        ranges = _SHORT[letter.lower()]
        return Piece(ranges if letter.islower() else _complement(ranges), at + 2, is_character=False)
    if letter in _CHARACTERS:
        return _one(ord(_CHARACTERS[letter]), at + 2)
    if letter in "ux0":
        return _numbered(text, at)
    if letter.isascii() and letter.isalnum():
        _refuse(text, at, f"the escape \\{letter} is not translated here")
    return _one(ord(letter), at + 2)


def read_brackets(text: str, at: int, ignore_case: bool) -> tuple[str, int]:
    """Return the bracket expression that opens at `at` for Python, and the index after it.

    Raises:
        UnsupportedFilter: Java refuses it, or it is not translated (unions, intersections).
    """
    start = at
    negated = text.startswith("^", at + 1)
    at += 2 if negated else 1
    if text.startswith("]", at):
        _refuse(text, at, r"']' opens the brackets; write \]")
    ranges: list[tuple[int, int]] = []
    while not text.startswith("]", at):
        if at >= len(text):
            _refuse(text, start, "these brackets are not closed")
        first = _member(text, at, ignore_case)
        at = first.end
        if first.is_character and text.startswith("-", at) and text[at + 1 : at + 2] not in ("", "]"):
            last = _member(text, at + 1, ignore_case)
            low, high = first.ranges[0][0], last.ranges[0][0]
            if not last.is_character or high < low:
                _refuse(text, at, "the range ends before it begins, or at a class of characters")
            ranges.append((low, high))
            at = last.end
        else:
            ranges.extend(first.ranges)
    return translate_set(tuple(ranges), negated), at + 1


def _member(text: str, at: int, ignore_case: bool) -> Piece:
    if text.startswith("&&", at):
        _refuse(text, at, "an intersection (&&) is not translated")
    if text[at] == "[":
        _refuse(text, at, "brackets inside brackets (a union) are not translated")
    if text[at] == "\\":
        return read_escape(text, at, ignore_case)
    return _one(ord(text[at]), at + 1)


def _family(text: str, at: int, ignore_case: bool) -> Piece:
    found = _FAMILY.match(text, at + 1)
    if not found or found[1] not in _POSIX:
        _refuse(text, at, f"of the classes \\p only {', '.join(_POSIX)} in braces are translated")
    if ignore_case and found[1] in ("Lower", "Upper"):
        _refuse(text, at, f"\\p{{{found[1]}}} under the flag i differs between versions of Java")
    ranges = _POSIX[found[1]]
    return Piece(ranges if found[0][0] == "p" else _complement(ranges), at + 1 + len(found[0]), is_character=False)


def _numbered(text: str, at: int) -> Piece:
    octal, hexadecimal = _OCTAL.match(text, at + 1), _HEX.match(text, at + 1)
    if octal:
        return _one(int(octal[1], 8), at + 1 + len(octal[0]))
    if not hexadecimal:
        _refuse(text, at, r"the number of the character is not complete: \0777, \xhh, \x{h..h}, \uhhhh")
    code = int(next(filter(None, hexadecimal.groups())), 16)
    if code > _LAST or 0xD800 <= code <= 0xDFFF:
        _refuse(text, at, f"U+{code:04X} is not a character")
    return _one(code, at + 1 + len(hexadecimal[0]))


def _one(code: int, end: int) -> Piece:
    return Piece(((code, code),), end)


def _complement(ranges: Ranges) -> Ranges:
    gaps, free_from = [], 0
    for low, high in sorted(ranges):
        if low > free_from:
            gaps.append((free_from, low - 1))
        free_from = high + 1
    return (*gaps, (free_from, _LAST))


def _literal(code: int) -> str:
    """Return a character so that Python takes it as itself, inside and outside brackets."""
    char = chr(code)
    if char.isascii() and (char.isalnum() or char == "_"):
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\U{code:08x}"


def _refuse(text: str, at: int, reason: str) -> NoReturn:
    raise UnsupportedFilter(text, reason, at)


_MAX_DEPTH = 100
_MAX_REPEAT = 2**31 - 1
_ASSERTIONS = {"b": r"\b", "B": r"\B", "A": r"\A", "Z": r"\Z", "z": r"\Z"}
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_REPEAT = re.compile(r"\{([0-9]{1,10})(,([0-9]{0,10}))?\}")


def java_regex(text: str) -> re.Pattern[str]:
    """Return a Python pattern that, used with `fullmatch`, matches what `String.matches(text)` does in Java.

    >>> bool(java_regex(r"[\\p{Alnum}-|]+").fullmatch("white1|white2"))
    True

    Raises:
        UnsupportedFilter: Java refuses the text, or it holds a construct that is not translated.
    """
    translated = _Translator(text).translate()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsupportedFilter(text, f"Python cannot compile it: {error}") from error


class _Group:
    """An open group: its flags, and how many scoped flag groups stand open inside it."""

    __slots__ = ("flags", "looks_behind", "number", "position", "quantifiable", "reopened")

    def __init__(
        self, position: int, flags: frozenset[str], number: int | None, quantifiable: bool, looks_behind: bool
    ) -> None:
        self.position = position
        self.flags = flags
        self.number = number
        self.quantifiable = quantifiable
        self.looks_behind = looks_behind
        self.reopened: list[str] = []


class _Translator:
    """One pass over the text, left to right; `_at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._open = [_Group(0, frozenset(), None, quantifiable=False, looks_behind=False)]
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self._quantifiable = False

    def translate(self) -> str:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        if len(self._open) > 1:
            self._refuse("this group is not closed", self._open[-1].position)
        self._out.append(")" * len(self._open[0].reopened))
        return "".join(self._out)

    def _step(self, char: str) -> None:
        if char == "\\":
            self._escape()
        elif char == "[":
            translated, end = read_brackets(self._text, self._at, "i" in self._open[-1].flags)
            self._emit(translated, end - self._at)
        elif char == "(":
            self._open_group()
        elif char == ")":
            self._close_group()
        elif char == "|":
            # An inline flag lasts to the end of its group, across the bars; Python's scoped form does not.
            reopened = self._open[-1].reopened
            self._emit(")" * len(reopened) + "|" + "".join(reopened), 1, quantifiable=False)
        elif char in "^$":
            self._emit(char, 1, quantifiable=False)
        elif char in "*+?{":
            self._quantifier()
        else:
            self._emit("." if char == "." else re.escape(char), 1)

    def _emit(self, translated: str, consumed: int, quantifiable: bool = True) -> None:
        self._out.append(translated)
        self._at += consumed
        self._quantifiable = quantifiable

    def _refuse(self, reason: str, position: int | None = None) -> NoReturn:
        raise UnsupportedFilter(self._text, reason, self._at if position is None else position)

    # -- escapes

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "Q":
            self._quoted()
        elif following in _ASSERTIONS and following:
            self._emit(_ASSERTIONS[following], 2, quantifiable=False)
        elif following == "k":
            self._named_reference()
        elif following in tuple("123456789"):
            self._reference(int(following))
        else:
            piece = read_escape(self._text, self._at, "i" in self._open[-1].flags)
            self._emit(translate_set(piece.ranges), piece.end - self._at)

    def _quoted(self) -> None:
        end = self._text.find(r"\E", self._at + 2)
        quoted = self._text[self._at + 2 : end if end >= 0 else len(self._text)]
        stop = end + 2 if end >= 0 else len(self._text)
        # Java applies a quantifier after \E to the last character alone, as Python does to this.
        self._emit(re.escape(quoted), stop - self._at, quantifiable=bool(quoted))

    def _reference(self, number: int) -> None:
        if self._text[self._at + 2 : self._at + 3].isdigit():
            self._refuse("a back-reference of two digits depends on the number of groups")
        if number not in self._closed:
            self._refuse(f"group {number} is not closed here")
        self._emit(f"(?:\\{number})", 2)

    def _named_reference(self) -> None:
        found = _NAME.match(self._text, self._at + 2)
        if not found or self._names.get(found[1]) not in self._closed:
            self._refuse(r"\k needs the name of a group that is closed here")
        self._emit(f"(?P={found[1]})", 2 + len(found[0]))

    # -- groups

    def _open_group(self) -> None:
        if len(self._open) > _MAX_DEPTH:
            self._refuse(f"more than {_MAX_DEPTH} groups inside each other")
        text, at = self._text, self._at
        prefix = next((kind for kind in _GROUPS if text.startswith(kind, at)), None)
        name = _NAME.match(text, at + 2) if text.startswith("(?<", at) else None
        if prefix is not None:
            self._push(prefix, len(prefix), None, quantifiable=prefix in ("(?:", "(?>"))
        elif name is not None:
            if name[1] in self._names:
                self._refuse(f"a second group named {name[1]}")
            self._groups += 1
            self._names[name[1]] = self._groups
            self._push(f"(?P<{name[1]}>", 2 + len(name[0]), self._groups)
        elif text.startswith("(?", at):
            self._flags()
        else:
            self._groups += 1
            self._push("(", 1, self._groups)

    def _push(
        self,
        translated: str,
        consumed: int,
        number: int | None,
        quantifiable: bool = True,
        flags: frozenset[str] | None = None,
    ) -> None:
        inherited = self._open[-1].flags if flags is None else flags
        looks_behind = self._open[-1].looks_behind or translated.startswith(("(?<=", "(?<!"))
        self._open.append(_Group(self._at, inherited, number, quantifiable, looks_behind))
        self._emit(translated, consumed, quantifiable=False)

    def _close_group(self) -> None:
        if len(self._open) == 1:
            self._refuse("')' without '('")
        group = self._open.pop()
        if group.number is not None:
            self._closed.add(group.number)
        self._emit(")" * (1 + len(group.reopened)), 1, quantifiable=group.quantifiable)

    def _flags(self) -> None:
        found = _FLAGS.match(self._text, self._at)
        if not found:
            self._refuse(f"{self._text[self._at : self._at + 3]!r} does not open a group that Java knows")
        on, off, end = frozenset(found[1]), frozenset(found[2] or ""), found[3]
        unknown = (on | off) - frozenset("ims")
        if unknown:
            self._refuse(f"the flag {min(unknown)!r} is not translated; i, m and s are")
        flags = (self._open[-1].flags | on) - off
        scoped = _scoped(on - off, off)
        if end == ":":
            self._push(scoped, len(found[0]), None, flags=flags)
            return
        self._open[-1].flags = flags
        self._open[-1].reopened.append(scoped)
        self._emit(scoped, len(found[0]), quantifiable=False)

    # -- quantifiers

    def _quantifier(self) -> None:
        repeat = _REPEAT.match(self._text, self._at)
        if self._text[self._at] == "{" and not repeat:
            self._refuse(r"'{' does not begin a repetition; write \{ for the character")
        if not self._quantifiable:
            self._refuse("a repetition of nothing, of an assertion, or of another repetition")
        if self._open[-1].looks_behind:
            self._refuse("a repetition inside a look-behind is not translated")
        translated = repeat[0] if repeat else self._text[self._at]
        if repeat:
            least, most = int(repeat[1]), int(repeat[3] or repeat[1])
            if most < least or most > _MAX_REPEAT:
                self._refuse(f"the repetition {repeat[0]} is out of range")
        mode = self._text[self._at + len(translated) :][:1]
        if mode in ("?", "+"):
            translated += mode
        self._emit(translated, len(translated), quantifiable=False)


def _scoped(on: frozenset[str], off: frozenset[str]) -> str:
    minus = "-" + "".join(sorted(off)) if off else ""
    return f"(?{''.join(sorted(on))}{minus}:"
