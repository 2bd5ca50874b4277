"""Runs one group member on one thread: passes events to the state machines and carries out their actions.

The coordinator owns the state of the group, the partitions and the commits; no other thread writes claims. It makes no
decision itself: `machine` decides for the group, `rebalance.partition` for one partition, `session` follows the
session, and `claims` writes the owner nodes. Rule: nothing here blocks; whatever takes time answers by posting to the
loop.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from rebalance import partition as steps
from rebalance.lease import Lease
from rebalance.loop import Timer
from rebalance.member_partitions import MemberPartitions
from rebalance.ports import MemberParts
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.subscription import Partition
from rebalance.takeover import MemberPartition
from rebalance.zookeeper import events, znodes
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.group_reader import GroupReader
from rebalance.zookeeper.machine import GroupState, RebalanceMachine
from rebalance.zookeeper.owner_audit import Audit
from rebalance.zookeeper.pending_claims import NodeClaims
from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.port.requests import SessionChange
from rebalance.zookeeper.session import SessionKeeper

log = logging.getLogger(__name__)


class Coordinator:
    """Runs one member of one group.

    Args:
        member: its identity and settings.
        pipeline: sends requests to ZooKeeper; the caller runs its loop on one thread.
        parts: delivery, offsets and listener.
        lease: written here, read by the streams.
        rng: source of jitter.
        wall_clock_ms: for the timestamp in the registration only.

    Threads: all methods belong to the loop's thread unless they say otherwise.
    """

    def __init__(
        self,
        member: events.RegisteredMember,
        pipeline: Pipeline,
        parts: MemberParts,
        lease: Lease,
        rng: random.Random,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.member = member
        self.error: Exception | None = None
        self._loop = loop = pipeline.loop
        self.machine = RebalanceMachine(
            member.consumer_id, member.subscription, member.strategy, member.times, rng, loop.clock()
        )
        self._pipeline = pipeline
        self._delivery = parts.delivery
        self._offsets = parts.offsets
        self._claims = claims = Claims(pipeline.ask, member.group, loop.after_step)
        self.session = SessionKeeper(member, pipeline, lease, claims, self, wall_clock_ms)
        self.rebalance_statistics = RebalanceStatistics()
        node_claims = NodeClaims(claims, loop, self.may_claim)
        self._partitions = MemberPartitions(member, loop, node_claims, parts, self.rebalance_statistics, self)
        self._audit = Audit(member, loop, self._partitions, parts.listener, rng, self._audited)
        self._reader = GroupReader(pipeline.ask, loop, member, self.recheck, rng, self.machine.order.needs_owners)
        self._group_timer: Timer | None = None
        self._logged_warnings: frozenset[str] = frozenset()
        self._settled_calls: list[Callable[[], None]] = []
        self._is_settling = False
        self._closing = False

    # -- for the shell -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to take part; changes of the session are reported to `session_changed`."""
        self._audit.start()
        if self.member.max_processing_s is not None:
            self._look_for_stuck_streams()

    def session_changed(self, change: SessionChange) -> None:
        """Handle a change of the session. Threads: any."""
        self._loop.post(self.session.changed, change)

    @property
    def fence(self) -> Fence | None:
        """The registration that stands, `None` without one; a decision on a commit keeps it. Threads: any."""
        return self._claims.fence

    @property
    def lease(self) -> Lease:
        """Until when the streams may deliver."""
        return self.session.lease

    @property
    def state(self) -> str:
        """The state of the member, as docs/REBALANCE.md names it."""
        return self.machine.state.value

    @property
    def since(self) -> float:
        """When that began, on the loop's clock."""
        return self.machine.since

    @property
    def session_timeout_s(self) -> float:
        """The time-out of the session, as ZooKeeper granted it."""
        return self.session.timeout_s

    @property
    def partitions(self) -> dict[Partition, MemberPartition]:
        """The partitions that are wanted, held or released."""
        return self._partitions.all

    @property
    def settled(self) -> bool:
        """Whether each assigned partition is being delivered or is blocked; true as well when the member has failed."""
        if self.error is not None:
            return True
        return self.machine.state is GroupState.STABLE and self._partitions.settled

    def when_settled(self, call: Callable[[], None]) -> None:
        """Run `call` as soon as `settled` is true."""
        self._settled_calls.append(call)
        self.partitions_moved()

    def close(self) -> None:
        """Take no further part; the end of the session releases everything at once."""
        self._closing = True
        self._pipeline.close()
        self.session.close()
        self._partitions.close()
        self._audit.close()
        self._reader.forget_watches()
        if self._group_timer is not None:
            self._group_timer.cancel()

    # -- reports of the session --------------------------------------------------------------------------------------

    def watches_forgotten(self) -> None:
        """The connection was lost, and all watches with it."""
        self._reader.forget_watches()
        self._pipeline.reconnected()

    def session_opened(self, fence: Fence) -> None:
        """The registration stands."""
        self._offsets.session_opened(fence)
        # Registered again under the same session: owner nodes whose writes were refused in between are read again.
        self._partitions.handle_all(steps.Reconnected())

    def session_resumed(self) -> None:
        """The same session answers again."""
        self._partitions.handle_all(steps.Reconnected())

    def session_over(self) -> None:
        """The session is gone."""
        self._pipeline.session_over()
        self._offsets.session_over()
        self._reader.session_over()

    def group_event(self, event: events.Event) -> None:
        """Pass an event to the machine of the group, and carry out its actions."""
        if self._closing or self.error is not None:
            return
        before = self.machine.state
        for action in self.machine.handle(event, self._loop.clock()):
            self._do(action)
        if self.machine.state is not before:
            log.debug("%s: %s after %s", self.member.consumer_id, self.machine.state.value, type(event).__name__)
            self._time_rebalance()
        self._arm_timer()
        self.partitions_moved()

    def _time_rebalance(self) -> None:
        is_changing = self.machine.state in (GroupState.REGISTERING, GroupState.READING)
        if is_changing and not self.rebalance_statistics.is_under_way:
            self.rebalance_statistics.started(self._loop.clock())
            self._settled_calls.append(lambda: self.rebalance_statistics.ended(self._loop.clock()))

    # -- actions -----------------------------------------------------------------------------------------------------

    def _do(self, action: events.Action) -> None:
        match action:
            case events.Register():
                self._reader.stop()
                self.session.register()
            case events.ReadGroup(attempt):
                self._reader.read(
                    lambda snapshot, reason: self.group_event(
                        events.SnapshotFailed(attempt, reason)
                        if snapshot is None
                        else events.SnapshotRead(attempt, snapshot)
                    )
                )
            case events.SetAssignment(assignment, snapshot):
                self._warn(action)
                self._partitions.set_assignment(assignment, snapshot)
            case events.AllowClaims():
                self._partitions.handle_all(steps.ClaimsAllowed())
            case events.DropClaims():
                self._partitions.handle_all(steps.SessionOver())
            case events.ReleaseAll():
                self._reader.stop()
                self._partitions.handle_all(steps.Want(None))
            case events.Unregister():
                self.session.unregister()
            case events.Fail(error):
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.error("member %s has left the group for good: %s", self.member.consumer_id, error)
        self.error = error
        self.session.lease.end()
        self._partitions.handle_all(steps.SessionOver())
        self._delivery.fail(error)
        self._offsets.session_over()
        # Owner nodes last as long as the session, and would block the others.
        self._pipeline.port.close(0.0)

    def _look_for_stuck_streams(self) -> None:
        """Leave the group while the application is stuck on a message; rejoin when it goes on."""
        limit_s = self.member.max_processing_s
        if self._closing or limit_s is None:
            return
        self._loop.call_later(min(1.0, limit_s / 4), self._look_for_stuck_streams)
        stuck = self._delivery.stuck_streams(self._loop.clock())
        state = self.machine.state
        out = state in (GroupState.LEAVING, GroupState.UNREGISTERING, GroupState.OUT)
        if stuck and not out:
            reason = f"{', '.join(stuck)} asked for no message within {limit_s:g} s"
            if state is GroupState.STABLE:
                log.warning(
                    "%s leaves group %s until its application continues: %s",
                    self.member.consumer_id,
                    self.member.group,
                    reason,
                )
            self.group_event(events.Leave(reason))
        elif out and not stuck and state is not GroupState.UNREGISTERING:
            self.group_event(events.Rejoin())

    def _audited(self, cause: str) -> None:
        self._reader.doubt()
        self.machine.order.look_again()
        self.recheck(cause)

    def _arm_timer(self) -> None:
        if self._group_timer is not None:
            self._group_timer.cancel()
        due = self.machine.next_timer()
        wait_s = 0.0 if due is None else max(0.0, due - self._loop.clock())
        fired = events.TimerFired()
        self._group_timer = None if due is None else self._loop.call_later(wait_s, self.group_event, fired)

    def _warn(self, action: events.SetAssignment) -> None:
        frozen = action.assignment.frozen
        warnings = frozenset(action.assignment.warnings) | (frozenset({frozen}) if frozen else frozenset())
        snapshot = action.snapshot
        missing = [
            topic
            for topic in self.member.subscription.topics(frozenset())
            if topic not in snapshot.topics and topic not in snapshot.refused_topics
        ]
        warnings |= {f"topic {topic} does not exist yet; waiting for it" for topic in missing}
        for warning in sorted(warnings - self._logged_warnings):
            log.warning("group %s: %s", self.member.group, warning)
        for warning in sorted(self._logged_warnings - warnings):
            log.info("group %s: no longer: %s", self.member.group, warning)
        self._logged_warnings = warnings

    @property
    def warnings(self) -> frozenset[str]:
        """The faults of the group at its last read, and the nodes of this member that it may not write."""
        found = set(self._logged_warnings)
        if self.session.refused is not None:
            found.add(self.session.refused)
        if refused := self._claims.refused:
            paths = [znodes.owner_path(self.member.group, *partition) for partition in self._partitions.all]
            found.update(refused[path] for path in paths if path in refused)
        return frozenset(found)

    # -- for the partitions and the reader ---------------------------------------------------------------------------

    def may_claim(self) -> bool:
        """Whether no change of the group is pending."""
        return self.machine.state is GroupState.STABLE

    def recheck(self, cause: str) -> None:
        """Read the group again before anything is claimed."""
        if not self._closing:
            log.debug("%s: %s changed", self.member.consumer_id, cause)
            self.group_event(events.Changed(cause))

    def fenced(self) -> None:
        """Check the registration: a write was refused because it is not the one under which it was asked."""
        self.session.prove()

    def partitions_moved(self) -> None:
        """See whether all partitions are released or settled by now."""
        if self.machine.state is GroupState.LEAVING and self._partitions.empty:
            self._loop.post(self._all_released)
        if self._settled_calls and not self._is_settling:
            # Once a step: looking at thousands of partitions after each of thousands of events would take seconds.
            self._is_settling = True
            self._loop.after_step(self._notify_settled)

    def _all_released(self) -> None:
        if self.machine.state is GroupState.LEAVING and self._partitions.empty:
            self.group_event(events.AllReleased())

    def _notify_settled(self) -> None:
        self._is_settling = False
        if self._settled_calls and self.settled:
            calls, self._settled_calls = self._settled_calls, []
            for call in calls:
                call()
