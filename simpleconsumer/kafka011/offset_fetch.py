"""OffsetFetch: the offsets of a group in Kafka.

From version 7 on (Kafka 2.5) a consumer asks for stable offsets, as Java's does. While a transaction is about to commit
an offset, the answer is error 88: who went on from the one before would process again what the transaction has done.
Coordinators of Kafka 4 answer from their newest state then; else, just after they have been elected, from an older one.

Source: OffsetFetchRequest.json, OffsetFetchResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.kafka011.layout import (
    CLASSIC,
    FLEXIBLE,
    encode_compact_array,
    encode_compact_string,
)
from simpleconsumer.partition_rows import Partition, by_topic, in_order
from simpleconsumer.primitives import (
    encode_int32,
    encode_string,
    read_int16,
    read_int32,
    read_int64,
    require_end,
)
from simpleconsumer.types import Buffer, OffsetAndMetadata

__all__ = ["decode_all_offsets", "decode_offset_fetch", "encode_offset_fetch"]

Committed = tuple[int, OffsetAndMetadata]

_ALL = b"\xff\xff\xff\xff"
_FIRST_WITH_GROUP_CODE = 2
_FIRST_WITH_THROTTLE_TIME = 3
_FIRST_WITH_EPOCH = 5
_FIRST_FLEXIBLE = 6
_FIRST_WITH_STABLE = 7
_NULL_ARRAY = b"\0"
_SMALLEST_TOPIC = {CLASSIC: 6, FLEXIBLE: 3}
"""Bytes of a topic without a name and partitions."""


def encode_offset_fetch(group: str, partitions: Sequence[Partition] | None, version: int) -> bytes:
    """Return an offset fetch.

    Args:
        partitions: None for all of which the group has an offset, as they are now, stable or not; from version 2 on.

    Raises:
        ValueError: All of them in an older version.
    """
    if partitions is None and version < _FIRST_WITH_GROUP_CODE:
        raise ValueError(f"OffsetFetch {version} names partitions, and has no word for all of them")
    if version >= _FIRST_FLEXIBLE:
        return _encode_flexible(group, partitions, version)
    if partitions is None:
        return encode_string(group) + _ALL
    return encode_string(group) + by_topic((topic, encode_int32(number)) for topic, number in partitions)


def _encode_flexible(group: str, partitions: Sequence[Partition] | None, version: int) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, []).append(encode_int32(number))
    rows = encode_compact_array(
        encode_compact_string(topic) + encode_compact_array(numbers) + b"\0" for topic, numbers in topics.items()
    )
    wants_stable = b"" if version < _FIRST_WITH_STABLE else b"\0" if partitions is None else b"\1"
    return encode_compact_string(group) + (_NULL_ARRAY if partitions is None else rows) + wants_stable + b"\0"


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
    layout = FLEXIBLE if version >= _FIRST_FLEXIBLE else CLASSIC

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, Committed], int]:
        number, offset = read_int32(buffer, offset)
        committed, offset = read_int64(buffer, offset)
        epoch = -1
        if version >= _FIRST_WITH_EPOCH:
            epoch, offset = read_int32(buffer, offset)
        metadata, offset = layout.read_nullable_string(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, (code, OffsetAndMetadata(committed, metadata or "", epoch))), layout.end(buffer, offset)

    def read_topic(buffer: Buffer, offset: int) -> tuple[tuple[str, list[tuple[int, Committed]]], int]:
        topic, offset = layout.read_string(buffer, offset)
        partitions, offset = layout.read_array(buffer, offset, read, 20 if version >= _FIRST_WITH_EPOCH else 16)
        return (topic, partitions), layout.end(buffer, offset)

    start = FLEXIBLE.end(answer, 0) if layout is FLEXIBLE else 0  # of the header
    if version >= _FIRST_WITH_THROTTLE_TIME:
        start = read_int32(answer, start)[1]
    topics, end = layout.read_array(answer, start, read_topic, _SMALLEST_TOPIC[layout])
    code = 0
    if version >= _FIRST_WITH_GROUP_CODE:
        code, end = read_int16(answer, end)
    require_end(answer, layout.end(answer, end), "offset fetch response")
    return code, topics
