"""A member of ours in the simulated world: the production code without its threads and its sockets.

Shared: `Coordinator` with both machines, session, registration, lease, claims, snapshot, handover and audit; `Loop`
(stepped); `ZooKeeperOffsets`, `KafkaOffsets`, `TwoStores`; `Commits`; `Delivery` with its queues, and `KafkaStream`;
the pairing of calls in `ListenerThread`; the settings by way of `ConsumerConfig`; in Kafka 0.7 `EntryChecks`.

Not shared, because it is threads, sockets or waiting, and simulated here or in the files named (`_07` in Kafka 0.7):

| in production | here |
|---|---|
| `rebalance.zookeeper.port.kazoo_port` on kazoo | `port` |
| `OffsetManager`, `OffsetComparison`, the thread of `KafkaOffsets` | `kafka_offsets`, `offset_storage` |
| `Fetcher`, `LeaderFinder`, `BrokerDirectory`, `ClusterReader`, `SimpleConsumer` | `delivery`, `brokers` |
| the thread of `Loop.run`, of `ListenerThread` | `stepping` |
| the sleep in `KafkaStream.next()`, the application's threads | `application` |
| `ConsumerConnector`, the waits of `Membership.join` and `commit`, and of `Leave` | this file |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from rebalance.lease import Lease
from rebalance.partition import PartitionState
from rebalance.ports import MemberParts
from rebalance.subscription import Partition, Subscription, thread_ids
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.coordinator import Coordinator
from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.znodes_07 import GENERATION_07
from simpleconsumer.types import TopicPartition
from tests.simulator.actor import MemberSpec, Owned, Record, Surroundings
from tests.simulator.application import Application, Pace, SteppedStream
from tests.simulator.delivery import SteppedDelivery
from tests.simulator.delivery_07 import SteppedDelivery07
from tests.simulator.kafka_offsets import SteppedKafkaOffsets, stores_of
from tests.simulator.stepping import SteppedListener, SteppedLoop, lateness_s
from zkconsumer.config import ConsumerConfig
from zkconsumer.member.coordination import member_of
from zkconsumer.member.leaving import LeaveTimes, end_by_fault
from zkconsumer.offsets.commits import Commits
from zkconsumer.offsets.two_stores import TwoStores
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.groups import PAUSED
from zkconsumer.testing.history.limits import name_of, node_of

__all__ = ["OurMember", "config_of"]


def config_of(group: str, spec: MemberSpec, generation: Literal["0.7", "0.8"] = "0.8") -> ConsumerConfig:
    """The settings of a member."""
    return ConsumerConfig(
        "simulated:2181",
        group,
        consumer_id=spec.name,
        consumer_timeout_ms=0,
        zookeeper_session_timeout_ms=int(spec.session_s * 1000),
        auto_commit_enable=spec.auto_commit_s > 0,
        auto_commit_interval_ms=int(spec.auto_commit_s * 1000) or 1000,
        auto_offset_reset=spec.reset,
        partition_assignment_strategy=spec.strategy,
        roundrobin_order=spec.order or "auto",
        offsets_storage="kafka" if spec.storage in ("kafka", "dual") else "zookeeper",
        dual_commit_enabled=spec.storage == "dual",
        offsets_intent=spec.intent or None,
        rebalance_drain_timeout_ms=int(spec.drain_s * 1000),
        rebalance_backoff_ms=int(spec.backoff_s * 1000),
        rebalance_max_retries=spec.max_retries,
        kafka_generation=generation,
        # Some entries of the simulated brokers of Kafka 0.7 take more.
        fetch_message_max_bytes=64 if generation == "0.7" else None,
        max_processing_interval_ms=int(spec.max_processing_s * 1000) or None,
    )


def _subscription(spec: MemberSpec) -> Subscription:
    if spec.whitelist:
        return Subscription.white_list(spec.whitelist, spec.streams)
    return Subscription.static(dict(spec.topics))


class OurMember:
    """One connector, its streams and its application; see `tests.simulator.actor.Actor`.

    Attributes:
        failure: the exception that ended its coordinator, None while that runs.
        unstored: what its `shutdown()` has reported as not stored.
        strays: messages that came to another stream than that of the thread in the owner node, as sentences.
        when_failed: called behind what is done when its coordinator has ended.
    """

    def __init__(self, spec: MemberSpec, surroundings: Surroundings) -> None:
        self.spec = spec
        self.consumer_id = f"{surroundings.group}_{spec.name}"
        self.failure: Exception | None = None
        self.has_left = False
        self.unstored: set[TopicPartition] = set()
        self.strays: list[str] = []
        generation = surroundings.brokers.generation
        self.config = config_of(surroundings.group, spec, "0.7" if generation is GENERATION_07 else "0.8")
        self.lease = Lease()
        self._process = process = surroundings.process
        self._rng = rng = surroundings.rng
        self._port = surroundings.port
        self._record = surroundings.record
        self.when_failed: Callable[[], object] = lambda: None
        self._is_leaving = False
        self._leaving_since_s = 0.0
        self._times = LeaveTimes.of(0.0, 0.0)
        self._positions: Mapping[TopicPartition, int] = {}
        self._fence: Fence | None = None
        self._pace = Pace(rng, spec.work_s)
        self.loop = SteppedLoop(process, rng, self._failed)
        self.streams = self._build_streams()
        pipeline = Pipeline(surroundings.port, self.loop)
        self.offsets = self._build_offsets(pipeline, surroundings)
        self.delivery = (SteppedDelivery07 if generation is GENERATION_07 else SteppedDelivery)(
            process,
            rng,
            surroundings.brokers,
            surroundings.record,
            self.config,
            self.streams,
            lambda *found: self.loop.post(self.offsets.out_of_range, *found),
        )
        self.listening = SteppedListener(
            process,
            rng,
            {
                "on_partitions_assigned": self._assigned,
                "on_partitions_revoked": self._revoked,
                "on_partitions_lost": self._lost,
            },
        )
        self.coordinator = Coordinator(
            member_of(self.config, self.consumer_id, _subscription(spec)),
            pipeline,
            MemberParts(self.delivery, self.offsets, self.listening),
            self.lease,
            rng,
            surroundings.wall_clock_ms,
        )
        self.coordinator.member.generation.value = generation
        self.commits = Commits(self.coordinator, self.offsets, self.delivery.positions, self.loop)
        commit = None if self.config.auto_commit_enable else self._commit
        self.applications = [
            Application(
                process,
                rng,
                number,
                stream,
                self._pace,
                self._record_as(stream.thread_id),
                surroundings.brokers.damaged,
                None if commit is None else self._commit_as(number),
                spec.commit_every,
            )
            for number, stream in enumerate(self.streams.values())
        ]

    def _record_as(self, thread_id: str) -> Record:
        """Record what the application of one stream does, and notice what should have come to another one."""

        def record(kind: str, place: Place = ("", -1), offset: int = -1, message_id: str = "") -> None:
            entry = self.coordinator.partitions.get(node_of(place)) if kind == "deliver" else None
            if entry is not None and entry.machine.held not in (None, thread_id):
                self.strays.append(f"{name_of(place)} is {entry.machine.held}'s, and {thread_id} got offset {offset}")
            self._record(kind, place, offset, message_id)

        return record

    def _build_streams(self) -> dict[tuple[str, str], SteppedStream]:
        topics = (("", self.spec.streams),) if self.spec.whitelist else self.spec.topics
        return {
            (topic, thread_id): SteppedStream(thread_id, self.config, self.lease, self._process.clock)
            for topic, count in topics
            for thread_id in thread_ids(self.consumer_id, count)
        }

    def _build_offsets(self, pipeline: Pipeline, surroundings: Surroundings) -> ZooKeeperOffsets | TwoStores:
        zookeeper = ZooKeeperOffsets(pipeline.ask, self.loop, surroundings.group)
        if not self.spec.storage:
            return zookeeper
        process = surroundings.process
        kafka = SteppedKafkaOffsets(
            process,
            self.loop,
            surroundings.brokers.offsets,
            process.name,
            lambda: process.clock() < self.lease.until,
            is_compared=self.spec.storage == "zookeeper",
        )
        return stores_of(self.spec.storage, self.config.offsets_intent, kafka, zookeeper, self.loop)

    def _failed(self, error: Exception) -> None:
        """What `Membership` does when the coordinator's thread ends by an exception."""
        self.failure = error
        end_by_fault(error, self.coordinator, self.delivery, self.listening, self._port)
        self.when_failed()

    # -- the listener -----------------------------------------------------------------------------------------------

    def _assigned(self, positions: Mapping[TopicPartition, int], returned: Callable[[], None]) -> None:
        for (topic, partition), offset in positions.items():
            self._record("assigned", self.delivery.place(topic, partition), offset)
        returned()

    def _revoked(self, partitions: list[TopicPartition], returned: Callable[[], None]) -> None:
        def committed() -> None:
            for partition in partitions:
                self._record("revoked", self.delivery.place(*partition))
            returned()

        if self.config.auto_commit_enable or not self.spec.commits_when_revoked:
            committed()
        else:
            self._commit(None, committed)

    def _lost(self, partitions: list[TopicPartition], returned: Callable[[], None]) -> None:
        for partition in partitions:
            self._record("lost", self.delivery.place(*partition))
        returned()

    # -- commits by the application: `Membership.commit`, step by step ----------------------------------------------

    def _commit_as(self, reader: int) -> Callable[[Callable[[], None]], None]:
        return lambda returned: self._commit(reader, returned)

    def _commit(self, reader: int | None, returned: Callable[[], None]) -> None:
        """`commit_offsets()` on the thread `reader` (None: the listener's)."""
        fence = self.coordinator.fence
        in_hand = self.delivery.explicit_positions(-1 if reader is None else reader)
        chosen: dict[Partition, int] = {}
        is_over = False

        def run() -> None:
            positions, _ = self.commits.choose(None, in_hand)
            chosen.update(positions)
            self.commits.commit(fence, positions, lambda failed: self._later(back, failed), explicit=False)

        def back(failed: Mapping[Partition, str]) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            stored = {TopicPartition(*each): at for each, at in chosen.items() if each not in failed}
            self.delivery.mark_committed(stored)
            returned()

        def timed_out() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                returned()

        self.loop.post(run)
        stored_s = self.offsets.commit_wait_s if isinstance(self.offsets, TwoStores) else 0.0
        self._process.after(max(self.coordinator.session.timeout_s, 1.0) + stored_s, timed_out)

    def _later(self, call: Callable[..., None], *arguments: Any) -> None:
        """Wake a thread that waits: it goes on a little later."""
        self._process.after(lateness_s(self._rng), call, *arguments)

    # -- joining and leaving: `Membership.join` and `zkconsumer.member.leaving`, step by step --------------------

    def start(self) -> None:
        """Join the group."""
        self.loop.post(self.coordinator.start)
        if self.config.auto_commit_enable:
            self.loop.post(self.commits.start_auto_commit, self.config.auto_commit_interval_ms / 1000)
        self._port.start(self.coordinator.session_changed)

    def leave(self, wait_s: float | None = None) -> None:
        """Start to leave in order: `shutdown(wait_s)`."""
        if self._is_leaving:
            return
        self._is_leaving = True
        self._leaving_since_s = self._process.schedule.now
        self._times = LeaveTimes.of(self._process.clock(), self.spec.drain_s if wait_s is None else wait_s)
        if self.config.auto_commit_enable and not self._is_dead:
            self.loop.post(self.commits.commit_done)
        self._fence = self.coordinator.fence
        self.delivery.stop_stepwise(self._left_s(self._times.in_hand_until), self._stopped)

    @property
    def _is_dead(self) -> bool:
        """Whether the coordinator's thread has ended."""
        return self.failure is not None

    def _left_s(self, until: float) -> float:
        return max(0.0, until - self._process.clock())

    def _step(self, call: Callable[..., None], *arguments: Any, until: float, then: Callable[[], None]) -> None:
        """Have the coordinator make a call, and go on when its result is reported, or at a moment."""
        once = self._once(then)
        if self._is_dead:
            once()
            return
        self.loop.post(call, *arguments, lambda *_: self._later(once))
        self._process.after(self._left_s(until), once)

    def _stopped(self, positions: dict[TopicPartition, int]) -> None:
        self._positions = positions

        def give_back(told: Callable[[], None]) -> None:
            self.commits.release(positions, lambda: self.listening.leave(told))

        self._step(give_back, until=self._times.listener_until, then=self._commit_last)

    def _commit_last(self) -> None:
        outcome: list[Mapping[Partition, str]] = []

        def commit(answered: Callable[[], None]) -> None:
            def committed(failed: Mapping[Partition, str]) -> None:
                outcome.append(failed)
                answered()

            self.commits.commit_last(self._fence, self._positions, committed)

        def close() -> None:
            failed = outcome[0] if outcome else self.commits.not_stored(self._positions, "no answer")
            self.unstored = {TopicPartition(*partition) for partition in failed}
            self._step(self._close_coordinator, until=self._times.close_until, then=self._end)

        if self.config.auto_commit_enable:
            self._step(commit, until=self._times.commit_until, then=close)
        else:
            close()

    def _close_coordinator(self, closed: Callable[[], None]) -> None:
        self.coordinator.close()
        closed()

    def _end(self) -> None:
        self.lease.end()
        self._port.close(0.0)
        self.loop.post(self.loop.stop)
        self.has_left = True
        if self.config.auto_commit_enable:
            for partition, position in self._positions.items():
                if partition not in self.unstored and self.commits.holds(partition):
                    self._record("said_stored", self.delivery.place(*partition), position)
        self._record("left", message_id=PAUSED if self._process.resumed_at_s > self._leaving_since_s else "")

    def _once(self, call: Callable[[], None]) -> Callable[[], None]:
        """The first of an answer and a time-out calls it."""
        is_done = False

        def first() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                call()

        return first

    # -- for the world ------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether it has left or failed, and does not come back."""
        return self.has_left or (self.coordinator.error is not None and not self._is_leaving)

    @property
    def is_at_rest(self) -> bool:
        """Whether the group was read and nothing is under way."""
        return self.coordinator.error is None and not self._is_leaving and self.coordinator.settled

    def owned(self) -> Owned:
        """The partitions that it owns and delivers."""
        return {
            (topic, partition): entry.machine.held or ""
            for (topic, partition), entry in self.coordinator.partitions.items()
            if entry.machine.state is PartitionState.OWNED and entry.started
        }

    def slow_down(self, work_s: float, until_s: float) -> None:
        """Let the application take `work_s` for each message that is started before `until_s`."""
        self._pace.slow_down(work_s, until_s)

    def hold_up(self, until_s: float) -> None:
        """Suspend the coordinator's thread until `until_s`."""
        self.loop.hold_up(until_s)

    def plan_fault(self, after: int, where: str) -> None:
        """Let a call of the coordinator's loop fail after so many that do not, `before` or `behind` what it does."""
        left = after

        def choose(_: Callable[..., None]) -> str:
            nonlocal left
            left -= 1
            return where if left < 0 else ""

        self.loop.fault = choose

    def forget_fault(self) -> None:
        """Fail no more."""
        self.loop.fault = None

    def states(self, place: Place | None = None) -> frozenset[str]:
        """The states of its machines."""
        partitions = self.coordinator.partitions
        if place is not None:
            return frozenset(
                entry.machine.state.value for (topic, name), entry in partitions.items() if (topic, name) == place
            )
        return frozenset(
            [self.coordinator.machine.state.value, *(entry.machine.state.value for entry in partitions.values())]
        )

    def warnings(self) -> frozenset[str]:
        """The warnings of its status about the group."""
        return self.coordinator.warnings

    def when_moved(self, call: Callable[[], None]) -> None:
        """Have `call` run after each step of the coordinator."""
        self.loop.stepped = call

    def describe(self) -> str:
        """State, and what it has."""
        parts = [
            f"{topic}/{partition} {entry.machine.state.value}"
            f"{'' if entry.started or entry.machine.state is not PartitionState.OWNED else ' (not started)'}"
            for (topic, partition), entry in sorted(self.coordinator.partitions.items(), key=str)
        ]
        error = f" error {self.coordinator.error!r}" if self.coordinator.error is not None else ""
        return f"{self.consumer_id}: {self.coordinator.machine.state.value}{error} [{', '.join(parts)}]"
