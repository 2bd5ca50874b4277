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

from rebalance.events import (
    Action,
    AllowClaims,
    AllReleased,
    Changed,
    DropClaims,
    Event,
    Fail,
    Leave,
    ReadGroup,
    Register,
    Registered,
    RegistrationGone,
    RegistrationRefused,
    RegistrationUnknown,
    Rejoin,
    ReleaseAll,
    SessionExpired,
    SessionOpened,
    SessionSuspended,
    SetAssignment,
    SnapshotFailed,
    SnapshotRead,
    TimerFired,
    Unregister,
    Unregistered,
)
from rebalance.membership_changes import MembershipChanges
from rebalance.snapshot import Assignment, GroupSnapshot, Strategy, assign
from rebalance.subscription import Subscription
from rebalance.waits import RebalanceTimes, Waits

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


class RebalanceMachine:
    """Decides for one member; knows the group only through the snapshots it is given.

    Args:
        consumer_id: this member.
        subscription: what it subscribes to.
        strategy: how the group deals partitions.
        times: the waits.
        rng: source of jitter.
        now: when the member begins.
    """

    def __init__(
        self,
        consumer_id: str,
        subscription: Subscription,
        strategy: Strategy,
        times: RebalanceTimes,
        rng: random.Random,
        now: float,
    ) -> None:
        self.consumer_id = consumer_id
        self.subscription = subscription
        self.strategy = strategy
        self.state = GroupState.DISCONNECTED
        self.since = now
        self.assignment: Assignment | None = None
        self.snapshot: GroupSnapshot | None = None
        self.attempt = 0
        self._waits = Waits(times, rng)
        self._membership_changes = MembershipChanges(4 * times.quiet_max_s, times.quiet_s)
        self._session_id: int | None = None
        self._is_connected = False
        self._registered = False
        self._dirty = False
        self._timer: float | None = None
        self._now = now

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

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go(self, state: GroupState) -> None:
        if state is not self.state:
            self.since = self._now
        self.state = state
        self._timer = None

    def _ignore(self, _: Event) -> list[Action]:
        return []

    def _open(self, event: SessionOpened) -> list[Action]:
        self._is_connected = True
        if self._registered and event.session_id == self._session_id:
            # The same session: nothing is lost but the watches. Read all again; act only if something differs.
            return self._read()
        dropped: list[Action] = []
        if self._session_id is not None and event.session_id != self._session_id:
            self._waits.session_lost(self._now)
            dropped = [DropClaims()]
        self._session_id = event.session_id
        self._registered = False
        self._go(GroupState.REGISTERING)
        return [*dropped, Register()]

    def _suspend(self, _: Event) -> list[Action]:
        if self._is_connected:
            self._waits.disconnected(self._now)
        self._is_connected = False
        self._waits.calm()
        self._go(GroupState.DISCONNECTED)
        return []

    def _expire(self, event: SessionExpired) -> list[Action]:
        if self._session_id is not None:
            self._waits.session_lost(self._now)
        self._session_id = None
        return [*self._suspend(event), DropClaims()]

    def _registered_now(self, event: Registered) -> list[Action]:
        if event.session_id != self._session_id:
            return []
        self._registered = True
        self._waits.registered(self._now)
        return self._read()

    def _registered_while_away(self, event: Registered) -> list[Action]:
        self._registered = event.session_id == self._session_id
        if self._registered:
            self._waits.registered(self._now)
        return []

    def _register_again(self, _: Event) -> list[Action]:
        self._registered = False
        self._go(GroupState.REGISTERING)
        return [Register()]

    def _register_later(self, _: Event) -> list[Action]:
        self._timer = self._waits.register_again(self._now)
        return []

    def _register_timer(self, event: TimerFired) -> list[Action]:
        return self._register_again(event) if self._due() else []

    def _refuse(self, event: RegistrationRefused) -> list[Action]:
        self._go(GroupState.FAILED)
        return [Fail(event.error)]

    def _read(self) -> list[Action]:
        self.attempt += 1
        self._dirty = False
        self._waits.changed(self._now)
        self._waits.reading(self._now)
        self._go(GroupState.READING)
        return [ReadGroup(self.attempt)]

    def _change(self, _: Changed) -> list[Action]:
        return self._read_soon()

    def _change_while_reading(self, _: Changed) -> list[Action]:
        self._dirty = True
        return []

    def _read_soon(self) -> list[Action]:
        if self._now >= self._waits.next_read():
            return self._read()
        self._waits.changed(self._now)
        self.attempt += 1
        self._go(GroupState.READING)
        self._timer = self._waits.next_read()
        return []

    def _read_done(self, event: SnapshotRead) -> list[Action]:
        if event.attempt != self.attempt:
            return []
        self._waits.read_done()
        if self._dirty and not self._waits.is_overdue(self._now):
            # The world moved while it was read. Acting on it could let go of what stays mine.
            return self._read_soon()
        if event.snapshot.lacks(self.consumer_id):
            return self._register_again(event)
        assignment = assign(event.snapshot, self.consumer_id, self.subscription, self.strategy)
        unchanged = self.assignment is not None and self.assignment.mine == assignment.mine \
            and self.assignment.frozen == assignment.frozen \
            and self.assignment.frozen_topics == assignment.frozen_topics
        self.assignment, self.snapshot = assignment, event.snapshot
        self._membership_changes.seen(event.snapshot.created_ms, self._now)
        set_assignment = SetAssignment(assignment, event.snapshot)
        if self._dirty:
            return [set_assignment, *self._read_soon()]
        if not unchanged:
            self._waits.be_quiet(self._now, self._membership_changes.bursts(self._now))
        elif self._now >= self._waits.quiet_until:
            return [set_assignment, *self._settled()]
        self._go(GroupState.SETTLING)
        self._timer = self._waits.quiet_until
        return [set_assignment]

    def _read_failed(self, event: SnapshotFailed) -> list[Action]:
        if event.attempt != self.attempt:
            return []
        self.attempt += 1
        self._timer = self._waits.read_failed(self._now)
        return []

    def _settled(self) -> list[Action]:
        self._go(GroupState.STABLE)
        self._waits.calm()
        return [AllowClaims()]

    def _settle_timer(self, _: TimerFired) -> list[Action]:
        return self._settled() if self._due() else []

    def _read_timer(self, _: TimerFired) -> list[Action]:
        return self._read() if self._due() else []

    def _due(self) -> bool:
        return self._timer is not None and self._now >= self._timer

    # -- out of the group for a while: the registration goes last, because every release is fenced by it -------------

    def _leave(self, _: Leave) -> list[Action]:
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
        self._waits.calm()
        self._go(GroupState.OUT)

    def _away_while_leaving(self, _: SessionSuspended) -> list[Action]:
        self._is_connected = False
        return []

    def _open_leaving(self, event: SessionOpened) -> list[Action]:
        self._is_connected = True
        if event.session_id == self._session_id:
            return []
        self._session_id = event.session_id
        self._forget_group()
        return [DropClaims()]

    def _expire_leaving(self, event: SessionExpired) -> list[Action]:
        self._forget_group()
        return [*self._away_while_out(event), DropClaims()]

    def _open_out(self, event: SessionOpened) -> list[Action]:
        self._is_connected = True
        self._session_id = event.session_id
        return []

    def _away_while_out(self, _: Event) -> list[Action]:
        self._is_connected = False
        self._session_id = None
        return []

    def _stay(self, _: Rejoin) -> list[Action]:
        if self._is_connected:
            return self._read()
        self._go(GroupState.DISCONNECTED)
        return []

    def _rejoin(self, _: Rejoin) -> list[Action]:
        if not self._is_connected:
            self._go(GroupState.DISCONNECTED)
            return []
        self._go(GroupState.REGISTERING)
        return [Register()]


_M = RebalanceMachine
_S = GroupState

# What is not here cannot happen:
# - `SessionOpened` and `SessionExpired` come after `SessionSuspended` only (`SessionKeeper.changed` sees to it), and
#   that leads from every state of a connected member to `disconnected`.
# - A registration is under way in `registering` and `disconnected` only: each `Register` silences the one before, and
#   each tells one thing. It stands (so that it can be gone) from `Registered` to `Unregistered`.
# - A read is under way in `reading` only: the coordinator silences it when it is left otherwise.
# - Timers are cancelled when their state is left.
# - `_look_for_stuck_streams` and `_all_released` look at the state before they tell.
# - A member that has failed is told nothing any more.
_EVERYWHERE: dict[type, Callable[..., list[Action]]] = {
    RegistrationRefused: _M._refuse,
    Changed: _M._ignore,
}
_CONNECTED: dict[type, Callable[..., list[Action]]] = {
    SessionSuspended: _M._suspend,
    RegistrationGone: _M._register_again,
    Leave: _M._leave,
}
_BY_STATE: dict[GroupState, dict[type, Callable[..., list[Action]]]] = {
    _S.DISCONNECTED: {
        SessionOpened: _M._open,
        SessionSuspended: _M._suspend,
        SessionExpired: _M._expire,
        Registered: _M._registered_while_away,
        RegistrationUnknown: _M._ignore,
        # Nothing is held that is not held up by the lost connection already.
        Leave: _M._ignore,
    },
    _S.REGISTERING: {
        **_CONNECTED,
        Registered: _M._registered_now,
        # The connection went away; if the session survives and nobody says so, ask again.
        RegistrationUnknown: _M._register_later,
        RegistrationGone: _M._ignore,
        TimerFired: _M._register_timer,
        Leave: _M._ignore,
    },
    _S.READING: {
        **_CONNECTED,
        Changed: _M._change_while_reading,
        SnapshotRead: _M._read_done,
        SnapshotFailed: _M._read_failed,
        TimerFired: _M._read_timer,
    },
    _S.SETTLING: {**_CONNECTED, Changed: _M._change, TimerFired: _M._settle_timer},
    _S.STABLE: {**_CONNECTED, Changed: _M._change},
    _S.LEAVING: {
        SessionOpened: _M._open_leaving,
        SessionSuspended: _M._away_while_leaving,
        SessionExpired: _M._expire_leaving,
        # Nothing can be released without it; who is stuck still leaves again.
        RegistrationGone: _M._register_again,
        AllReleased: _M._all_released,
        Rejoin: _M._stay,
    },
    _S.UNREGISTERING: {
        SessionOpened: _M._open_leaving,
        SessionSuspended: _M._away_while_leaving,
        SessionExpired: _M._expire_leaving,
        RegistrationGone: _M._ignore,
        Unregistered: _M._unregistered,
    },
    _S.OUT: {
        SessionOpened: _M._open_out,
        SessionSuspended: _M._away_while_out,
        SessionExpired: _M._away_while_out,
        Rejoin: _M._rejoin,
    },
}

_TABLE: dict[tuple[GroupState, type], Callable[..., list[Action]]] = {
    (state, event): step for state, rows in _BY_STATE.items() for event, step in {**_EVERYWHERE, **rows}.items()
}
