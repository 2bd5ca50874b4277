"""Reads one record of an open batch, exactly, and names its fault.

    varint   length of the rest
    int8     attributes, which mean nothing so far
    varlong  timestamp - base timestamp, perhaps negative
    varint   offset - base offset
    varint   length of the key, -1 for null; key
    varint   length of the value, -1 for null; value
    varint   number of headers; each: varint length, key in UTF-8; varint length, -1 for null; value

This is the slow path of rows and of columns, and the only one that reports errors.

Source: org.apache.kafka.common.record.DefaultRecord (1.1).

Varints of records: base 128, the lowest group first, and zigzag, so that small negative numbers are short too.

The lengths in flexible requests are other ones, without zigzag. Most varints of a record take one byte or two.

Source: org.apache.kafka.common.utils.ByteUtils (1.1).
"""

from __future__ import annotations

from copy import copy
from typing import Final, NamedTuple

from simpleconsumer.errors import CorruptMessage, DamagedOffset, DecodeError, MessageError, MessageTooLarge
from simpleconsumer.kafka011.batch_head import LOG_APPEND_TIME, BatchHead
from simpleconsumer.messages.schema import encode_uvarint
from simpleconsumer.types import MAX_INT64, Buffer, Headers

_MOST_BYTES_32: Final = 5
_MOST_BYTES_64: Final = 10


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the number of at most 32 bits at a position, and the position after it.

    Raises:
        DecodeError: It is longer, or does not fit into 32 bits.
        IndexError: It ends after the end of the data.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(data, position, _MOST_BYTES_32, 32)


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Return the number of at most 64 bits at a position, and the position after it; raises as `read_varint` does."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(data, position, _MOST_BYTES_64, 64)


def _read_long(data: Buffer, position: int, most_bytes: int, bits: int) -> tuple[int, int]:
    number = shift = 0
    for at in range(position, position + most_bytes):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                raise DecodeError(f"the varint at byte {position} does not fit into {bits} bits")
            return (number >> 1) ^ -(number & 1), at + 1
        shift += 7
    raise DecodeError(f"the varint at byte {position} is longer than {most_bytes} bytes")


def encode_varint(number: int) -> bytes:
    """Return a number of at most 64 bits as a varint."""
    rest = (number << 1) ^ (number >> 63)
    return _SHORT[rest] if 0 <= rest < 0x80 else encode_uvarint(rest)


_SHORT: Final = tuple(bytes((byte,)) for byte in range(0x80))


NO_TIMESTAMP: Final = -1
SMALLEST_RECORD: Final = 7
"""Bytes of a record without anything: length, attributes, two differences, two lengths and the number of headers."""
_MIN_INT64: Final = -(2**63)
_SMALLEST_HEADER: Final = 2
_BYTES_A_HEADER: Final = 16
"""A header takes up to a hundred bytes of memory and two of a batch. With fewer of them for each byte that a batch may
inflate to, memory stays within some times these bytes; headers that say something take more bytes than this."""
_FEWEST_HEADERS: Final = 10_000
"""So many are possible in any batch, also where it may hardly inflate."""


class OpenBatch:
    """A batch whose records are being read.

    Attributes:
        data: The bytes of the records: the set itself, or their inflated form.
        is_inflated: Whether they were compressed.
        position: Where the next record starts.
        end: Where the last one ends.
        base: Base offset.
        floor: Least difference to the base offset that the next record can have.
        last_delta: The largest one.
        count: How many records the batch says it has.
        index: How many of them are read.
        headers_left: How many headers may follow, in all records together.
        base_time: Base timestamp.
        append_time: Timestamp of all records, for log append time; else None.
        leader_epoch: Of the leader that has appended it; -1 if it is not known.
    """

    __slots__ = (
        "append_time",
        "base",
        "base_time",
        "count",
        "data",
        "end",
        "floor",
        "headers_left",
        "index",
        "is_inflated",
        "last_delta",
        "leader_epoch",
        "position",
    )

    def __init__(
        self,
        head: BatchHead,
        data: Buffer,
        position: int,
        end: int,
        *,
        is_inflated: bool,
        headers_left: int,
    ) -> None:
        self.data = data
        self.is_inflated = is_inflated
        self.position = position
        self.end = end
        self.base = head.base_offset
        self.floor = 0
        self.last_delta = head.last_delta
        self.count = head.records
        self.index = 0
        self.headers_left = headers_left
        self.base_time = head.base_timestamp_ms
        self.append_time = head.max_timestamp_ms if head.attributes & LOG_APPEND_TIME else None
        self.leader_epoch = head.leader_epoch

    @property
    def last_offset(self) -> int:
        """The last offset that the batch takes."""
        return self.base + self.last_delta

    def within(self, buffer: Buffer) -> OpenBatch:
        """Return a copy whose records, unless they were compressed, are those of that buffer."""
        other = copy(self)
        if not self.is_inflated:
            other.data = buffer
        return other


class Record(NamedTuple):
    """One record, with its offset and time computed; the time is None for none."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordFault(Exception):  # noqa: N818 - not an error yet: the caller adds the place and `resume`
    """One record is wrong, or the rest of a batch; the batch then continues after it."""

    def __init__(self, kind: type[MessageError], offset: int, reason: str) -> None:
        self.kind = kind
        self.offset = offset
        self.reason = reason


def most_headers(max_decoded_bytes: int) -> int:
    """Return how many headers the records of a batch may have together."""
    return max(max_decoded_bytes // _BYTES_A_HEADER, _FEWEST_HEADERS)


def read_record(batch: OpenBatch) -> Record | None:
    """Return the next record of a batch, and move the batch past it; None at its end.

    Raises:
        RecordFault: The record is wrong, or the rest of the batch.
    """
    if batch.index == batch.count or batch.position >= batch.end:
        _check_end(batch)
        return None
    data, start = batch.data, batch.position
    try:
        size, position = read_varint(data, start)
    except (DecodeError, IndexError) as error:
        raise _rest_is_lost(batch, f"the length of record {batch.index} cannot be read") from error
    end = position + size
    if size < SMALLEST_RECORD - 1 or end > batch.end:
        left = batch.end - position
        raise _rest_is_lost(batch, f"record {batch.index} has the length {size}, {left} bytes are left")
    batch.position = end
    batch.index += 1
    try:
        return _read_fields(batch, position + 1, end)
    except (DecodeError, IndexError) as error:
        raise _is_corrupt(batch, str(error) if isinstance(error, DecodeError) else "it breaks off") from error


def _read_fields(batch: OpenBatch, position: int, end: int) -> Record:
    """Return a record, read from the byte after its attributes; raises DecodeError, IndexError or RecordFault."""
    data = batch.data
    stamp, position = read_varlong(data, position)
    delta, position = read_varint(data, position)
    if not batch.floor <= delta <= batch.last_delta:
        raise _is_out_of_order(batch, delta)
    key, position = _read_bytes(data, position, end, "key")
    value, position = _read_bytes(data, position, end, "value")
    headers, position = _read_headers(batch, position, end)
    if position != end:
        raise DecodeError(f"it takes {position - end:+} bytes more than its length says")
    timestamp_ms: int | None = batch.append_time if batch.append_time is not None else batch.base_time + stamp
    if timestamp_ms is None or not _MIN_INT64 <= timestamp_ms <= MAX_INT64:
        raise DecodeError(f"the timestamp {timestamp_ms} does not fit into 64 bits")
    batch.floor = delta + 1
    return Record(batch.base + delta, None if timestamp_ms == NO_TIMESTAMP else timestamp_ms, key, value, headers)


def _read_bytes(data: Buffer, position: int, end: int, what: str) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    field_end = position + length
    if length < 0 or field_end > end:
        raise DecodeError(f"a {what} of {length} bytes, {end - position} are left")
    return bytes(data[position:field_end]), field_end


def _read_headers(batch: OpenBatch, position: int, end: int) -> tuple[Headers, int]:
    data = batch.data
    count, position = read_varint(data, position)
    if not count:
        return (), position
    if not 0 <= count * _SMALLEST_HEADER <= end - position:
        raise DecodeError(f"{count} headers, {end - position} bytes are left")
    if count > batch.headers_left:
        raise _has_too_many(batch, count)
    batch.headers_left -= count
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end, "header's key")
        if key is None:
            raise DecodeError("a header without a key")
        value, position = _read_bytes(data, position, end, "header's value")
        headers.append((str(key, "utf-8", "replace"), value))  # as Java reads them
    return tuple(headers), position


def _check_end(batch: OpenBatch) -> None:
    """Check that the records and their number agree."""
    left = batch.end - batch.position
    if batch.index == batch.count and not left:
        return
    what = f"{left} bytes after its last record" if batch.index == batch.count else f"{batch.index} records"
    raise _rest_is_lost(batch, f"the batch holds {what}; it says that it has {batch.count} records")


def _rest_is_lost(batch: OpenBatch, reason: str) -> RecordFault:
    """Return the fault of a batch in which the next record cannot be found; nothing more of it is read."""
    first = batch.base + batch.floor
    batch.position, batch.index, batch.floor = batch.end, batch.count, batch.last_delta + 1
    return RecordFault(CorruptMessage, batch.last_offset, with_lost_offsets(reason, first, batch.last_offset))


def with_lost_offsets(reason: str, first: int, last: int) -> str:
    """Return the reason of an error with all offsets that cannot be read; the error itself names the last one alone."""
    return f"{reason}; offsets {first} to {last} cannot be read" if first < last else reason


def _is_corrupt(batch: OpenBatch, reason: str) -> RecordFault:
    """Return the fault of one record; the following ones can be read."""
    delta = min(batch.floor, batch.last_delta)
    batch.floor = delta + 1
    return RecordFault(CorruptMessage, batch.base + delta, f"record {batch.index - 1} of the batch: {reason}")


def _has_too_many(batch: OpenBatch, count: int) -> RecordFault:
    """Return the fault of a record whose headers would take much more memory than their batch."""
    left = f"{batch.headers_left} more may be in its batch (decoded.max.bytes)"
    fault = _is_corrupt(batch, f"{count} headers, and {left}")
    fault.kind = MessageTooLarge
    return fault


def _is_out_of_order(batch: OpenBatch, delta: int) -> RecordFault:
    """Return the fault of a record whose offset does not fit the batch; it stands for the next free one."""
    free = batch.base + min(batch.floor, batch.last_delta)
    if delta > batch.last_delta:
        reason = f"offset {batch.base + delta} is above {batch.last_offset}, the last offset of its batch"
    else:
        reason = f"offset {batch.base + delta} is not above {batch.base + batch.floor - 1}, the offset before"
    return RecordFault(DamagedOffset, free, reason)
