"""The requests about groups: of their members, and of administration.

The requests of members of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: kafka.server.KafkaApis.handleJoinGroupRequest, handleSyncGroupRequest, handleHeartbeatRequest,
handleLeaveGroupRequest (0.9, 2.8); the schemas of Kafka 4.3.

The requests about groups: FindCoordinator, ListGroups, DescribeGroups and DeleteGroups.

All groups, and all transactional ids, have one coordinator each. A group that is not known is "Dead".

Source: kafka.server.KafkaApis.handleFindCoordinatorRequest, handleListGroupsRequest, handleDescribeGroupRequest,
handleDeleteGroupsRequest (0.9, 2.8); the schemas of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.group_values import GroupState, Join, Joined, Sync, Synced, Who
from zkconsumer.testing.embedded.kafka011.api import Asked, Habits, ServedApi, refuse_all
from zkconsumer.testing.embedded.kafka011.group_coordinator import Described, Leaving, Listed
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_by
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer_error import ErrorCode

_FIRST_THAT_NAMES_MEMBERS: Final = 4
_FIRST_WITH_SKIP: Final = 9
_FIRST_OF_SEVERAL: Final = 3
_S: Final = 1000


def who_of(values: Values) -> Who:
    """Return a member of a generation as it names itself."""
    return Who(values["generation_id"], values["member_id"], values.get("group_instance_id"))


# -- JoinGroup: a member wants to be in the next generation; the answer comes when all members have joined -------------


class JoinGroup(NamedTuple):
    """Group, and who joins it."""

    group: str
    join: Join


def _read_join(values: Values, version: int) -> JoinGroup:
    session_ms: int = values["session_timeout_ms"]
    rebalance_ms: int = values.get("rebalance_timeout_ms", session_ms)
    return JoinGroup(values["group_id"], Join(
        values["member_id"], {row["name"]: row["metadata"] for row in values["protocols"]}, session_ms / _S,
        rebalance_ms / _S, values.get("group_instance_id"),
        names_members_first=version >= _FIRST_THAT_NAMES_MEMBERS, protocol_type=values["protocol_type"],
        leads_again=version >= _FIRST_WITH_SKIP,
    ))  # fmt: skip


def _answer_join(asked: Asked[JoinGroup]) -> Values:
    group, join = asked.body
    try:
        refuse_all(asked)
        joined = asked.host.groups.join(group, replace(join, client_id=asked.client_id))
    except Refusal as refusal:
        joined = Joined(refusal.code, member_id=join.member_id)
    if joined.code and asked.host.habits.is_before_2:
        joined = joined._replace(generation=0)
    can_be_null = asked.version >= 7
    return {
        "error_code": joined.code, "generation_id": joined.generation,
        "protocol_type": None if joined.code else join.protocol_type,
        "protocol_name": None if joined.code and can_be_null else joined.protocol,
        "leader": joined.leader, "skip_assignment": joined.skips_assignment, "member_id": joined.member_id,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in joined.members
        ],
    }  # fmt: skip


JOIN_GROUP: Final = ServedApi(apis.JOIN_GROUP, "join_group", range(10), _read_join, _answer_join)


# -- SyncGroup: the leader hands over the assignments of all members, and each of them gets its own --------------------


class SyncGroup(NamedTuple):
    """Group, and what a member has and wants."""

    group: str
    sync: Sync


def _read_sync(values: Values, version: int) -> SyncGroup:
    assignments = {row["member_id"]: row["assignment"] for row in values["assignments"]}
    sync = Sync(who_of(values), assignments, values.get("protocol_type"), values.get("protocol_name"))
    return SyncGroup(values["group_id"], sync)


def _answer_sync(asked: Asked[SyncGroup]) -> Values:
    group, sync = asked.body
    try:
        refuse_all(asked)
        synced = asked.host.groups.sync(group, sync)
    except Refusal as refusal:
        is_loading = refusal.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not asked.host.habits.is_before_2
        synced = Synced(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else refusal.code)
    return {
        "error_code": synced.code, "protocol_type": synced.protocol_type, "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }  # fmt: skip


SYNC_GROUP: Final = ServedApi(apis.SYNC_GROUP, "sync_group", range(6), _read_sync, _answer_sync)


# -- Heartbeat: a member says that it is there, and learns whether its group rebalances --------------------------------


class Heartbeat(NamedTuple):
    """Group and member."""

    group: str
    who: Who


def _read_heartbeat(values: Values, version: int) -> Heartbeat:
    return Heartbeat(values["group_id"], who_of(values))


def _answer_heartbeat(asked: Asked[Heartbeat]) -> Values:
    try:
        refuse_all(asked)
        code = _beat(asked)
    except Refusal as refusal:
        code = refusal.code
    return {"error_code": code}


def _beat(asked: Asked[Heartbeat]) -> int:
    try:
        return asked.host.groups.heartbeat(*asked.body)
    except Refusal as refusal:
        if refusal.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return 0  # who is a member is not known yet, and nobody is to be sent away for that
        raise


HEARTBEAT: Final = ServedApi(apis.HEARTBEAT, "heartbeat", range(5), _read_heartbeat, _answer_heartbeat)


# -- LeaveGroup: members leave their group, from version 3 on several at a time ----------------------------------------


class LeaveGroup(NamedTuple):
    """Group, and who leaves it."""

    group: str
    members: list[Leaving]


def _read_leave(values: Values, version: int) -> LeaveGroup:
    if version < _FIRST_OF_SEVERAL:
        return LeaveGroup(values["group_id"], [Leaving(values["member_id"])])
    return LeaveGroup(
        values["group_id"], [Leaving(row["member_id"], row["group_instance_id"]) for row in values["members"]]
    )


def _answer_leave(asked: Asked[LeaveGroup]) -> Values:
    group, members = asked.body
    code, codes = 0, []
    try:
        refuse_all(asked)
        codes = asked.host.groups.leave(group, members)
    except Refusal as refusal:
        code = refusal.code
    if asked.version < _FIRST_OF_SEVERAL:
        return {"error_code": code or codes[0]}
    return {"error_code": code, "members": [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": of_member}
        for each, of_member in zip(members, codes, strict=False)  # none, if all is refused
    ]}  # fmt: skip


LEAVE_GROUP: Final = ServedApi(apis.LEAVE_GROUP, "leave_group", range(6), _read_leave, _answer_leave)


# -- FindCoordinator ---------------------------------------------------------------------------------------------------


_GROUP: Final = 0
_TOPICS: Final = {_GROUP: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_WORDS: Final = {0: "NONE", ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available."}
_FIRST_OF_SEVERAL_GROUPS: Final = 4


class FindCoordinator(NamedTuple):
    """Names and their kind: 0 groups, 1 transactional ids."""

    names: list[str]
    kind: int


def _read_find(values: Values, version: int) -> FindCoordinator:
    names = values["keys"] if version >= _FIRST_OF_SEVERAL_GROUPS else [values["key"]]
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
    if asked.version < _FIRST_OF_SEVERAL_GROUPS:
        return {**row, "error_message": words}
    # A name that is found has no words in these versions.
    said = words if code else ""
    return {"coordinators": [{"key": name, "error_message": said, **row} for name in asked.body.names]}


FIND_COORDINATOR: Final = ServedApi(apis.FIND_COORDINATOR, "consumer_metadata", range(7), _read_find, _answer_find)
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


DESCRIBE_GROUPS: Final = ServedApi(apis.DESCRIBE_GROUPS, "describe_groups", range(7), _read_describe, _answer_describe)


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
