"""What can happen to a group member, and what its machine can ask for; plain values.

`rebalance.machine` decides which follow from which.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.snapshot import Assignment, GroupSnapshot

__all__ = [
    "Action",
    "AllReleased",
    "AllowClaims",
    "Changed",
    "DropClaims",
    "Event",
    "Fail",
    "ReadGroup",
    "Register",
    "Registered",
    "RegistrationGone",
    "RegistrationRefused",
    "RegistrationUnknown",
    "ReleaseAll",
    "SetAssignment",
    "SessionExpired",
    "SessionOpened",
    "SessionSuspended",
    "SnapshotFailed",
    "SnapshotRead",
    "Rejoin",
    "Leave",
    "TimerFired",
    "Unregister",
    "Unregistered",
]

# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """ZooKeeper answers again, under this session."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection is gone, the session perhaps not; every watch is forgotten."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The session is over and its ephemeral nodes with it."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration stands, and this session owns it."""

    session_id: int


@dataclass(frozen=True, slots=True)
class RegistrationUnknown:
    """The connection went away while registering."""


@dataclass(frozen=True, slots=True)
class RegistrationGone:
    """The registration was deleted under a living session."""


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """This member can never be part of the group."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that the assignment depends on may be different now."""

    cause: str


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """The group was read."""

    attempt: int
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """The group could not be read."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """`next_timer` is due."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The application is stuck: others shall have the partitions until it goes on."""

    reason: str


@dataclass(frozen=True, slots=True)
class AllReleased:
    """Nothing is held any more."""


@dataclass(frozen=True, slots=True)
class Unregistered:
    """The registration is deleted."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The application goes on."""


Event = (
    SessionOpened
    | SessionSuspended
    | SessionExpired
    | Registered
    | RegistrationUnknown
    | RegistrationGone
    | RegistrationRefused
    | Changed
    | SnapshotRead
    | SnapshotFailed
    | TimerFired
    | Leave
    | AllReleased
    | Unregistered
    | Rejoin
)

# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Create the registration under the present session."""


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Read what has changed, with watches; the list of members always."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SetAssignment:
    """From now on this is what should be held: releases begin at once, claims wait for `AllowClaims`."""

    assignment: Assignment
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class AllowClaims:
    """No change is pending and the quiet time is over: claim."""


@dataclass(frozen=True, slots=True)
class DropClaims:
    """The session is over: nothing is held any more."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise this to every stream; the member is out for good."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ReleaseAll:
    """Let go of everything; answer `AllReleased`."""


@dataclass(frozen=True, slots=True)
class Unregister:
    """Delete the registration, so that the others share what was held here."""


Action = Register | ReadGroup | SetAssignment | AllowClaims | DropClaims | Fail | ReleaseAll | Unregister
