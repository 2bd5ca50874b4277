"""OffsetForLeaderEpoch: where an epoch of a partition's leader ends, which shows what was truncated.

Source: OffsetForLeaderEpochRequest.json, OffsetForLeaderEpochResponse.json (4.3). Up to version 2 a broker with access
lists answers brokers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import encode_int32, read_int16, read_int32, read_int64, require_end
from simpleconsumer.types import Buffer, EpochEnd

__all__ = ["decode_offset_for_leader_epoch", "encode_offset_for_leader_epoch"]

_CONSUMER = -1
_PARTITION = Struct(">ii")
_PARTITION_2 = Struct(">iii")


def encode_offset_for_leader_epoch(epochs: Mapping[Partition, tuple[int, int]], version: int) -> bytes:
    """Return a request for the ends of epochs.

    Args:
        epochs: Partition -> the epoch that is asked for, and the epoch of now as far as it is known (-1: not known),
            which a broker compares with its own from version 2 on.
    """

    def row(number: int, epoch: int, current_epoch: int) -> bytes:
        return _PARTITION.pack(number, epoch) if version < 2 else _PARTITION_2.pack(number, current_epoch, epoch)

    head = encode_int32(_CONSUMER) if version >= 3 else b""
    return head + by_topic((topic, row(number, *wanted)) for (topic, number), wanted in epochs.items())


def decode_offset_for_leader_epoch(answer: Buffer, asked: Sequence[Partition], version: int) -> list[EpochEnd]:
    """Return where the epoch of each partition ends, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, EpochEnd], int]:
        code, offset = read_int16(buffer, offset)
        number, offset = read_int32(buffer, offset)
        epoch = -1
        if version >= 1:
            epoch, offset = read_int32(buffer, offset)
        end_offset, offset = read_int64(buffer, offset)
        return (number, EpochEnd(code, epoch, end_offset)), offset

    start = read_int32(answer, 0)[1] if version >= 2 else 0  # throttle time
    topics, end = read_topics(answer, start, read, 14 if version < 1 else 18)
    require_end(answer, end, "offset for leader epoch response")
    return in_order("offset for leader epoch", topics, asked)
