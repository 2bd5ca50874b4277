"""JoinGroup: a member wants to be in the next generation of its group; the answer comes when all members have joined.

Source: kafka.server.KafkaApis.handleJoinGroupRequest, JoinGroupRequest.json, JoinGroupResponse.json (0.9, 2.8, 4.3).
"""

from __future__ import annotations

from dataclasses import replace
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.groups.values import Join, Joined
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.member_requests import refuse_all, throttled
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_FIRST_WITH_REBALANCE: Final = 1
_FIRST_WITH_THROTTLE: Final = 2
_FIRST_THAT_NAMES_MEMBERS: Final = 4
_FIRST_WITH_INSTANCE: Final = 5
_FIRST_WITH_TYPE: Final = 7
_FIRST_WITH_REASON: Final = 8
_FIRST_WITH_SKIP: Final = 9
_S: Final = 1000


class JoinGroup(NamedTuple):
    """Group, and who joins it."""

    group: str
    join: Join


def _read(reader: Reader, version: int) -> JoinGroup:
    def protocol() -> tuple[str, bytes]:
        found = reader.string(), bytes(reader.sized())
        reader.end()
        return found

    group, session_ms = reader.string(), reader.int32()
    rebalance_ms = reader.int32() if version >= _FIRST_WITH_REBALANCE else session_ms
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _FIRST_WITH_INSTANCE else None
    protocol_type, protocols = reader.string(), dict(reader.nullable_array(protocol) or ())
    if version >= _FIRST_WITH_REASON:
        reader.nullable_string()
    reader.end()
    return JoinGroup(group, Join(
        member_id, protocols, session_ms / _S, rebalance_ms / _S, instance_id,
        names_members_first=version >= _FIRST_THAT_NAMES_MEMBERS, protocol_type=protocol_type,
        leads_again=version >= _FIRST_WITH_SKIP,
    ))  # fmt: skip


def _answer(asked: Asked[JoinGroup]) -> list[Part]:
    group, join = asked.body
    try:
        refuse_all(asked)
        joined = asked.host.groups.join(group, replace(join, client_id=asked.client_id))
    except Refusal as refusal:
        joined = Joined(refusal.code, member_id=join.member_id)
    if joined.code and asked.host.habits.is_before_2:
        joined = joined._replace(generation=0)
    return [_encode(asked, join.protocol_type, joined)]


def _encode(asked: Asked[JoinGroup], protocol_type: str, joined: Joined) -> bytes:
    version, encoding = asked.version, asked.encoding(apis.JOIN_GROUP)
    head = throttled(asked, _FIRST_WITH_THROTTLE) + pack(">hi", joined.code, joined.generation)
    if version >= _FIRST_WITH_TYPE:
        head += encoding.string(None if joined.code else protocol_type)
        head += encoding.string(None if joined.code else joined.protocol)
    else:
        head += encoding.string(joined.protocol)
    head += encoding.string(joined.leader)
    if version >= _FIRST_WITH_SKIP:
        head += pack(">b", joined.skips_assignment)
    has_instance = version >= _FIRST_WITH_INSTANCE
    members = encoding.array(
        encoding.string(each.member_id) + (encoding.string(each.instance_id) if has_instance else b"")
        + encoding.sized(each.metadata) + encoding.end
        for each in joined.members
    )  # fmt: skip
    return head + encoding.string(joined.member_id) + members + encoding.end


API: Final = ServedApi(apis.JOIN_GROUP, "join_group", range(10), _read, _answer)
