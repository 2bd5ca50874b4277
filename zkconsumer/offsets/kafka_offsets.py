"""Keeps the offsets of a group in Kafka: loads them after a claim, commits them while the registration stands.

The coordinator's thread owns the records; a thread of its own speaks to the offset manager, one request at a time, in
the order in which they were asked for. Each load and each commit carries the registration (fence) under which it was
decided, and ends when that one is over.

Rules, and which failure each prevents:
- What waits is sent together: the starts of thousands of partitions take a few requests.
- Unchanged offsets are stored again by each commit, as Java members do: brokers forget an offset a day, or a week,
  after it was stored last, and a late commit of an earlier owner may have overwritten it.
- A commit is sent only while the lease holds: what is on its way when the lease ends has a third of the session
  time-out to arrive before the partition can have another owner.
- A partition whose offset is not known is not started: without an answer nobody knows whether there is an offset, and
  the reset policy would skip or repeat messages.

Source: docs/SEMANTICS.md, "Offsets in Kafka"; kafka.consumer.ZookeeperConsumerConnector (0.8.2.2).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rebalance.assignment import Partition
from rebalance.claims import Fence, is_same_session
from rebalance.loop import Loop
from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.commit_batch import SESSION_OVER
from zkconsumer.offsets.offset_manager import OffsetAnswer, OffsetManager
from zkconsumer.offsets.offset_records import OffsetRecord, WriteDecision, decide_write, start_position

__all__ = ["Comparison", "KafkaOffsets", "KafkaOffsetTimes"]

log = logging.getLogger(__name__)

_NOTHING_TO_WRITE: Final = (WriteDecision.SKIP, WriteDecision.HOLD)
_COMPARE_AGAIN_S: Final = 60.0
_LOAD_BACKOFF: Final = Backoff(0.2, 5.0)

Done = Callable[[Mapping[Partition, str]], None]
Loaded = Callable[[int | None], None]


@dataclass(frozen=True, slots=True)
class KafkaOffsetTimes:
    """How long requests may take, in seconds.

    Attributes:
        load_s: Longest time of one attempt to load.
        commit_s: Longest time of a commit, all attempts together.
    """

    load_s: float = 10.0
    commit_s: float = 15.0


class Comparison:
    """When offsets in Kafka are read that are only compared with those of another store.

    Args:
        has_offsets: Returns whether the cluster keeps offsets in Kafka at all; may block.
        is_required: False: an offset that cannot be read counts as none, and no offset is read for a minute. So a
            broker that does not answer does not delay each rebalance of a group that does not need it.

    Threads: The requests' own.
    """

    def __init__(self, has_offsets: Callable[[], bool], *, is_required: bool) -> None:
        self._has_offsets = has_offsets
        self.is_required = is_required
        self._failed_at = float("-inf")

    def is_due(self) -> bool:
        """Return whether the offsets are to be read now."""
        if not self.is_required and time.monotonic() - self._failed_at < _COMPARE_AGAIN_S:
            return False
        return self._has_offsets()

    def note(self, answer: OffsetAnswer) -> None:
        """Note what came of it."""
        if answer.unknown:
            self._failed_at = time.monotonic()


@dataclass(slots=True)
class _Load:
    """Loads that are answered by one request: partition -> who waits, and how often it has failed before."""

    fence: Fence | None
    waiting: dict[Partition, tuple[list[Loaded], int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Commit:
    """Commits that are sent in one request."""

    fence: Fence | None
    is_explicit: bool
    positions: dict[Partition, int]
    callers: list[tuple[frozenset[Partition], Done]]
    starts: set[Partition] = field(default_factory=set)
    writes: dict[Partition, int] = field(default_factory=dict)
    failed: dict[Partition, str] = field(default_factory=dict)

    def may_join(self, later: _Commit) -> bool:
        """Return whether a later commit is sent together with this one, which still waits."""
        goes_back = any(self.positions.get(partition, at) > at for partition, at in later.positions.items())
        return not (
            self.is_explicit or later.is_explicit or goes_back or self.fence != later.fence
            or later.starts & self.positions.keys()
        )

    def join(self, later: _Commit) -> None:
        """Take in a later commit."""
        self.positions.update(later.positions)
        self.starts = self.starts - later.positions.keys() | later.starts
        self.callers += later.callers


class KafkaOffsets:
    """The offsets in Kafka of one group, for one member.

    Args:
        manager: Speaks to the offset manager; only the thread of this object does so.
        loop: The coordinator's.
        has_lease: Returns whether the lease holds; called on another thread.
        comparison: Given when the group keeps its offsets in ZooKeeper, and those in Kafka are only compared with them.

    Attributes:
        failures: How many positions could not be committed so far.
        refused: Partition -> why its offset is not known, as a sentence.

    Threads: The coordinator's alone; `committed`, `behind`, `is_stored` and `failures` may be read from any thread.
    """

    def __init__(
        self,
        manager: OffsetManager,
        loop: Loop,
        has_lease: Callable[[], bool],
        times: KafkaOffsetTimes | None = None,
        comparison: Comparison | None = None,
    ) -> None:
        self._comparison = comparison
        self._manager = manager
        self._loop = loop
        self._has_lease = has_lease
        self._times = times or KafkaOffsetTimes()
        self._fence: Fence | None = None
        # The registrations of the session that lives; read by the requests' thread.
        self._standing: frozenset[Fence] = frozenset()
        self._records: dict[Partition, OffsetRecord] = {}
        self._jobs: deque[_Load | _Commit] = deque()
        self._running: _Load | _Commit | None = None
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.failures = 0
        self.refused: dict[Partition, str] = {}
        self.warnings: set[str] = set()

    # -- the member's life ---------------------------------------------------------------------------------------------

    def session_opened(self, fence: Fence) -> None:
        """Send from now on what this registration allows, and what the same session decided under an earlier one."""
        earlier = self._standing if is_same_session(fence, self._fence) else frozenset()
        self._fence = fence
        self._standing = earlier | {fence}

    def session_over(self) -> None:
        """Send nothing more of what was decided until now."""
        self._fence = None
        self._standing = frozenset()
        jobs, self._jobs = self._jobs, deque()
        running = self._running
        for job in ([running] if running is not None else []) + list(jobs):
            if isinstance(job, _Commit):
                self._report(job, dict.fromkeys(job.positions, SESSION_OVER))
        if isinstance(running, _Commit):
            running.callers = []

    def close(self) -> None:
        """End the thread and the connection. Threads: any."""
        self._manager.close()
        self._requests.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))

    # -- what is known -------------------------------------------------------------------------------------------------

    def committed(self) -> dict[Partition, int]:
        """Return the stored offsets as last seen."""
        return {name: record.stored for name, record in list(self._records.items()) if record.stored is not None}

    def behind(self) -> dict[Partition, int]:
        """Return the done positions of ended ownerships which are not stored. Threads: any."""
        return {
            name: record.done
            for name, record in list(self._records.items())
            if record.done is not None and not self.is_stored(name, record.done)
        }

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        """Return whether a commit of a position would change nothing. Threads: any."""
        record = self._records.get(partition)
        return record is not None and decide_write(record, position, explicit) in _NOTHING_TO_WRITE

    def remember(self, partition: Partition, position: int) -> None:
        """Keep the done position of an ownership that ends, for the next claim by this member."""
        self._record(partition).done = position

    def start_at(self, partition: Partition, position: int) -> None:
        """Note that the application chose where to start: what is stored may be lowered."""
        self._record(partition).start_at(position)

    def out_of_range(self, partition: Partition) -> None:
        """Note that the position of a partition was outside its log: what is stored may be lowered."""
        self._record(partition).out_of_range()

    def forget_topic(self, topic: str, incarnation: int) -> None:
        """Note that the topic was created anew: what was done and committed of its old incarnation no longer counts.

        Args:
            incarnation: Not used: Kafka does not say when an offset was stored, on ZooKeeper's clock.
        """
        for job in list(self._jobs):
            if isinstance(job, _Commit):
                self._forget_waiting(job, topic)
        under_way = self._running.writes if isinstance(self._running, _Commit) else {}
        for partition, record in self._records.items():
            if partition[0] == topic:
                record.forget_incarnation(under_way.get(partition))
                if partition in under_way:
                    record.earlier.add((under_way[partition], under_way[partition]))

    def _forget_waiting(self, job: _Commit, topic: str) -> None:
        for partition in [each for each in job.positions if each[0] == topic]:
            del job.positions[partition]
            job.failed[partition] = "the topic was created anew"

    def _record(self, partition: Partition) -> OffsetRecord:
        return self._records.setdefault(partition, OffsetRecord())

    # -- load ----------------------------------------------------------------------------------------------------------

    def load(self, fence: Fence | None, partition: Partition, done: Loaded) -> None:
        """Read the offset of a partition that was claimed under `fence`; `done(None)` when there is none.

        Without an answer when the session ends first: the claim ended with it.
        """
        self._load(partition, [done], fence, 0)

    def _load(self, partition: Partition, waiting: list[Loaded], fence: Fence | None, failures: int) -> None:
        if fence not in self._standing:
            return
        job = self._jobs[-1] if self._jobs else None
        if not isinstance(job, _Load) or job.fence != fence:
            job = _Load(fence)
            self._jobs.append(job)
        others, _ = job.waiting.get(partition, ([], 0))
        job.waiting[partition] = ([*others, *waiting], failures)
        self._loop.after_step(self._next)

    def _send_load(self, job: _Load) -> None:
        names = [TopicPartition(*partition) for partition in job.waiting]
        self._request(lambda: self._fetch(job, names))

    def _fetch(self, job: _Load, names: list[TopicPartition]) -> None:
        """Ask the offset manager. Threads: the requests' own."""
        try:
            if self._comparison is not None and not self._comparison.is_due():
                answer = OffsetAnswer(dict.fromkeys(names), {})
            else:
                answer = self._manager.fetch(names, time.monotonic() + self._times.load_s)
        except ZkConsumerError as error:
            answer = OffsetAnswer({}, dict.fromkeys(names, str(error)))
        if self._comparison is not None:
            self._comparison.note(answer)
            self._manager.disconnect()  # nobody else uses the connection until the next rebalance
        self._loop.post(self._fetched, job, answer)

    def _fetched(self, job: _Load, answer: OffsetAnswer) -> None:
        self._running = None
        for partition, (waiting, failures) in job.waiting.items():
            name = TopicPartition(*partition)
            if name in answer.offsets:
                self.refused.pop(partition, None)
                self._loaded(partition, answer.offsets[name], job.fence, waiting)
                continue
            reason = answer.unknown.get(name, "the offset manager did not say")
            if self._comparison is not None and not self._comparison.is_required:
                log.info("offset of %s-%s is not compared with the one in Kafka: %s", *partition, reason)
                self._loaded(partition, None, job.fence, waiting)
                continue
            if partition not in self.refused:
                log.warning("offset of %s-%s cannot be read from Kafka: %s", *partition, reason)
            self.refused[partition] = f"its offset cannot be read from Kafka: {reason}"
            wait_s = _LOAD_BACKOFF.wait_s(failures)
            self._loop.call_later(wait_s, self._load, partition, waiting, job.fence, failures + 1)
        self._next()

    def _loaded(
        self, partition: Partition, offset: int | None, fence: Fence | None, waiting: list[Loaded]
    ) -> None:
        if fence not in self._standing:
            return
        record = self._record(partition)
        record.seen(offset, offset, MAX_INT64)
        if offset is not None and (offset, offset) in record.earlier:
            log.warning("offset %s of %s-%s was stored before the topic was created anew; starting at its start",
                        offset, *partition)
            record.taken()
            record.void_version = record.version
            position = None
        else:
            position = self._position(partition, record)
        for loaded in waiting:
            loaded(position)

    def _position(self, partition: Partition, record: OffsetRecord) -> int | None:
        """Return where to go on after a claim."""
        position, is_lowered = start_position(record)
        if is_lowered:
            log.warning("offset of %s-%s was set to %s by somebody else, below %s; going on from there",
                        *partition, record.stored, record.baseline)
            record.done = None
        elif record.stored is not None and position is not None and position > record.stored:
            log.info("offset of %s-%s: going on from %s, done here before; stored is %s",
                     *partition, position, record.stored)
        record.taken()
        return position

    # -- commit --------------------------------------------------------------------------------------------------------

    def commit(
        self, fence: Fence | None, positions: Mapping[Partition, int], done: Done, explicit: bool = False
    ) -> None:
        """Store positions; `done(failed)` when the result of each is known.

        Args:
            fence: The registration under which the caller owned the partitions when it decided on the positions.
            explicit: Whether the stored offset may be lowered.
        """
        self._enqueue(_Commit(fence, explicit, dict(positions), [(frozenset(positions), done)]))

    def commit_start(self, fence: Fence | None, partition: Partition, offset: int, done: Done) -> None:
        """Store where reading starts, unless an offset was loaded or stored meanwhile: that one stands."""
        job = _Commit(fence, False, {partition: offset}, [(frozenset([partition]), done)], {partition})
        self._enqueue(job)

    def _enqueue(self, job: _Commit) -> None:
        last = self._jobs[-1] if self._jobs else None
        if isinstance(last, _Commit) and last.may_join(job):
            last.join(job)
        else:
            self._jobs.append(job)
        self._next()

    def _send_commit(self, job: _Commit) -> None:
        if job.fence not in self._standing:
            self._committed(job, dict.fromkeys(job.positions, SESSION_OVER))
            return
        job.writes = {partition: at for partition, at in job.positions.items() if self._is_due(job, partition, at)}
        if not job.writes:
            self._committed(job, {})
            return
        offsets = {TopicPartition(*partition): at for partition, at in job.writes.items()}
        self._request(lambda: self._store(job, offsets))

    def _is_due(self, job: _Commit, partition: Partition, position: int) -> bool:
        """Return whether a position is to be written."""
        record = self._record(partition)
        if partition in job.starts and record.stored is not None and not record.is_void:
            return False
        if decide_write(record, position, job.is_explicit) is not WriteDecision.HOLD:
            return True
        if record.held_at != record.stored:
            log.warning("offset of %s-%s in Kafka is %s, behind our position %s; it is left until we get there",
                        *partition, record.stored, position)
        record.held_at = record.stored
        return False

    def _store(self, job: _Commit, offsets: Mapping[TopicPartition, int]) -> None:
        """Send a commit while its registration stands. Threads: the requests' own."""

        def refusal() -> str | None:
            if job.fence not in self._standing:
                return SESSION_OVER
            return None if self._has_lease() else "ZooKeeper has not confirmed the session in time"

        try:
            failed = self._manager.commit(offsets, refusal, time.monotonic() + self._times.commit_s)
        except ZkConsumerError as error:
            failed = dict.fromkeys(offsets, str(error))
        self._loop.post(self._committed, job, {(name.topic, name.partition): why for name, why in failed.items()})

    def _committed(self, job: _Commit, failed: Mapping[Partition, str]) -> None:
        if self._running is job:
            self._running = None
        for partition, offset in job.writes.items():
            record = self._record(partition)
            if partition not in failed and (offset, offset) not in record.earlier:
                record.written(offset, offset)
        self._report(job, failed)
        self._next()

    def _report(self, job: _Commit, failed: Mapping[Partition, str]) -> None:
        callers, job.callers = job.callers, []
        if not callers:
            return
        reasons = {**job.failed, **failed}
        self.failures += len(reasons)
        for partitions, done in callers:
            done({partition: reasons[partition] for partition in partitions & reasons.keys()})

    # -- requests, one at a time ---------------------------------------------------------------------------------------

    def _next(self) -> None:
        while self._running is None and self._jobs:
            job = self._jobs.popleft()
            self._running = job
            if isinstance(job, _Load):
                self._send_load(job)
            else:
                self._send_commit(job)

    def _request(self, send: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="zkconsumer-offsets", daemon=True)
            self._thread.start()
        self._requests.put(send)

    def _run(self) -> None:
        try:
            while (send := self._requests.get()) is not None:
                send()
        except BaseException as error:  # noqa: BLE001 - nobody else would answer what the coordinator waits for
            self._loop.post(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
