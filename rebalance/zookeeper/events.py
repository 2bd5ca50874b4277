"""The events and actions of the state machine of a group member, as plain values. Pure.

`rebalance.zookeeper.machine` decides which actions follow from which events.

The identity and the settings of a member of a group that ZooKeeper coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalance.ports import Member
from rebalance.subscription import Assignment
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy
from rebalance.zookeeper.waits import RebalanceTimes
from rebalance.zookeeper.znodes_07 import ChosenGeneration

# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """ZooKeeper answers again, under this session."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection is lost, the session perhaps not; all watches are lost."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The session is over, and its ephemeral nodes are gone."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration stands, and this session owns it."""

    session_id: int


@dataclass(frozen=True, slots=True)
class RegistrationUnknown:
    """The connection was lost while registering."""


@dataclass(frozen=True, slots=True)
class RegistrationGone:
    """The registration was deleted under a living session."""


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """This member can never be part of the group."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Changed:
    """Something on which the assignment depends may have changed."""

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
    """The application is stuck: release its partitions to others until it goes on."""

    reason: str


@dataclass(frozen=True, slots=True)
class AllReleased:
    """No partition is held any more."""


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
    """Read what may have changed, with watches, and always the list of members."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SetAssignment:
    """Hold this from now on: releases start at once, claims wait for `AllowClaims`."""

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
    """Raise this on every stream; the member is out for good."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ReleaseAll:
    """Release everything, then report `AllReleased`."""


@dataclass(frozen=True, slots=True)
class Unregister:
    """Delete the registration, so that the others get the partitions."""


Action = Register | ReadGroup | SetAssignment | AllowClaims | DropClaims | Fail | ReleaseAll | Unregister


@dataclass(frozen=True, slots=True)
class RegisteredMember(Member):
    """A member that registers in ZooKeeper; times in seconds."""

    strategy: Strategy = field(default_factory=Strategy)
    chroot: str = ""
    blocked_after_s: float = 8.0
    blocked_audit_s: float = 10.0
    audit_s: float = 30.0
    times: RebalanceTimes = field(default_factory=RebalanceTimes)
    generation: ChosenGeneration = field(default_factory=ChosenGeneration)
