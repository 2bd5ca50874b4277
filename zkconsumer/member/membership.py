"""A group member: its threads, delivery and commits, from joining to leaving; `coordination` knows what coordinates it.

Streams and polls talk to a member through `Membership` alone. The coordinator's thread runs here; whatever other
threads want of the coordination is posted to it and waited for with a deadline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from rebalance.errors import AccessRefused
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.partition import PartitionState
from rebalance.ports import MemberParts
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Partition
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConnectorClosed, PauseFailed, ZooKeeperRefused
from zkconsumer.member.asked_commit import AskedCommit
from zkconsumer.member.coordination import Coordination
from zkconsumer.member.delivery import Delivery, MemberStream, WeakStream
from zkconsumer.member.leaving import Leave, end_by_fault, stream_failure
from zkconsumer.member.listening import ListenerThread
from zkconsumer.member.pausing import Pauses
from zkconsumer.member.status_reading import read_status
from zkconsumer.offsets.commits import CommitNotes, Commits, GivenNotes
from zkconsumer.status import ConnectorStatistics, ConnectorStatus
from zkconsumer.wakeup import Latch

log = logging.getLogger(__name__)

T = TypeVar("T")

_ALIVE_CHECK_S = 0.1
"""How often a call that waits for the coordinator checks that its thread is alive."""
_ANSWER_S = 5.0
"""Longest wait for the coordinator's thread, which never blocks, but may be kept from running."""


class MemberFaults(NamedTuple):
    """The callbacks for faults of the parts of a member. Threads: any.

    Attributes:
        port_failed: The coordination cannot go on: the failed part, a clause, and the error.
        thread_died: A thread has ended by a fault: its name, and the fault.
    """

    port_failed: Callable[[str, Exception], None]
    thread_died: Callable[[str, BaseException], None]


class Membership:
    """One member of one group, from joining to leaving.

    Args:
        config: settings.
        consumer_id: the id of the member in messages, and in `/consumers/[group]/ids`.
        lease: until when the streams may deliver.
        streams: (topic, thread id) -> stream; the topic is empty for a filter. They are not kept alive.
        listening: calls the listener of the application.
        coordinated: makes the coordination, from the loop, the counters, and the callbacks for faults.
        policy: replaces `auto.offset.reset`, see `Delivery`.

    Threads: any, but for the private methods, which belong to the coordinator's thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        lease: Lease,
        streams: Mapping[tuple[str, str], MemberStream],
        listening: ListenerThread,
        coordinated: Callable[[Loop, Counters, MemberFaults], Coordination],
        *,
        policy: str | None = None,
    ) -> None:
        loop, counters = Loop(lease_clock), Counters()
        weak = {name: WeakStream(stream) for name, stream in streams.items()}
        coordination = coordinated(loop, counters, MemberFaults(self._port_failed, self._thread_died))
        self.config = config
        self.consumer_id = consumer_id
        self.lease = lease
        self.loop = loop
        self.counters = counters
        self.coordination = coordination
        self.port = coordination.port
        self.offsets = coordination.offsets
        self.delivery = Delivery(
            config,
            weak,
            coordination.directory,
            lease_clock,
            lambda *found: self.loop.post(self.offsets.out_of_range, *found),
            self.counters,
            self._thread_died,
            policy=policy,
            epoch_of=coordination.notes.epoch_read,
        )
        self.listening = listening
        coordination.coordinate(MemberParts(self.delivery, self.offsets, self.listening))
        self.coordinator = coordination.coordinator
        self.pauses = Pauses(self.coordinator, self.delivery, self.loop)
        self.commits = Commits(self.coordinator, self.offsets, self.delivery.positions, self.loop)
        self._streams = tuple(weak.values())
        self._started_at = lease_clock()
        self._connected = Latch()
        self._settled = Latch()
        self._fault: Exception | None = None
        self.leaving = Leave(self)
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
        self.coordination.connect(self._connected)
        self._refuse_start()
        self._thread.start()
        self._refuse_start()  # a leave that found no thread has stopped its loop
        self.coordination.check_cluster()
        self.loop.post(self.coordinator.start)
        self.loop.post(self.coordinator.when_settled, self._settled.set)
        if self.config.auto_commit_enable:
            self.loop.post(self.commits.start_auto_commit, self.config.auto_commit_interval_ms / 1000)
        self.coordination.open()
        self.coordination.await_settled(self._settled)
        if self.coordinator.error is not None:
            raise self.coordinator.error

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

    # -- the coordinator's thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, there is nothing left that renews, commits or releases
            self._fault = end_by_fault(error, self.coordinator, self.delivery, self.listening, self.port)
            self.give_up_start()

    def _port_failed(self, what: str, error: Exception) -> None:
        """The coordination cannot go on. Threads: any."""
        if not self._thread.is_alive():
            self._fault = stream_failure(what, error)
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

    def call(self, call: Callable[[], T], timeout_s: float) -> T | None:
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

    def ask_commit(
        self,
        offsets: Mapping[TopicPartition, int] | None,
        reader: object,
        *,
        given: GivenNotes = MappingProxyType({}),
        answered: Callable[[], None] = lambda: None,
    ) -> AskedCommit:
        """Ask for a commit: of `offsets`, or of all that is done and the message in hand of `reader`.

        It is stored after all earlier commits. `wait` of the returned object waits for the result, on
        any thread. It raises CommitFailed, which names each partition that was not stored, and why.

        Args:
            reader: A thread by `threading.get_ident`, or an asyncio task.
            given: The metadata to store with the offsets.
            answered: Called on the coordinator's thread when the result is known.

        Raises:
            ValueError: An offset that is no integer from 0 to 2^63-1.
        """
        return AskedCommit(self, offsets, reader, given, answered)

    @property
    def notes(self) -> CommitNotes:
        """The metadata that is stored with offsets."""
        return self.coordination.notes

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on at another offset; a partition that is being given up ends there. Threads: the coordinator's."""
        self.offsets.start_at(partition, offset)
        entry = self.coordinator.partitions.get(partition)
        if entry is not None and entry.is_drained:
            entry.position = offset  # the listener has not been called yet, and it is committed after that
            if self.config.auto_commit_enable:
                self.offsets.remember(partition, offset)
        else:
            self.delivery.seek(partition, offset)

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
        refused = self.call(lambda: call(partitions), _ANSWER_S)
        if refused is None:
            refused = dict.fromkeys(partitions, self.why_no_answer(f"of the coordinator within {_ANSWER_S:g} s"))
        if refused:
            raise PauseFailed(wanted, refused)

    def why_no_answer(self, where: str) -> str:
        """Return why the coordinator does not answer, a clause."""
        error = self.coordinator.error
        if self._thread.ident is None and error is None:
            return "this member has not joined the group yet"
        return str(error) if error is not None else f"no answer {where}"

    # -- state -------------------------------------------------------------------------------------------------------

    def held(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns, those included that it has not released yet."""
        known = list(self.coordinator.partitions)
        return frozenset(TopicPartition(*partition) for partition in known if self.commits.holds(partition))

    def claiming(self) -> frozenset[TopicPartition]:
        """The partitions whose claims are under way."""
        known = list(self.coordinator.partitions.items())
        return frozenset(
            TopicPartition(*partition) for partition, entry in known
            if entry.machine.state is PartitionState.CLAIMING
        )  # fmt: skip

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
        status = self.call(
            lambda: read_status(self.coordination, self.delivery, lease_clock()),
            timeout_s=2.0,
        )
        if status is not None:
            return status
        error = self.coordinator.error
        return ConnectorStatus(
            self.coordinator.member.consumer_id,
            "failed" if error else "busy",
            0.0,
            0,
            (),
            (),
            (),
            self.lease.age_s(lease_clock()),
            self.coordinator.session_timeout_s,
            (),
            str(error) if error else None,
        )

    def statistics(self, status: ConnectorStatus) -> ConnectorStatistics:
        """Return the counters of the member together with its status."""
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
            throttled=self.counters.counts("throttled"),
            throttle_ms=self.counters.counts("throttle_ms"),
            errors=dict(sorted(errors.items())),
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(self, wait_s: float, *, reader: object, in_hand_is_done: bool, caller: threading.Thread | None) -> bool:
        """Start to leave the group, on another thread; `False` if that was started before.

        Args:
            wait_s: For messages in hand, the listener and the last commit together.
            reader: Who calls, a thread by `threading.get_ident` or an asyncio task; its message in hand is not waited
                for.
            in_hand_is_done: Whether its message in hand counts as done.
            caller: A thread that may wait for the leave, and so is not waited for.
        """
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
