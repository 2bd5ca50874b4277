"""What exists between joining a group and leaving it: threads, connections, state.

The connector owns one of these. The coordinator's thread runs here; everything that other threads want of the
coordination is posted to it and waited for with a deadline.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from rebalance import machine as m
from rebalance.coordinator import Coordinator
from rebalance.counted_port import CountedPort
from rebalance.handover import Partition
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.ports import Member
from rebalance.requests import Reply, Request, SessionChange
from rebalance.snapshot import Strategy
from rebalance.subscription import Subscription
from rebalance.tally import Tally
from rebalance.zookeeper import KazooPort
from simpleconsumer.types import TopicPartition
from zkconsumer.brokers import BrokerDirectory
from zkconsumer.cluster import ClusterReader
from zkconsumer.commits import Commits
from zkconsumer.config import ConsumerConfig
from zkconsumer.delivery import Delivery
from zkconsumer.errors import CommitFailed, PauseFailed, StreamFailed, ZooKeeperUnavailable
from zkconsumer.listening import ListenerThread
from zkconsumer.offsets import ZooKeeperOffsets
from zkconsumer.pausing import Pauses
from zkconsumer.statistics import ConnectorStatistics
from zkconsumer.status import ConnectorStatus
from zkconsumer.status_reading import read_status
from zkconsumer.stream import KafkaStream
from zkconsumer.zookeeper_options import zookeeper_options

__all__ = ["Membership", "member_of"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_CLOSE_S = 5.0
"""Longest wait for threads and for ZooKeeper's goodbye, beyond the time-out that the caller gives."""
_ANSWER_S = 5.0
"""Longest wait for the coordinator's thread, which never blocks, but may be kept from running."""
_REFUSAL_S = 2.0
"""What ZooKeeper's last look at a registration may take, and the refusal on its way to the caller."""


class Membership:
    """One member of one group, from joining to leaving.

    Args:
        config: settings.
        consumer_id: as in `/consumers/[group]/ids`.
        subscription: what it subscribes to.
        lease: until when the streams may deliver.
        streams: (topic, thread id) -> stream; for a filter the topic is empty.
        listener: any object with some of the methods of `RebalanceListener`.

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
    ) -> None:
        self.config = config
        self.lease = lease
        self.loop = Loop(lease_clock)
        self.tally = Tally()
        kazoo = KazooPort(
            str(config.zookeeper_address), config.zookeeper_session_timeout_ms / 1000, **zookeeper_options(config)
        )
        self.port = CountedPort(kazoo, self.tally)
        self.cluster = ClusterReader(self.port, config.zookeeper_connection_timeout_ms / 1000)
        directory = BrokerDirectory(config, self.cluster.brokers, self.cluster.existing, self.cluster.leaders,
                                    tally=self.tally)

        def stream_of(topic: str, thread_id: str) -> KafkaStream:
            stream = streams.get((topic, thread_id))
            return stream if stream is not None else streams["", thread_id]

        self.coordinator: Coordinator
        self.offsets = ZooKeeperOffsets(self._ask, self.loop, config.group_id)
        self.delivery = Delivery(
            config, list(streams.values()), stream_of, directory, lease, lease_clock,
            lambda partition: self.loop.post(self.offsets.out_of_range, partition), self.tally,
        )
        self.listening = ListenerThread(listener)
        self.coordinator = Coordinator(
            member_of(config, consumer_id, subscription), self.port, self.loop, lease, self.delivery, self.offsets,
            self.listening, random.Random(), lambda: int(time.time() * 1000),
        )
        self.pauses = Pauses(self.coordinator, self.delivery, self.loop)
        self.commits = Commits(self.coordinator, self.offsets, self.delivery.positions, self.loop)
        self._streams = tuple(streams.values())
        self._began = lease_clock()
        self._connected = threading.Event()
        self._settled = threading.Event()
        self._gate = threading.Lock()
        self._held_change: SessionChange | None = None
        self._gate_open = False
        self._thread = threading.Thread(target=self._run, name=f"zkconsumer-{consumer_id}", daemon=True)

    def _ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.coordinator.ask(request, handle)

    # -- joining -----------------------------------------------------------------------------------------------------

    def join_group(self) -> None:
        """Connect, look at the cluster, register, and wait until every partition is positioned or blocked."""
        deadline = lease_clock() + self.config.zookeeper_connection_timeout_ms / 1000
        self.port.start(self._session_changed)
        if not self._connected.wait(deadline - lease_clock()):
            raise ZooKeeperUnavailable(
                self.config.zookeeper_connect, self.config.zookeeper_connection_timeout_ms / 1000
            )
        self._thread.start()
        if not self._is_refused():
            self.cluster.refuse_foreign_generation(self.config.group_id)
        self.loop.post(self.coordinator.start)
        self.loop.post(self.coordinator.when_settled, self._settled.set)
        if self.config.auto_commit_enable:
            self.loop.post(self.commits.start_auto_commit, self.config.auto_commit_interval_ms / 1000)
        self._open_gate()
        if not self._settled.wait(max(0.0, deadline - lease_clock())) and self._call(self._is_registering, 1.0):
            # Another session has this consumer id. It ends soon if its process has died; else the caller must know.
            self._settled.wait(self.coordinator.session.registration_patience_s + _REFUSAL_S)
        if self.coordinator.error is not None:
            raise self.coordinator.error

    def _is_registering(self) -> bool:
        return self.coordinator.machine.state is m.GroupState.REGISTERING

    def _session_changed(self, change: SessionChange) -> None:
        """Hold changes back until the cluster was looked at: nothing may be registered before."""
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

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception as error:
            # Without this thread nothing is renewed, committed or released: say so on every stream.
            log.exception("the coordinator of %s has failed", self.coordinator.member.consumer_id)
            self.lease.end()
            failure = StreamFailed(f"the coordinator has failed: {error!r}")
            failure.__cause__ = error
            self.coordinator.error = failure
            self.delivery.fail(failure)

    def _call(self, call: Callable[[], T], timeout_s: float) -> T | None:
        """Run `call` on the coordinator's thread and wait for its result, `None` at the time-out."""
        if threading.current_thread() is self._thread:
            return call()
        results: list[T] = []
        done = threading.Event()

        def run() -> None:
            results.append(call())
            done.set()

        self.loop.post(run)
        done.wait(timeout_s)
        return results[0] if results else None

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None, reader: int) -> None:
        """Commit `offsets`, or all that counts for `reader`. Source: `ConsumerConnector.commit_offsets`."""
        explicit = None if offsets is None else _checked(offsets)
        in_hand = {} if explicit is not None else self.delivery.explicit_positions(reader)
        done = threading.Event()
        outcome: dict[Partition, str] = {}
        positions: dict[Partition, int] = {}

        def committed(failed: Mapping[Partition, str]) -> None:
            outcome.update(failed)
            done.set()

        def run() -> None:
            chosen, refused = self.commits.choose(explicit, in_hand)
            positions.update(chosen)
            outcome.update(refused)
            self.offsets.commit(positions, committed, explicit=explicit is not None)

        self.loop.post(run)
        if not done.wait(max(self.coordinator.session.timeout_s, 1.0)):
            missing = positions or explicit or in_hand
            raise CommitFailed(dict.fromkeys(missing, "no answer from ZooKeeper within the session time-out"))
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

    def _pause(
        self,
        wanted: str,
        call: Callable[[Collection[Partition]], dict[Partition, str]],
        partitions: Collection[Partition],
    ) -> None:
        refused = self._call(lambda: call(partitions), _ANSWER_S)
        if refused is None:
            refused = dict.fromkeys(partitions, f"the coordinator has not answered within {_ANSWER_S:g} s")
        if refused:
            raise PauseFailed(wanted, refused)

    # -- state and end -----------------------------------------------------------------------------------------------

    def status(self) -> ConnectorStatus:
        """The member's status, read on the coordinator's thread."""
        status = self._call(
            lambda: read_status(self.coordinator, self.delivery, self.offsets, lease_clock()), timeout_s=2.0
        )
        if status is not None:
            return status
        error = self.coordinator.error
        return ConnectorStatus(
            self.coordinator.member.consumer_id, m.GroupState.FAILED.value if error else "busy", 0.0, 0, (), (), (),
            self.lease.age_s(lease_clock()), self.coordinator.session.timeout_s, (), str(error) if error else None,
        )

    def statistics(self, status: ConnectorStatus) -> ConnectorStatistics:
        """What the member has counted, beside its status."""
        errors = self.tally.counts("errors")
        others = {
            "commit": self.offsets.failures,
            "listener": self.listening.failures,
            "message": sum(stream.failures for stream in self._streams),
        }
        errors |= {kind: count for kind, count in others.items() if count}
        return ConnectorStatistics(
            group=self.config.group_id,
            uptime_s=round(lease_clock() - self._began, 3),
            status=status,
            rebalances=self.coordinator.episodes.figures,
            queued_bytes=self.delivery.queued_bytes(),
            zookeeper_requests=self.tally.counts("zookeeper_requests"),
            broker_requests=self.tally.counts("broker_requests"),
            errors=dict(sorted(errors.items())),
        )

    def leave_group(self, wait_s: float, reader: int, is_hand_done: bool) -> None:
        """Stop delivering, tell the listener, commit what is done, give everything back; bounded.

        Args:
            reader: the calling thread; what it has in hand is not waited for.
            is_hand_done: whether what it has in hand counts as done.
        """
        deadline = lease_clock() + wait_s
        self._settled.set()  # a listener may leave while another thread still waits for the start
        positions = self.delivery.stop(reader, deadline, is_hand_done)
        if self._thread.is_alive():
            self._revoke_all(positions, deadline)
            if self.config.auto_commit_enable and self.coordinator.error is None:
                self._commit_last(positions)
            self._call(self.coordinator.close, timeout_s=1.0)
        self.lease.end()
        self.port.close(min(_CLOSE_S, max(1.0, wait_s)))
        self.loop.post(self.loop.stop)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)
        self.delivery.close(lease_clock() + _CLOSE_S)
        self.listening.close(0.5)

    def _revoke_all(self, positions: Mapping[TopicPartition, int], deadline: float) -> None:
        """Tell the listener what is about to be given back; it may commit, which counts when auto-commit is off."""
        told = threading.Event()

        self.loop.post(self.commits.give_back, positions, lambda: self.listening.leave(told.set))
        # A callback that shuts down would wait for itself.
        if not self.listening.is_current_thread:
            told.wait(max(0.5, deadline - lease_clock()))

    def _commit_last(self, positions: Mapping[TopicPartition, int]) -> None:
        done = threading.Event()
        failures: dict[Partition, str] = {}

        def committed(failed: Mapping[Partition, str]) -> None:
            failures.update(failed)
            done.set()

        self.loop.post(self.commits.commit_last, positions, committed)
        if not done.wait(max(self.coordinator.session.timeout_s, 1.0)):
            log.warning("the last positions are not committed: no answer from ZooKeeper; they may come again")
        for partition, reason in failures.items():
            log.warning("offset of %s-%s is not committed: %s", *partition, reason)


def _checked(offsets: Mapping[TopicPartition, int]) -> dict[Partition, int]:
    for partition, offset in offsets.items():
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < 2**63:
            raise ValueError(
                f"offset of {partition[0]}-{partition[1]} is {offset!r}; it must be an integer from 0 to 2^63-1"
            )
    return {(partition[0], partition[1]): offset for partition, offset in offsets.items()}


def member_of(config: ConsumerConfig, consumer_id: str, subscription: Subscription) -> Member:
    """The member that these settings describe."""
    backoff_s = config.rebalance_backoff_ms / 1000
    return Member(
        group=config.group_id,
        consumer_id=consumer_id,
        subscription=subscription,
        strategy=Strategy(
            config.partition_assignment_strategy, config.roundrobin_order, config.exclude_internal_topics
        ),
        chroot=config.zookeeper_address.chroot,
        auto_commit=config.auto_commit_enable,
        reset_policy=config.auto_offset_reset,
        drain_timeout_s=config.rebalance_drain_timeout_ms / 1000,
        blocked_after_s=max(0.1, config.rebalance_max_retries * backoff_s),
        max_processing_s=(
            None if config.max_processing_interval_ms is None else config.max_processing_interval_ms / 1000
        ),
        times=m.RebalanceTimes(
            quiet_s=config.rebalance_quiet_ms / 1000, quiet_max_s=config.rebalance_quiet_max_ms / 1000
        ),
    )
