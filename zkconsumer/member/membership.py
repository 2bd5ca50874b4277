"""A group member that is coordinated by ZooKeeper: its threads, connections and state, from joining to leaving.

It implements `zkconsumer.member.group_member`. The coordinator's thread runs here; whatever other threads want of the
coordination is posted to it and waited for with a deadline.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from rebalance.assignment import Partition
from rebalance.counters import Counters
from rebalance.errors import AccessRefused, GroupRefused
from rebalance.fence import Fence
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.ports import MemberParts
from rebalance.subscription import Subscription
from rebalance.zookeeper.coordinator import Coordinator
from rebalance.zookeeper.counted_port import CountedPort
from rebalance.zookeeper.kazoo_port import KazooPort
from rebalance.zookeeper.machine import GroupState
from rebalance.zookeeper.pipeline import Pipeline
from rebalance.zookeeper.requests import SessionChange
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_session import wait_for_session
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.errors import CommitFailed, ConnectorClosed, PauseFailed, ZooKeeperRefused
from zkconsumer.member.connector_checks import checked_offsets
from zkconsumer.member.delivery import Delivery
from zkconsumer.member.failing import end_by_fault, stream_failure
from zkconsumer.member.leaving import Leave
from zkconsumer.member.listening import ListenerThread
from zkconsumer.member.member_settings import member_of
from zkconsumer.member.pausing import Pauses
from zkconsumer.member.status_reading import read_status
from zkconsumer.offsets.commits import Commits
from zkconsumer.offsets.offset_stores import member_offsets
from zkconsumer.statistics import ConnectorStatistics
from zkconsumer.status import ConnectorStatus
from zkconsumer.streams.stream import KafkaStream
from zkconsumer.wakeup import Latch

__all__ = ["Membership"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_ALIVE_CHECK_S = 0.1
"""How often a call that waits for the coordinator checks that its thread is alive."""
_ANSWER_S = 5.0
"""Longest wait for the coordinator's thread, which never blocks, but may be kept from running."""
_REFUSAL_S = 2.0
"""Time for the last read of a registration, and for the refusal to reach the caller."""


class Membership:
    """One member of one group, from joining to leaving.

    Args:
        config: settings.
        consumer_id: as in `/consumers/[group]/ids`.
        subscription: what it subscribes to.
        lease: until when the streams may deliver.
        streams: (topic, thread id) -> stream; the topic is empty for a filter.
        listener: any object with some of the methods of `RebalanceListener`.
        on_generation: called with the generation of the cluster, `0.7` or `0.8`, before anything is registered.

    Threads: any, but for the private methods, which belong to the coordinator's thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        subscription: Subscription,
        lease: Lease,
        streams: Mapping[tuple[str, str], KafkaStream],
        listener: object | None,
        on_generation: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._on_generation = on_generation
        self.config = config
        self.consumer_id = consumer_id
        self.lease = lease
        self.loop = Loop(lease_clock)
        self.counters = Counters()
        options = zookeeper_options(config)
        self._tls = options.get("tls")
        self._kazoo = KazooPort(
            str(config.zookeeper_address), config.zookeeper_session_timeout_ms / 1000, self._client_failed, **options
        )
        self.port = CountedPort(self._kazoo, self.counters)
        self.cluster = Cluster(
            self.port, config.client_id, config.socket_timeout_ms / 1000,
            config.zookeeper_connection_timeout_ms / 1000, self.counters, security=config.security,
        )  # fmt: skip

        pipeline = Pipeline(self.port, self.loop)
        self.offsets = member_offsets(config, pipeline.ask, self.loop, lease, self.cluster, self.counters)
        self.delivery = Delivery(
            config, streams, self.cluster.directory, lease_clock,
            lambda *found: self.loop.post(self.offsets.out_of_range, *found),
            self.counters, self._thread_died,
        )
        self.listening = ListenerThread(listener)
        self.coordinator = Coordinator(
            member_of(config, consumer_id, subscription), pipeline,
            MemberParts(self.delivery, self.offsets, self.listening), lease, random.Random(),
            lambda: int(time.time() * 1000),
        )
        self.pauses = Pauses(self.coordinator, self.delivery, self.loop)
        self.commits = Commits(self.coordinator, self.offsets, self.delivery.positions, self.loop)
        self._streams = tuple(streams.values())
        self._started_at = lease_clock()
        self._connected = Latch()
        self._settled = Latch()
        self._fault: Exception | None = None
        self.leaving = Leave(self)
        self._gate = threading.Lock()
        self._held_change: SessionChange | None = None
        self._gate_open = False
        self._thread = threading.Thread(target=self._run, name=f"zkconsumer-{consumer_id}", daemon=True)

    @property
    def error(self) -> Exception | None:
        """Why the member is out of its group for good, `None` while it is not."""
        return self.coordinator.error

    # -- joining -----------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Connect, check the cluster, register, and wait until every partition is positioned or blocked."""
        try:
            self._join()
        except AccessRefused as error:
            raise ZooKeeperRefused(self.config.zookeeper, str(error), error.remedy) from error

    def _join(self) -> None:
        timeout_s = self.config.zookeeper_connection_timeout_ms / 1000
        deadline = lease_clock() + timeout_s
        self.port.start(self._session_changed)
        wait_for_session(self._kazoo, self._connected, self.config.zookeeper, timeout_s, self._tls)
        self._refuse_start()
        self._thread.start()
        self._refuse_start()  # a leave that found no thread has stopped its loop
        if not self._is_refused():
            self._choose_generation()
        self.loop.post(self.coordinator.start)
        self.loop.post(self.coordinator.when_settled, self._settled.set)
        if self.config.auto_commit_enable:
            self.loop.post(self.commits.start_auto_commit, self.config.auto_commit_interval_ms / 1000)
        self._open_gate()
        if not self._settled.wait(max(0.0, deadline - lease_clock())) and self._call(self._is_registering, 1.0):
            # Another session has this consumer id. It ends soon if its process has died; if not, the caller must know.
            self._settled.wait(self.coordinator.session.registration_patience_s + _REFUSAL_S)
        if self.coordinator.error is not None:
            raise self.coordinator.error

    def _choose_generation(self) -> None:
        """Find out how the group is written in ZooKeeper; nothing is registered before."""
        config = self.config
        found = self.cluster.reader.find_generation(config.group_id, config.kafka_generation)
        for name, value, known in (
            ("partition.assignment.strategy", config.partition_assignment_strategy, found.strategies),
            ("offsets.storage", config.offsets_storage, found.storages),
        ):
            if value not in known:
                raise GroupRefused(config.group_id, f"{name} is {value}, and members of Kafka {found.name} have "
                                                    f"{' and '.join(known)} alone")
        if found.name == "0.7" and config.kafka_generation == "auto":
            log.info("group %s is of Kafka 0.7; defaults are those of 0.8: kafka.generation=0.7 takes those of 0.7, "
                     "and allows any word as auto.offset.reset", config.group_id)
        self._on_generation(found.name)
        self.coordinator.member.generation.value = found

    def _refuse_start(self) -> None:
        """Raise why the group cannot be joined any more."""
        if self._fault is not None:
            raise self._fault
        if self.leaving.has_started:
            raise ConnectorClosed

    def give_up_start(self) -> None:
        """Wake up a thread that waits for the start of this member."""
        self._connected.set()
        self._settled.set()

    def _is_registering(self) -> bool:
        return self.coordinator.machine.state is GroupState.REGISTERING

    def _session_changed(self, change: SessionChange) -> None:
        """Hold changes back until the cluster is checked: nothing may be registered before."""
        with self._gate:
            if not self._gate_open:
                self._held_change = change
                if change.what in ("connected", "refused"):
                    self._connected.set()
                return
        self.coordinator.session_changed(change)

    def _is_refused(self) -> bool:
        with self._gate:
            return self._held_change is not None and self._held_change.what == "refused"

    def _open_gate(self) -> None:
        with self._gate:
            self._gate_open = True
            if self._held_change is not None:
                self.coordinator.session_changed(self._held_change)

    # -- the coordinator's thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, there is nothing left that renews, commits or releases
            self._fault = end_by_fault(error, self.coordinator, self.delivery, self.listening, self.port)
            self.give_up_start()

    def _client_failed(self, error: Exception) -> None:
        """The ZooKeeper client cannot report any more: the coordinator cannot go on. Threads: any."""
        if not self._thread.is_alive():
            self._fault = stream_failure("the ZooKeeper client has failed", error)
            self._connected.set()
        self.loop.post(_raise, error)

    def _thread_died(self, name: str, error: BaseException) -> None:
        """Leave in order, as the coordinator still can: a delivering thread has ended by a fault. Threads: that one."""
        failure = stream_failure(f"{name} has ended", error)
        fault = None if isinstance(error, AuthenticationFailed) else error  # a refusal says it all
        if self.leaving.has_started:
            log.error("%s, which leaves its group: %s", self.consumer_id, failure, exc_info=fault)
            return
        log.error("%s leaves its group: %s", self.consumer_id, failure, exc_info=fault)
        for stream in self._streams:
            stream._fail(failure)
        if self.coordinator.error is None:
            self.coordinator.error = failure
        self.leaving.start(self.config.rebalance_drain_timeout_ms / 1000, None, False, None)

    @property
    def is_coordinated(self) -> bool:
        """Whether the coordinator's thread is alive. Threads: any."""
        return self._thread.is_alive()

    def is_own_thread(self, thread: threading.Thread, but: threading.Thread | None) -> bool:
        """Whether the leave waits for what this thread does, unless the thread has started it."""
        return thread is self._thread or (thread is not but and self.listening.is_on(thread))

    def join_threads(self, until: float, but: threading.Thread | None) -> None:
        """Wait for the coordinator and the listener to end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, until - lease_clock()))
        is_caller = but is not None and self.listening.is_on(but)
        self.listening.close(0.0 if is_caller else until - lease_clock())

    def await_coordinator(self, done: Latch, timeout_s: float) -> bool:
        """Return whether `done` is set in time; waits only while the coordinator's thread is alive."""
        deadline = lease_clock() + timeout_s
        while not done.wait(min(_ALIVE_CHECK_S, deadline - lease_clock())):
            if lease_clock() >= deadline or not self._thread.is_alive():
                return done.is_set()
        return True

    def _call(self, call: Callable[[], T], timeout_s: float) -> T | None:
        """Run `call` on the coordinator's thread and wait for its result, `None` at the time-out."""
        if threading.current_thread() is self._thread:
            return call()
        results: list[T] = []
        done = Latch()

        def run() -> None:
            results.append(call())
            done.set()

        self.loop.post(run)
        self.await_coordinator(done, timeout_s)
        return results[0] if results else None

    # -- commits -----------------------------------------------------------------------------------------------------

    def prepare_commit(self, offsets: Mapping[TopicPartition, int] | None, reader: object) -> Callable[[], None]:
        """Decide what a commit stores: `offsets`, or all that counts for `reader`. Source: `GroupMember`."""
        # What is decided here, on the application's thread, must not be written under a later session.
        fence = self.coordinator.fence
        explicit = None if offsets is None else checked_offsets(offsets)
        in_hand = {} if explicit is not None else self.delivery.explicit_positions(reader)
        return lambda: self._commit(fence, explicit, in_hand)

    def _commit(
        self, fence: Fence | None, explicit: dict[Partition, int] | None, in_hand: Mapping[TopicPartition, int]
    ) -> None:
        done = Latch()
        outcome: dict[Partition, str] = {}
        positions: dict[Partition, int] = {}

        def committed(failed: Mapping[Partition, str]) -> None:
            outcome.update(failed)
            done.set()

        def run() -> None:
            chosen, refused = self.commits.choose(explicit, in_hand)
            outcome.update(refused)
            for partition, at in chosen.items():
                reason = None if explicit is None else self.delivery.why_no_start(partition, at)
                if reason is None:
                    positions[partition] = at
                else:
                    outcome[partition] = reason
            self.commits.commit(fence, positions, committed, explicit=explicit is not None)

        self.loop.post(run)
        wait_s = max(self.coordinator.session.timeout_s, self.offsets.commit_wait_s, 1.0)
        if not self.await_coordinator(done, wait_s):
            missing = positions or explicit or in_hand
            if not missing and self.coordinator.error is not None:
                raise self.coordinator.error
            raise CommitFailed(
                dict.fromkeys(missing, self._no_answer(f"from {self.offsets.answering} within {wait_s:g} s"))
            )
        self.delivery.mark_committed(
            {TopicPartition(*partition): at for partition, at in positions.items() if partition not in outcome}
        )
        if outcome:
            raise CommitFailed(outcome)

    # -- pauses ------------------------------------------------------------------------------------------------------

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing of `partitions`. Source: `ConsumerConnector.pause`."""
        self._pause("paused", self.pauses.pause, partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver `partitions` again. Source: `ConsumerConnector.resume`."""
        self._pause("resumed", self.pauses.resume, partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self.delivery.paused()

    def _pause(
        self,
        wanted: str,
        call: Callable[[Collection[Partition]], dict[Partition, str]],
        partitions: Collection[Partition],
    ) -> None:
        refused = self._call(lambda: call(partitions), _ANSWER_S)
        if refused is None:
            refused = dict.fromkeys(partitions, self._no_answer(f"of the coordinator within {_ANSWER_S:g} s"))
        if refused:
            raise PauseFailed(wanted, refused)

    def _no_answer(self, where: str) -> str:
        error = self.coordinator.error
        if self._thread.ident is None and error is None:
            return "this member has not joined the group yet"
        return str(error) if error is not None else f"no answer {where}"

    # -- state -------------------------------------------------------------------------------------------------------

    def held(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns, those included that it has not released yet."""
        known = list(self.coordinator.partitions)
        return frozenset(TopicPartition(*partition) for partition in known if self.commits.holds(partition))

    def count_error(self, kind: str) -> None:
        """Count an error of a kind, for the statistics."""
        self.counters.add("errors", kind)

    def is_on_listener(self, thread: threading.Thread) -> bool:
        """Whether the callbacks of the rebalance listener run on that thread."""
        return self.listening.is_on(thread)

    @property
    def listener_thread(self) -> threading.Thread | None:
        """The thread of the callbacks of the rebalance listener; None without one."""
        return self.listening.thread

    def status(self) -> ConnectorStatus:
        """The member's status, read on the coordinator's thread."""
        status = self._call(
            lambda: read_status(self.coordinator, self.delivery, self.offsets, self.cluster.reader, lease_clock()),
            timeout_s=2.0,
        )
        if status is not None:
            return status
        error = self.coordinator.error
        return ConnectorStatus(
            self.coordinator.member.consumer_id, GroupState.FAILED.value if error else "busy", 0.0, 0, (), (), (),
            self.lease.age_s(lease_clock()), self.coordinator.session.timeout_s, (), str(error) if error else None,
        )

    def statistics(self, status: ConnectorStatus) -> ConnectorStatistics:
        """What the member has counted, beside its status."""
        errors = self.counters.counts("errors")
        others = {
            "commit": self.offsets.failures,
            "listener": self.listening.failures,
            "message": sum(stream._failures for stream in self._streams),
        }
        errors |= {kind: count for kind, count in others.items() if count}
        return ConnectorStatistics(
            group=self.config.group_id,
            uptime_s=round(lease_clock() - self._started_at, 3),
            status=status,
            rebalances=self.coordinator.rebalance_statistics.figures,
            queued_bytes=self.delivery.queued_bytes(),
            zookeeper_requests=self.counters.counts("zookeeper_requests"),
            broker_requests=self.counters.counts("broker_requests"),
            errors=dict(sorted(errors.items())),
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(
        self, wait_s: float, *, reader: object, in_hand_is_done: bool, caller: threading.Thread | None
    ) -> bool:
        """Start to leave the group. Source: `GroupMember.leave`."""
        return self.leaving.start(wait_s, reader, in_hand_is_done, caller)

    @property
    def has_left(self) -> bool:
        """Whether the leave is over."""
        return self.leaving.is_over

    def wait_left(self, wait_s: float) -> bool:
        """Wait for the end of the leave; whether it is over within `wait_s` and half a second."""
        return self.leaving.wait(wait_s)

    def unstored(self) -> dict[TopicPartition, str]:
        """Partition -> why its position is not stored, as far as is known by now."""
        return self.leaving.unstored()

    def on_fork(self) -> None:
        """This process is a fork of the one that joined: deliver nothing here. Takes no lock."""
        self.lease.end()


def _raise(error: Exception) -> None:
    raise error
