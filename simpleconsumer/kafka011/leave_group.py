"""LeaveGroup: a member leaves its group, whose partitions others get at once; a tool removes members from version 3 on.

Source: LeaveGroupRequest.json, LeaveGroupResponse.json (4.3).
"""

from __future__ import annotations

from simpleconsumer.group_types import LeavingMember
from simpleconsumer.primitives import (
    encode_array,
    encode_nullable_string,
    encode_string,
    read_array,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_leave_group", "encode_leave_group"]

_FIRST_WITH_SEVERAL = 3


def encode_leave_group(group: str, member: LeavingMember, version: int) -> bytes:
    """Return a request that removes a member from its group."""
    if version < _FIRST_WITH_SEVERAL:
        return encode_string(group) + encode_string(member.member_id)
    row = encode_string(member.member_id) + encode_nullable_string(member.instance_id)
    return encode_string(group) + encode_array([row])


def decode_leave_group(answer: Buffer, version: int) -> int:
    """Return the error code: of the group, or else of the member."""

    def read_member(buffer: Buffer, offset: int) -> tuple[int, int]:
        _, offset = read_string(buffer, offset)
        _, offset = read_nullable_string(buffer, offset)
        return read_int16(buffer, offset)

    offset = read_int32(answer, 0)[1] if version >= 1 else 0  # throttle time
    code, offset = read_int16(answer, offset)
    codes: list[int] = []
    if version >= _FIRST_WITH_SEVERAL:
        codes, offset = read_array(answer, offset, read_member, 6)
    require_end(answer, offset, "leave group response")
    return code or next((each for each in codes if each), 0)
