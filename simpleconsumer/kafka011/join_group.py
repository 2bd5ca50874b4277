"""JoinGroup: a member asks to be in the next generation of its group; the answer comes when all members have asked.

The leader, one of the members, gets the metadata of all of them, and assigns the partitions (`sync_group`).

Source: JoinGroupRequest.json, JoinGroupResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.group_types import CONSUMER_PROTOCOL, JoinedGroup, JoinedMember, JoiningMember
from simpleconsumer.primitives import (
    encode_array,
    encode_bytes,
    encode_int32,
    encode_nullable_string,
    encode_string,
    read_array,
    read_bytes,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_join_group", "encode_join_group"]

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_THROTTLE_TIME = 2
_FIRST_WITH_INSTANCE_ID = 5


def encode_join_group(
    member: JoiningMember, protocols: Sequence[tuple[str, bytes]], session_timeout_ms: int, rebalance_timeout_ms: int,
    version: int,
) -> bytes:  # fmt: skip
    """Return a request to join a group.

    Args:
        protocols: Name and metadata of each assignor, the one that is wanted first.
        session_timeout_ms: After which a member without heartbeats is out of the group.
        rebalance_timeout_ms: Longest wait for the members of a group that rebalances; from version 1 on. In version 0
            it is the session time-out.
    """
    parts = [encode_string(member.group), encode_int32(session_timeout_ms)]
    if version >= _FIRST_WITH_REBALANCE_TIMEOUT:
        parts.append(encode_int32(rebalance_timeout_ms))
    parts.append(encode_string(member.member_id))
    if version >= _FIRST_WITH_INSTANCE_ID:
        parts.append(encode_nullable_string(member.instance_id))
    parts.append(encode_string(CONSUMER_PROTOCOL))
    parts.append(encode_array([encode_string(name) + encode_bytes(metadata) for name, metadata in protocols]))
    return b"".join(parts)


def decode_join_group(answer: Buffer, version: int) -> JoinedGroup:
    """Return the answer to a request to join."""

    def read_member(buffer: Buffer, offset: int) -> tuple[JoinedMember, int]:
        member_id, offset = read_string(buffer, offset)
        instance_id = None
        if version >= _FIRST_WITH_INSTANCE_ID:
            instance_id, offset = read_nullable_string(buffer, offset)
        metadata, offset = read_bytes(buffer, offset)
        return JoinedMember(member_id, bytes(metadata), instance_id), offset

    offset = read_int32(answer, 0)[1] if version >= _FIRST_WITH_THROTTLE_TIME else 0
    code, offset = read_int16(answer, offset)
    generation, offset = read_int32(answer, offset)
    protocol, offset = read_string(answer, offset)
    leader, offset = read_string(answer, offset)
    member_id, offset = read_string(answer, offset)
    members, offset = read_array(answer, offset, read_member, 6)
    require_end(answer, offset, "join group response")
    return JoinedGroup(code, generation, protocol, leader, member_id, tuple(members))
