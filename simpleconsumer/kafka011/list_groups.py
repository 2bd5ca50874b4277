"""ListGroups: the groups that a broker coordinates; each broker lists its own.

Source: ListGroupsRequest.json, ListGroupsResponse.json (4.3); KIP-518, KIP-848.
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.described_groups import ListedGroup
from simpleconsumer.kafka011.apis import LIST_GROUPS
from simpleconsumer.kafka011.layout import CLASSIC, FLEXIBLE, encode_compact_array, encode_compact_string
from simpleconsumer.primitives import read_int16, read_int32, require_end
from simpleconsumer.types import Buffer

__all__ = ["FIRST_WITH_STATES", "decode_list_groups", "encode_list_groups"]

FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_ALL_TYPES = encode_compact_array([])


def encode_list_groups(states: Sequence[str], version: int) -> bytes:
    """Return a request for the groups of a broker.

    Args:
        states: Only groups in one of these states; from version 4 on. All groups without any.

    Raises:
        ValueError: States in an older version.
    """
    if version < FIRST_WITH_STATES:
        if states:
            raise ValueError(f"ListGroups {version} lists groups of all states, and states {list(states)} are given")
        return b""
    types = _ALL_TYPES if version >= _FIRST_WITH_TYPES else b""
    return encode_compact_array(map(encode_compact_string, states)) + types + b"\0"


def decode_list_groups(answer: Buffer, version: int) -> tuple[int, list[ListedGroup]]:
    """Return the error code and the groups."""
    layout = FLEXIBLE if version >= LIST_GROUPS.flexible_from else CLASSIC

    def read(buffer: Buffer, offset: int) -> tuple[ListedGroup, int]:
        group, offset = layout.read_string(buffer, offset)
        protocol_type, offset = layout.read_string(buffer, offset)
        state: str | None = None
        group_type: str | None = None
        if version >= FIRST_WITH_STATES:
            state, offset = layout.read_string(buffer, offset)
        if version >= _FIRST_WITH_TYPES:
            group_type, offset = layout.read_string(buffer, offset)
        found = ListedGroup(group, protocol_type, state, group_type and group_type.lower())
        return found, layout.end(buffer, offset)

    offset = layout.end(answer, 0)  # of the header
    if version >= 1:
        _, offset = read_int32(answer, offset)  # throttle time
    code, offset = read_int16(answer, offset)
    groups, offset = layout.read_array(answer, offset, read, 3)
    require_end(answer, layout.end(answer, offset), "list groups response")
    return code, groups
