"""A member of a simulated group of brokers that runs the production code: coordinator, partitions, takeovers, offsets.

Simulated are its ports to the coordinator of the group, whose requests and answers may be lost, its delivery, which
reads the logs of the simulation, and the thread that asks for offsets. The member stands still when it is frozen: its
loop does no step, as in a process that is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rebalance.brokers.assignor import Assignor, RangeAssignor
from rebalance.brokers.consumer_protocol import Partition
from rebalance.brokers.coordinator import Coordinator
from rebalance.brokers.events import Fence, JoinedMember, NamedMember, Refused, TopicsRead
from rebalance.brokers.events import Joined as JoinedAnswer
from rebalance.brokers.events import Synced as SyncedAnswer
from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.brokers.sticky import CooperativeStickyAssignor
from rebalance.lease import Lease
from rebalance.loop import Loop
from rebalance.ports import MemberParts, Starts
from rebalance.subscription import Partition as AnyPartition
from rebalance.subscription import Subscription
from simpleconsumer.types import TopicPartition
from tests.simulation.broker_group import (
    HEARTBEAT_S,
    NOT_COORDINATOR,
    PARTITIONS,
    REBALANCE_S,
    SESSION_S,
    TOPIC,
    Simulation,
    Violation,
)
from zkconsumer.offsets.commit_batch import SESSION_OVER
from zkconsumer.offsets.kafka_offsets import CommitJob, KafkaOffsets, KafkaOffsetTimes, LoadJob, SurveyJob
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer, OffsetManager
from zkconsumer.testing.embedded.group_values import Join, Joined, Sync, Synced, Who

__all__ = ["ProductionMember"]

_COMMIT_S = 2.0
_MEMBER_ID_REQUIRED = 79
_GENERATION_OVER = (22, 25, 27)


class ProductionMember:
    """One member.

    Attributes:
        name: In the simulation.
        is_alive: Whether it was not killed.
        coordinator: The production code.
    """

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.sim = simulation
        self.name = name
        self.is_alive = True
        self.has_left = False
        self.frozen_until = 0.0
        self._steps_at: float | None = None
        self.loop = _AwakeLoop(lambda: simulation.now, self._wake)
        self.lease = Lease()
        assignor: Assignor = CooperativeStickyAssignor() if simulation.is_cooperative else RangeAssignor()
        member = BrokerGroupMember(
            "g", name, Subscription.static({TOPIC: 1}), reset_policy="smallest", assignors=(assignor,),
            session_s=SESSION_S, rebalance_s=REBALANCE_S, heartbeat_s=HEARTBEAT_S,
        )  # fmt: skip
        self.delivery = _Delivery(self)
        self.offsets = _Offsets(self)
        parts = MemberParts(self.delivery, self.offsets, _Listener(self))
        self.coordinator = Coordinator(member, self.loop, _Port(self), _Topics(self), parts, self.lease)
        self.machine = self.coordinator._machine

    # -- what happens to it --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.loop.post(self.coordinator.start)
        self._work()

    def kill(self) -> None:
        self.is_alive = False

    def freeze(self, for_s: float) -> None:
        self.frozen_until = self.sim.now + for_s

    def leave(self) -> None:
        """What `zkconsumer.member.leaving` does: end delivery, commit the last positions, leave the group."""
        positions = {name: at for name, at in self.delivery.at.items() if self._holds(name)}
        self.delivery.stop()

        def left(failed: Mapping[AnyPartition, str]) -> None:
            self.coordinator.close()
            self.coordinator.leave_group(lambda: None)
            self.has_left = True

        self.loop.post(lambda: self.offsets.commit(self.coordinator.fence, positions, left))

    @property
    def held(self) -> dict[Partition, int]:
        return self.delivery.at

    def reads(self) -> list[Partition]:
        """What it delivers at this moment: one that stands still delivers nothing."""
        if not self.is_alive or self.sim.now < self.frozen_until or self.sim.now >= self.lease.until:
            return []
        return list(self.delivery.live)

    def _holds(self, name: Partition) -> bool:
        return name in self.coordinator.partitions

    def _work(self) -> None:
        """Read a message of each partition, and commit now and then."""
        if not self.is_alive or self.has_left:
            return
        for name in self.reads():
            at = self.delivery.at[name]
            self.sim.repeated += at < self.sim.read.get(name, 0)
            self.sim.read[name] = max(self.sim.read.get(name, 0), at + 1)
            self.delivery.at[name] = at + 1
        if self.sim.rng.random() < 0.1 and self.reads():
            positions = {name: self.delivery.at[name] for name in self.reads()}
            fence = self.coordinator.fence
            self.loop.post(lambda: self.offsets.commit(fence, positions, lambda failed: None))
        self.sim.later(self.sim.rng.uniform(0.05, 0.5), self._work)

    # -- its thread ----------------------------------------------------------------------------------------------------

    def when_awake(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after some time, once the member does not stand still; a thread of its process does it."""

        def run() -> None:
            if not self.is_alive:
                return
            if self.sim.now < self.frozen_until:
                self.when_awake(self.frozen_until - self.sim.now, call)
            else:
                call()

        self.sim.later(delay_s, run)

    def _wake(self, at: float) -> None:
        """Have the loop do a step at a moment."""
        if self._steps_at is None or at < self._steps_at:
            self._steps_at = at
            self.when_awake(max(at - self.sim.now, 0.0), lambda: self._step(at))

    def _step(self, at: float) -> None:
        if self._steps_at == at:
            self._steps_at = None
        while self.loop.step():
            pass
        if self.coordinator.error is not None:
            raise Violation(f"{self.sim.now:.3f}: {self.name} has failed: {self.coordinator.error}")
        due = self.loop.next_due()
        if due is not None:
            self._wake(max(due, self.sim.now))

    def ask(self, serve: Callable[[Callable[[Any], None]], None], answered: Callable[[Any], None],
            timeout_s: float, lost: Callable[[str], None]) -> None:  # fmt: skip
        """Ask the coordinator of the group; `lost` is called if there is no answer in time."""
        done: list[bool] = []

        def take(value: Any) -> None:
            if not done:
                done.append(True)
                self.when_awake(0.0, lambda: answered(value))

        def give_up() -> None:
            if not done:
                done.append(True)
                self.when_awake(0.0, lambda: lost("no answer"))

        self.sim.ask(lambda answer: answer(None) if self.sim.is_moved else serve(answer), take)
        self.sim.later(timeout_s, give_up)


class _AwakeLoop(Loop):
    """A loop that says when it has something to do."""

    def __init__(self, clock: Callable[[], float], wake: Callable[[float], None]) -> None:
        super().__init__(clock)
        self._wake = wake

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        super().post(call, *arguments)
        self._wake(self.clock())


class _Port:
    """Asks the simulated coordinator (`rebalance.brokers.events.GroupPort`)."""

    rebalance_is_session = False

    def __init__(self, member: ProductionMember) -> None:
        self._member = member
        self._sim = member.sim

    def find_coordinator(self, done: Callable[[Refused | None], None]) -> None:
        self._member.when_awake(0.05, lambda: done(Refused(15, "moved") if self._sim.is_moved else None))

    def join_group(
        self, member_id: str, protocols: Sequence[tuple[str, bytes]],
        done: Callable[[JoinedAnswer | NamedMember | Refused], None],
    ) -> None:  # fmt: skip
        asked = Join(member_id, dict(protocols), SESSION_S, REBALANCE_S, client_id=self._member.name)

        def answered(found: Joined | None) -> None:
            if found is None:
                done(Refused(NOT_COORDINATOR, "moved"))
            elif found.code == _MEMBER_ID_REQUIRED:
                done(NamedMember(found.member_id))
            elif found.code:
                done(Refused(found.code, "refused"))
            else:
                members = tuple(JoinedMember(each.member_id, each.metadata, each.instance_id)
                                for each in found.members)  # fmt: skip
                done(JoinedAnswer(Fence(found.generation, found.member_id), found.protocol, found.leader, members))

        self._member.ask(lambda answer: self._sim.answer(self._sim.group.join(asked, answer, self._sim.now)),
                         answered, REBALANCE_S + 5, lambda why: done(Refused(None, why)))  # fmt: skip

    def sync_group(
        self, fence: Fence, assignments: Mapping[str, bytes], done: Callable[[float, SyncedAnswer | Refused], None]
    ) -> None:
        asked, sent_at = Sync(Who(fence.generation, fence.member_id), assignments), self._sim.now

        def answered(found: Synced | None) -> None:
            if found is None:
                done(sent_at, Refused(NOT_COORDINATOR, "moved"))
            else:
                done(sent_at, Refused(found.code, "refused") if found.code else SyncedAnswer(found.assignment))

        self._member.ask(lambda answer: self._sim.answer(self._sim.group.sync(asked, answer, self._sim.now)),
                         answered, REBALANCE_S + 5, lambda why: done(sent_at, Refused(None, why)))  # fmt: skip

    def heartbeat(self, fence: Fence, done: Callable[[float, Refused | None], None]) -> None:
        sent_at = self._sim.now

        def serve(answer: Callable[[Any], None]) -> None:
            code = self._sim.group.heartbeat(Who(fence.generation, fence.member_id), self._sim.now)
            self._sim.answer([])
            answer((code,))

        def answered(found: tuple[int] | None) -> None:
            code = NOT_COORDINATOR if found is None else found[0]
            done(sent_at, Refused(code, "refused") if code else None)

        self._member.ask(serve, answered, SESSION_S / 3, lambda why: done(sent_at, Refused(None, why)))

    def leave_group(self, member_id: str, reason: str, done: Callable[[], None]) -> None:
        if not member_id:
            done()
            return

        def serve(answer: Callable[[Any], None]) -> None:
            code, replies = self._sim.group.leave(member_id, None, self._sim.now)
            self._sim.answer(replies)
            answer((code,))

        self._member.ask(serve, lambda found: done(), 2.0, lambda why: done())


class _Topics:
    """Reads topics: there is one, and it does not change."""

    def __init__(self, member: ProductionMember) -> None:
        self._member = member

    def read(self, topics: Collection[str] | None, done: Callable[[TopicsRead | str], None]) -> None:
        self._member.when_awake(0.02, lambda: done(TopicsRead({TOPIC: PARTITIONS})))


class _Delivery:
    """Reads the logs of the simulation (`rebalance.ports.Delivery`).

    Attributes:
        at: Position of each partition that was started and did not end.
        live: Those that are read.
    """

    def __init__(self, member: ProductionMember) -> None:
        self._member = member
        self._rng = member.sim.rng
        self.at: dict[Partition, int] = {}
        self.live: dict[Partition, None] = {}
        self._draining: dict[Partition, Callable[[int], None]] = {}
        self._ended: dict[Partition, int] = {}

    def resolve(self, partition: AnyPartition, policy: str, done: Callable[[int], None]) -> None:
        self._member.when_awake(self._rng.uniform(0.0, 0.3), lambda: done(0))

    def bounds(self, partition: AnyPartition, done: Callable[[int, int], None]) -> None:
        raise AssertionError("the listener chooses no starts")

    def start(self, partition: AnyPartition, thread_id: str, offset: int) -> None:
        name = _numbered(partition)
        if offset > self._member.sim.read.get(name, 0):
            raise Violation(f"{self._member.sim.now:.3f}: {self._member.name} starts {name} at {offset}, beyond "
                            "what was read")  # fmt: skip
        self.at[name], self.live[name] = offset, None

    def refuse(self, partition: AnyPartition, thread_id: str, offset: int, reason: str) -> None:
        raise Violation(f"{self._member.name} refuses {partition}: {reason}")

    def drain(self, partition: AnyPartition, done: Callable[[int], None]) -> None:
        """Nothing more is read; what is in hand takes a while, now and then longer than anybody waits."""
        name = _numbered(partition)
        self.live.pop(name, None)
        self._draining[name] = done
        takes_s = self._rng.choice([0.0, 0.0, self._rng.uniform(0.0, 2.0), self._rng.uniform(0.0, 30.0)])

        def finished() -> None:
            if self._draining.get(name) is done:
                del self._draining[name]
                self._ended[name] = self.at.pop(name)
                done(self._ended[name])

        self._member.when_awake(takes_s, finished)

    def expire_drain(self, partition: AnyPartition) -> int:
        name = _numbered(partition)
        if self._draining.pop(name, None) is None:
            return self._ended[name]  # it has ended, and the report is still on its way
        return self.at.pop(name)

    def abandon(self, partition: AnyPartition) -> int | None:
        name = _numbered(partition)
        self._draining.pop(name, None)
        self.live.pop(name, None)
        return self.at.pop(name, None)

    def stop(self) -> None:
        self.live.clear()

    def fail(self, error: Exception) -> None:
        raise Violation(f"{self._member.name} has failed: {error}")

    def stuck_streams(self, now: float) -> list[str]:
        return []


class _Listener:
    """Takes a moment for each call (`rebalance.ports.Listener`)."""

    def __init__(self, member: ProductionMember) -> None:
        self._member = member
        self._rng = member.sim.rng

    def revoked(self, partitions: list[AnyPartition], done: Callable[[], None]) -> None:
        self._member.when_awake(self._rng.uniform(0.0, 0.3), done)

    def assigned(self, positions: dict[AnyPartition, int], done: Callable[[Starts], None]) -> None:
        self._member.when_awake(self._rng.uniform(0.0, 0.3), lambda: done(Starts()))

    def lost(self, partitions: list[AnyPartition]) -> None: ...

    def blocked(self, partitions: list[AnyPartition]) -> None: ...


class _Offsets(KafkaOffsets):
    """The production store, with steps of the simulation in place of its thread."""

    def __init__(self, member: ProductionMember) -> None:
        times = KafkaOffsetTimes(load_s=5.0, commit_s=5.0, answer_s=2.0, lease_s=10.0)
        super().__init__(OffsetManager("g", list, ChannelSettings("")), member.loop, self._may_commit, times)
        self._member = member
        self._sim = member.sim

    def _may_commit(self) -> bool:
        member = self._member
        return self._sim.now < member.lease.until and member.coordinator.generation is not None

    def _request(self, send: Callable[[], None]) -> None:
        self._member.when_awake(0.0, send)

    def _fetch(self, job: LoadJob | SurveyJob, names: list[TopicPartition]) -> None:
        def serve(answer: Callable[[Any], None]) -> None:
            answer({name: self._sim.committed.get((name.topic, int(name.partition))) for name in names})

        def answered(found: dict[TopicPartition, int | None] | None) -> None:
            answer = OffsetAnswer({}, dict.fromkeys(names, "moved")) if found is None else OffsetAnswer(found, {})
            self._loop.post(self._fetched, job, answer)

        self._member.ask(serve, answered, 2.0, lambda why: answered(None))

    def _store(self, job: CommitJob, offsets: Mapping[TopicPartition, int]) -> None:
        member, generation = self._member, self._member.coordinator.generation
        positions = {(name.topic, int(name.partition)): at for name, at in offsets.items()
                     if self._why_not(name) is None}  # fmt: skip

        def report(reason: str | None) -> None:
            failed = {name: reason or "released" for name in job.writes if reason or _numbered(name) not in positions}
            self._loop.post(self._committed, job, failed)

        if job.fence not in self._standing:
            report(SESSION_OVER)
            return
        if generation is None or not self._may_commit():
            report("the group is rebalancing")
            return
        who = Who(generation.generation, generation.member_id)

        def serve(answer: Callable[[Any], None]) -> None:
            code = self._sim.commit(member, who, positions)
            self._sim.answer([])
            answer((code,))

        def answered(found: tuple[int] | None) -> None:
            code = NOT_COORDINATOR if found is None else found[0]
            if code in _GENERATION_OVER:
                member.coordinator.write_refused(generation, code)
            report(f"error {code}" if code else None)

        member.ask(serve, answered, _COMMIT_S, lambda why: report(why))


def _numbered(partition: AnyPartition) -> Partition:
    return partition[0], int(partition[1])
