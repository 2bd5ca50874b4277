"""SyncGroup: the leader hands over the assignments of all members, and each member gets its own.

Source: SyncGroupRequest.json, SyncGroupResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping

from simpleconsumer.group_types import GenerationMember
from simpleconsumer.kafka011.group_members import FIRST_WITH_INSTANCE_ID, encode_member
from simpleconsumer.primitives import (
    encode_array,
    encode_bytes,
    encode_string,
    read_bytes,
    read_int16,
    read_int32,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_sync_group", "encode_sync_group"]


def encode_sync_group(member: GenerationMember, assignments: Mapping[str, bytes], version: int) -> bytes:
    """Return a request for the assignment of a member.

    Args:
        assignments: Member id -> its assignment, of the leader; empty of others.
    """
    head = encode_member(member, has_instance_id=version >= FIRST_WITH_INSTANCE_ID)
    rows = [encode_string(member_id) + encode_bytes(assigned) for member_id, assigned in assignments.items()]
    return head + encode_array(rows)


def decode_sync_group(answer: Buffer, version: int) -> tuple[int, bytes]:
    """Return error code and assignment."""
    offset = read_int32(answer, 0)[1] if version >= 1 else 0  # throttle time
    code, offset = read_int16(answer, offset)
    assigned, offset = read_bytes(answer, offset)
    require_end(answer, offset, "sync group response")
    return code, bytes(assigned)
