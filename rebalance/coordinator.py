"""The one thread of a group member: events in, machines asked, actions done.

It owns the state of the group, the partitions and the commits; nobody else writes claims. It decides nothing itself:
what should be is `rebalance.machine`'s, one partition's next step is `rebalance.partition`'s, the session is
`rebalance.session`'s, and how a node is written is `rebalance.claims`'s. Rule: nothing here blocks; whatever takes
time answers by posting to the loop.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from rebalance import machine as m
from rebalance import partition as p
from rebalance import znodes
from rebalance.assignment import Partition
from rebalance.audit import Audit
from rebalance.claims import Claims, Fence
from rebalance.lease import Lease
from rebalance.loop import Loop, Timer
from rebalance.member_partition import MemberPartition
from rebalance.member_partitions import MemberPartitions
from rebalance.pipeline import Pipeline
from rebalance.ports import Delivery, Listener, Member, Offsets
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.requests import Reply, Request, SessionChange, ZooKeeperPort
from rebalance.session import SessionKeeper
from rebalance.watchers import GroupReader

__all__ = ["Coordinator"]

log = logging.getLogger(__name__)


class Coordinator:
    """Runs one member of one group.

    Args:
        member: what it is.
        port: ZooKeeper.
        loop: the queue and timers; the caller runs it on one thread.
        lease: rewritten here, read by the streams.
        delivery, offsets, listener: the rest of the member.
        rng: source of jitter.
        wall_clock_ms: for the timestamp in the registration only.

    Threads: all methods belong to the loop's thread unless they say otherwise.
    """

    def __init__(
        self,
        member: Member,
        port: ZooKeeperPort,
        loop: Loop,
        lease: Lease,
        delivery: Delivery,
        offsets: Offsets,
        listener: Listener,
        rng: random.Random,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.member = member
        self.error: Exception | None = None
        self.machine = m.RebalanceMachine(
            member.consumer_id, member.subscription, member.strategy, member.times, rng, loop.clock()
        )
        self._port = port
        self._loop = loop
        self._delivery = delivery
        self._offsets = offsets
        self._pipeline = Pipeline(port, loop)
        claims = self._claims = Claims(self.ask, member.group, loop.after_step)
        self.session = SessionKeeper(
            member, port, self._pipeline.ask_first, loop, lease, claims, self, wall_clock_ms,
            self._pipeline.waiting_since,
        )
        self.rebalance_statistics = RebalanceStatistics()
        self._partitions = MemberPartitions(
            member, loop, claims, delivery, offsets, listener,
            recheck=self._changed, fenced=self.session.prove, moved=self._moved,
            statistics=self.rebalance_statistics,
            may_claim=lambda: self.machine.state is m.GroupState.STABLE,  # nothing is pending
        )
        self._audit = Audit(member, loop, self._partitions, listener, rng, self._audited)
        self._reader = GroupReader(
            self.ask, loop, member.group, member.subscription, member.strategy, self._changed, member.times, rng
        )
        self._group_timer: Timer | None = None
        self._logged_warnings: frozenset[str] = frozenset()
        self._settled_calls: list[Callable[[], None]] = []
        self._is_settling = False
        self._closing = False

    # -- the shell's face --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take part; the session's changes come by `session_changed`."""
        self._audit.start()
        if self.member.max_processing_s is not None:
            self._look_for_stuck_streams()

    def session_changed(self, change: SessionChange) -> None:
        """Take note of what became of the session. Threads: any."""
        self._loop.post(self.session.changed, change)

    def ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        """Send a request when its turn comes; `handle` runs on the loop's thread."""
        self._pipeline.ask(request, handle)

    @property
    def partitions(self) -> dict[Partition, MemberPartition]:
        """The partitions that are wanted, held or let go of."""
        return self._partitions.all

    @property
    def settled(self) -> bool:
        """Whether each assigned partition is being delivered or is blocked; true as well when the member has failed."""
        if self.error is not None:
            return True
        return self.machine.state is m.GroupState.STABLE and self._partitions.settled

    def when_settled(self, call: Callable[[], None]) -> None:
        """Run `call` as soon as `settled` is true."""
        self._settled_calls.append(call)
        self._moved()

    def close(self) -> None:
        """Take no further part; ending the session gives everything back at once."""
        self._closing = True
        self._pipeline.close()
        self.session.close()
        self._partitions.close()
        self._audit.close()
        self._reader.forget_watches()
        if self._group_timer is not None:
            self._group_timer.cancel()

    # -- what the session tells --------------------------------------------------------------------------------------

    def watches_forgotten(self) -> None:
        """The connection was lost, and every watch with it."""
        self._reader.forget_watches()
        self._pipeline.reconnected()

    def session_opened(self, fence: Fence) -> None:
        """The registration stands."""
        self._offsets.session_opened(fence)
        # Registered anew under the same session: what was refused in between has to be looked at again.
        self._partitions.handle_all(p.Reconnected())

    def session_resumed(self) -> None:
        """The same session answers again."""
        self._partitions.handle_all(p.Reconnected())

    def session_over(self) -> None:
        """The session is gone."""
        self._pipeline.session_over()
        self._offsets.session_over()
        self._reader.session_over()

    def group_event(self, event: m.Event) -> None:
        """Ask the machine of the group, and do what it says."""
        if self._closing or self.error is not None:
            return
        before = self.machine.state
        for action in self.machine.handle(event, self._loop.clock()):
            self._do(action)
        if self.machine.state is not before:
            log.debug("%s: %s after %s", self.member.consumer_id, self.machine.state.value, type(event).__name__)
            self._time_rebalance()
        self._arm_timer()
        self._moved()

    def _time_rebalance(self) -> None:
        is_changing = self.machine.state in (m.GroupState.REGISTERING, m.GroupState.READING)
        if is_changing and not self.rebalance_statistics.is_under_way:
            self.rebalance_statistics.began(self._loop.clock())
            self._settled_calls.append(lambda: self.rebalance_statistics.ended(self._loop.clock()))

    # -- actions -----------------------------------------------------------------------------------------------------

    def _do(self, action: m.Action) -> None:
        match action:
            case m.Register():
                self._reader.stop()
                self.session.register()
            case m.ReadGroup(attempt):
                self._reader.read(lambda snapshot, reason: self.group_event(
                    m.SnapshotFailed(attempt, reason) if snapshot is None else m.SnapshotRead(attempt, snapshot)
                ))
            case m.SetAssignment(assignment, snapshot):
                self._warn(action)
                self._partitions.set_assignment(assignment, snapshot)
            case m.AllowClaims():
                self._partitions.handle_all(p.ClaimsAllowed())
            case m.DropClaims():
                self._partitions.handle_all(p.SessionOver())
            case m.ReleaseAll():
                self._reader.stop()
                self._partitions.handle_all(p.Want(None))
            case m.Unregister():
                self.session.unregister()
            case m.Fail(error):
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.error("member %s is out: %s", self.member.consumer_id, error)
        self.error = error
        self.session.lease.end()
        self._partitions.handle_all(p.SessionOver())
        self._delivery.fail(error)
        self._offsets.session_over()
        # Owner nodes outlive the member's part in the group as long as the session does, and would block the others.
        self._port.close(0.0)

    def _look_for_stuck_streams(self) -> None:
        """Let others have the partitions while the application is stuck on a message; come back when it goes on."""
        limit_s = self.member.max_processing_s
        if self._closing or limit_s is None:
            return
        self._loop.call_later(min(1.0, limit_s / 4), self._look_for_stuck_streams)
        stuck = self._delivery.stuck_streams(self._loop.clock())
        state = self.machine.state
        out = state in (m.GroupState.LEAVING, m.GroupState.UNREGISTERING, m.GroupState.OUT)
        if stuck and not out:
            reason = f"{', '.join(stuck)} asked for no message within {limit_s:g} s"
            if state is m.GroupState.STABLE:
                log.warning("%s steps out of group %s: %s", self.member.consumer_id, self.member.group, reason)
            self.group_event(m.Leave(reason))
        elif out and not stuck and state is not m.GroupState.UNREGISTERING:
            self.group_event(m.Rejoin())

    def _audited(self, cause: str) -> None:
        self._reader.doubt()
        self._changed(cause)

    def _changed(self, cause: str) -> None:
        if not self._closing:
            log.debug("%s: %s changed", self.member.consumer_id, cause)
            self.group_event(m.Changed(cause))

    def _arm_timer(self) -> None:
        if self._group_timer is not None:
            self._group_timer.cancel()
        due = self.machine.next_timer()
        wait_s = 0.0 if due is None else max(0.0, due - self._loop.clock())
        self._group_timer = None if due is None else self._loop.call_later(wait_s, self.group_event, m.TimerFired())

    def _warn(self, action: m.SetAssignment) -> None:
        frozen = action.assignment.frozen
        warnings = frozenset(action.assignment.warnings) | (frozenset({frozen}) if frozen else frozenset())
        snapshot = action.snapshot
        missing = [topic for topic in self.member.subscription.topics(frozenset())
                   if topic not in snapshot.topics and topic not in snapshot.refused_topics]
        warnings |= {f"topic {topic} does not exist (yet); waiting for it" for topic in missing}
        for warning in sorted(warnings - self._logged_warnings):
            log.warning("group %s: %s", self.member.group, warning)
        for warning in sorted(self._logged_warnings - warnings):
            log.info("group %s: this is over: %s", self.member.group, warning)
        self._logged_warnings = warnings

    @property
    def warnings(self) -> frozenset[str]:
        """What was wrong with the group when it was last read, and what this member may not do of its own nodes."""
        found = set(self._logged_warnings)
        if self.session.refused is not None:
            found.add(self.session.refused)
        if refused := self._claims.refused:
            paths = [znodes.owner_path(self.member.group, *partition) for partition in self._partitions.all]
            found.update(refused[path] for path in paths if path in refused)
        return frozenset(found)

    def _moved(self) -> None:
        if self.machine.state is m.GroupState.LEAVING and self._partitions.empty:
            self._loop.post(self._all_released)
        if self._settled_calls and not self._is_settling:
            # Once a step: looking at thousands of partitions after each of thousands of events would take seconds.
            self._is_settling = True
            self._loop.after_step(self._notify_settled)

    def _all_released(self) -> None:
        if self.machine.state is m.GroupState.LEAVING and self._partitions.empty:
            self.group_event(m.AllReleased())

    def _notify_settled(self) -> None:
        self._is_settling = False
        if self._settled_calls and self.settled:
            calls, self._settled_calls = self._settled_calls, []
            for call in calls:
                call()
