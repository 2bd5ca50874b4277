"""The requests of members of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: kafka.server.KafkaApis.handleJoinGroupRequest, handleSyncGroupRequest, handleHeartbeatRequest,
handleLeaveGroupRequest (0.9, 2.8); the schemas of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.groups.values import Join, Joined, Sync, Synced, Who
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse_all
from zkconsumer.testing.embedded.kafka011.groups.group_coordinator import Leaving
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
