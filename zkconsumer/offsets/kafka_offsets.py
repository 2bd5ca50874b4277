"""Keeps the offsets of a group in Kafka: loads them after a claim, commits them while the registration stands.

The coordinator's thread owns the records; a thread of its own speaks to the offset manager, one request at a time, in
the order in which they were asked for. Each load and each commit carries the registration (fence) under which it was
decided, and ends when that one is over.

Rules, and which failure each prevents:
- What waits is sent together: the starts of thousands of partitions take a few requests.
- Unchanged offsets are stored again by each commit, as Java members do: brokers forget an offset a day, or a week,
  after it was stored last, and a late commit of an earlier owner may have overwritten it.
- A commit is sent only while the lease holds: a commit on its way when the lease ends has a third of the session
  time-out to arrive before the partition can have another owner.
- Nothing of a partition is sent once its release has started: it would set back the offset of the next owner.
- After a disconnection a commit waits for that, for a limited time: a release without it would repeat messages.
- A commit never stores less than an earlier one without an answer may have stored: the offset would go back.
- When a topic was created anew, the offsets of all its partitions are read before any of them is started: Kafka does
  not say when an offset was stored, and one of the earlier incarnation would skip messages.
- A partition whose offset is not known is not started: without an answer nobody knows whether there is an offset, and
  the reset policy would skip or repeat messages.

Source: docs/SEMANTICS.md, "Offsets in Kafka"; kafka.consumer.ZookeeperConsumerConnector (0.8.2.2).

The reads and commits of offsets in Kafka that wait for the offset manager; requests that wait together are sent
together.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rebalance.loop import Loop
from rebalance.ports import Fence, is_same_session
from rebalance.subscription import Partition
from rebalance.takeover import by_reason
from simpleconsumer.types import MAX_INT64, OffsetAndMetadata, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.commit_batch import SESSION_OVER, Done
from zkconsumer.offsets.member_offsets import KnownOffsets
from zkconsumer.offsets.offset_manager import OffsetAnswer, OffsetManager
from zkconsumer.offsets.offset_records import WriteDecision, decide_write

RELEASED: Final = "the partition was released in the meantime"
Loaded = Callable[[int | None], None]
"""Is called with the offset at which a partition starts, None if there is none."""


@dataclass(slots=True)
class LoadJob:
    """Loads that one request answers.

    Attributes:
        fence: The registration under which the partitions were claimed.
        waiting: Partition -> who waits for its offset, and how many attempts have failed before.
    """

    fence: Fence | None
    waiting: dict[Partition, tuple[list[Loaded], int]] = field(default_factory=dict)

    def add(self, partition: Partition, waiting: list[Loaded], failures: int) -> None:
        """Load the offset of one more partition."""
        others, _ = self.waiting.get(partition, ([], 0))
        self.waiting[partition] = ([*others, *waiting], failures)


@dataclass(slots=True)
class SurveyJob:
    """Reads the offsets that are stored when a topic was just created anew: those of its earlier incarnation.

    Attributes:
        topic: Its name.
        partitions: Its partitions now.
    """

    topic: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class CommitJob:
    """Commits that one request stores.

    Attributes:
        fence: The registration under which they were decided.
        is_explicit: Whether stored offsets may be lowered.
        positions: The positions to store.
        callers: The partitions of each commit, and the callback for those that failed.
        starts: Partitions whose position is a start offset, which never replaces a stored one.
        rows: The metadata to store with the positions.
        writes: The positions that were sent.
        failed: Partition -> why it is not sent.
        wait_until: Until when it waits for ZooKeeper to confirm the session, on the loop's clock.
    """

    fence: Fence | None
    is_explicit: bool
    positions: dict[Partition, int]
    callers: list[tuple[frozenset[Partition], Done]]
    starts: set[Partition] = field(default_factory=set)
    rows: dict[Partition, OffsetAndMetadata] = field(default_factory=dict)
    writes: dict[Partition, int] = field(default_factory=dict)
    failed: dict[Partition, str] = field(default_factory=dict)
    wait_until: float | None = None

    def may_join(self, later: CommitJob) -> bool:
        """Return whether a later commit is sent together with this one, which still waits.

        Of two that the application has asked for the later one replaces the earlier one, up or down. One with a text is
        sent alone: brokers refuse texts that are too long, and the other commit would fail with it.
        """
        if self.failed or self.fence != later.fence or self.is_explicit is not later.is_explicit:
            return False
        if self.is_explicit:
            return not any(row.metadata for row in (*self.rows.values(), *later.rows.values()))
        goes_back = any(self.positions.get(partition, at) > at for partition, at in later.positions.items())
        return not (goes_back or later.starts & self.positions.keys())

    def join(self, later: CommitJob) -> None:
        """Take in a later commit."""
        self.positions.update(later.positions)
        self.rows = {**self.rows, **later.rows}
        self.starts = self.starts - later.positions.keys() | later.starts
        self.callers += later.callers

    def forget_topic(self, topic: str) -> None:
        """Send nothing of a topic that was created anew."""
        for partition in [each for each in self.positions if each[0] == topic]:
            del self.positions[partition]
            self.failed[partition] = "the topic was created again"

    def forget_partition(self, partition: Partition, stored: int | None) -> None:
        """Send nothing of a partition that is released; fine if the position is stored already."""
        position = self.positions.pop(partition, None)
        self.rows.pop(partition, None)
        if position is not None and position != stored:
            self.failed[partition] = RELEASED

    def report(self, failed: Mapping[Partition, str]) -> int:
        """Call the callers, once, with what failed; return how many partitions that were."""
        callers, self.callers = self.callers, []
        if not callers:
            return 0
        reasons = {**self.failed, **failed}
        for partitions, done in callers:
            done({partition: reasons[partition] for partition in partitions & reasons.keys()})
        return len(reasons)


log = logging.getLogger(__name__)
_LOAD_BACKOFF: Final = Backoff(0.2, 5.0)
_LEASE_AGAIN_S: Final = 0.05
_MEMBERSHIP_OVER: Final = "the member is no longer in its group"
_SURVEY_COUNTS_S: Final = 300.0
"""How long an offset that was there when a topic was created anew is taken for one of its earlier incarnation. Somebody
has claimed the partition by then, and the group may have come to the same offset again."""


@dataclass(frozen=True, slots=True)
class KafkaOffsetTimes:
    """How long requests may take, in seconds.

    Attributes:
        load_s: How long attempts of one load are started.
        commit_s: How long attempts to commit are started.
        answer_s: Longest time of the last attempt.
        lease_s: How long a commit waits for ZooKeeper to confirm the session after a disconnection.
    """

    load_s: float = 10.0
    commit_s: float = 15.0
    answer_s: float = 10.0
    lease_s: float = 5.0


class KafkaOffsets(KnownOffsets):
    """The offsets in Kafka of one group, for one member.

    Args:
        manager: Speaks to the offset manager; only the thread of this object does so.
        loop: The coordinator's.
        has_lease: Returns whether the lease holds; called on another thread.
        is_fenced: The coordinator of a group of brokers checks each commit: an attempt that finds no lease is followed
            by others, as the next generation may be on its way.

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
        *,
        is_fenced: bool = False,
    ) -> None:
        super().__init__()
        self._is_fenced = is_fenced
        self._over = _MEMBERSHIP_OVER if is_fenced else SESSION_OVER
        self._manager = manager
        self._loop = loop
        self._has_lease = has_lease
        self._times = times or KafkaOffsetTimes()
        self._fence: Fence | None = None
        # The registrations of the session that lives; read by the requests' thread.
        self._standing: frozenset[Fence] = frozenset()
        self._jobs: deque[LoadJob | SurveyJob | CommitJob] = deque()
        self._running: LoadJob | SurveyJob | CommitJob | None = None
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_starting = False
        # Partitions that this member does not hold any more; read by the requests' thread.
        self._released: frozenset[Partition] = frozenset()
        # Positions that were sent and perhaps stored, although the commit counts as failed.
        self._unsure: dict[Partition, int] = {}
        self.failures = 0
        self.refused: dict[Partition, str] = {}

    @property
    def release_tries(self) -> int:
        """How often a failed commit is tried again before a release: never, as it was tried again itself."""
        return 0

    @property
    def answering(self) -> str:
        """Who answers a commit, for messages."""
        return "the offset manager"

    @property
    def warnings(self) -> set[str]:
        """Warnings about the store for the application, as sentences."""
        return set()

    @property
    def commit_wait_s(self) -> float:
        """How long the answer to a commit may take, in seconds."""
        return self._times.lease_s + self._times.commit_s + self._times.answer_s

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
        jobs = self._jobs
        self._jobs = deque(job for job in jobs if isinstance(job, SurveyJob))
        running = self._running
        for job in ([running] if running is not None else []) + list(jobs):
            if isinstance(job, CommitJob):
                self.failures += job.report(dict.fromkeys(job.positions, self._over))

    def close(self, timeout_s: float) -> None:
        """End the connection and the thread, and wait for that. Threads: any."""
        self._manager.close()
        self._requests.put(None)
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str] = ()) -> None:
        """Note that the topic was created anew: positions and commits of its old incarnation no longer count.

        Args:
            incarnation: Not used: Kafka does not say when an offset was stored, on ZooKeeper's clock.
            partitions: Whose offsets are read now, before any of them is loaded: others may have stored them.
        """
        for job in self._jobs:
            if isinstance(job, CommitJob):
                job.forget_topic(topic)
        under_way = self._running.writes if isinstance(self._running, CommitJob) else {}
        for partition, record in self.records.items():
            if partition[0] == topic:
                record.forget_incarnation(under_way.get(partition))
                self._unsure.pop(partition, None)
                if partition in under_way:
                    record.earlier.add((under_way[partition], under_way[partition]))
        if partitions:
            self._jobs.append(SurveyJob(topic, tuple(map(int, partitions))))
            self._loop.after_step(self._next)

    def start_at(self, partition: Partition, position: int) -> None:
        """Take note that the application has chosen a start, whatever is stored or was done: it may be lowered."""
        self._unsure.pop(partition, None)
        super().start_at(partition, position)

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None:
        """Take note that a position was outside its log and is reset: the stored offset may be lowered.

        Args:
            gone: The offsets after the end of the log which this member has read: they may still be committed.
            restart: Where this member goes on.
        """
        self._unsure.pop(partition, None)
        super().out_of_range(partition, gone, restart)

    def released(self, partition: Partition) -> None:
        """Send nothing more of a partition that is about to be released: another member stores its offset then."""
        self._released |= {partition}
        for job in self._jobs:  # at once: this member may have claimed it again by the time they are sent
            if isinstance(job, CommitJob):
                job.forget_partition(partition, self.record(partition).stored)

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
        if not isinstance(job, LoadJob) or job.fence != fence:
            job = LoadJob(fence)
            self._jobs.append(job)
        job.add(partition, waiting, failures)
        self._loop.after_step(self._next)

    def _send_load(self, job: LoadJob) -> None:
        self._released -= job.waiting.keys()  # not before: a commit of the last ownership may still be under way
        names = [TopicPartition(*partition) for partition in job.waiting]
        self._request(lambda: self._fetch(job, names))

    def _fetch(self, job: LoadJob | SurveyJob, names: list[TopicPartition]) -> None:
        """Ask the offset manager. Threads: the requests' own."""
        try:
            answer = self._manager.fetch(names, time.monotonic() + self._times.load_s)
        except ZkConsumerError as error:
            answer = OffsetAnswer({}, dict.fromkeys(names, str(error)))
        self._loop.post(self._fetched, job, answer)

    def _fetched(self, job: LoadJob | SurveyJob, answer: OffsetAnswer) -> None:
        self._running = None
        if isinstance(job, SurveyJob):
            self._surveyed(job, answer)
            self._next()
            return
        news: dict[Partition, str] = {}
        for partition, (waiting, failures) in job.waiting.items():
            name = TopicPartition(*partition)
            if name in answer.offsets:
                self.refused.pop(partition, None)
                self._loaded(partition, answer.offsets[name], job.fence, waiting)
                continue
            reason = answer.unknown.get(name, "the offset manager gave no reason")
            if partition not in self.refused:
                news[partition] = reason
            self.refused[partition] = f"its offset cannot be read from Kafka: {reason}"
            wait_s = _LOAD_BACKOFF.wait_s(failures)
            self._loop.call_later(wait_s, self._load, partition, waiting, job.fence, failures + 1)
        for names, reason in by_reason(news):
            log.warning("offset of %s cannot be read from Kafka: %s", names, reason)
        self._next()

    def _loaded(self, partition: Partition, offset: int | None, fence: Fence | None, waiting: list[Loaded]) -> None:
        if fence not in self._standing:
            return
        self._unsure.pop(partition, None)
        self.record(partition).seen(offset, offset, MAX_INT64)
        position = self.start_of(partition, 0)
        for loaded in waiting:
            loaded(position)

    def _send_survey(self, job: SurveyJob) -> None:
        names = [TopicPartition(job.topic, number) for number in job.partitions]
        self._request(lambda: self._fetch(job, names))

    def _surveyed(self, job: SurveyJob, answer: OffsetAnswer) -> None:
        if answer.unknown:
            log.warning(
                "offsets of %d partitions of %s, which was created again, cannot be read from Kafka: %s; "
                "offsets of the deleted topic may be taken for offsets of the new "
                "one",
                len(answer.unknown),
                job.topic,
                next(iter(answer.unknown.values())),
            )
        found: dict[Partition, tuple[int, int]] = {}
        for name, offset in answer.offsets.items():
            partition = (name.topic, name.partition)
            if offset is not None and (offset, offset) not in self.record(partition).earlier:
                self.record(partition).earlier.add((offset, offset))
                found[partition] = (offset, offset)
        if found:
            self._loop.call_later(_SURVEY_COUNTS_S, self._end_survey, found)

    def _end_survey(self, found: Mapping[Partition, tuple[int, int]]) -> None:
        for partition, value in found.items():
            self.record(partition).earlier.discard(value)

    # -- commit --------------------------------------------------------------------------------------------------------

    def commit(
        self, fence: Fence | None, positions: Mapping[Partition, int], done: Done, explicit: bool = False
    ) -> None:
        """Store positions; `done(failed)` when the result of each is known.

        Args:
            fence: The registration under which the caller owned the partitions when it decided on the positions.
            explicit: Whether the stored offset may be lowered.
        """
        told = self._told(positions, done, explicit)
        # As of now: a waiting commit is sent later, and the application may have given the same offset another text by
        # then.
        named = ((partition, self._manager.row(TopicPartition(*partition), at)) for partition, at in positions.items())
        rows = {partition: row for partition, row in named if row is not None}
        self._enqueue(CommitJob(fence, explicit, dict(positions), [(frozenset(positions), told)], rows=rows))

    def commit_start(self, fence: Fence | None, partition: Partition, offset: int, done: Done) -> None:
        """Store where reading starts, unless an offset was loaded or stored meanwhile: that one stands."""
        told = self._told({partition: offset}, done)
        self._enqueue(CommitJob(fence, False, {partition: offset}, [(frozenset([partition]), told)], {partition}))

    def _enqueue(self, job: CommitJob) -> None:
        last = self._jobs[-1] if self._jobs else None
        if isinstance(last, CommitJob) and last.may_join(job):
            last.join(job)
        else:
            self._jobs.append(job)
        self._next()

    def _send_commit(self, job: CommitJob) -> None:
        if job.fence not in self._standing:
            self._committed(job, dict.fromkeys(job.positions, self._over))
            return
        if job.positions and self._waits_for_lease(job):
            self._loop.call_later(_LEASE_AGAIN_S, self._send_again, job)
            return
        for partition in self._released & job.positions.keys():
            job.forget_partition(partition, self.record(partition).stored)
        self._keep_unsure(job)
        job.writes = {partition: at for partition, at in job.positions.items() if self._is_due(job, partition, at)}
        if not job.writes:
            self._committed(job, {})
            return
        for partition, at in job.writes.items():
            # From now on this number stands for the new incarnation of the topic, also if it was stored before.
            self.record(partition).earlier.discard((at, at))
        offsets = {TopicPartition(*partition): at for partition, at in job.writes.items()}
        self._request(lambda: self._store(job, offsets))

    def _waits_for_lease(self, job: CommitJob) -> bool:
        """Return whether the session is to be confirmed first: a release after a disconnection is worth the wait."""
        if self._has_lease():
            return False
        if job.wait_until is None:
            job.wait_until = self._loop.clock() + self._times.lease_s
        return self._loop.clock() < job.wait_until

    def _send_again(self, job: CommitJob) -> None:
        if self._running is job:
            self._send_commit(job)

    def _keep_unsure(self, job: CommitJob) -> None:
        """Store no less than what an earlier commit without an answer may have stored: that would set it back."""
        if job.is_explicit:
            return
        for partition, at in job.positions.items():
            record = self.record(partition)
            if self._unsure.get(partition, at) > at and partition not in job.starts and not record.is_void:
                job.positions[partition] = self._unsure[partition]

    def _is_due(self, job: CommitJob, partition: Partition, position: int) -> bool:
        """Return whether a position is to be written."""
        record = self.record(partition)
        if partition in job.starts and record.stored is not None and not record.is_void:
            return False
        if decide_write(record, position, job.is_explicit) is not WriteDecision.HOLD:
            return True
        if record.held_at != record.stored:
            log.warning(
                "offset of %s-%s in Kafka: %s is stored; %s does not overwrite it", *partition, record.stored, position
            )
        record.held_at = record.stored
        return False

    def _store(self, job: CommitJob, offsets: Mapping[TopicPartition, int]) -> None:
        """Send a commit while its registration stands. Threads: the requests' own."""

        def refusal() -> str | None:
            if job.fence not in self._standing:
                return self._over
            return None if self._is_fenced or self._has_lease() else "ZooKeeper has not confirmed the session in time"

        try:
            until = time.monotonic() + self._times.commit_s
            named = ((name, job.rows.get((name.topic, name.partition))) for name in offsets)
            rows = {name: row for name, row in named if row is not None and row.offset == offsets[name]}
            failed = self._manager.commit(offsets, refusal, until, self._why_not, rows)
        except ZkConsumerError as error:
            failed = dict.fromkeys(offsets, str(error))
        self._loop.post(self._committed, job, {(name.topic, name.partition): why for name, why in failed.items()})

    def _why_not(self, name: TopicPartition) -> str | None:
        """Return why an offset is not to be stored any more. Threads: any."""
        return RELEASED if (name.topic, name.partition) in self._released else None

    def _committed(self, job: CommitJob, failed: Mapping[Partition, str]) -> None:
        for partition, offset in job.writes.items():
            record = self.record(partition)
            if partition in failed:
                self._unsure[partition] = offset
            else:
                self._unsure.pop(partition, None)
            if partition not in failed and (offset, offset) not in record.earlier:
                record.written(offset, offset)
        self.failures += job.report(failed)
        self._running = None  # not before: the answers come in the order of the calls
        self._next()

    # -- requests, one at a time ---------------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._is_starting:  # called by a caller of a commit that had nothing to write
            return
        self._is_starting = True
        try:
            while self._running is None and self._jobs:
                job = self._jobs.popleft()
                self._running = job
                if isinstance(job, LoadJob):
                    self._send_load(job)
                elif isinstance(job, SurveyJob):
                    self._send_survey(job)
                else:
                    self._send_commit(job)
        finally:
            self._is_starting = False

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
