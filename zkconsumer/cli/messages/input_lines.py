"""Splits input into lines, and makes key and value of a line.

Pure. A line ends with LF; the last one may lack it. CR is kept: it belongs to the user's bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["LineSplitter", "LongLine", "ParsedLine", "json_parser", "line_parser"]

ParsedLine = tuple[bytes | None, bytes | None]
"""Key and value."""


class LongLine(NamedTuple):
    """A line that is longer than the limit, and was not kept.

    Attributes:
        size: Its bytes.
    """

    size: int


class LineSplitter:
    """Cuts pieces of input into lines, across the pieces.

    Args:
        max_line_bytes: Most bytes that are kept of an unfinished line.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    @property
    def has_rest(self) -> bool:
        """Whether a line has begun that has no end yet."""
        return self._rest_bytes > 0

    def feed(self, piece: bytes) -> list[bytes | LongLine]:
        """Return the lines that are complete with this piece."""
        first, *others = piece.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [self._take(), *others[:-1]]
        self._keep(others[-1])
        return lines

    def finish(self) -> list[bytes | LongLine]:
        """Return the last line, if it lacks its LF."""
        return [self._take()] if self.has_rest else []

    def _keep(self, part: bytes) -> None:
        self._rest_bytes += len(part)
        if self._rest_bytes > self._max_line_bytes:
            self._rest.clear()
        else:
            self._rest.append(part)

    def _take(self) -> bytes | LongLine:
        size, rest = self._rest_bytes, self._rest
        self._rest, self._rest_bytes = [], 0
        return b"".join(rest) if size <= self._max_line_bytes else LongLine(size)


def line_parser(separator: bytes | None, null: bytes | None) -> Callable[[bytes], ParsedLine]:
    """Return a function that makes key and value of a line, and raises ValueError if it cannot.

    Args:
        separator: Between key and value, the first one counts; None: no keys.
        null: A key or a value that is this text is null; None: none is.
    """

    def parse(line: bytes) -> ParsedLine:
        if separator is None:
            return None, None if line == null else line
        key, found, value = line.partition(separator)
        if not found:
            shown = line[:60].decode("utf-8", "replace")
            raise ValueError(f"it has no key separator {separator.decode('utf-8', 'replace')!r}: {shown!r}")
        return None if key == null else key, None if value == null else value

    return parse


def json_parser(has_keys: bool) -> Callable[[bytes], ParsedLine]:
    """Return a function that makes key and value of a line of `zkconsumer consume --json`; see `line_parser`.

    Topic, partition, offset and time are not read.

    Args:
        has_keys: Brokers store keys.
    """

    def parse(line: bytes) -> ParsedLine:
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(f"it is no JSON: {error}") from None
        if not isinstance(entry, dict) or "value" not in entry:
            raise ValueError('it is no JSON object with a "value"')
        key, value = _bytes(entry, "key"), _bytes(entry, "value")
        if key is not None and not has_keys:
            raise ValueError("it has a key, and Kafka 0.7 stores none")
        return key, value

    return parse


def _bytes(entry: dict[str, object], name: str) -> bytes | None:
    text, encoding = entry.get(name), entry.get(f"{name}_encoding")
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f'"{name}" is {str(text)[:60]!r}: text or null is needed')
    if encoding is None:
        return text.encode()
    if encoding != "base64":
        raise ValueError(f'"{name}_encoding" is {str(encoding)[:60]!r}: base64 is the only one')
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f'"{name}" is no base64: {error}') from None
