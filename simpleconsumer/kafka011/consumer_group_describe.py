"""ConsumerGroupDescribe: states and members of groups of the protocol of KIP-848, asked of their coordinator.

Source: ConsumerGroupDescribeRequest.json, ConsumerGroupDescribeResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.described_groups import DescribedConsumer, DescribedConsumerGroup
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.layout import FLEXIBLE, encode_compact_array, encode_compact_string, read_uuid
from simpleconsumer.primitives import read_int8, read_int16, read_int32, require_end
from simpleconsumer.types import Buffer, TopicPartition

__all__ = ["decode_consumer_group_describe", "encode_consumer_group_describe"]

_WITHOUT_OPERATIONS = b"\0"
_IS_CLASSIC = {0: True, 1: False}
_SMALLEST_GROUP = 18  # three numbers of 4 bytes, the error code, four lengths
_SMALLEST_MEMBER = 13  # epoch, eight lengths and the ends of structs
_SMALLEST_TOPIC = 19  # topic id, two lengths, end


def encode_consumer_group_describe(groups: Sequence[str]) -> bytes:
    """Return a request for states and members of some groups, the same in every version."""
    return encode_compact_array(map(encode_compact_string, groups)) + _WITHOUT_OPERATIONS + b"\0"


def decode_consumer_group_describe(
    answer: Buffer, groups: Sequence[str], version: int
) -> list[DescribedConsumerGroup]:
    """Return what is said of each group, in the order asked."""

    def read_group(buffer: Buffer, offset: int) -> tuple[DescribedConsumerGroup, int]:
        return _read_group(buffer, offset, version)

    offset = FLEXIBLE.end(answer, 0)  # of the header
    _, offset = read_int32(answer, offset)  # throttle time
    rows, offset = FLEXIBLE.read_array(answer, offset, read_group, _SMALLEST_GROUP)
    require_end(answer, FLEXIBLE.end(answer, offset), "consumer group describe response")
    found = {row.group: row for row in rows}
    if len(rows) != len(groups) or found.keys() != set(groups):
        raise DecodeError(
            f"consumer group describe response: {len(rows)} results for {len(groups)} groups, or other ones"
        )
    return [found[group] for group in groups]


def _read_group(buffer: Buffer, offset: int, version: int) -> tuple[DescribedConsumerGroup, int]:
    code, offset = read_int16(buffer, offset)
    message, offset = FLEXIBLE.read_nullable_string(buffer, offset)
    group, offset = FLEXIBLE.read_string(buffer, offset)
    state, offset = FLEXIBLE.read_string(buffer, offset)
    epoch, offset = read_int32(buffer, offset)
    assignment_epoch, offset = read_int32(buffer, offset)
    assignor, offset = FLEXIBLE.read_string(buffer, offset)
    members, offset = FLEXIBLE.read_array(
        buffer, offset, lambda data, at: _read_member(data, at, version), _SMALLEST_MEMBER
    )
    _, offset = read_int32(buffer, offset)  # what the caller may do
    found = DescribedConsumerGroup(code, group, state, epoch, assignment_epoch, assignor, tuple(members), message)
    return found, FLEXIBLE.end(buffer, offset)


def _read_member(buffer: Buffer, offset: int, version: int) -> tuple[DescribedConsumer, int]:
    member_id, offset = FLEXIBLE.read_string(buffer, offset)
    instance_id, offset = FLEXIBLE.read_nullable_string(buffer, offset)
    rack, offset = FLEXIBLE.read_nullable_string(buffer, offset)
    epoch, offset = read_int32(buffer, offset)
    client_id, offset = FLEXIBLE.read_string(buffer, offset)
    client_host, offset = FLEXIBLE.read_string(buffer, offset)
    topics, offset = FLEXIBLE.read_array(buffer, offset, FLEXIBLE.read_string, 1)
    regex, offset = FLEXIBLE.read_nullable_string(buffer, offset)
    assigned, offset = _read_assignment(buffer, offset)
    target, offset = _read_assignment(buffer, offset)
    kind = -1
    if version >= 1:
        kind, offset = read_int8(buffer, offset)
    found = DescribedConsumer(
        member_id, instance_id, rack, epoch, client_id, client_host, tuple(topics), regex, assigned, target,
        _IS_CLASSIC.get(kind),
    )  # fmt: skip
    return found, FLEXIBLE.end(buffer, offset)


def _read_assignment(buffer: Buffer, offset: int) -> tuple[tuple[TopicPartition, ...], int]:
    topics, offset = FLEXIBLE.read_array(buffer, offset, _read_topic, _SMALLEST_TOPIC)
    return tuple(each for topic in topics for each in topic), FLEXIBLE.end(buffer, offset)


def _read_topic(buffer: Buffer, offset: int) -> tuple[list[TopicPartition], int]:
    _, offset = read_uuid(buffer, offset)
    topic, offset = FLEXIBLE.read_string(buffer, offset)
    numbers, offset = FLEXIBLE.read_array(buffer, offset, read_int32, 4)
    return [TopicPartition(topic, number) for number in numbers], FLEXIBLE.end(buffer, offset)
