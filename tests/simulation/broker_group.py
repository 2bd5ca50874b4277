"""A group of brokers in virtual time: machines of members, a coordinator, a network that loses and delays; checked.

Each partition is a log that grows. A member that holds a partition and has a lease reads it, commits what it has read
before it gives the partition back, and starts where the coordinator says. Checked after each step:

    two owners     no partition is read by two members at a time
    late commit    no commit is taken from a member whose partition another one reads
    skipped        nobody starts behind what was read and committed, nor ahead of what was read
    stuck          when the faults are over, all partitions are read by the living members, in time
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from rebalance.brokers import events as e
from rebalance.brokers.assignor import Assignor, RangeAssignor, RebalanceProtocol
from rebalance.brokers.consumer_protocol import (
    Assignment,
    Partition,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from rebalance.brokers.events import Fence
from rebalance.brokers.machine import MemberMachine, MemberState, MemberTimes
from rebalance.brokers.reactions import Asked
from rebalance.brokers.sticky import CooperativeStickyAssignor
from zkconsumer.testing.embedded.group import Group
from zkconsumer.testing.embedded.group_values import GroupRules, Join, Joined, Reply, Sync, Synced, Who

__all__ = ["Faults", "SimulatedMember", "Simulation", "Violation"]

SESSION_S, REBALANCE_S, HEARTBEAT_S = 10.0, 20.0, 3.0
LEASE_FRACTION = 2 / 3
TOPIC, PARTITIONS = "clicks", 6
NOT_COORDINATOR = 16


class Violation(AssertionError):  # noqa: N818 - it says what happened
    """A check has failed."""


class Faults:
    """What goes wrong, and until when.

    Attributes:
        until: Nothing goes wrong from then on.
        loss: Share of the requests and answers that are lost.
        freezes: How many members stand still for a time.
        kills: How many end without a word.
        moves: How often the coordinator is not to be found for a time.
    """

    def __init__(self, until: float, loss: float, freezes: int, kills: int, moves: int) -> None:
        self.until, self.loss, self.freezes, self.kills, self.moves = until, loss, freezes, kills, moves


class Simulation:
    """One group, from its first member until it has come to rest.

    Args:
        seed: Of all that is random.
        is_cooperative: Whether members keep what they have while the group is assigned anew.
        rules: Of the coordinator.
        faults: What goes wrong.
        members: How many there are.
        kind: What makes a member, with the face of `SimulatedMember`.
    """

    def __init__(
        self, seed: int, *, is_cooperative: bool, rules: GroupRules, faults: Faults | None, members: int = 3,
        kind: Callable[[Simulation, str], Any] | None = None,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.now = 0.0
        self.is_cooperative = is_cooperative
        self.faults = faults
        self.group = Group(rules, (str(number) for number in itertools.count()).__next__)
        self.committed: dict[Partition, int] = {}
        self.read: dict[Partition, int] = {}
        self.repeated = 0
        self.moved_until = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._tick_at: float | None = None
        self.members = [(kind or SimulatedMember)(self, f"m{number}") for number in range(members)]
        for member in self.members:
            self.later(self.rng.uniform(0, 5), member.start)
        self._plan()

    def _plan(self) -> None:
        """Draw when what goes wrong."""
        if self.faults is None:
            return
        until = self.faults.until
        for _ in range(self.faults.freezes):
            member, for_s = self.rng.choice(self.members), self.rng.uniform(1, 2.5 * SESSION_S)
            self.later(self.rng.uniform(5, until - for_s), lambda member=member, for_s=for_s: member.freeze(for_s))
        for _ in range(self.faults.kills):
            member = self.rng.choice(self.members[1:])
            self.later(self.rng.uniform(5, until), member.kill)
        for _ in range(self.faults.moves):
            self.later(self.rng.uniform(5, until - 8), self._move)

    def _move(self) -> None:
        self.moved_until = self.now + self.rng.uniform(0.5, 8)

    # -- time ----------------------------------------------------------------------------------------------------------

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self._serial), call))

    def run(self, until: float) -> None:
        """Go on to a time."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, call = heapq.heappop(self._queue)
            call()
            self._check()
        self.now = until

    def is_at_rest(self) -> bool:
        """Whether each partition is read by a living member."""
        readers = [name for member in self.members for name in member.reads()]
        return sorted(readers) == [(TOPIC, number) for number in range(PARTITIONS)]

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def ask(self, serve: Callable[[Callable[[Any], None]], None], answered: Callable[[Any], None]) -> None:
        """Carry a request to the coordinator and its answer back; either may be lost.

        Args:
            serve: Called with what takes the answer.
            answered: Called with the answer.
        """

        def answer(value: Any) -> None:
            if not self._is_lost():
                self.later(self.rng.uniform(0.001, 0.1), lambda: answered(value))

        if not self._is_lost():
            self.later(self.rng.uniform(0.001, 0.1), lambda: serve(answer))

    def _is_lost(self) -> bool:
        faults = self.faults
        return faults is not None and self.now < faults.until and self.rng.random() < faults.loss

    @property
    def is_moved(self) -> bool:
        return self.now < self.moved_until

    def answer(self, replies: list[Reply]) -> None:
        """Send the answers to requests that have waited, and look at the time again."""
        for reply in replies:
            reply.request(reply.answer)  # type: ignore[operator]
        due = self.group.due_at()
        if due is not None and (self._tick_at is None or due < self._tick_at or self._tick_at <= self.now):
            self._tick_at = max(due, self.now)
            self.later(self._tick_at - self.now, self._tick)

    def _tick(self) -> None:
        if self._tick_at is not None and self.now >= self._tick_at:
            self._tick_at = None
            self.answer(self.group.tick(self.now))

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        readers: dict[Partition, str] = {}
        for member in self.members:
            for name in member.reads():
                if name in readers:
                    raise Violation(f"{self.now:.3f}: {name} is read by {readers[name]} and {member.name}")
                readers[name] = member.name

    def commit(self, member: Any, who: Who, positions: Mapping[Partition, int]) -> int:
        """Return the code of a commit, whose offsets are stored if it is 0."""
        if self.is_moved:
            return NOT_COORDINATOR
        code = self.group.may_commit(who, self.now)
        if code:
            return code
        for name, position in positions.items():
            others = [each.name for each in self.members if each is not member and name in each.reads()]
            if others:
                raise Violation(f"{self.now:.3f}: {member.name} commits {name}, which {others[0]} reads")
            self.committed[name] = position
        return 0


class SimulatedMember:
    """One member: its machine, what it holds, and what the machine asks for."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.sim = simulation
        self.name = name
        times = MemberTimes(rebalance_s=REBALANCE_S, heartbeat_s=HEARTBEAT_S, retry_s=0.1, leave_s=2.0)
        self.machine = MemberMachine(times, is_static=False, now=0.0)
        self.held: dict[Partition, int] = {}
        self.stopping: set[Partition] = set()
        self.lease_until = float("-inf")
        self.is_alive = True
        self.frozen_until = 0.0
        self._turn = 0
        self._given_back: Callable[[], None] = lambda: None
        self._assignor: Assignor = CooperativeStickyAssignor() if simulation.is_cooperative else RangeAssignor()
        self._owned_since = -1
        self._timer_at: float | None = None

    # -- what happens to it --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.handle(e.Start())
        self._work()

    def kill(self) -> None:
        self.is_alive = False

    def freeze(self, for_s: float) -> None:
        self.frozen_until = self.sim.now + for_s

    def leave(self) -> None:
        self.handle(e.Leave("end"))

    def reads(self) -> list[Partition]:
        """What it delivers at this moment: a member that stands still delivers nothing."""
        if not self.is_alive or self.sim.now < self.frozen_until or self.sim.now >= self.lease_until:
            return []
        return [name for name in self.held if name not in self.stopping]

    def _work(self) -> None:
        """Read a message of each partition, and commit now and then."""
        if not self.is_alive:
            return
        for name in self.reads():
            at = self.held[name]
            self.sim.repeated += at < self.sim.read.get(name, 0)
            self.sim.read[name] = max(self.sim.read.get(name, 0), at + 1)
            self.held[name] = at + 1
        if self.sim.rng.random() < 0.1 and self.machine.state is MemberState.STABLE and self.machine.fence is not None:
            self._commit(self.machine.fence, {name: self.held[name] for name in self.reads()}, lambda code: None)
        self.sim.later(self.sim.rng.uniform(0.05, 0.5), self._work)

    # -- the machine ---------------------------------------------------------------------------------------------------

    def handle(self, event: e.Event) -> None:
        """Pass an event to the machine; one that comes while the member stands still waits."""
        if not self.is_alive:
            return
        if self.sim.now < self.frozen_until:
            self._when_awake(self.frozen_until - self.sim.now, lambda: self.handle(event))
            return
        for action in self.machine.handle(event, self.sim.now):
            self._do(action)
        due = self.machine.next_timer()
        if due is not None and due != self._timer_at:
            self._timer_at = due
            self.sim.later(max(due - self.sim.now, 0.0), lambda: self._timer(due))

    def _timer(self, due: float) -> None:
        if self._timer_at == due:
            self._timer_at = None
            self.handle(e.TimerFired())

    def _do(self, action: e.Action) -> None:
        match action:
            case e.FindCoordinator(number):
                self.sim.later(
                    0.05,
                    lambda: self.handle(
                        e.RequestFailed(number, Asked.FIND_COORDINATOR, 15, "moved")
                        if self.sim.is_moved
                        else e.CoordinatorFound(number)
                    ),
                )
            case e.JoinGroup(number, member_id):
                self._join(number, member_id)
            case e.Assign(fence, _, members):
                self._assign(fence, members)
            case e.SyncGroup(number, fence, assignments):
                self._sync(number, fence, assignments)
            case e.SendHeartbeat(number, fence):
                self._beat(number, fence)
            case e.LeaveGroup(number, member_id):
                self._leave(number, member_id)
            case e.SetAssignment(fence, _, assignment):
                self._take(fence, decode_assignment(assignment))
            case e.GiveBack(everything):
                keeps = self.sim.is_cooperative and not everything
                self._give_back(set() if keeps else set(self.held), lambda: self.handle(e.GivenBack()))
            case e.Lose():
                self._turn += 1
                self.held.clear()
                self.stopping.clear()
            case e.RenewLease(_, sent_at, no_later_than):
                self.lease_until = max(self.lease_until, min(sent_at + SESSION_S * LEASE_FRACTION, no_later_than))
            case e.EndLease():
                self.lease_until = float("-inf")
            case e.Fail(asked, code, reason):
                raise Violation(f"{self.sim.now:.3f}: {self.name} has failed: {asked.value} {code} {reason}")

    # -- requests ------------------------------------------------------------------------------------------------------

    def _asks(self, number: int, asked: Asked, timeout_s: float, serve: Callable[[Callable[[Any], None]], None],
              answered: Callable[[Any], None]) -> None:  # fmt: skip
        """Ask the coordinator; without an answer in time the request has failed."""
        done: list[bool] = []

        def take(value: Any) -> None:
            if not done:
                done.append(True)
                if value is None:
                    self.handle(e.RequestFailed(number, asked, NOT_COORDINATOR, "moved"))
                else:
                    answered(value)

        def give_up() -> None:
            if not done:
                done.append(True)
                self.handle(e.RequestFailed(number, asked, None, "no answer"))

        self.sim.ask(lambda answer: answer(None) if self.sim.is_moved else serve(answer), take)
        self.sim.later(timeout_s, give_up)

    def _join(self, number: int, member_id: str) -> None:
        text = encode_subscription(
            Subscription((TOPIC,), self._assignor.subscription_user_data([TOPIC]), tuple(sorted(self.held)),
                         self._owned_since), 3 if self.sim.is_cooperative else 0,
        )  # fmt: skip
        asked = Join(member_id, {self._assignor.name: text}, SESSION_S, REBALANCE_S, client_id=self.name)

        def serve(answer: Callable[[Any], None]) -> None:
            self.sim.answer(self.sim.group.join(asked, answer, self.sim.now))

        def answered(found: Joined) -> None:
            if found.code == 79:
                self.handle(e.MemberIdGiven(number, found.member_id))
            elif found.code:
                self.handle(e.RequestFailed(number, Asked.JOIN_GROUP, found.code, "refused"))
            else:
                members = tuple(e.JoinedMember(each.member_id, each.metadata, each.instance_id)
                                for each in found.members)  # fmt: skip
                fence = Fence(found.generation, found.member_id)
                self.handle(e.JoinAnswered(number, fence, found.protocol, found.leader, members))

        self._asks(number, Asked.JOIN_GROUP, REBALANCE_S + 5, serve, answered)

    def _assign(self, fence: Fence, members: tuple[e.JoinedMember, ...]) -> None:
        subscriptions = {each.member_id: decode_subscription(each.metadata) for each in members}
        found = self._assignor.assign({TOPIC: PARTITIONS}, subscriptions)
        texts = {member: encode_assignment(Assignment(tuple(mine))) for member, mine in found.items()}
        self.sim.later(0.01, lambda: self.handle(e.AssignmentsMade(fence, texts)))

    def _sync(self, number: int, fence: Fence, assignments: Mapping[str, bytes]) -> None:
        asked, sent_at = Sync(Who(*fence_of(fence)), assignments), self.sim.now

        def serve(answer: Callable[[Any], None]) -> None:
            self.sim.answer(self.sim.group.sync(asked, answer, self.sim.now))

        def answered(found: Synced) -> None:
            if found.code:
                self.handle(e.RequestFailed(number, Asked.SYNC_GROUP, found.code, "refused"))
            else:
                self.handle(e.SyncAnswered(number, sent_at, found.assignment))

        self._asks(number, Asked.SYNC_GROUP, REBALANCE_S + 5, serve, answered)

    def _beat(self, number: int, fence: Fence) -> None:
        sent_at = self.sim.now

        def serve(answer: Callable[[Any], None]) -> None:
            code = self.sim.group.heartbeat(Who(*fence_of(fence)), self.sim.now)
            self.sim.answer([])
            answer((code,))

        def answered(found: tuple[int]) -> None:
            [code] = found
            self.handle(e.HeartbeatRefused(number, sent_at, code) if code else e.HeartbeatAnswered(number, sent_at))

        self._asks(number, Asked.HEARTBEAT, SESSION_S, serve, answered)

    def _leave(self, number: int, member_id: str) -> None:
        def serve(answer: Callable[[Any], None]) -> None:
            code, replies = self.sim.group.leave(member_id, None, self.sim.now)
            self.sim.answer(replies)
            answer((code,))

        self._asks(number, Asked.LEAVE_GROUP, 2.0, serve, lambda found: self.handle(e.LeaveAnswered(number)))

    def _commit(self, fence: Fence, positions: Mapping[Partition, int], done: Callable[[int | None], None]) -> None:
        over: list[bool] = []

        def answered(found: tuple[int] | None) -> None:
            if not over:
                over.append(True)
                code = None if found is None else found[0]
                if code:
                    self.handle(e.WriteRefused(fence, code))
                done(code)

        def serve(answer: Callable[[Any], None]) -> None:
            code = self.sim.commit(self, Who(*fence_of(fence)), positions)
            self.sim.answer([])
            answer((code,))

        self.sim.ask(serve, answered)
        self.sim.later(2.0, lambda: answered(None))

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _give_back(self, names: set[Partition], done: Callable[[], None]) -> None:
        """Finish what is in hand, commit it, and hold these partitions no more, nor those that are given back already.

        Args:
            done: Called then, in place of what an earlier call has given.
        """
        self._given_back = done
        new = names - self.stopping
        self.stopping |= new
        turn = self._turn
        if not self.stopping:
            self._when_awake(0.0, lambda: self._finish(turn))
        elif new:
            self._when_awake(self.sim.rng.uniform(0.0, 1.0), lambda: self._drained(new, turn))

    def _drained(self, names: set[Partition], turn: int) -> None:
        if turn != self._turn:
            return
        fence, positions = self.machine.fence, {name: self.held[name] for name in names}
        if fence is None:
            self._dropped(names, turn)
        else:
            self._commit(fence, positions, lambda code: self._when_awake(0.0, lambda: self._dropped(names, turn)))

    def _dropped(self, names: set[Partition], turn: int) -> None:
        if turn != self._turn:
            return
        for name in names:
            del self.held[name]
        self.stopping -= names
        self._finish(turn)

    def _finish(self, turn: int) -> None:
        if turn == self._turn and not self.stopping:
            done, self._given_back = self._given_back, lambda: None
            done()

    def _when_awake(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call back after some time, once the member does not stand still."""

        def run() -> None:
            if not self.is_alive:
                return
            if self.sim.now < self.frozen_until:
                self._when_awake(self.frozen_until - self.sim.now, call)
            else:
                call()

        self.sim.later(delay_s, run)

    def _take(self, fence: Fence, assignment: Assignment) -> None:
        self._assignor.on_assignment(assignment, fence.generation)
        self._owned_since = fence.generation
        wanted = set(assignment.partitions)
        for name in sorted(wanted - set(self.held)):
            start = self.sim.committed.get(name, 0)
            if start > self.sim.read.get(name, 0):
                raise Violation(f"{self.sim.now:.3f}: {self.name} starts {name} at {start}, beyond what was read")
            self.held[name] = start
        gone = set(self.held) - wanted
        if gone and self.sim.is_cooperative:
            self._give_back(gone, lambda: self.handle(e.Rejoin("gave back")))

    @property
    def protocol(self) -> RebalanceProtocol:
        return self._assignor.supported_protocols[0]


def fence_of(fence: Fence) -> tuple[int, str]:
    return fence.generation, fence.member_id
