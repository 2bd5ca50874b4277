"""OffsetDelete: deletes offsets that a group has in Kafka, of topics that no member of it subscribes to.

Source: OffsetDeleteRequest.json, OffsetDeleteResponse.json (4.3); KIP-496.
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import encode_int32, encode_string, read_int16, read_int32, require_end
from simpleconsumer.types import Buffer

__all__ = ["decode_offset_delete", "encode_offset_delete"]


def encode_offset_delete(group: str, partitions: Sequence[Partition]) -> bytes:
    """Return a request that deletes offsets of a group."""
    return encode_string(group) + by_topic((topic, encode_int32(number)) for topic, number in partitions)


def decode_offset_delete(answer: Buffer, asked: Sequence[Partition]) -> list[int]:
    """Return the error code of each partition, in the order asked; an error of the group is that of each of them."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, int], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, code), offset

    code, offset = read_int16(answer, 0)
    _, offset = read_int32(answer, offset)  # throttle time
    topics, offset = read_topics(answer, offset, read, 6)
    require_end(answer, offset, "offset delete response")
    if code:
        return [code] * len(asked)
    return in_order("offset delete", topics, asked)
