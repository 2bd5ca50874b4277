"""Heartbeat: a member says that it is alive, and learns whether its group rebalances.

Source: HeartbeatRequest.json, HeartbeatResponse.json (4.3).
"""

from __future__ import annotations

from simpleconsumer.group_types import GenerationMember
from simpleconsumer.kafka011.group_members import FIRST_WITH_INSTANCE_ID, encode_member
from simpleconsumer.primitives import read_int16, read_int32, require_end
from simpleconsumer.types import Buffer

__all__ = ["decode_heartbeat", "encode_heartbeat"]


def encode_heartbeat(member: GenerationMember, version: int) -> bytes:
    """Return a heartbeat."""
    return encode_member(member, has_instance_id=version >= FIRST_WITH_INSTANCE_ID)


def decode_heartbeat(answer: Buffer, version: int) -> int:
    """Return the error code."""
    offset = read_int32(answer, 0)[1] if version >= 1 else 0  # throttle time
    code, offset = read_int16(answer, offset)
    require_end(answer, offset, "heartbeat response")
    return code
