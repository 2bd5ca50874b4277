"""The requests about groups: FindCoordinator, ListGroups, DescribeGroups and DeleteGroups.

All groups, and all transactional ids, have one coordinator each. A group that is not known is "Dead".

Source: kafka.server.KafkaApis.handleFindCoordinatorRequest, handleListGroupsRequest, handleDescribeGroupRequest,
handleDeleteGroupsRequest (0.9, 2.8); the schemas of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.groups.values import GroupState
from zkconsumer.testing.embedded.internal_topics import TRANSACTIONS_TOPIC, coordinator_by
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse_all
from zkconsumer.testing.embedded.kafka011.groups.group_coordinator import Described, Listed
from zkconsumer.testing.embedded.kafka011.habits import Habits
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer_error import ErrorCode

# -- FindCoordinator ---------------------------------------------------------------------------------------------------


_GROUP: Final = 0
_TOPICS: Final = {_GROUP: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_WORDS: Final = {0: "NONE", ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available."}
_FIRST_OF_SEVERAL: Final = 4


class FindCoordinator(NamedTuple):
    """Names and their kind: 0 groups, 1 transactional ids."""

    names: list[str]
    kind: int


def _read_find(values: Values, version: int) -> FindCoordinator:
    names = values["keys"] if version >= _FIRST_OF_SEVERAL else [values["key"]]
    return FindCoordinator(names, values.get("key_type", _GROUP))


def _answer_find(asked: Asked[FindCoordinator]) -> Values:
    code = asked.errors.get(("", -1), 0)
    topic = _TOPICS.get(asked.body.kind)
    found = None if code or topic is None else coordinator_by(asked.host.cluster, topic)
    if found is None:
        code = code or (ErrorCode.INVALID_REQUEST if topic is None else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found = BrokerAddress(-1, "", -1)
    words = _WORDS.get(code, f"error {code}") if code or not asked.host.habits.is_before_2 else None
    row = {"error_code": code, "node_id": found.broker_id, "host": found.host, "port": found.port}
    if asked.version < _FIRST_OF_SEVERAL:
        return {**row, "error_message": words}
    # A name that is found has no words in these versions.
    said = words if code else ""
    return {"coordinators": [{"key": name, "error_message": said, **row} for name in asked.body.names]}


FIND_COORDINATOR: Final = ServedApi(
    apis.FIND_COORDINATOR, "consumer_metadata", range(7), _read_find, _answer_find
)


# -- ListGroups: the groups of a broker, from version 4 on those in chosen states --------------------------------------


_TYPE: Final = "classic"


class ListGroups(NamedTuple):
    """States and types that are wanted; all without any."""

    states: list[str]
    types: list[str]


def _read_list(values: Values, version: int) -> ListGroups:
    return ListGroups(values.get("states_filter", []), values.get("types_filter", []))


def _answer_list(asked: Asked[ListGroups]) -> Values:
    code, listed = 0, []
    try:
        refuse_all(asked)
        listed = [each for each in asked.host.groups.listed() if _is_wanted(asked, each)]
    except Refusal as refusal:
        code = (
            refusal.code if refusal.code != ErrorCode.NOT_COORDINATOR else 0
        )  # a broker lists what it has, if it is nothing
    return {"error_code": code, "groups": [
        {"group_id": each.name, "protocol_type": each.protocol_type,
         "group_state": _state_name(each.state, asked.host.habits), "group_type": _TYPE}
        for each in listed
    ]}  # fmt: skip


def _is_wanted(asked: Asked[ListGroups], group: Listed) -> bool:
    states, types = ([text.lower() for text in texts] for texts in asked.body)
    is_in_state = not states or _state_name(group.state, asked.host.habits).lower() in states
    return is_in_state and (not types or _TYPE in types)


def _state_name(state: GroupState, habits: Habits) -> str:
    """Return the name of a state as a version of Kafka has it."""
    return habits.completing if state is GroupState.COMPLETING else state.value


LIST_GROUPS: Final = ServedApi(apis.LIST_GROUPS, "list_groups", range(6), _read_list, _answer_list)


# -- DescribeGroups ----------------------------------------------------------------------------------------------------


_UNKNOWN: Final = Described(GroupState.DEAD, "", "", ())
_FIRST_WITH_WORDS: Final = 6
_NOT_ASKED: Final = -(2**31)
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8
"""Read, delete and describe: nobody is refused anything here."""


class DescribeGroups(NamedTuple):
    """Groups, and whether it is asked what may be done with them."""

    groups: list[str]
    has_operations: bool


def _read_describe(values: Values, version: int) -> DescribeGroups:
    return DescribeGroups(values["groups"], values.get("include_authorized_operations", False))


def _answer_describe(asked: Asked[DescribeGroups]) -> Values:
    return {"groups": [_described(asked, name) for name in asked.body.groups]}


def _described(asked: Asked[DescribeGroups], name: str) -> Values:
    code, words, found, state = 0, None, _UNKNOWN, ""
    try:
        refuse_all(asked)
        found = asked.host.groups.described(name) or _UNKNOWN
        state = _state_name(found.state, asked.host.habits)
        if found is _UNKNOWN and asked.version >= _FIRST_WITH_WORDS:
            code, words = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."
    except Refusal as refusal:
        code = refusal.code
    return {
        "error_code": code, "error_message": words, "group_id": name, "group_state": state,
        "protocol_type": found.protocol_type, "protocol_data": found.protocol,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "client_id": each.client_id,
             "client_host": each.host, "member_metadata": each.metadata, "member_assignment": each.assignment}
            for each in found.members
        ],
        "authorized_operations": _ALL_OPERATIONS if asked.body.has_operations and not code else _NOT_ASKED,
    }  # fmt: skip


DESCRIBE_GROUPS: Final = ServedApi(
    apis.DESCRIBE_GROUPS, "describe_groups", range(7), _read_describe, _answer_describe
)


# -- DeleteGroups: deletes groups without members, and their offsets ---------------------------------------------------


def _read_delete(values: Values, version: int) -> list[str]:
    groups: list[str] = values["groups_names"]
    return groups


def _answer_delete(asked: Asked[list[str]]) -> Values:
    return {"results": [
        {"group_id": name, "error_code": _deleted(asked, name)} for name in dict.fromkeys(asked.body)
    ]}  # fmt: skip


def _deleted(asked: Asked[list[str]], name: str) -> int:
    try:
        refuse_all(asked)
        return asked.host.groups.delete(name)
    except Refusal as refusal:
        return refusal.code


DELETE_GROUPS: Final = ServedApi(apis.DELETE_GROUPS, "delete_groups", range(3), _read_delete, _answer_delete)
