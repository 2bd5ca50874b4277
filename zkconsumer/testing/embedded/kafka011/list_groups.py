"""ListGroups: the groups that a broker coordinates, from version 4 on those in chosen states.

Source: kafka.server.KafkaApis.handleListGroupsRequest (0.9, 2.8), ListGroupsResponse.json (4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages.api import Api
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.describe_groups import state_name
from zkconsumer.testing.embedded.kafka011.group_coordinator import Listed
from zkconsumer.testing.embedded.kafka011.member_requests import refuse_all, throttled
from zkconsumer.testing.embedded.messages import NOT_COORDINATOR, Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API", "LIST_GROUPS"]

LIST_GROUPS: Final = Api(16, "ListGroups", (0,), 3)
_FIRST_WITH_STATES: Final = 4
_FIRST_WITH_TYPES: Final = 5
_TYPE: Final = "classic"


class ListGroups(NamedTuple):
    """States and types that are wanted; all without any."""

    states: list[str]
    types: list[str]


def _read(reader: Reader, version: int) -> ListGroups:
    states = (reader.nullable_array(reader.string) or []) if version >= _FIRST_WITH_STATES else []
    types = (reader.nullable_array(reader.string) or []) if version >= _FIRST_WITH_TYPES else []
    reader.end()
    return ListGroups(states, types)


def _answer(asked: Asked[ListGroups]) -> list[Part]:
    code, found, version = 0, [], asked.version
    try:
        refuse_all(asked)
        found = [each for each in asked.host.groups.listed() if _is_wanted(asked, each)]
    except Refusal as refusal:
        code = refusal.code if refusal.code != NOT_COORDINATOR else 0  # a broker lists what it has, if it is nothing
    encoding = asked.encoding(LIST_GROUPS)
    rows = []
    for each in found:
        row = encoding.string(each.name) + encoding.string(each.protocol_type)
        if version >= _FIRST_WITH_STATES:
            row += encoding.string(state_name(each.state, asked.host.habits))
        if version >= _FIRST_WITH_TYPES:
            row += encoding.string(_TYPE)
        rows.append(row + encoding.end)
    return [throttled(asked) + pack(">h", code) + encoding.array(rows) + encoding.end]


def _is_wanted(asked: Asked[ListGroups], group: Listed) -> bool:
    states, types = ([text.lower() for text in texts] for texts in asked.body)
    is_in_state = not states or state_name(group.state, asked.host.habits).lower() in states
    return is_in_state and (not types or _TYPE in types)


API: Final = ServedApi(LIST_GROUPS, "list_groups", range(6), _read, _answer)
