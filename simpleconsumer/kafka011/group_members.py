"""How a member of a generation names itself in its requests."""

from __future__ import annotations

from typing import Final

from simpleconsumer.group_types import GenerationMember
from simpleconsumer.primitives import encode_int32, encode_nullable_string, encode_string

__all__ = ["FIRST_WITH_INSTANCE_ID", "encode_member"]

FIRST_WITH_INSTANCE_ID: Final = 3
"""Heartbeat and SyncGroup name static members from this version on."""


def encode_member(member: GenerationMember, *, has_instance_id: bool) -> bytes:
    """Return the member, as Heartbeat, SyncGroup and OffsetCommit begin."""
    head = encode_string(member.group) + encode_int32(member.generation) + encode_string(member.member_id)
    return head + (encode_nullable_string(member.instance_id) if has_instance_id else b"")
