"""Delivers claimed partitions to their streams: starts and ends fetching, finds leaders, knows the positions.

The coordinator decides which partitions are owned, and calls this. Rules, and which failure each prevents:
- No call but `stop` and `close` waits for anything: the coordinator must renew its lease in time. Slow calls
  report through a callback.
- Each ownership has its own queue, and ending it is final: no answer, chunk or message of an ended ownership is
  delivered later.
- A position that was reported as final never counts again: the next owner continues from it.

Source: docs/SEMANTICS.md; kafka.consumer.ConsumerFetcherManager (0.8.2.2).

The threads of a member hold nothing of a stream that keeps the stream, or its application, alive.

A consumer that is dropped without a close ends itself (`zkconsumer.member.leaving`). It could not if the threads that
fetch for it, or the queues of its partitions, referred to what the application holds.

The status of one partition in delivery: position, queue, leader, rates.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rebalance.known_topics import SINCE_START
from rebalance.ports import NO_START
from rebalance.rebalance_statistics import Counters
from rebalance.takeover import RESETS
from simpleconsumer.types import MAX_INT64, Broker, TopicPartition
from zkconsumer.cluster.leaders import LeaderDirectory
from zkconsumer.config import ConsumerConfig
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.fetch_state import EntryMark, FetchMeter, FetchState, Need, OutOfRange
from zkconsumer.fetching.fetcher_pool import FetcherPool, PoolCalls
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, InHand, PartitionQueue, Reader
from zkconsumer.streams.stream import SleepsUntilWoken
from zkconsumer.wakeup import Wakeup


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The state of the delivery of one partition.

    Attributes:
        position: Next offset that is not done.
        fetch_offset: Next offset to fetch.
        high_watermark: Log end as the leader last reported it, None before.
        queued_chunks, queued_bytes: Waiting for the stream, the chunk that is being read included.
        leader: Broker that it is fetched from; None while the leader is unknown.
        last_error: The error that prevents fetching, None without one.
        answer_age_s: Seconds since the last good answer of a leader, None before the first.
        is_paused: Whether the application paused it.
        lost: The offsets that were read and then cut off its log, in this ownership.
        fetched_messages, fetched_bytes: By this member so far, in all ownerships.
        messages_per_s, bytes_per_s: Fetched lately.
    """

    position: int
    fetch_offset: int
    high_watermark: int | None
    queued_chunks: int
    queued_bytes: int
    leader: Broker | None
    last_error: str | None
    answer_age_s: float | None
    is_paused: bool = False
    lost: range = range(0)
    fetched_messages: int = 0
    fetched_bytes: int = 0
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0


def status_of(
    task: FetchTask, queue: PartitionQueue, meter: FetchMeter, now: float, is_paused: bool
) -> PartitionStatus:
    """Return the status of a partition.

    Args:
        task, queue, meter: Its fetch task, its queue, and its rates.
        now: The clock.
        is_paused: Whether the application paused it.
    """
    state, rates = task.state, meter.rates(now)
    chunks = list(queue.chunks)
    return PartitionStatus(
        position=queue.done_position(),
        fetch_offset=state.offset,
        high_watermark=state.high_watermark if state.high_watermark >= 0 else None,
        queued_chunks=len(chunks),
        queued_bytes=sum(chunk.size_bytes for chunk in chunks),
        leader=state.leader if task.is_placed else None,
        last_error=queue.failure or state.holds_up(now),
        answer_age_s=None if state.answered_at is None else now - state.answered_at,
        is_paused=is_paused,
        lost=state.lost,
        fetched_messages=meter.messages,
        fetched_bytes=meter.size_bytes,
        messages_per_s=round(rates[0], 3),
        bytes_per_s=round(rates[1], 3),
    )


SLOW_CLOCK_MS = 60_000
"""How much slower than this host's the clock of a broker of Kafka 0.7 may be."""
_DEAD_READER_POLL_S = 0.1
Partition = tuple[str, int | str]
Died = Callable[[str, BaseException], None]


class DeliveredTo(Reader, Protocol):
    """The target of messages: a stream, or the reader of a polled consumer."""

    @property
    def thread_id(self) -> str: ...

    def _end(self) -> None: ...

    def _fail(self, error: Exception) -> None: ...


class Delivery:
    """Fetches what the coordinator started, and delivers it to the streams.

    Args:
        streams: (topic, thread id) -> stream; the topic is empty for a filter.
        clock: Seconds; the clock of the lease.
        out_of_range: Called, on any thread, with each partition whose position turns out to be outside its log, with
            the offsets after its end that were read, and with where reading goes on.
        counters: Counts requests and errors.
        died: Called with the name of a thread that has ended by a fault, on that thread, and the fault.
        policy: In place of `auto.offset.reset`; any other word than its two stops a partition.
        epoch_of: Returns the leader epoch of the record before the offset at which a partition starts, -1 if it is not
            known: the leader is asked first whether its log still has that record.

    Threads: `resolve`, `bounds`, `start`, `refuse`, `pause`, `resume`, `go_on`, `drain`, `expire_drain` and `abandon`
        belong to the coordinator; the rest may be called from any thread. `done` callbacks come from any thread and
        must return at once.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        streams: Mapping[tuple[str, str], DeliveredTo],
        brokers: LeaderDirectory,
        clock: Callable[[], float],
        out_of_range: OutOfRange = lambda partition, gone, restart: None,
        counters: Counters | None = None,
        died: Died = lambda name, error: None,
        *,
        policy: str | None = None,
        epoch_of: Callable[[TopicPartition, int], int] = lambda partition, offset: -1,
    ) -> None:
        self._config = config
        self._epoch_of = epoch_of
        # In Kafka 0.7 any other word has the reader get an error.
        wanted = policy or config.auto_offset_reset
        self._policy = wanted if wanted in RESETS else "stop"
        self._streams = tuple(streams.values())
        self._streams_by_thread = streams
        self._clock = clock
        self._started_ms = time.time_ns() // 1_000_000  # as brokers count it, not the clock of the lease
        self._meters: dict[TopicPartition, FetchMeter] = {}
        self._budget = ByteBudget(config.queued_max_bytes, len(self._streams))
        self._tasks: dict[TopicPartition, FetchTask] = {}
        self._last_entries: dict[TopicPartition, tuple[EntryMark, int]] = {}
        self._paused: set[TopicPartition] = set()
        calls = PoolCalls(self._tasks.get, out_of_range, died)
        self._counters = counters or Counters()
        self._pool = FetcherPool(config, brokers, self._budget, clock, calls, self._counters)
        self._finder = self._pool.finder
        self._is_stopping = False
        self._held_since: dict[str, tuple[object, float]] = {}

    # -- the coordinator's commands ------------------------------------------------------------------------------------

    def resolve(self, partition: Partition, policy: str, done: Callable[[int], None]) -> None:
        """Ask the leader for the start (`smallest`) or end (`largest`) of the log, until it answers or `abandon`.

        With `SINCE_START` it is the start of the oldest segment that was written since this member started, less what
        the clocks of brokers may be slow; and the end if none was.
        """
        name = TopicPartition(*partition)
        state = FetchState(name, 0, self._config.fetch_message_max_bytes, Need.RESOLVE)
        since_ms = self._started_ms - SLOW_CLOCK_MS if policy == SINCE_START else None
        self._put(FetchTask(state, None, policy, done, since_ms))

    def bounds(self, partition: Partition, done: Callable[[int, int], None]) -> None:
        """Ask the leader for the start and end of the log, until it answers or `abandon`."""
        state = FetchState(TopicPartition(*partition), 0, self._config.fetch_message_max_bytes, Need.BOUNDS)
        self._put(FetchTask(state, None, self._config.auto_offset_reset, done))

    def start(self, partition: Partition, thread_id: str, offset: int) -> None:
        """Fetch from an offset and deliver to the stream of a thread; a partition that is paused waits for `resume`."""
        name = TopicPartition(*partition)
        self._open(name, self._stream_of(name.topic, thread_id), offset, epoch=self._epoch_of(name, offset))

    def refuse(self, partition: Partition, thread_id: str, offset: int, reason: str) -> None:
        """Fetch nothing of a partition; its stream raises PartitionStopped about it, once."""
        name = TopicPartition(*partition)
        self._open(name, self._stream_of(name.topic, thread_id), offset, refusal=reason)

    def _open(
        self, name: TopicPartition, stream: Reader, offset: int, *, refusal: str | None = None, epoch: int = -1
    ) -> None:
        """Start with a queue of its own."""
        self._end_before(name)
        queue = PartitionQueue(name, offset, stream, self._budget)
        state = FetchState(name, offset, self._config.fetch_message_max_bytes)
        self._compare_with_before(state)
        if epoch >= 0:
            state.read_epoch, state.need = epoch, Need.END_CHECK
        task = FetchTask(state, queue, self._policy)
        task.refusal = state.error = refusal
        task.meter = self._meters.setdefault(name, FetchMeter(self._clock()))
        self._replace(task)
        if name in self._paused or self._is_stopping:  # stopped by another thread meanwhile
            queue.end()
        elif refusal is not None:
            state.need = Need.NOTHING
            queue.push(Chunk(b"", MAX_INT64, None, error=ValueError(refusal)))
        else:
            self._finder.look_for(name, is_new=True)
        stream._wake()

    def _compare_with_before(self, state: FetchState) -> None:
        """In Kafka 0.7, have the last entry that was delivered read again: the log may be another one by now.

        Not from other positions than where this member has ended, or has committed last: another member may have
        noticed the other log, and have committed a position of it.
        """
        mark, committed = self._last_entries.get(state.partition, (None, -1))
        if mark is not None and state.offset in (mark.end, committed):
            state.last_entry, state.need, state.size_bytes = mark, Need.COMPARE, mark.size_bytes

    def _stream_of(self, topic: str, thread_id: str) -> DeliveredTo:
        stream = self._streams_by_thread.get((topic, thread_id))
        return stream if stream is not None else self._streams_by_thread["", thread_id]

    def pause(self, partition: Partition) -> None:
        """Fetch and deliver nothing more of a partition until `resume`, or until its ownership ends.

        Its queue is dropped; the message in hand may finish, and its position counts.
        """
        name = TopicPartition(*partition)
        self._paused.add(name)
        task = self._tasks.get(name)
        if task is not None and task.queue is not None and not task.queue.is_settled:
            self._finder.forget(name)
            task.queue.end()

    def resume(self, partition: Partition, done: Callable[[object, int], None]) -> None:
        """Resume a paused partition; `done` gets the arguments for `go_on` once no message of it is in hand."""
        name = TopicPartition(*partition)
        if name not in self._paused:
            return
        self._paused.discard(name)
        task = self._tasks.get(name)
        queue = None if task is None else task.queue
        if queue is not None and not queue.is_settled and queue.failure is None:
            queue.when_hand_empty(lambda position: done(queue, position))

    def go_on(self, partition: Partition, before: object, position: int) -> None:
        """Fetch again from the done position of before the pause, unless the partition was assigned otherwise since."""
        name = TopicPartition(*partition)
        task = self._tasks.get(name)
        if task is None or task.queue is None or task.queue is not before or task.queue.is_settled or self._is_stopping:
            return
        old = task.state
        self._open(name, task.queue.stream, position, refusal=task.refusal)
        state = self._tasks[name].state
        state.high_watermark, state.answered_at = old.high_watermark, old.answered_at

    def seek(self, partition: Partition, offset: int) -> bool:
        """Fetch a started partition from another offset; return False if it is not started.

        Its fetched messages, and those in hand, do not count any more.
        """
        name = TopicPartition(*partition)
        task = self._tasks.get(name)
        if task is None or task.queue is None or task.queue.is_settled or self._is_stopping:
            return False
        if task.queue.is_ending:  # it goes to another member, which starts there
            task.queue.end_at(offset)
            return True
        self._open(name, task.queue.stream, offset)
        return True

    def queue_of(self, name: TopicPartition) -> PartitionQueue | None:
        """Return the queue of a started partition. Threads: any."""
        task = self._tasks.get(name)
        return None if task is None else task.queue

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        return frozenset(self._paused)

    def drain(self, partition: Partition, done: Callable[[int], None]) -> None:
        """Stop a partition after the message in hand; `done` gets the final position, once, perhaps before return."""
        self._paused.discard(TopicPartition(*partition))
        self._finder.forget(TopicPartition(*partition))
        self._queue(partition).end(done)

    def expire_drain(self, partition: Partition) -> int:
        """Stop waiting for the message in hand; return the final position, which does not count that message."""
        return self._give_up_entry(self._queue(partition))

    def _give_up_entry(self, queue: PartitionQueue) -> int:
        """End a queue at once; return its final position.

        An entry of Kafka 0.7 of which only a part was processed is delivered again, from its start.
        """
        if queue.is_inside_entry() and not queue.is_settled:
            self._counters.add("errors", "unfinished_entry")
        return queue.cancel()

    def abandon(self, partition: Partition) -> int | None:
        """Deliver nothing more, at once; return the done position, None when delivery was not started."""
        task = self._tasks.pop(TopicPartition(*partition), None)
        self._paused.discard(TopicPartition(*partition))
        self._finder.forget(TopicPartition(*partition))
        position = None if task is None else self._cancel(task)
        return None if position == NO_START else position

    def fail(self, error: Exception) -> None:
        """Raise an error on every stream from now on, and deliver nothing more."""
        for stream in self._streams:
            stream._fail(error)
        self._is_stopping = True
        self._finder.stop()
        for queue in self._queues().values():
            queue.end()

    def _put(self, task: FetchTask) -> None:
        self._replace(task)
        self._finder.look_for(task.state.partition, is_new=True)

    def _replace(self, task: FetchTask) -> None:
        self._end_before(task.state.partition)
        self._tasks[task.state.partition] = task

    def _end_before(self, name: TopicPartition) -> None:
        """End what was started of a partition before."""
        before = self._tasks.get(name)
        if before is not None:
            self._cancel(before)

    def _cancel(self, task: FetchTask) -> int | None:
        """End a task at once; return the done position of what was delivered."""
        task.is_cancelled = True
        if task.queue is None:
            return None
        position = self._give_up_entry(task.queue)
        mark = task.queue.entry_before(position)
        if mark is not None:
            self._last_entries[task.state.partition] = mark, task.queue.committed
        return position

    def _queue(self, partition: Partition) -> PartitionQueue:
        task = self._tasks.get(TopicPartition(*partition))
        if task is None or task.queue is None:
            raise KeyError(f"{partition[0]}/{partition[1]} was not started")
        return task.queue

    def _queues(self) -> dict[TopicPartition, PartitionQueue]:
        """Return the queues that count: started, and their position not reported as final."""
        tasks = list(self._tasks.items())
        return {name: task.queue for name, task in tasks if task.queue is not None and not task.queue.is_settled}

    # -- positions -----------------------------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, int]:
        """Return partition -> next offset that is not done, of all that was started and not ended."""
        return _known({name: queue.done_position() for name, queue in self._queues().items()})

    def explicit_positions(self, reader: object) -> dict[TopicPartition, int]:
        """Return `positions()`, counting what `reader` has in hand as done."""
        return _known({name: _explicit_position(queue, reader) for name, queue in self._queues().items()})

    def why_no_start(self, partition: Partition, position: int) -> str | None:
        """Return why a position may not be committed, a clause: in Kafka 0.7 it is known to be within an entry."""
        task = self._tasks.get(TopicPartition(*partition))
        around = None if task is None or task.queue is None else task.queue.entry_around(position)
        if around is None:
            return None
        start, end = around
        return f"position {position} is inside the entry from {start} to {end}; commit the `next_offset` of a message"

    def mark_committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Take note of what the application has committed: it is done, also for a drain that waits."""
        queues = self._queues()
        for name, position in positions.items():
            queue = queues.get(TopicPartition(*name))
            if queue is not None:
                queue.committed = position
                queue.settle_if_done()

    def partition_status(self) -> dict[TopicPartition, PartitionStatus]:
        """Return the status of each started partition."""
        now = self._clock()
        return {
            name: status_of(task, task.queue, self._meters[name], now, name in self._paused)
            for name, task in list(self._tasks.items())
            if task.queue is not None and not task.queue.is_settled
        }

    def unknown_starts(self) -> dict[Partition, str]:
        """Return why partitions without a stored offset are not started: the last failure of the question for one."""
        tasks, now = list(self._tasks.items()), self._clock()
        return {
            name: reason
            for name, task in tasks
            if task.queue is None and task.is_wanted and (reason := task.state.holds_up(now)) is not None
        }

    def lacks_leaders(self) -> bool:
        """Return True while the leader of some partition is unknown."""
        return bool(self._finder.missing())

    def queued_bytes(self) -> int:
        """Return the bytes of all queued chunks, which `queued.max.bytes` limits."""
        return self._budget.charged_bytes()

    def stuck_streams(self, now: float) -> list[str]:
        """Return the thread ids whose application has had one message for more than `max.processing.interval.ms`.

        The time runs from the first call that saw the message, so it must be called periodically.
        """
        limit_ms = self._config.max_processing_interval_ms
        stuck = []
        for stream in self._streams:
            message = stream.handed
            seen, since = self._held_since.get(stream.thread_id, (None, now))
            if message is None or message is not seen:
                self._held_since[stream.thread_id] = (message, now)
            elif limit_ms is not None and now - since > limit_ms / 1000:
                stuck.append(stream.thread_id)
        return stuck

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self, reader: object, deadline: float, in_hand_is_done: bool = True) -> dict[TopicPartition, int]:
        """End all streams and return the final positions.

        What `reader` has in hand counts as done if `in_hand_is_done`. It is never waited for: that reader leaves. For
        what others have in hand this waits until the deadline, and leaves out what is in hand then.
        """
        for stream in self._streams:
            stream._end()
        self._is_stopping = True
        self._finder.stop()
        queues = self._queues()
        finished = Wakeup()
        for queue in queues.values():
            queue.committed = max(queue.committed, _explicit_position(queue, reader if in_hand_is_done else None))
            queue.end(lambda _: finished.wake())
        while any(_is_in_hand(queue, reader) for queue in queues.values()):
            # In slices: a reader that dies with a message in hand reports nothing.
            left_s = deadline - self._clock()
            if left_s <= 0:
                break
            finished.wait(min(left_s, _DEAD_READER_POLL_S))
        return _known({name: self._give_up_entry(queue) for name, queue in queues.items()})

    def is_in_hand(self) -> bool:
        """Return True while an application works on a message."""
        return any(queue.in_hand is not None for queue in self._queues().values())

    def close(self, deadline: float) -> None:
        """End all threads and connections; any that are left at the deadline end by themselves."""
        for task in list(self._tasks.values()):
            task.is_cancelled = True
        self._pool.stop()
        self._pool.join(deadline)


def _known(positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the positions of partitions that have one: who is refused for want of an offset must not store any."""
    return {name: at for name, at in positions.items() if at != NO_START}


def _explicit_position(queue: PartitionQueue, reader: object) -> int:
    """Return the done position, counting what the reader has in hand, if it was really handed over."""
    hand = queue.in_hand
    if hand is not None and queue.stream._has_in_hand(reader, hand):
        return hand.next_offset
    return queue.done_position()


def _is_in_hand(queue: PartitionQueue, reader: object) -> bool:
    """Return True while a reader other than `reader`, and one that lives, works on a message."""
    hand = queue.in_hand
    if queue.stream._reader == reader:
        return False
    if hand is None:
        return queue.is_finishing and queue.stream._is_being_read()  # between two messages of an entry
    if hand.next_offset <= queue.committed and not hand._done_in_entry:
        return False
    return queue.stream._is_being_read()


class MemberStream(DeliveredTo, Protocol):
    """The target of messages, with its counters and the call that wakes it."""

    @property
    def _failures(self) -> int: ...

    @property
    def _wakeup(self) -> SleepsUntilWoken: ...


class WeakStream:
    """Stands for a stream, with the interface of MemberStream.

    When the stream is gone nothing is in hand, and nobody reads.

    Args:
        stream: The stream; what wakes it and its list of queues are kept, and not itself.

    Threads: As the stream.
    """

    def __init__(self, stream: MemberStream) -> None:
        self._stream = weakref.ref(stream)
        self.thread_id = stream.thread_id
        self._ready = stream._ready
        self._wakeup = stream._wakeup

    @property
    def _reader(self) -> object:
        stream = self._stream()
        return None if stream is None else stream._reader

    @property
    def handed(self) -> InHand | None:
        """Return the message or batch that the stream handed over last."""
        stream = self._stream()
        return None if stream is None else stream.handed

    @property
    def _failures(self) -> int:
        stream = self._stream()
        return 0 if stream is None else stream._failures

    def _wake(self) -> None:
        self._wakeup.wake()

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        stream = self._stream()
        return stream is not None and stream._has_in_hand(reader, hand)

    def _is_being_read(self) -> bool:
        stream = self._stream()
        return stream is not None and stream._is_being_read()

    def _end(self) -> None:
        stream = self._stream()
        if stream is not None:
            stream._end()

    def _fail(self, error: Exception) -> None:
        stream = self._stream()
        if stream is not None:
            stream._fail(error)
