"""The state machine of a member in a group that brokers coordinate: joins, gets assignments, leaves.

Pure: it takes events and `now` and returns actions; timers through `next_timer`. Rules, and their reasons:
- Requests carry numbers, and answers to others than the last of their kind are dropped: a late answer about a
  generation that is over is the commonest reason for partitions that are given up without need.
- Heartbeats go on while anything is held, also while it is given back and while the group is assigned anew: long work
  must not end the membership.
- A coordinator that does not answer, or is another one by now, is looked up again; the membership stays valid until a
  coordinator says otherwise. Nothing is revoked for that.
- A heartbeat proves little while the group is assigned anew: a member whose JoinGroup or SyncGroup was lost is removed
  when the others have waited for it long enough, though its heartbeats were answered until then. So the lease ends no
  later than that, and the heartbeats of a member that waits for its assignment renew nothing.
- Before JoinGroup is sent, the offsets of partitions to give back are committed under the generation that still counts.
- A generation comes from an answer; it need not grow.

The transition table stands at the end of the file; a pair of state and event that is not in it is a bug and raises.

Source: AbstractCoordinator, ConsumerCoordinator (Kafka 3.9).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rebalance.brokers import events
from rebalance.brokers.events import Action, Event, Fence
from rebalance.brokers.reactions import Asked, Reaction, reaction_to


class MemberState(enum.Enum):
    """The states of a member."""

    OUT = "out"
    GIVING_BACK = "giving back"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    UNREGISTERING = "unregistering"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MemberTimes:
    """The waits of a member, in seconds.

    Attributes:
        rebalance_s: How long the coordinator waits for the member when the group is assigned anew.
        heartbeat_s: Between two heartbeats.
        soon_s: Between an assignment and the first heartbeat, and twice as long each time up to `heartbeat_s`: the
            cooperative protocol has a second round, and members that start together cause several rebalances. Who
            notices them late has the others wait.
        retry_s: Before a request is sent again.
        leave_s: Longest wait for the answer to LeaveGroup.
    """

    rebalance_s: float = 300.0
    heartbeat_s: float = 3.0
    soon_s: float = 0.1
    retry_s: float = 0.1
    leave_s: float = 5.0


class MemberMachine:
    """Decides for one member.

    Args:
        times: The waits.
        is_static: The member has an instance id: it does not leave, as it comes back under the same one.
        now: When it is made.

    Attributes:
        state: Its state.
        since: When that began.
        fence: Generation and member id; None without a valid one.
        member_id: As the coordinator has named the member; empty before.
        rebalance_s: How long the coordinator waits for the member, as far as is known of it: that of `times` at first.
    """

    def __init__(self, times: MemberTimes, *, is_static: bool, now: float) -> None:
        self.state = MemberState.OUT
        self.since = now
        self.fence: Fence | None = None
        self.member_id = ""
        self.rebalance_s = times.rebalance_s
        self._times = times
        self._is_static = is_static
        self._now = now
        self._request = 0
        self._pending: dict[Asked, int] = {}
        self._assignments: Mapping[str, bytes] = {}
        self._protocol = ""
        self._is_leader = False
        self._must_rejoin = False
        self._stable_at = now
        self._has_coordinator = False
        self._retry_at: float | None = None
        self._heartbeat_at: float | None = None
        self._beat_s = times.heartbeat_s
        self._leave_at: float | None = None

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return the actions that follow from an event, in order.

        Raises:
            LookupError: The table has no row for the event in the present state.
        """
        self._now = now
        row = _TABLE.get((self.state, type(event)))
        if row is None:
            raise LookupError(f"no transition for {type(event).__name__} in state {self.state.value}")
        return row(self, event)

    def next_timer(self) -> float | None:
        """Return when `TimerFired` should come, None for never."""
        return min((at for at in (self._retry_at, self._heartbeat_at, self._leave_at) if at is not None), default=None)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _number(self, asked: Asked) -> int:
        self._request += 1
        self._pending[asked] = self._request
        return self._request

    def _is_answer(self, asked: Asked, request: int) -> bool:
        """Return whether a request is the last one of its kind, which then has its answer."""
        if self._pending.get(asked) != request:
            return False
        del self._pending[asked]
        return True

    def _ask(self) -> list[Action]:
        """Return the request that the state waits for; where no coordinator is known, the look-up."""
        self._retry_at = None
        if not self._has_coordinator:
            if Asked.FIND_COORDINATOR in self._pending:
                return []
            return [events.FindCoordinator(self._number(Asked.FIND_COORDINATOR))]
        if self.state is MemberState.JOINING and Asked.JOIN_GROUP not in self._pending:
            self._must_rejoin = False  # the subscription is made when it is sent
            return [events.JoinGroup(self._number(Asked.JOIN_GROUP), self.member_id)]
        if self.state is MemberState.SYNCING and Asked.SYNC_GROUP not in self._pending and self._may_sync():
            assert self.fence is not None
            return [events.SyncGroup(self._number(Asked.SYNC_GROUP), self.fence, self._assignments)]
        if self.state is MemberState.UNREGISTERING and Asked.LEAVE_GROUP not in self._pending:
            return [events.LeaveGroup(self._number(Asked.LEAVE_GROUP), self.member_id)]
        return []

    def _may_sync(self) -> bool:
        return not self._is_leader or bool(self._assignments)

    def _ask_later(self) -> list[Action]:
        self._retry_at = self._now + self._times.retry_s
        return []

    def _look_up(self) -> list[Action]:
        """Look for the coordinator after a pause; requests to the one before get no answer any more."""
        self._has_coordinator = False
        for asked in (Asked.JOIN_GROUP, Asked.SYNC_GROUP, Asked.HEARTBEAT, Asked.LEAVE_GROUP):
            self._pending.pop(asked, None)
        return self._ask_later()

    def _found(self, event: events.CoordinatorFound) -> list[Action]:
        if not self._is_answer(Asked.FIND_COORDINATOR, event.request):
            return []
        self._has_coordinator = True
        return [*self._ask(), *self._heartbeat_now()]

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def _heartbeat_now(self) -> list[Action]:
        """Return a heartbeat, unless one has no answer yet; the next one is due in its time."""
        if self.fence is None or self.state not in _BEATING:
            self._heartbeat_at = None
            return []
        self._heartbeat_at = self._now + self._beat_s
        self._beat_s = min(2 * self._beat_s, self._times.heartbeat_s)
        if not self._has_coordinator or Asked.HEARTBEAT in self._pending:
            return []
        return [events.SendHeartbeat(self._number(Asked.HEARTBEAT), self.fence)]

    def _beat(self, event: events.HeartbeatAnswered) -> list[Action]:
        if not self._is_answer(Asked.HEARTBEAT, event.request):
            return []
        return self._renewed(event.sent_at)

    def _renewed(self, sent_at: float, *, rebalances: bool = False) -> list[Action]:
        """Return the actions that follow from an answer to a request that was sent then.

        Args:
            rebalances: It said that the group is assigned anew, which began after the last answer that did not.
        """
        if self.fence is None or self.state is MemberState.SYNCING:
            return []
        if not rebalances:  # the group was stable, also where this member gives back already
            self._stable_at = max(self._stable_at, sent_at)
            return [events.RenewLease(self.fence, sent_at)]
        return [events.RenewLease(self.fence, sent_at, self._stable_at + self.rebalance_s)]

    def _beat_refused(self, event: events.HeartbeatRefused) -> list[Action]:
        if not self._is_answer(Asked.HEARTBEAT, event.request) or self.fence is None:
            return []
        reaction = reaction_to(Asked.HEARTBEAT, event.code)
        if reaction is Reaction.JOIN:
            renewed = self._renewed(event.sent_at, rebalances=True)
            return [*renewed, *(self._rejoin() if self.state is MemberState.STABLE else [])]
        if reaction in _LOST and self.state is MemberState.JOINING:
            return []  # the next generation has begun; the answer to JoinGroup is on its way
        return self._react(reaction, Asked.HEARTBEAT, event.code, "")

    # -- errors --------------------------------------------------------------------------------------------------------

    def _failed(self, event: events.RequestFailed) -> list[Action]:
        if not self._is_answer(event.asked, event.request):
            return []
        if event.code is None:
            return self._look_up()
        return self._react(reaction_to(event.asked, event.code), event.asked, event.code, event.reason)

    def _write_refused(self, event: events.WriteRefused) -> list[Action]:
        if event.fence != self.fence:
            return []
        reaction = reaction_to(Asked.OFFSET_COMMIT, event.code)
        if reaction is Reaction.JOIN and self.state is not MemberState.STABLE:
            return []
        if reaction in (Reaction.RETRY, Reaction.REFUSED):
            return []  # the commit's own affair
        if reaction in _LOST and self.state is MemberState.JOINING:
            return []  # the next generation has begun; the answer to JoinGroup is on its way
        return self._react(reaction, Asked.OFFSET_COMMIT, event.code, "")

    def _react(self, reaction: Reaction, asked: Asked, code: int, reason: str) -> list[Action]:
        if reaction is Reaction.FIND:
            return self._look_up()
        if reaction is Reaction.RETRY:
            return self._ask_later()
        if reaction is Reaction.JOIN:
            return self._rejoin()
        if reaction in _LOST:
            return self._lost(f"{asked.value}: error {code}", forget_id=reaction is Reaction.JOIN_AS_NEW)
        if reaction is Reaction.FAIL:
            return self._fail(events.Fail(asked, code, reason))
        return []

    def _fail(self, action: events.Fail) -> list[Action]:
        self.fence = None
        self._go(MemberState.FAILED)
        self._retry_at = self._heartbeat_at = self._leave_at = None
        return [events.EndLease(), action]

    def _lost(self, reason: str, *, forget_id: bool) -> list[Action]:
        """The coordinator does not know the member, or its generation: its partitions may be others' by now."""
        had, was_new = self.fence is not None, not self.member_id
        self.fence = None
        if forget_id:
            self.member_id = ""
        lost: list[Action] = [events.EndLease(), events.Lose(reason)] if had else []
        if self.state is MemberState.LEAVING:
            return [*lost, *self._gone()]
        self._go(MemberState.JOINING)
        # A coordinator that does not know a member without an id is about to go: at once it would say the same again.
        return [*lost, *(self._ask_later() if was_new else self._ask())]

    # -- joining -------------------------------------------------------------------------------------------------------

    def _start(self, _: events.Start) -> list[Action]:
        self._go(MemberState.JOINING)
        return self._ask()

    def _rejoin_wanted(self, _: events.Rejoin) -> list[Action]:
        return self._rejoin()

    def _rejoin_after_this(self, _: events.Rejoin) -> list[Action]:
        """The request under way was sent before: its answer is out of date."""
        self._must_rejoin = self.state is MemberState.SYNCING or Asked.JOIN_GROUP in self._pending
        return []

    def _rejoin(self) -> list[Action]:
        self._go(MemberState.GIVING_BACK)
        return [events.GiveBack(everything=False), *self._heartbeat_if_due()]

    def _given_back(self, _: events.GivenBack) -> list[Action]:
        self._go(MemberState.JOINING)
        return self._ask()

    def _joined(self, event: events.JoinAnswered) -> list[Action]:
        if not self._is_answer(Asked.JOIN_GROUP, event.request):
            return []
        self.fence, self.member_id = event.fence, event.fence.member_id
        self._protocol = event.protocol
        self._is_leader = event.leader == event.fence.member_id
        self._assignments = {}
        self._pending.pop(Asked.HEARTBEAT, None)  # of the generation before
        self._go(MemberState.SYNCING)
        self._heartbeat_at = self._now + self._times.heartbeat_s
        if self._is_leader:
            return [events.Assign(event.fence, event.protocol, event.members)]
        return self._ask()

    def _named(self, event: events.MemberIdGiven) -> list[Action]:
        if not self._is_answer(Asked.JOIN_GROUP, event.request):
            return []
        self.member_id = event.member_id
        return self._ask()

    def _assigned(self, event: events.AssignmentsMade) -> list[Action]:
        if event.fence != self.fence:
            return []
        self._assignments = event.assignments
        return self._ask()

    def _synced(self, event: events.SyncAnswered) -> list[Action]:
        if not self._is_answer(Asked.SYNC_GROUP, event.request):
            return []
        assert self.fence is not None
        self._assignments = {}
        self._go(MemberState.STABLE)
        first_s = min(self._times.soon_s, self._times.heartbeat_s)
        self._heartbeat_at, self._beat_s = self._now + first_s, min(2 * first_s, self._times.heartbeat_s)
        actions: list[Action] = [
            *self._renewed(event.sent_at),
            events.SetAssignment(self.fence, self._protocol, event.assignment, self._is_leader),
        ]
        if self._must_rejoin:
            self._must_rejoin = False
            return [*actions, *self._rejoin()]
        return [*actions, *self._heartbeat_if_due()]

    # -- leaving -------------------------------------------------------------------------------------------------------

    def _leave(self, _: events.Leave) -> list[Action]:
        self._go(MemberState.LEAVING)
        self._retry_at = None
        return [events.GiveBack(everything=True), *self._heartbeat_if_due()]

    def _all_given_back(self, _: events.GivenBack) -> list[Action]:
        if self._is_static or not self.member_id:
            return self._gone()
        self._go(MemberState.UNREGISTERING)
        self._heartbeat_at = None
        self._leave_at = self._now + self._times.leave_s
        return self._ask()

    def _left(self, event: events.LeaveAnswered) -> list[Action]:
        return self._gone() if self._is_answer(Asked.LEAVE_GROUP, event.request) else []

    def _leave_failed(self, event: events.RequestFailed) -> list[Action]:
        """The coordinator could not be asked; within the time it is tried again, as the others wait for the session."""
        if event.asked is Asked.LEAVE_GROUP and self._is_answer(event.asked, event.request):
            return self._look_up()
        if event.asked is Asked.FIND_COORDINATOR and self._is_answer(event.asked, event.request):
            return self._ask_later()
        return []

    def _gone(self) -> list[Action]:
        self.fence = None
        self._retry_at = self._heartbeat_at = self._leave_at = None
        self._pending.clear()
        if not self._is_static:
            self.member_id = ""
        self._must_rejoin = False
        self._go(MemberState.OUT)
        return [events.EndLease()]

    # -- timers --------------------------------------------------------------------------------------------------------

    def _timer(self, _: events.TimerFired) -> list[Action]:
        if self._leave_at is not None and self._now >= self._leave_at:
            return self._gone()
        actions: list[Action] = []
        if self._retry_at is not None and self._now >= self._retry_at:
            actions += self._ask()
        return [*actions, *self._heartbeat_if_due()]

    def _heartbeat_if_due(self) -> list[Action]:
        if self.fence is None or self.state not in _BEATING:
            self._heartbeat_at = None
            return []
        if self._heartbeat_at is not None and self._now < self._heartbeat_at:
            return []
        return self._heartbeat_now()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go(self, state: MemberState) -> None:
        if state is self.state:
            return
        self.state, self.since = state, self._now
        for asked, of_state in _ASKED_IN.items():
            if of_state is not state:
                self._pending.pop(asked, None)

    def _ignore(self, _: Event) -> list[Action]:
        return []


_M = MemberMachine
_S = MemberState
_LOST = (Reaction.JOIN_AS_LOST, Reaction.JOIN_AS_NEW)
_ASKED_IN = {
    Asked.JOIN_GROUP: MemberState.JOINING,
    Asked.SYNC_GROUP: MemberState.SYNCING,
    Asked.LEAVE_GROUP: MemberState.UNREGISTERING,
}
"""The answers to these requests matter in one state alone."""
_BEATING = frozenset((_S.GIVING_BACK, _S.JOINING, _S.SYNCING, _S.STABLE, _S.LEAVING))

# Pairs that are not in the table cannot happen:
# - `GivenBack` answers `GiveBack`, which is asked for in `giving back` and `leaving` alone; a later one replaces the
#   one before, and `Lose` silences it.
# - `Start` comes once for each time that the member is out.
# - A member that has failed gets no events any more.
_ANSWERS: dict[type, Callable[..., list[Action]]] = {
    events.CoordinatorFound: _M._found,
    events.RequestFailed: _M._failed,
    events.JoinAnswered: _M._ignore,
    events.MemberIdGiven: _M._ignore,
    events.AssignmentsMade: _M._ignore,
    events.SyncAnswered: _M._ignore,
    events.HeartbeatAnswered: _M._beat,
    events.HeartbeatRefused: _M._beat_refused,
    events.WriteRefused: _M._write_refused,
    events.LeaveAnswered: _M._ignore,
    events.TimerFired: _M._timer,
}
_IN_GROUP: dict[type, Callable[..., list[Action]]] = {**_ANSWERS, events.Leave: _M._leave}
_BY_STATE: dict[MemberState, dict[type, Callable[..., list[Action]]]] = {
    _S.OUT: {**dict.fromkeys((*_ANSWERS, events.Rejoin, events.Leave), _M._ignore), events.Start: _M._start},
    _S.GIVING_BACK: {**_IN_GROUP, events.Rejoin: _M._ignore, events.GivenBack: _M._given_back},
    _S.JOINING: {
        **_IN_GROUP,
        events.Rejoin: _M._rejoin_after_this,
        events.JoinAnswered: _M._joined,
        events.MemberIdGiven: _M._named,
    },
    _S.SYNCING: {
        **_IN_GROUP,
        events.Rejoin: _M._rejoin_after_this,
        events.AssignmentsMade: _M._assigned,
        events.SyncAnswered: _M._synced,
    },
    _S.STABLE: {**_IN_GROUP, events.Rejoin: _M._rejoin_wanted},
    _S.LEAVING: {**_ANSWERS, events.Rejoin: _M._ignore, events.Leave: _M._ignore, events.GivenBack: _M._all_given_back},
    _S.UNREGISTERING: {
        **dict.fromkeys((*_ANSWERS, events.Rejoin, events.Leave), _M._ignore),
        events.CoordinatorFound: _M._found,
        events.RequestFailed: _M._leave_failed,
        events.LeaveAnswered: _M._left,
        events.TimerFired: _M._timer,
    },
}

_TABLE: dict[tuple[MemberState, type], Callable[..., list[Action]]] = {
    (state, event): step for state, rows in _BY_STATE.items() for event, step in rows.items()
}
