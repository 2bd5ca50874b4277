"""The machine of the group: what should be read, and when what was assigned may be claimed.

Pure: events and `now` in, actions out, timers through `next_timer`. Partitions have a machine of their own
(`rebalance.partition`). Rules: reads and decisions carry an attempt number and are dropped when stale; while a
change is pending nothing is claimed; releases never wait.

The transition table stands at the end of the file; a pair that is not in it is a bug and raises.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

from rebalance.events import (
    Action,
    AllowClaims,
    AllReleased,
    Changed,
    DropClaims,
    Event,
    Fail,
    ReadGroup,
    Register,
    Registered,
    RegistrationGone,
    RegistrationRefused,
    RegistrationUnknown,
    ReleaseAll,
    Retarget,
    SessionExpired,
    SessionOpened,
    SessionSuspended,
    SnapshotFailed,
    SnapshotRead,
    StepIn,
    StepOut,
    TimerFired,
    Unregister,
    Unregistered,
)
from rebalance.snapshot import Assignment, GroupSnapshot, Strategy, assign
from rebalance.subscription import Subscription

__all__ = [
    "Action",
    "AllReleased",
    "AllowClaims",
    "Changed",
    "DropClaims",
    "Event",
    "Fail",
    "GroupState",
    "ReadGroup",
    "RebalanceMachine",
    "RebalanceTimes",
    "Register",
    "Registered",
    "RegistrationGone",
    "RegistrationRefused",
    "RegistrationUnknown",
    "ReleaseAll",
    "Retarget",
    "SessionExpired",
    "SessionOpened",
    "SessionSuspended",
    "SnapshotFailed",
    "SnapshotRead",
    "StepIn",
    "StepOut",
    "TimerFired",
    "Unregister",
    "Unregistered",
]


class GroupState(enum.Enum):
    """Where a member stands."""

    DISCONNECTED = "disconnected"
    REGISTERING = "registering"
    READING = "reading"
    SETTLING = "settling"
    STABLE = "stable"
    LEAVING = "leaving"
    UNREGISTERING = "unregistering"
    OUT = "out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RebalanceTimes:
    """Waits of the group machine, in seconds.

    Attributes:
        quiet_s: settle time before claims after a change, jittered from half of it to all of it.
        quiet_max_s: its cap, counted from the first change.
        retry_s: wait before a read that failed is tried again, doubled up to `retry_max_s`.
        gap_s: least time between two reads, so that a burst of changes costs one.
    """

    quiet_s: float = 0.1
    quiet_max_s: float = 1.0
    retry_s: float = 0.1
    retry_max_s: float = 2.0
    gap_s: float = 0.02


class RebalanceMachine:
    """Decides for one member; knows the group only through the snapshots it is given.

    Args:
        consumer_id: this member.
        subscription: what it subscribes to.
        strategy: how the group deals partitions.
        times: the waits.
        rng: source of jitter.
    """

    def __init__(
        self,
        consumer_id: str,
        subscription: Subscription,
        strategy: Strategy,
        times: RebalanceTimes,
        rng: random.Random,
    ) -> None:
        self.consumer_id = consumer_id
        self.subscription = subscription
        self.strategy = strategy
        self.state = GroupState.DISCONNECTED
        self.since = 0.0
        self.assignment: Assignment | None = None
        self.snapshot: GroupSnapshot | None = None
        self.attempt = 0
        self._times = times
        self._rng = rng
        self._session_id: int | None = None
        self._registered = False
        self._dirty = False
        self._is_back = False
        self._first_change: float | None = None
        self._quiet_until = float("-inf")
        self._failures = 0
        self._timer: float | None = None
        self._read_at = float("-inf")
        self._now = 0.0

    # -- the face ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`, in this order.

        Raises:
            LookupError: the table has no row for the event in the present state.
        """
        self._now = now
        row = _TABLE.get((self.state, type(event)))
        if row is None:
            raise LookupError(f"no transition for {type(event).__name__} in state {self.state.value}")
        return row(self, event)

    def next_timer(self) -> float | None:
        """When `TimerFired` should come, `None` for never."""
        return self._timer

    @property
    def claims_allowed(self) -> bool:
        """Whether nothing is pending, so that a partition that becomes free may be claimed at once."""
        return self.state is GroupState.STABLE

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go(self, state: GroupState) -> None:
        if state is not self.state:
            self.since = self._now
        self.state = state
        self._timer = None

    def _ignore(self, _: Event) -> list[Action]:
        return []

    def _open(self, event: SessionOpened) -> list[Action]:
        if self._registered and event.session_id == self._session_id:
            # The same session: nothing is lost but the watches. Read all again; act only if something differs.
            return self._read()
        is_new = self._session_id is not None and event.session_id != self._session_id
        dropped: list[Action] = [DropClaims()] if is_new else []
        self._is_back |= is_new
        self._session_id = event.session_id
        self._registered = False
        self._go(GroupState.REGISTERING)
        return [*dropped, Register()]

    def _suspend(self, _: Event) -> list[Action]:
        self._first_change = None
        self._go(GroupState.DISCONNECTED)
        return []

    def _expire(self, _: Event) -> list[Action]:
        self._first_change = None
        self._is_back |= self._session_id is not None
        self._registered = False
        self._session_id = None
        self._go(GroupState.DISCONNECTED)
        return [DropClaims()]

    def _wait_for_the_others(self) -> None:
        """Claim late under a session that follows a lost one.

        When ZooKeeper was away for long, every member has lost its session. Who is back first must not take for a
        moment what is the others' again as soon as they are back, too.
        """
        if self._is_back:
            self._is_back = False
            self._quiet_until = self._now + self._times.quiet_max_s * self._rng.uniform(0.6, 1.0)

    def _registered_now(self, event: Registered) -> list[Action]:
        if event.session_id != self._session_id:
            return []
        self._registered = True
        self._wait_for_the_others()
        return self._read()

    def _registered_while_away(self, event: Registered) -> list[Action]:
        self._registered = event.session_id == self._session_id
        if self._registered:
            self._wait_for_the_others()
        return []

    def _register_again(self, _: Event) -> list[Action]:
        self._registered = False
        self._go(GroupState.REGISTERING)
        return [Register()]

    def _register_later(self, _: Event) -> list[Action]:
        self._timer = self._now + self._times.retry_s * self._rng.uniform(1.0, 2.0)
        return []

    def _register_timer(self, event: TimerFired) -> list[Action]:
        return self._register_again(event) if self._due() else []

    def _refuse(self, event: RegistrationRefused) -> list[Action]:
        self._go(GroupState.FAILED)
        return [Fail(event.error)]

    def _read(self) -> list[Action]:
        self.attempt += 1
        self._dirty = False
        if self._first_change is None:
            self._first_change = self._now
        self._read_at = self._now
        self._go(GroupState.READING)
        return [ReadGroup(self.attempt)]

    def _change(self, _: Changed) -> list[Action]:
        return self._read_soon()

    def _change_while_reading(self, _: Changed) -> list[Action]:
        self._dirty = True
        return []

    def _read_soon(self) -> list[Action]:
        wait_s = self._read_at + self._times.gap_s - self._now
        if wait_s <= 0:
            return self._read()
        if self._first_change is None:
            self._first_change = self._now
        self.attempt += 1
        self._go(GroupState.READING)
        self._timer = self._now + wait_s
        return []

    def _read_done(self, event: SnapshotRead) -> list[Action]:
        if event.attempt != self.attempt:
            return []
        self._failures = 0
        overdue = self._first_change is not None and self._now - self._first_change > self._times.quiet_max_s
        if self._dirty and not overdue:
            # The world moved while it was read. Acting on it could let go of what stays mine.
            self._dirty = False
            return self._read_soon()
        if self.consumer_id not in event.snapshot.members and self.consumer_id not in event.snapshot.untranslatable:
            return self._register_again(event)
        assignment = assign(event.snapshot, self.consumer_id, self.subscription, self.strategy)
        unchanged = self.assignment is not None and self.assignment.mine == assignment.mine \
            and self.assignment.frozen == assignment.frozen
        self.assignment, self.snapshot = assignment, event.snapshot
        retarget = Retarget(assignment, event.snapshot)
        if self._dirty:
            self._dirty = False
            return [retarget, *self._read_soon()]
        if not unchanged:
            quiet_s = self._times.quiet_s * self._rng.uniform(0.5, 1.0)
            cap = (self._first_change if self._first_change is not None else self._now) + self._times.quiet_max_s
            self._quiet_until = max(self._now, self._quiet_until, min(self._now + quiet_s, cap))
        elif self._now >= self._quiet_until:
            return [retarget, *self._settled()]
        self._go(GroupState.SETTLING)
        self._timer = self._quiet_until
        return [retarget]

    def _read_failed(self, event: SnapshotFailed) -> list[Action]:
        if event.attempt != self.attempt:
            return []
        wait_s = min(self._times.retry_s * 2**self._failures, self._times.retry_max_s)
        self._failures = min(self._failures + 1, 10)
        self.attempt += 1
        self._timer = self._now + wait_s * self._rng.uniform(0.5, 1.0)
        return []

    def _settled(self) -> list[Action]:
        self._go(GroupState.STABLE)
        self._first_change = None
        return [AllowClaims()]

    # -- out of the group for a while: the registration goes last, because every release is fenced by it -------------

    def _step_out(self, _: StepOut) -> list[Action]:
        self._go(GroupState.LEAVING)
        return [ReleaseAll()]

    def _all_released(self, _: AllReleased) -> list[Action]:
        self._go(GroupState.UNREGISTERING)
        return [Unregister()]

    def _unregistered(self, _: Unregistered) -> list[Action]:
        self._forget_group()
        return []

    def _forget_group(self) -> None:
        self._registered = False
        self.assignment = None
        self._first_change = None
        self._go(GroupState.OUT)

    def _open_leaving(self, event: SessionOpened) -> list[Action]:
        if event.session_id == self._session_id:
            return []
        self._session_id = event.session_id
        self._forget_group()
        return [DropClaims()]

    def _expire_leaving(self, _: SessionExpired) -> list[Action]:
        self._session_id = None
        self._forget_group()
        return [DropClaims()]

    def _open_out(self, event: SessionOpened) -> list[Action]:
        self._session_id = event.session_id
        return []

    def _away_while_out(self, _: Event) -> list[Action]:
        self._session_id = None
        return []

    def _stay(self, _: StepIn) -> list[Action]:
        return self._read()

    def _step_in(self, _: StepIn) -> list[Action]:
        if self._session_id is None:
            self._go(GroupState.DISCONNECTED)
            return []
        self._go(GroupState.REGISTERING)
        return [Register()]

    def _settle_timer(self, _: TimerFired) -> list[Action]:
        return self._settled() if self._due() else []

    def _read_timer(self, _: TimerFired) -> list[Action]:
        return self._read() if self._due() else []

    def _due(self) -> bool:
        return self._timer is not None and self._now >= self._timer


_M = RebalanceMachine
_S = GroupState


_EVERYWHERE: dict[type, Callable[..., list[Action]]] = {
    SessionOpened: _M._open,
    SessionSuspended: _M._suspend,
    SessionExpired: _M._expire,
    Registered: _M._ignore,
    RegistrationUnknown: _M._ignore,
    RegistrationGone: _M._register_again,
    RegistrationRefused: _M._refuse,
    Changed: _M._change,
    SnapshotRead: _M._ignore,
    SnapshotFailed: _M._ignore,
    TimerFired: _M._ignore,
    StepOut: _M._step_out,
    AllReleased: _M._ignore,
    Unregistered: _M._ignore,
    StepIn: _M._ignore,
}
_NOTHING_HELD: dict[type, Callable[..., list[Action]]] = {StepOut: _M._ignore}
_BY_STATE: dict[GroupState, dict[type, Callable[..., list[Action]]]] = {
    _S.DISCONNECTED: {
        Registered: _M._registered_while_away,
        RegistrationGone: _M._ignore,
        Changed: _M._ignore,
        **_NOTHING_HELD,
    },
    _S.REGISTERING: {
        Registered: _M._registered_now,
        RegistrationGone: _M._ignore,
        # The connection went away; if the session survives and nobody says so, ask again.
        RegistrationUnknown: _M._register_later,
        Changed: _M._ignore,
        TimerFired: _M._register_timer,
        **_NOTHING_HELD,
    },
    _S.READING: {
        Changed: _M._change_while_reading,
        SnapshotRead: _M._read_done,
        SnapshotFailed: _M._read_failed,
        TimerFired: _M._read_timer,
    },
    _S.SETTLING: {TimerFired: _M._settle_timer},
    _S.STABLE: {},
    _S.LEAVING: {
        SessionOpened: _M._open_leaving,
        SessionSuspended: _M._ignore,
        SessionExpired: _M._expire_leaving,
        RegistrationGone: _M._ignore,
        Changed: _M._ignore,
        StepOut: _M._ignore,
        AllReleased: _M._all_released,
        StepIn: _M._stay,
    },
    _S.UNREGISTERING: {
        SessionOpened: _M._open_leaving,
        SessionSuspended: _M._ignore,
        SessionExpired: _M._expire_leaving,
        RegistrationGone: _M._ignore,
        Changed: _M._ignore,
        StepOut: _M._ignore,
        Unregistered: _M._unregistered,
    },
    _S.OUT: {
        SessionOpened: _M._open_out,
        SessionSuspended: _M._away_while_out,
        SessionExpired: _M._away_while_out,
        RegistrationGone: _M._ignore,
        Changed: _M._ignore,
        StepOut: _M._ignore,
        StepIn: _M._step_in,
    },
    _S.FAILED: dict.fromkeys(_EVERYWHERE, _M._ignore),
}

_TABLE: dict[tuple[GroupState, type], Callable[..., list[Action]]] = {
    (state, event): {**_EVERYWHERE, **rows}[event] for state, rows in _BY_STATE.items() for event in _EVERYWHERE
}
