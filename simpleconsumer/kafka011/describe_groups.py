"""DescribeGroups: states and members of groups of the classic protocol, asked of the broker that coordinates them.

Source: DescribeGroupsRequest.json, DescribeGroupsResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.described_groups import DescribedGroup, DescribedMember
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.apis import DESCRIBE_GROUPS
from simpleconsumer.kafka011.layout import (
    CLASSIC,
    FLEXIBLE,
    Layout,
    encode_compact_array,
    encode_compact_string,
    read_compact_bytes,
)
from simpleconsumer.primitives import (
    encode_array,
    encode_string,
    read_bytes,
    read_int16,
    read_int32,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_describe_groups", "encode_describe_groups"]

_FIRST_WITH_OPERATIONS = 3
_FIRST_WITH_INSTANCE_ID = 4
_FIRST_WITH_MESSAGE = 6
_WITHOUT_OPERATIONS = b"\0"


def encode_describe_groups(groups: Sequence[str], version: int) -> bytes:
    """Return a request for states and members of some groups."""
    if version >= DESCRIBE_GROUPS.flexible_from:
        return encode_compact_array(map(encode_compact_string, groups)) + _WITHOUT_OPERATIONS + b"\0"
    names = encode_array([encode_string(group) for group in groups])
    return names + (_WITHOUT_OPERATIONS if version >= _FIRST_WITH_OPERATIONS else b"")


def decode_describe_groups(answer: Buffer, groups: Sequence[str], version: int) -> list[DescribedGroup]:
    """Return what is said of each group, in the order asked."""
    reader = _GroupReader(FLEXIBLE if version >= DESCRIBE_GROUPS.flexible_from else CLASSIC, version)
    layout = reader.layout
    offset = layout.end(answer, 0)  # of the header
    if version >= 1:
        _, offset = read_int32(answer, offset)  # throttle time
    rows, offset = layout.read_array(answer, offset, reader, 7)
    require_end(answer, layout.end(answer, offset), "describe groups response")
    found = {row.group: row for row in rows}
    if len(rows) != len(groups) or found.keys() != set(groups):
        raise DecodeError(f"describe groups response: {len(rows)} results for {len(groups)} groups, or other ones")
    return [found[group] for group in groups]


class _GroupReader:
    """Reads one group with its members."""

    def __init__(self, layout: Layout, version: int) -> None:
        self.layout = layout
        self._version = version
        self._read_bytes = read_compact_bytes if layout is FLEXIBLE else read_bytes

    def __call__(self, buffer: Buffer, offset: int) -> tuple[DescribedGroup, int]:
        layout = self.layout
        code, offset = read_int16(buffer, offset)
        message: str | None = None
        if self._version >= _FIRST_WITH_MESSAGE:
            message, offset = layout.read_nullable_string(buffer, offset)
        group, offset = layout.read_string(buffer, offset)
        state, offset = layout.read_string(buffer, offset)
        protocol_type, offset = layout.read_string(buffer, offset)
        protocol, offset = layout.read_string(buffer, offset)
        members, offset = layout.read_array(buffer, offset, self._read_member, 6)
        if self._version >= _FIRST_WITH_OPERATIONS:
            _, offset = read_int32(buffer, offset)  # what the caller may do
        found = DescribedGroup(code, group, state, protocol_type, protocol, tuple(members), message)
        return found, layout.end(buffer, offset)

    def _read_member(self, buffer: Buffer, offset: int) -> tuple[DescribedMember, int]:
        layout = self.layout
        member_id, offset = layout.read_string(buffer, offset)
        instance_id: str | None = None
        if self._version >= _FIRST_WITH_INSTANCE_ID:
            instance_id, offset = layout.read_nullable_string(buffer, offset)
        client_id, offset = layout.read_string(buffer, offset)
        client_host, offset = layout.read_string(buffer, offset)
        metadata, offset = self._read_bytes(buffer, offset)
        assignment, offset = self._read_bytes(buffer, offset)
        found = DescribedMember(member_id, instance_id, client_id, client_host, bytes(metadata), bytes(assignment))
        return found, layout.end(buffer, offset)
