"""The state machine of a group member: when it registers, reads the group, and may claim its partitions.

Pure: it takes events and `now` and returns actions; timers through `next_timer`. Each partition has its own machine
(`rebalance.partition`). Rules, and which failure each prevents:
- Reads and decisions carry an attempt number and are dropped when stale: an old answer must not replace a newer one.
- Nothing is claimed while a change is pending: the claim would be for an outdated assignment.
- Releases never wait: others wait for them.

The transition table stands at the end of the file; a pair of state and event that is not in it is a bug and raises.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import replace

from rebalance.subscription import Assignment, Subscription
from rebalance.zookeeper.events import (
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
from rebalance.zookeeper.roundrobin_order import RoundrobinOrder
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy
from rebalance.zookeeper.waits import MembershipChanges, RebalanceTimes, Waits


class GroupState(enum.Enum):
    """The states of a member."""

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
    """Decides for one member; it knows the group only by the snapshots that it gets.

    Args:
        consumer_id: this member.
        subscription: its topics or filter.
        strategy: how the group assigns partitions.
        times: the waits.
        rng: source of jitter.
        now: when the member starts.
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
        self.order = RoundrobinOrder(
            consumer_id, subscription, strategy, times.order_confirm_s, times.order_wait_s, times.order_dissent_s
        )
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

    # -- events and timers ---------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """The actions that follow from `event`, in order.

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
            # The same session: only the watches are lost. Read all again; act only on a difference.
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
        self.order.look_again()
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
            # The group changed while it was read. Acting on it could release what stays assigned to this member.
            return self._read_soon()
        if event.snapshot.lacks(self.consumer_id):
            return self._register_again(event)
        # After a change during the read, owner nodes may be those of an outdated assignment.
        snapshot = replace(event.snapshot, owners=None) if self._dirty else event.snapshot
        assignment = self.order.assign(snapshot, self._now)
        unchanged = (
            self.assignment is not None
            and self.assignment.mine == assignment.mine
            and self.assignment.frozen == assignment.frozen
            and self.assignment.frozen_topics == assignment.frozen_topics
        )
        self.assignment, self.snapshot = assignment, event.snapshot
        self._membership_changes.update(event.snapshot.created_ms, self._now)
        assign_now = SetAssignment(assignment, event.snapshot)
        if self._dirty:
            return [assign_now, *self._read_soon()]
        if not unchanged:
            self._waits.be_quiet(self._now, self._membership_changes.bursts(self._now))
        elif self._now >= self._waits.quiet_until:
            return [assign_now, *self._settled()]
        self._go(GroupState.SETTLING)
        self._timer = self._waits.quiet_until
        return [assign_now]

    def _read_failed(self, event: SnapshotFailed) -> list[Action]:
        if event.attempt != self.attempt:
            return []
        self.attempt += 1
        self._timer = self._waits.read_failed(self._now)
        return []

    def _settled(self) -> list[Action]:
        self._go(GroupState.STABLE)
        self._timer = self.order.next_look()
        self._waits.calm()
        return [AllowClaims()]

    def _settle_timer(self, _: TimerFired) -> list[Action]:
        return self._settled() if self._due() else []

    def _look_timer(self, _: TimerFired) -> list[Action]:
        if not self._due():
            return []
        self.order.look_again()
        return self._read()

    def _read_timer(self, _: TimerFired) -> list[Action]:
        return self._read() if self._due() else []

    def _due(self) -> bool:
        return self._timer is not None and self._now >= self._timer

    # -- out of the group for a while: the registration is deleted last, because it fences every release --------------

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

# Pairs that are not in the table cannot happen:
# - `SessionOpened` and `SessionExpired` follow `SessionSuspended` only (ensured by `SessionKeeper.changed`), and that
#   leads from every state of a connected member to `disconnected`.
# - A registration is under way in `registering` and `disconnected` only: each `Register` silences the previous one, and
#   each reports once. It stands (so that it can be gone) from `Registered` to `Unregistered`.
# - A read is under way in `reading` only: the coordinator silences it when that state is left otherwise.
# - Timers are cancelled when their state is left.
# - `_look_for_stuck_streams` and `_all_released` check the state before they report.
# - A member that has failed gets no events any more.
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
        # Without a connection nothing is delivered or released anyway.
        Leave: _M._ignore,
    },
    _S.REGISTERING: {
        **_CONNECTED,
        Registered: _M._registered_now,
        # The connection was lost; if the session survives without a report, ask again.
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
    _S.STABLE: {**_CONNECTED, Changed: _M._change, TimerFired: _M._look_timer},
    _S.LEAVING: {
        SessionOpened: _M._open_leaving,
        SessionSuspended: _M._away_while_leaving,
        SessionExpired: _M._expire_leaving,
        # Nothing can be released without it; a member that is still stuck leaves again.
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
