"""Encodes the records of a batch that a producer sends, in runs of messages with one timestamp.

What stands before the value of a record depends on the sizes of key and value, and on how many bytes its number takes.
So it is made once for each size. One checksum covers the batch, which is why this is faster than entries of magic 0.

Source: org.apache.kafka.common.record.DefaultRecord (1.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from simpleconsumer.kafka011.varints import encode_varint

__all__ = ["Run", "encode_records"]

Run = tuple[Sequence[tuple[Any, ...]], int]
"""Messages, each key and value and, if it has any, headers; and their timestamp, less that of the batch."""

_MOST_SIZES: Final = 4096
_MOST_NUMBERS: Final = 1 << 14
_BORDERS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 31)
"""Before these numbers a varint takes one byte, two, three, and so on."""
_NULL: Final = b"\x01"

_numbers: list[bytes] = []
"""The varints of the first numbers, at most `_MOST_NUMBERS`; never changed, but replaced."""


def encode_records(runs: Iterable[Run]) -> bytes:
    """Return records, numbered from 0."""
    pieces: list[bytes] = []
    first = 0
    for rows, time_ms in runs:
        end = first + len(rows)
        numbers = _varints_to(end)[first:end]
        time = b"\0" + encode_varint(time_ms)
        if set(map(len, rows)) == {2}:
            at = first
            for width, border in enumerate(_BORDERS, 1):
                if at < min(border, end):
                    part = slice(at - first, min(border, end) - first)
                    _append(pieces, rows[part], numbers[part], time, width)
                    at = min(border, end)
        else:
            for row, number in zip(rows, numbers, strict=True):
                body = b"".join((time, number, _sized(row[0]), _sized(row[1]), _headers(row)))
                pieces += (encode_varint(len(body)), body)
        first = end
    return b"".join(pieces)


def _append(
    pieces: list[bytes], rows: Sequence[tuple[Any, ...]], numbers: Sequence[bytes], time: bytes, width: int
) -> None:
    """Append records without headers, whose numbers take `width` bytes."""
    heads: dict[int, tuple[bytes, bytes]] = {}  # of values without a key, by size
    fixed = len(time) + width + 1  # the count of headers is one byte
    short = _varints_to(_MOST_SIZES)
    append = pieces.append
    for number, (key, value) in zip(numbers, rows, strict=True):
        if key is None and value is not None:
            size = len(value)
            found = heads.get(size)
            if found is None:
                if len(heads) >= _MOST_SIZES:
                    heads.clear()
                sized = _NULL + encode_varint(size)
                found = heads[size] = encode_varint(fixed + len(sized) + size) + time, sized
            pieces += (found[0], number, found[1], value, b"\0")
            continue
        content = b"" if value is None else value
        key_size, size = -1 if key is None else len(key), len(content)
        if key_size + size < _MOST_SIZES - 64:
            sized_key = _NULL if key is None else short[key_size] + key
            sized = _NULL if value is None else short[size]
            body = short[fixed + len(sized_key) + len(sized) + size]
        else:
            sized_key, sized = _sized(key), _NULL if value is None else encode_varint(size)
            body = encode_varint(fixed + len(sized_key) + len(sized) + size)
        append(b"%b%b%b%b%b%b\0" % (body, time, number, sized_key, sized, content))


def _headers(row: tuple[Any, ...]) -> bytes:
    headers = row[2] if len(row) > 2 else ()
    each = b"".join(_sized(name.encode()) + _sized(content) for name, content in headers)
    return encode_varint(len(headers)) + each


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else encode_varint(len(data)) + data


def _varints_to(count: int) -> Sequence[bytes]:
    """Return the varints of the numbers below a count, or more of them."""
    if count > _MOST_NUMBERS:
        return [encode_varint(number) for number in range(count)]
    global _numbers
    found = _numbers
    if len(found) < count:
        found = _numbers = [encode_varint(number) for number in range(min(2 * count, _MOST_NUMBERS))]
    return found
