"""Runs one member of a group of brokers on one thread: passes events to the state machines, carries out their actions.

`machine` decides for the group, `rebalance.partition` for one partition; `topic_watch` follows the topics, `leading`
assigns where this member leads. Ports do everything that takes time, and answer by posting to the loop. Rules:
- Nothing here blocks: heartbeats have to go out in time.
- A partition is given up in order, the message in hand finished and its offset committed, before the member joins
  again: until then the coordinator takes commits of the generation that is over.
- With cooperative assignors only what moves is given up, after the assignment; then the member joins once more.

Source: ConsumerCoordinator, AbstractCoordinator (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from rebalance import partition as steps
from rebalance.assigned_coordinator import GrantedClaims, MembershipFence
from rebalance.brokers import events
from rebalance.brokers.assignor import Assignor
from rebalance.brokers.consumer_protocol import NO_GENERATION, decode_assignment, encode_subscription
from rebalance.brokers.consumer_protocol import Subscription as JoinSubscription
from rebalance.brokers.group_member import BrokerGroupMember, threads_of_assigned
from rebalance.brokers.leading import AssignmentRefused, assign, subscriptions_of, take_over, topics_of, user_data_of
from rebalance.brokers.machine import MemberMachine, MemberState, MemberTimes
from rebalance.brokers.reactions import Asked, refusal
from rebalance.brokers.topic_watch import TopicWatch
from rebalance.errors import UnreadableMetadata
from rebalance.lease import LEASE_FRACTION, Lease
from rebalance.loop import Loop, Timer
from rebalance.member_partitions import MemberPartitions
from rebalance.ports import MemberParts
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.subscription import Assignment, Partition, Subscription
from rebalance.takeover import MemberPartition

log = logging.getLogger(__name__)

_HELD: Final = (steps.PartitionState.OWNED, steps.PartitionState.DRAINING)
_GOING: Final = (steps.PartitionState.DRAINING, steps.PartitionState.RELEASING)
_MAY_COMMIT: Final = (MemberState.STABLE, MemberState.GIVING_BACK, MemberState.JOINING, MemberState.LEAVING)
"""The states in which a coordinator takes commits: not between the answers to JoinGroup and to SyncGroup.

While it waits for members to join, the generation before counts: a member of the cooperative protocol that leaves then
would leave to others what it has done. A commit that comes too late is refused, and tried again under the next one.
"""
_OUT: Final = (MemberState.LEAVING, MemberState.UNREGISTERING, MemberState.OUT)
AWAY: Final = "the coordinator of group"
"""How a warning starts that the coordinator does not answer."""
_MOMENT_S: Final = 2.0
"""How long a new cluster, whose first group this is, may have no coordinator, as one that moves."""
_COMMIT_S: Final = 5.0
"""The part of the rebalance time-out that is kept for the last commit, and for the way of JoinGroup."""
_COOPERATIVE_VERSION: Final = 3
_EAGER_VERSION: Final = 0


class Coordinator:
    """Runs one member of one group.

    Args:
        member: Its identity and settings.
        loop: The caller runs it on one thread.
        port: Asks the coordinator of the group.
        topics: Reads topics.
        parts: Delivery, offsets and listener.
        lease: Written here, read by the streams.

    Attributes:
        member: The same.
        error: Why the member is out of its group for good; None while it is not.
        rebalance_statistics: How often and how long it has rebalanced.

    Threads: All methods belong to the loop's thread unless they say otherwise.
    """

    def __init__(
        self,
        member: BrokerGroupMember,
        loop: Loop,
        port: events.GroupPort,
        topics: events.TopicPort,
        parts: MemberParts,
        lease: Lease,
    ) -> None:
        self.member = member
        self.error: Exception | None = None
        self.lease = lease
        self.rebalance_statistics = RebalanceStatistics()
        self.topics = TopicWatch(member, loop, topics, self._topics_changed, self._topics_seen_again)
        self._loop = loop
        self._port = port
        self._delivery = parts.delivery
        self._offsets = parts.offsets
        times = MemberTimes(member.rebalance_s, member.heartbeat_s, member.retry_s)
        self._machine = MemberMachine(times, is_static=member.instance_id is not None, now=loop.clock())
        self._claims = GrantedClaims(loop)
        self._partitions = MemberPartitions(member, loop, self._claims, parts, self.rebalance_statistics, self)
        self._memberships = 0
        self._joined_with: tuple[str, ...] = ()
        self._owned_since = NO_GENERATION
        self._give_back: events.GiveBack | None = None
        self._moves_away = False
        self._members: tuple[str, ...] = ()
        self._leader = ""
        self._timer: Timer | None = None
        self._settled_calls: list[Callable[[], None]] = []
        self._is_settling = False
        self._has_started = False
        self._closing = False
        self._away: tuple[float, str] | None = None
        self._away_was_logged = False
        self._use_rebalance_time(member.rebalance_s)

    # -- for the shell -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to take part, as soon as the topics are known."""

        def read() -> None:
            # `auto.offset.reset` is about partitions that exist now; later ones are read from their start.
            self._partitions.set_assignment(Assignment({}, {}), self.topics.seen)
            self._has_started = True
            self._handle(events.Start())

        self.rebalance_statistics.started(self._loop.clock())
        self._settled_calls.append(lambda: self.rebalance_statistics.ended(self._loop.clock()))
        self.topics.start(read)
        if self.member.max_processing_s is not None:
            self._look_for_stuck_streams()

    @property
    def fence(self) -> MembershipFence | None:
        """The membership that stands, None without one; a decision on a commit keeps it. Threads: any."""
        return self._claims.fence

    @property
    def generation(self) -> events.Fence | None:
        """Under which offsets are committed now; None while none can be. Threads: any."""
        fence = self._machine.fence  # read first: it is replaced before the state is
        return fence if self._machine.state in _MAY_COMMIT else None

    @property
    def last_generation(self) -> int:
        """The generation of the group that the member has joined last; -1 before. Threads: any."""
        fence = self._machine.fence
        return NO_GENERATION if fence is None else fence.generation

    @property
    def member_id(self) -> str:
        """As the coordinator has named the member; empty before. Threads: any."""
        return self._machine.member_id

    @property
    def state(self) -> str:
        """The state of the member, as docs/REBALANCE.md names it."""
        return self._machine.state.value

    @property
    def since(self) -> float:
        """When that began, on the loop's clock."""
        return self._machine.since

    @property
    def partitions(self) -> dict[Partition, MemberPartition]:
        """The partitions that are wanted, held or released."""
        return self._partitions.all

    @property
    def session_timeout_s(self) -> float:
        """After which the coordinator removes a member without heartbeats."""
        return self.member.session_s

    @property
    def warnings(self) -> frozenset[str]:
        """Warnings about the group for the application, as sentences."""
        found = {f"topic {name} does not exist yet; waiting for it" for name in self.topics.missing}
        if self.topics.failure is not None:
            found.add(f"topics cannot be read: {self.topics.failure}")
        if self._away is not None:
            found.add(f"{AWAY} {self.member.group} does not answer: {self._away[1]}")
        return frozenset(found)

    @property
    def away(self) -> tuple[float, str] | None:
        """Since when, on the loop's clock, no coordinator has answered, and why; None if one does. Threads: any."""
        return self._away

    @property
    def settled(self) -> bool:
        """Whether each assigned partition is being delivered; true as well when the member has failed."""
        if self.error is not None:
            return True
        is_stable = self._machine.state is MemberState.STABLE and not self._moves_away
        return is_stable and self._partitions.settled

    def when_settled(self, call: Callable[[], None]) -> None:
        """Run `call` as soon as `settled` is true."""
        self._settled_calls.append(call)
        self.partitions_moved()

    def write_refused(self, generation: events.Fence, code: int) -> None:
        """Take note that a commit was refused with an error code. Threads: any."""
        self._loop.post(self._handle, events.WriteRefused(generation, code))

    def fail(self, error: Exception) -> None:
        """End the member for good."""
        if self.error is None and not self._closing:
            self._fail(error)

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the group, if this one leads it; else the member itself, once it has joined."""
        if self._members:
            return self._members
        return (self._machine.member_id,) if self._machine.member_id else ()

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics."""
        self.topics.subscribe(subscription)

    def rejoin(self, reason: str) -> None:
        """Have the group assigned anew."""
        self._handle(events.Rejoin(reason))

    def close(self) -> None:
        """Take no further part."""
        self._closing = True
        self._partitions.close()
        self.topics.close()
        if self._timer is not None:
            self._timer.cancel()

    def leave_group(self, done: Callable[[], None]) -> None:
        """Tell the coordinator that the member leaves, so that nobody waits for the end of its session.

        A static member does not: it comes back under its instance id.
        """
        self.lease.end()
        self._leave_for_good("the consumer has shut down", done)

    def _leave_for_good(self, reason: str, done: Callable[[], None]) -> None:
        if self.member.instance_id is not None:
            done()
        else:
            self._port.leave_group(self._machine.member_id, reason, done)

    # -- the machine of the group --------------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        if self._closing or self.error is not None:
            return
        before = self._machine.state
        self._note_away(event)
        for action in self._machine.handle(event, self._loop.clock()):
            self._do(action)
        if self._machine.state is not before:
            log.debug("%s: %s after %s", self.member.consumer_id, self.state, type(event).__name__)
            self._time_rebalance()
        self._arm_timer()
        self.partitions_moved()

    def _note_away(self, event: events.Event) -> None:
        """Take note of a coordinator that does not answer; say so once, after a moment, until it does."""
        if isinstance(event, events.RequestFailed) and (event.code is None or event.asked is Asked.FIND_COORDINATOR):
            now = self._loop.clock()
            since = now if self._away is None else self._away[0]
            self._away = since, event.reason
            if not self._away_was_logged and now >= since + _MOMENT_S:
                self._away_was_logged = True
                log.warning("%s: %s %s does not answer; trying again: %s", self.member.consumer_id, AWAY,
                            self.member.group, event.reason)  # fmt: skip
        elif isinstance(event, (events.JoinAnswered, events.SyncAnswered, events.HeartbeatAnswered)):
            self._away, self._away_was_logged = None, False
        elif isinstance(event, events.CoordinatorFound):
            self._away = None

    def _time_rebalance(self) -> None:
        is_changing = self._machine.state in (MemberState.GIVING_BACK, MemberState.JOINING)
        if is_changing and not self.rebalance_statistics.is_under_way:
            self.rebalance_statistics.started(self._loop.clock())
            self._settled_calls.append(lambda: self.rebalance_statistics.ended(self._loop.clock()))

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._machine.next_timer()
        wait_s = 0.0 if due is None else max(0.0, due - self._loop.clock())
        self._timer = None if due is None else self._loop.call_later(wait_s, self._handle, events.TimerFired())

    def _do(self, action: events.Action) -> None:
        match action:
            case events.FindCoordinator(request):
                self._find(request)
            case events.JoinGroup(request, member_id):
                self._join(request, member_id)
            case events.Assign(fence, protocol, members):
                self._lead(fence, protocol, members)
            case events.SyncGroup(request, fence, assignments):
                self._sync(request, fence, assignments)
            case events.SendHeartbeat(request, fence):
                self._beat(request, fence)
            case events.LeaveGroup(request, member_id):
                reason = "the application is stuck"
                self._port.leave_group(member_id, reason, lambda: self._post(events.LeaveAnswered(request)))
            case events.SetAssignment(fence, protocol, data, is_leader):
                self._take(fence, protocol, data, is_leader)
            case events.GiveBack(everything):
                self._give_back = action
                if everything or not self.member.is_cooperative:
                    self._partitions.handle_all(steps.Want(None))
            case events.Lose(reason):
                self._lose(reason)
            case events.RenewLease(_, sent_at, no_later_than):
                self.lease.prove(sent_at, min(sent_at + self.member.session_s * LEASE_FRACTION, no_later_than))
            case events.EndLease():
                self.lease.end()
                if self._machine.state is MemberState.OUT:
                    self._end_membership()
            case events.Fail(asked, code, reason):
                self._fail(refusal(self.member, asked, code, reason))

    def _fail(self, error: Exception) -> None:
        log.error("member %s has left the group for good: %s", self.member.consumer_id, error)
        self.error = error
        self.lease.end()
        self._claims.fence = None
        self._partitions.handle_all(steps.SessionOver())
        self._delivery.fail(error)
        self._offsets.session_over()
        self.topics.close()
        # Without its heartbeats the others would wait for the end of its session, and for the assignment that it owes
        # them as their leader.
        self._leave_for_good("the member has failed", lambda: None)
        self.partitions_moved()  # a thread that waits for the first assignment learns that none will come

    def _lose(self, reason: str) -> None:
        log.warning(
            "%s is no longer in group %s (%s); its partitions are lost, and it joins again",
            self.member.consumer_id,
            self.member.group,
            reason,
        )
        self._claims.fence = None
        self._give_back, self._moves_away = None, False
        self._partitions.handle_all(steps.SessionOver())
        self._partitions.handle_all(steps.Want(None))
        self._offsets.session_over()

    def _end_membership(self) -> None:
        """The member is out, with nothing in its hands: earlier decisions must not be stored later."""
        self._claims.fence = None
        self._offsets.session_over()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _post(self, event: events.Event) -> None:
        """Pass an answer to the machine. Threads: any."""
        self._loop.post(self._handle, event)

    def _find(self, request: int) -> None:
        def found(refused: events.Refused | None) -> None:
            if refused is not None:
                self._post(events.RequestFailed(request, Asked.FIND_COORDINATOR, refused.code, refused.reason))
            else:
                self._loop.post(self._coordinator_found, request)

        self._port.find_coordinator(found)

    def _coordinator_found(self, request: int) -> None:
        member = self.member
        self._use_rebalance_time(member.session_s if self._port.rebalance_is_session else member.rebalance_s)
        self._handle(events.CoordinatorFound(request))

    def _use_rebalance_time(self, rebalance_s: float) -> None:
        """Give a message in hand as long as the others wait for this member, less what the rest of the way takes."""
        rest_s = self.member.heartbeat_s + _COMMIT_S
        self._machine.rebalance_s = rebalance_s
        self._partitions.drain_timeout_s = max(rebalance_s / 2, rebalance_s - rest_s)

    def _join(self, request: int, member_id: str) -> None:
        member, self._joined_with = self.member, self.topics.wanted
        owned = tuple(sorted(
            (topic, int(number)) for (topic, number), entry in self.partitions.items()
            if member.is_cooperative and entry.machine.state in _HELD
        ))  # fmt: skip
        version = _COOPERATIVE_VERSION if member.is_cooperative else _EAGER_VERSION
        try:
            data = {each.name: user_data_of(each, self._joined_with) for each in member.assignors}
        except AssignmentRefused as error:
            self._fail(error)
            return
        protocols = [
            (name, encode_subscription(
                JoinSubscription(self._joined_with, user_data, owned, self._owned_since, member.rack), version,
            )) for name, user_data in data.items()
        ]  # fmt: skip

        def joined(answer: events.Joined | events.NamedMember | events.Refused) -> None:
            self._loop.post(self._join_answered, request, answer)

        self._port.join_group(member_id, protocols, joined)

    def _join_answered(self, request: int, answer: events.Joined | events.NamedMember | events.Refused) -> None:
        match answer:
            case events.NamedMember(name):
                self._handle(events.MemberIdGiven(request, name))
            case events.Joined(fence, protocol, leader, members):
                self._leader = leader
                self._handle(events.JoinAnswered(request, fence, protocol, leader, members))
            case events.Refused(code, reason):
                self._handle(events.RequestFailed(request, Asked.JOIN_GROUP, code, reason))

    def _sync(self, request: int, fence: events.Fence, assignments: Mapping[str, bytes]) -> None:
        def synced(sent_at: float, answer: events.Synced | events.Refused) -> None:
            if isinstance(answer, events.Refused):
                self._post(events.RequestFailed(request, Asked.SYNC_GROUP, answer.code, answer.reason))
            else:
                self._post(events.SyncAnswered(request, sent_at, answer.assignment))

        self._port.sync_group(fence, assignments, synced)

    def _beat(self, request: int, fence: events.Fence) -> None:
        def answered(sent_at: float, refused: events.Refused | None) -> None:
            if refused is None:
                self._post(events.HeartbeatAnswered(request, sent_at))
            elif refused.code is None:
                self._post(events.RequestFailed(request, Asked.HEARTBEAT, None, refused.reason))
            else:
                self._post(events.HeartbeatRefused(request, sent_at, refused.code))

        self._port.heartbeat(fence, answered)

    # -- assignments ---------------------------------------------------------------------------------------------------

    def _lead(self, fence: events.Fence, protocol: str, members: tuple[events.JoinedMember, ...]) -> None:
        """Assign the partitions of the group as soon as its topics are known."""
        assignor = self.member.assignor(protocol)
        if assignor is None:
            self._fail(AssignmentRefused(protocol, "was chosen, and this member does not have it"))
            return
        subscriptions = subscriptions_of(members)
        self._members = tuple(sorted(subscriptions))

        def read(partitions_per_topic: Mapping[str, int]) -> None:
            if self._closing or self.error is not None or self._machine.fence != fence:
                return
            try:
                found = assign(assignor, partitions_per_topic, subscriptions)
            except AssignmentRefused as error:
                self._fail(error)
                return
            self._handle(events.AssignmentsMade(fence, found))

        self.topics.lead(topics_of(subscriptions), read)

    def _take(self, fence: events.Fence, protocol: str, data: bytes, is_leader: bool) -> None:
        """Hold the assigned partitions, and give up the others."""
        if not is_leader:
            self._members = ()
            self._follow_topics()
        assignor: Assignor | None = self.member.assignor(protocol)
        try:
            assignment = decode_assignment(data)
            if assignor is not None:
                take_over(assignor, assignment, fence.generation)
        except (UnreadableMetadata, AssignmentRefused) as error:
            self._fail(error)
            return
        if self._claims.fence is None:
            self._memberships += 1
            self._claims.fence = MembershipFence(self._memberships)
            self._offsets.session_opened(self._claims.fence)
        self._owned_since = fence.generation
        wanted = set(self._joined_with)
        mine = [partition for partition in assignment.partitions if partition[0] in wanted]
        held = {name: entry.machine.held for name, entry in self.partitions.items() if entry.machine.held is not None}
        threads = threads_of_assigned(self.member.consumer_id, self.topics.subscription, mine, held)
        self._moves_away = self.member.is_cooperative and any(name not in threads for name in held)
        log.info(
            "%s: generation %d of group %s assigns %d partitions",
            self.member.consumer_id,
            fence.generation,
            self.member.group,
            len(threads),
        )
        self._partitions.set_assignment(Assignment(dict(threads), dict(threads)), self.topics.seen)
        self._partitions.handle_all(steps.ClaimsAllowed())
        if len(mine) < len(assignment.partitions):
            # The leader has not seen yet that this member wants other topics by now.
            self._loop.post(self._handle, events.Rejoin("topics were assigned to which the member does not subscribe"))

    def _follow_topics(self) -> None:
        """Leave the topics of the group to its leader, unless that is what this static member was before a restart.

        Coordinators before Kafka 3.2 answer to it as to a member that does not lead, and nobody else does.
        """
        instance = self.member.instance_id
        if instance is not None and self._leader.startswith(f"{instance}-"):
            self.topics.lead(frozenset(self._joined_with), lambda counts: None)
        else:
            self.topics.follow()

    def _topics_changed(self, reason: str) -> None:
        log.info("%s: group %s rebalances: %s", self.member.consumer_id, self.member.group, reason)
        self._handle(events.Rejoin(reason))

    def _topics_seen_again(self) -> None:
        if self._has_started and self.error is None and not self._closing:
            self._partitions.note_topics(self.topics.seen)

    def _look_for_stuck_streams(self) -> None:
        """Leave the group while the application is stuck on a message; join again when it goes on."""
        limit_s = self.member.max_processing_s
        if self._closing or limit_s is None or self.error is not None:
            return
        self._loop.call_later(min(1.0, limit_s / 4), self._look_for_stuck_streams)
        stuck = self._delivery.stuck_streams(self._loop.clock())
        if stuck and self._machine.state not in _OUT:
            reason = f"{', '.join(stuck)} asked for no message within {limit_s:g} s"
            log.warning(
                "%s leaves group %s until its application continues: %s",
                self.member.consumer_id,
                self.member.group,
                reason,
            )
            # It was waited for long enough: the rebalance time-out is for applications that go on.
            self._partitions.drain_timeout_s = min(self._partitions.drain_timeout_s, self.member.drain_timeout_s)
            self._handle(events.Leave(reason))
        elif not stuck and self._machine.state is MemberState.OUT and self._has_started:
            self._use_rebalance_time(self._machine.rebalance_s)
            self._handle(events.Start())

    # -- for the partitions --------------------------------------------------------------------------------------------

    def recheck(self, cause: str) -> None:
        """Claim wanted partitions again that were released for another thread of this member."""
        self._loop.post(self._partitions.handle_all, steps.ClaimsAllowed())

    def fenced(self) -> None:
        """Do nothing: claims that are granted are not refused."""

    def partitions_moved(self) -> None:
        """See whether all that had to go is gone, or all partitions are settled, by now."""
        if (self._give_back is not None or self._moves_away or self._settled_calls) and not self._is_settling:
            # Once a step: looking at thousands of partitions after each of thousands of events would take seconds.
            self._is_settling = True
            self._loop.after_step(self._notify_moved)

    def _notify_moved(self) -> None:
        self._is_settling = False
        if self._closing:
            return
        if self._give_back is not None and self._is_given_back(self._give_back):
            self._give_back = None
            self._handle(events.GivenBack())
        elif self._moves_away and not self._has_going() and self._machine.state is MemberState.STABLE:
            self._moves_away = False
            self._handle(events.Rejoin("the partitions that move to other members were revoked"))
        if self._settled_calls and self.settled:
            calls, self._settled_calls = self._settled_calls, []
            for call in calls:
                call()

    def _is_given_back(self, asked: events.GiveBack) -> bool:
        if asked.everything or not self.member.is_cooperative:
            return self._partitions.empty
        return not self._has_going()

    def _has_going(self) -> bool:
        return any(entry.machine.state in _GOING for entry in self.partitions.values())
