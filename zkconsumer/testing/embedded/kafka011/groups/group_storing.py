"""What of a group is stored and comes back from there, and what members are told of a store that fails. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zkconsumer.testing.embedded.disk.messages import UNKNOWN, Refusal
from zkconsumer.testing.embedded.groups.group import Group
from zkconsumer.testing.embedded.groups.values import GroupState, Member
from zkconsumer.testing.embedded.kafka011.groups.group_records import GroupRecord, MemberRecord
from zkconsumer_error import ErrorCode

_MS: Final = 1000


def record_of(group: Group, state_ms: int = -1) -> GroupRecord:
    """Return the record of a group, as it is from now on.

    Args:
        state_ms: the time of now.
    """
    if not group.generation:  # a group that has no members yet does not say of which kind they are
        return GroupRecord("", 0, None, None, state_ms)
    has_members = group.state is GroupState.STABLE
    members = tuple(
        MemberRecord(
            each.member_id, each.instance_id, each.client_id, each.host, round(each.rebalance_s * _MS),
            round(each.session_s * _MS), each.protocols.get(group.protocol, b""), each.assignment,
        )
        for each in group.members.values() if has_members
    )  # fmt: skip
    names = (group.protocol or None, group.leader or None) if has_members else (None, None)
    return GroupRecord(group.protocol_type, group.generation, *names, state_ms, members)


def restored(group: Group, record: GroupRecord | None, now: float) -> Group:
    """Return a new group, as its record says; None: only offsets of it are stored."""
    if record is None:
        return group
    protocol = record.protocol or ""
    members = [
        Member(
            each.member_id, each.instance_id, {protocol: each.subscription}, each.session_ms / _MS,
            each.rebalance_ms / _MS, now, each.assignment, client_id=each.client_id, host=each.host,
        )
        for each in record.members
    ]  # fmt: skip
    group.protocol_type = record.protocol_type
    group.restore(record.generation, protocol, record.leader or "", members, now)
    return group


def translated(code: int, *, of_group: bool = False) -> int:
    """Return what members are told if the log refuses what is to be stored.

    Args:
        of_group: it was the record of the group, not offsets.
    """
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return UNKNOWN if of_group else ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.REBALANCE_IN_PROGRESS if code == ErrorCode.REQUEST_TIMED_OUT and of_group else code


@contextmanager
def as_members_see_it() -> Iterator[None]:
    """Raise Refusal with the code that members are told if the log refuses the record of a group."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(translated(refusal.code, of_group=True), str(refusal)) from refusal
