"""ListOffsets: ends of logs, and the first message at or after a time.

Source: ListOffsetsRequest.json, ListOffsetsResponse.json (4.3). Version 0 lists the starts of segments; the others
answer one offset for each partition, 2 and later can stop at open transactions, 4 and later carry leader epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import encode_int32, read_int16, read_int32, read_int64, require_end
from simpleconsumer.types import Buffer, LogEnd, OffsetAndTimestamp

__all__ = ["decode_list_offsets", "decode_log_ends", "encode_list_offsets"]

_CONSUMER = -1
_ANY_EPOCH = -1
_NOT_KNOWN = -1
_PARTITION = Struct(">iq")
_PARTITION_AND_EPOCH = Struct(">iiq")


def encode_list_offsets(times_ms: Mapping[Partition, int], version: int, *, read_committed: bool = False) -> bytes:
    """Return a request for an offset of each partition, of version 1 or later.

    Args:
        times_ms: Milliseconds since 1970, -1 for the end of the log, -2 for its start.
        read_committed: Take the first open transaction for the end, also of what has a time; from version 2 on.
    """

    def row(number: int, time_ms: int) -> bytes:
        if version >= 4:
            return _PARTITION_AND_EPOCH.pack(number, _ANY_EPOCH, time_ms)
        return _PARTITION.pack(number, time_ms)

    head = encode_int32(_CONSUMER) + (bytes([read_committed]) if version >= 2 else b"")
    return head + by_topic((topic, row(number, time_ms)) for (topic, number), time_ms in times_ms.items())


def decode_list_offsets(
    answer: Buffer, asked: Sequence[Partition], version: int
) -> list[tuple[int, OffsetAndTimestamp]]:
    """Return error code, and offset and timestamp, of each partition, in the order asked.

    No message at or after the time is offset -1 and timestamp -1, with code 0; an end has the timestamp -1.
    """
    rows = _decode(answer, asked, version)
    return [(code, OffsetAndTimestamp(offset, timestamp_ms, epoch)) for code, timestamp_ms, offset, epoch in rows]


def decode_log_ends(answer: Buffer, asked: Sequence[Partition], version: int) -> list[LogEnd]:
    """Return the end of each log, if that was asked for, in the order asked.

    Source: kafka.cluster.Partition.fetchOffsetForTimestamp (2.8): beside an end stands the leader's epoch of now.
    """
    return [LogEnd(code, offset, epoch) for code, _, offset, epoch in _decode(answer, asked, version)]


def _decode(answer: Buffer, asked: Sequence[Partition], version: int) -> list[tuple[int, int, int, int]]:
    """Return error code, timestamp, offset and epoch of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, tuple[int, int, int, int]], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        timestamp_ms, offset = read_int64(buffer, offset)
        found, offset = read_int64(buffer, offset)
        epoch = _NOT_KNOWN
        if version >= 4:
            epoch, offset = read_int32(buffer, offset)  # in which the message was written
        return (number, (code, timestamp_ms, found, epoch)), offset

    start = read_int32(answer, 0)[1] if version >= 2 else 0  # throttle time
    topics, end = read_topics(answer, start, read, 22 if version < 4 else 26)
    require_end(answer, end, "list offsets response")
    return in_order("list offsets", topics, asked)
