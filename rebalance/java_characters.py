r"""Single characters and sets of characters in Java's regular expressions: escapes and `[...]`. Pure.

A set is a tuple of inclusive ranges of code points, so that a complement can stand inside brackets, where
Python knows no negation. What is read here means the same in Java 8 to 17 for ASCII text.

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
    """What an escape or a bracket stands for: a set of characters, and where the text goes on."""

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
    """Return what the escape whose backslash stands at `at` means, the same inside and outside brackets.

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
    """Return the bracket expression that opens at `at` for Python, and the index behind it.

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
