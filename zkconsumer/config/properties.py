r"""Reads Java's properties files as `java.util.Properties` does.

`key=value` lines; `=`, `:` or white space separates; `#` and `!` start comment lines; a line that ends with an
odd number of backslashes continues in the next one; `\t \n \r \f \uXXXX` are escapes, and a backslash before
anything else is dropped. The last of several equal keys counts.

Source: java.util.Properties (Java 8), `load`.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_TRAILING_BACKSLASHES = re.compile(r"\\*\Z")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertyLine(NamedTuple):
    """One property of a file: the number of its first line, its name and its value."""

    line: int
    name: str
    value: str


def read_property_lines(path: str | os.PathLike[str]) -> list[PropertyLine]:
    """Return every property of a file in UTF-8 or, when it is not valid UTF-8, ISO 8859-1, Java's old default.

    Raises:
        OSError: The file cannot be read.
        ValueError: An escape `\\u` without four hexadecimal digits, or a text in UTF-16.
    """
    with open(path, "rb") as file:
        return list(property_lines(decode_properties(file.read())))


def last_values(entries: Iterable[PropertyLine]) -> dict[str, str]:
    """Return name -> value; of equal names the last one counts."""
    return {entry.name: entry.value for entry in entries}


def decode_properties(data: bytes) -> str:
    """Return the text of a file in UTF-8 or, when it is not valid UTF-8, ISO 8859-1.

    Raises:
        ValueError: It is UTF-16, which editors of Windows call Unicode.
    """
    # Without a mark, every other byte of such a text is 0, as the names of settings are ASCII.
    zeros = max(data[::2].count(0), data[1::2].count(0))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or zeros > 0.4 * len(data):
        raise ValueError("it is UTF-16 text; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, str]:
    """Return key -> value of properties text.

    Raises:
        ValueError: An escape `\\u` without four hexadecimal digits.
    """
    return last_values(property_lines(text))


def property_lines(text: str) -> Iterator[PropertyLine]:
    """Yield every property of properties text, in order; equal names come as often as they stand there.

    Raises:
        ValueError: An escape `\\u` without four hexadecimal digits; names the line.
    """
    for number, line in _logical_lines(text):
        found = _ENTRY.match(line)
        if found:
            try:
                yield PropertyLine(number, _unescape(found["key"]), _unescape(found["value"]))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines with continuations joined; blank lines and comments are left out."""
    natural = iter(enumerate(_LINE_END.split(text), 1))
    for number, first in natural:
        line = first.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            _, following = next(natural, (0, None))
            line = line[:-1] + (following or "").lstrip(_BLANKS)
            if following is None:
                break
        yield number, line


def _continues(line: str) -> bool:
    found = _TRAILING_BACKSLASHES.search(line)
    return found is not None and len(found[0]) % 2 == 1


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        if found[2] == "u":
            # The text itself is not shown: it may be a password.
            raise ValueError("\\u needs four hexadecimal digits; a backslash itself is written twice")
        return _ESCAPED.get(found[2], found[2])

    # A character above U+FFFF stands as two escapes, its UTF-16 units.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
