"""OffsetCommit: stores offsets of a group in Kafka, for a member of a generation, or for nobody.

Source: OffsetCommitRequest.json, OffsetCommitResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simpleconsumer.group_types import GenerationMember
from simpleconsumer.kafka011.group_members import encode_member
from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import (
    encode_int32,
    encode_int64,
    encode_nullable_string,
    read_int16,
    read_int32,
    require_end,
)
from simpleconsumer.types import Buffer, OffsetAndMetadata

__all__ = ["decode_offset_commit", "encode_offset_commit"]

_BROKER_RETENTION = -1
_FIRST_WITH_THROTTLE_TIME = 3
_FIRST_WITHOUT_RETENTION = 5
_FIRST_WITH_EPOCH = 6
_FIRST_WITH_INSTANCE_ID = 7


def encode_offset_commit(
    member: GenerationMember, offsets: Mapping[Partition, OffsetAndMetadata], version: int
) -> bytes:
    """Return an offset commit; the broker refuses one of a generation that is over.

    Args:
        member: Who commits; generation -1 and no member id for a commit of nobody, which groups with members refuse.
    """
    head = encode_member(member, has_instance_id=version >= _FIRST_WITH_INSTANCE_ID)
    if version < _FIRST_WITHOUT_RETENTION:
        head += encode_int64(_BROKER_RETENTION)

    def row(number: int, value: OffsetAndMetadata) -> bytes:
        epoch = encode_int32(value.leader_epoch) if version >= _FIRST_WITH_EPOCH else b""
        return encode_int32(number) + encode_int64(value.offset) + epoch + encode_nullable_string(value.metadata)

    return head + by_topic((topic, row(number, value)) for (topic, number), value in offsets.items())


def decode_offset_commit(answer: Buffer, asked: Sequence[Partition], version: int) -> list[int]:
    """Return the error code of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, int], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, code), offset

    start = read_int32(answer, 0)[1] if version >= _FIRST_WITH_THROTTLE_TIME else 0
    topics, end = read_topics(answer, start, read, 6)
    require_end(answer, end, "offset commit response")
    return in_order("offset commit", topics, asked)
