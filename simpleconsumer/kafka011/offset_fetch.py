"""OffsetFetch: the offsets of a group in Kafka.

Source: OffsetFetchRequest.json, OffsetFetchResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import (
    encode_int32,
    encode_string,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    require_end,
)
from simpleconsumer.types import Buffer, OffsetAndMetadata

__all__ = ["decode_all_offsets", "decode_offset_fetch", "encode_offset_fetch"]

Committed = tuple[int, OffsetAndMetadata]

_ALL = b"\xff\xff\xff\xff"
_FIRST_WITH_GROUP_CODE = 2
_FIRST_WITH_THROTTLE_TIME = 3
_FIRST_WITH_EPOCH = 5


def encode_offset_fetch(group: str, partitions: Sequence[Partition] | None, version: int) -> bytes:
    """Return an offset fetch.

    Args:
        partitions: None for all of which the group has an offset; from version 2 on.

    Raises:
        ValueError: All of them in an older version.
    """
    if partitions is None:
        if version < _FIRST_WITH_GROUP_CODE:
            raise ValueError(f"OffsetFetch {version} names partitions, and has no word for all of them")
        return encode_string(group) + _ALL
    return encode_string(group) + by_topic((topic, encode_int32(number)) for topic, number in partitions)


def decode_offset_fetch(answer: Buffer, asked: Sequence[Partition], version: int) -> tuple[int, list[Committed]]:
    """Return the error code of the group, and code and offset of each partition, in the order asked.

    Nothing committed is offset -1 without an error. With an error of the group brokers name no partitions.
    """
    code, topics = _read(answer, version)
    if code and not topics:
        return code, []
    return code, in_order("offset fetch", topics, asked)


def decode_all_offsets(answer: Buffer, version: int) -> tuple[int, dict[Partition, Committed]]:
    """Return the error code of the group, and code and offset of each partition of the answer."""
    code, topics = _read(answer, version)
    return code, {(topic, number): found for topic, partitions in topics for number, found in partitions}


def _read(answer: Buffer, version: int) -> tuple[int, list[tuple[str, list[tuple[int, Committed]]]]]:
    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, Committed], int]:
        number, offset = read_int32(buffer, offset)
        committed, offset = read_int64(buffer, offset)
        epoch = -1
        if version >= _FIRST_WITH_EPOCH:
            epoch, offset = read_int32(buffer, offset)
        metadata, offset = read_nullable_string(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, (code, OffsetAndMetadata(committed, metadata or "", epoch))), offset

    start = read_int32(answer, 0)[1] if version >= _FIRST_WITH_THROTTLE_TIME else 0
    topics, end = read_topics(answer, start, read, 20 if version >= _FIRST_WITH_EPOCH else 16)
    code = 0
    if version >= _FIRST_WITH_GROUP_CODE:
        code, end = read_int16(answer, end)
    require_end(answer, end, "offset fetch response")
    return code, topics
