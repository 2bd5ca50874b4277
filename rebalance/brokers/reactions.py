"""What each error code of a coordinator means for the member that asked: a table by request and code. Pure.

Source: the handlers of AbstractCoordinator and ConsumerCoordinator (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = ["REACTIONS", "Asked", "Reaction", "reaction_to"]


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
    """What is done about an error."""

    RETRY = "the same request again after a pause"
    FIND = "the coordinator is looked up, and asked again"
    JOIN = "the member joins again under its id"
    JOIN_AT_ONCE = "the member joins again at once under the id that it was given"
    JOIN_AS_LOST = "what the member holds is lost; it joins again under its id"
    JOIN_AS_NEW = "what the member holds is lost; it joins again as a new one"
    REFUSED = "this partition's offset is refused"
    IGNORE = "nothing"
    FAIL = "the member is out of its group for good"


_UNKNOWN_PARTITION: Final = 3
_TIMED_OUT: Final = 7
_METADATA_TOO_LARGE: Final = 12
_LOADING: Final = 14
_NOT_AVAILABLE: Final = 15
_NOT_COORDINATOR: Final = 16
_ILLEGAL_GENERATION: Final = 22
_UNKNOWN_MEMBER: Final = 25
_REBALANCING: Final = 27
_COMMIT_TOO_LARGE: Final = 28
_TOPIC_DENIED: Final = 29
_MEMBER_ID_REQUIRED: Final = 79
_UNSTABLE_OFFSET: Final = 88

_MOVED: Final = {_NOT_AVAILABLE: Reaction.FIND, _NOT_COORDINATOR: Reaction.FIND}
_THROWN_OUT: Final = {_ILLEGAL_GENERATION: Reaction.JOIN_AS_LOST, _UNKNOWN_MEMBER: Reaction.JOIN_AS_NEW}

REACTIONS: Final[Mapping[Asked, Mapping[int, Reaction]]] = {
    Asked.FIND_COORDINATOR: {
        _LOADING: Reaction.RETRY, _NOT_AVAILABLE: Reaction.RETRY, _NOT_COORDINATOR: Reaction.RETRY,
    },
    Asked.JOIN_GROUP: {
        **_MOVED, _LOADING: Reaction.RETRY, _UNKNOWN_MEMBER: Reaction.JOIN_AS_NEW,
        _REBALANCING: Reaction.RETRY,  # the coordinator could not write the group down in time
        _MEMBER_ID_REQUIRED: Reaction.JOIN_AT_ONCE,
    },
    Asked.SYNC_GROUP: {**_MOVED, **_THROWN_OUT, _LOADING: Reaction.JOIN, _REBALANCING: Reaction.JOIN},
    # A coordinator that loads the group answers heartbeats without an error.
    Asked.HEARTBEAT: {**_MOVED, **_THROWN_OUT, _LOADING: Reaction.IGNORE, _REBALANCING: Reaction.JOIN},
    Asked.OFFSET_COMMIT: {
        **_MOVED, **_THROWN_OUT, _LOADING: Reaction.RETRY, _UNKNOWN_PARTITION: Reaction.RETRY,
        _TIMED_OUT: Reaction.FIND,
        _METADATA_TOO_LARGE: Reaction.REFUSED, _COMMIT_TOO_LARGE: Reaction.REFUSED, _TOPIC_DENIED: Reaction.REFUSED,
        # The group is between JoinGroup and SyncGroup: what is not committed by then is read again.
        _REBALANCING: Reaction.JOIN,
    },
    Asked.OFFSET_FETCH: {
        **_MOVED, _LOADING: Reaction.RETRY, _TIMED_OUT: Reaction.RETRY, _UNSTABLE_OFFSET: Reaction.RETRY,
        _UNKNOWN_PARTITION: Reaction.REFUSED, _TOPIC_DENIED: Reaction.REFUSED,
    },
    # Whatever it answers, the member is gone, or goes when its session ends.
    Asked.LEAVE_GROUP: {},
}  # fmt: skip
"""By request and error code; a code that is not there fails the member, but for LeaveGroup."""


def reaction_to(asked: Asked, code: int) -> Reaction:
    """Return what is done about an error code other than 0."""
    other = Reaction.IGNORE if asked is Asked.LEAVE_GROUP else Reaction.FAIL
    return REACTIONS[asked].get(code, other)
