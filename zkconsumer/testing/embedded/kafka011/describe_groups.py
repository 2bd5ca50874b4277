"""DescribeGroups: state and members of groups; a group that is not known is "Dead".

Source: kafka.server.KafkaApis.handleDescribeGroupRequest, GroupCoordinator.handleDescribeGroup (0.9, 2.8),
DescribeGroupsResponse.json (4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages.api import Api
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.groups.codes import UNKNOWN_GROUP
from zkconsumer.testing.embedded.groups.values import GroupState
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.group_coordinator import Described, DescribedMember
from zkconsumer.testing.embedded.kafka011.habits import Habits
from zkconsumer.testing.embedded.kafka011.member_requests import refuse_all, throttled
from zkconsumer.testing.embedded.kafka011.writing import Encoding
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API", "DESCRIBE_GROUPS", "state_name"]

DESCRIBE_GROUPS: Final = Api(15, "DescribeGroups", (0,), 5)
_UNKNOWN: Final = Described(GroupState.DEAD, "", "", ())
_FIRST_WITH_OPERATIONS: Final = 3
_FIRST_WITH_INSTANCE: Final = 4
_FIRST_WITH_WORDS: Final = 6
_NOT_ASKED: Final = -(2**31)
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8
"""Read, delete and describe: nobody is refused anything here."""


class DescribeGroups(NamedTuple):
    """Groups, and whether it is asked what may be done with them."""

    groups: list[str]
    has_operations: bool


def state_name(state: GroupState, habits: Habits) -> str:
    """Return the name of a state as a version of Kafka has it."""
    return habits.completing if state is GroupState.COMPLETING else state.value


def _read(reader: Reader, version: int) -> DescribeGroups:
    groups = reader.nullable_array(reader.string) or []
    has_operations = version >= _FIRST_WITH_OPERATIONS and bool(reader.int8())
    reader.end()
    return DescribeGroups(groups, has_operations)


def _answer(asked: Asked[DescribeGroups]) -> list[Part]:
    encoding = asked.encoding(DESCRIBE_GROUPS)
    rows = [_group(asked, name, encoding) for name in asked.body.groups]
    return [throttled(asked) + encoding.array(rows) + encoding.end]


def _group(asked: Asked[DescribeGroups], name: str, encoding: Encoding) -> bytes:
    code, words, found, state = 0, None, _UNKNOWN, ""
    try:
        refuse_all(asked)
        found = asked.host.groups.described(name) or _UNKNOWN
        state = state_name(found.state, asked.host.habits)
        if found is _UNKNOWN and asked.version >= _FIRST_WITH_WORDS:
            code, words = UNKNOWN_GROUP, f"Group {name} not found."
    except Refusal as refusal:
        code = refusal.code
    row = pack(">h", code) + (encoding.string(words) if asked.version >= _FIRST_WITH_WORDS else b"")
    row += b"".join(encoding.string(text) for text in (name, state, found.protocol_type, found.protocol))
    row += encoding.array(_member(asked.version, each, encoding) for each in found.members)
    if asked.version >= _FIRST_WITH_OPERATIONS:
        row += pack(">i", _ALL_OPERATIONS if asked.body.has_operations and not code else _NOT_ASKED)
    return row + encoding.end


def _member(version: int, member: DescribedMember, encoding: Encoding) -> bytes:
    instance = encoding.string(member.instance_id) if version >= _FIRST_WITH_INSTANCE else b""
    texts = encoding.string(member.member_id) + instance + encoding.string(member.client_id)
    texts += encoding.string(member.host)
    return texts + encoding.sized(member.metadata) + encoding.sized(member.assignment) + encoding.end


API: Final = ServedApi(DESCRIBE_GROUPS, "describe_groups", range(7), _read, _answer)
