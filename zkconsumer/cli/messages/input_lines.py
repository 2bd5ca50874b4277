"""Splits input into lines, and lines into key and value.

Pure. A line ends with LF; the last one may lack it. CR is kept: it belongs to the user's bytes.
"""

from __future__ import annotations

from zkconsumer.cli.failures import CliError

__all__ = ["KeyedLines", "LineSplitter"]

MAX_LINE_BYTES = 100 * 1024 * 1024
"""The largest request that brokers take by default (`socket.request.max.bytes`)."""


class LineSplitter:
    """Cuts pieces of input into lines, across the pieces.

    Args:
        max_line_bytes: Most bytes of an unfinished line.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._lines = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that are complete with this piece.

        Raises:
            CliError: A line is longer than that.
        """
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        self._rest_bytes += len(first)
        if self._rest_bytes > self._max_line_bytes:
            raise CliError(f"line {self._lines + 1} of the input is longer than {self._max_line_bytes} bytes",
                           "no broker would take it")
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest, self._rest_bytes = [others[-1]], len(others[-1])
        self._lines += len(lines)
        return lines

    def finish(self) -> list[bytes]:
        """Return the last line, when it lacks its LF."""
        rest = b"".join(self._rest)
        self._rest, self._rest_bytes = [], 0
        return [rest] if rest else []


class KeyedLines:
    """Splits lines into key and value.

    Args:
        separator: Between key and value, the first one counts; None: no keys.
    """

    def __init__(self, separator: bytes | None) -> None:
        self._separator = separator
        self._number = 0

    def split(self, line: bytes) -> tuple[bytes | None, bytes]:
        """Return key and value.

        Raises:
            CliError: The line has no separator; names its number.
        """
        self._number += 1
        if self._separator is None:
            return None, line
        key, found, value = line.partition(self._separator)
        if not found:
            raise CliError(
                f"line {self._number} of the input has no key separator {self._separator.decode()!r}: "
                f"{line[:60].decode('utf-8', 'replace')!r}",
                "the lines before it were sent, nothing from here on",
            )
        return key, value
