"""The reaction of a member to each error code of a coordinator: a table by request and code. Pure.

Source: the handlers of AbstractCoordinator and ConsumerCoordinator (Kafka 3.9).

Also the answers of coordinators that end a membership for good, as errors that name the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.errors import GroupRefused
from zkconsumer_error import ErrorCode


class Asked(Enum):
    """The requests of a member to its coordinator, and the one that finds it."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    OFFSET_COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    LEAVE_GROUP = "LeaveGroup"


class Reaction(Enum):
    """The reaction to an error."""

    RETRY = "send the same request again after a pause"
    FIND = "look up the coordinator, and ask again"
    JOIN = "join again under the same member id"
    JOIN_AT_ONCE = "join again at once under the member id that the coordinator gave"
    JOIN_AS_LOST = "give up all partitions as lost; join again under the same member id"
    JOIN_AS_NEW = "give up all partitions as lost; join again as a new member"
    REFUSED = "the commit of this partition's offset is refused"
    IGNORE = "nothing"
    FAIL = "the member leaves its group for good"


_Reactions = Mapping[int, Reaction]
_MOVED: Final[_Reactions] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
}
_THROWN_OUT: Final[_Reactions] = {
    ErrorCode.ILLEGAL_GENERATION: Reaction.JOIN_AS_LOST,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.JOIN_AS_NEW,
}
REACTIONS: Final[Mapping[Asked, _Reactions]] = {
    Asked.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY,
        ErrorCode.NOT_COORDINATOR: Reaction.RETRY,
    },
    Asked.JOIN_GROUP: {
        **_MOVED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.JOIN_AS_NEW,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY,  # the coordinator could not write the group down in time
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.JOIN_AT_ONCE,
    },
    Asked.SYNC_GROUP: {
        **_MOVED,
        **_THROWN_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.JOIN,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN,
    },
    Asked.HEARTBEAT: {
        **_MOVED,
        **_THROWN_OUT,
        # A coordinator that loads the group answers heartbeats without an error.
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.IGNORE,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN,
    },
    Asked.OFFSET_COMMIT: {
        **_MOVED,
        **_THROWN_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Reaction.REFUSED,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Reaction.REFUSED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.REFUSED,
        # The group is between JoinGroup and SyncGroup: messages without a commit by then are read again.
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN,
    },
    Asked.OFFSET_FETCH: {
        **_MOVED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.RETRY,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.REFUSED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.REFUSED,
    },
    # Whatever it answers, the member is gone, or goes when its session ends.
    Asked.LEAVE_GROUP: {},
}
"""By request and error code; a code that is not there fails the member, but for LeaveGroup."""


def reaction_to(asked: Asked, code: int) -> Reaction:
    """Return the reaction to an error code other than 0."""
    other = Reaction.IGNORE if asked is Asked.LEAVE_GROUP else Reaction.FAIL
    return REACTIONS[asked].get(code, other)


def refusal(member: BrokerGroupMember, asked: Asked, code: int, reason: str) -> GroupRefused:
    """Return the error of a member whose request was answered with a final error code."""
    names = ", ".join(each.name for each in member.assignors)
    known = {
        23: f"no assignor of partition.assignment.strategy ({names}) is common to all members of the group, or it is "
        "not a group of consumers",
        24: "the coordinator does not allow this group.id",
        26: f"session.timeout.ms is {member.session_s * 1000:.0f}, which the coordinator does not allow "
        "(group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers; 6000 and 30000 before "
        "Kafka 0.10.1)",
        30: "the coordinator denies access to the group",
        35: "the coordinator does not serve a request of this member; static members (group.instance.id) need Kafka "
        "2.3",
        81: "the group has as many members as the coordinator allows (group.max.size)",
        82: f"another member has joined with the same group.instance.id, {member.instance_id!r}",
    }
    said = known.get(code, reason or f"error {code}")
    return GroupRefused(member.group, f"{asked.value}: {said}" if code in known else f"{asked.value} failed: {said}")
