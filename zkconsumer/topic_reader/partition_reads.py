"""Fetches partitions without a group and decodes their chunks, until each partition is at its end or cannot be read.

Rules, and which failure each prevents:
- A partition ends at an offset and not at a message: the last offsets of a log may be markers of transactions, or may
  have been compacted, and no message ever comes for them.
- A position never leaves its place by itself: if the log does not have it, the partition stops with the offsets that
  are lost. `auto.offset.reset` does not apply.
- A partition that makes no progress until the deadline stops, with the reason. The others are read on.
- The chunks that were fetched before a partition stops are delivered first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn

from rebalance.errors import RebalanceError
from rebalance.rebalance_statistics import Counters
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConsumerTimeout, PartitionStopped, StreamFailed, shown_broker
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.fetch_state import EMPTY_TRIES, FetchState, LogTruncated, OutOfLog
from zkconsumer.fetching.fetcher_pool import FetcherPool, PoolCalls
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, InHand, PartitionQueue
from zkconsumer.topic_reader.read_bounds import ReadBounds
from zkconsumer.wakeup import Wakeup

log = logging.getLogger(__name__)

_CHECK_S: Final = 1.0
"""Time between two checks for partitions that make no progress."""
_LOOK_S: Final = 0.1
"""Longest sleep while partitions have an end: that an end was reached does not always come with a chunk."""
_SUSPENDED_S: Final = 5.0
"""So long after a check, the next one does not count the time since then: the process may have been stopped."""


class _Progress:
    """When a partition last made progress, and how far it was then."""

    __slots__ = ("at", "offset")

    def __init__(self, at: float, offset: int) -> None:
        self.at = at
        self.offset = offset


class PartitionReads:
    """The partitions of one topic that are being read.

    Args:
        bounds: Where each partition starts and ends.
        stall_timeout_s: How long a partition may make no progress.
        clock: Seconds.
        gone: Returns why the topic is not there any more, empty while it is.

    Attributes:
        _ready, _reader, handed: See `zkconsumer.fetching.partition_queue.Reader`; the last two are not used.
        failed: How many messages and partitions could not be read.

    Threads: One reads; `stop`, `join` and `_wake` from any thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        bounds: Mapping[TopicPartition, ReadBounds],
        stall_timeout_s: float,
        clock: Callable[[], float],
        gone: Callable[[], str],
    ) -> None:
        self._ready: deque[PartitionQueue] = deque()
        self._reader: object = None
        self.handed: InHand | None = None
        self.failed = 0
        self._config = config
        self._cluster = cluster
        self._bounds = dict(bounds)
        self._stall_timeout_s = stall_timeout_s
        self._clock = clock
        self._gone = gone
        self._wakeup = Wakeup()
        self._is_stopped = False
        self._fault: StreamFailed | None = None
        self._budget = ByteBudget(config.queued_max_bytes, 1)
        self._tasks: dict[TopicPartition, FetchTask] = {}
        self._progress: dict[TopicPartition, _Progress] = {}
        self._positions = {name: bound.start for name, bound in bounds.items()}
        calls = PoolCalls(self._tasks.get, lambda partition, gone, restart: None, self._died)
        self._pool = FetcherPool(config, cluster.directory, self._budget, clock, calls, Counters())
        self._checked_at = clock()
        self._queue: PartitionQueue | None = None
        self._chunk: Chunk | None = None
        self._is_past_end = False

    def start(self) -> None:
        """Start to fetch."""
        for name, bound in self._bounds.items():
            if bound.end is None or bound.start < bound.end:
                self._start(name, bound.start)

    def _start(self, name: TopicPartition, offset: int) -> None:
        queue = PartitionQueue(name, offset, self, self._budget)
        state = FetchState(name, offset, self._config.fetch_message_max_bytes)
        self._progress[name] = _Progress(self._clock(), offset)
        self._tasks[name] = FetchTask(state, queue, "stop")
        self._pool.finder.look_for(name, is_new=True)

    def _wake(self) -> None:
        """Let a waiting reader check again."""
        self._wakeup.wake()

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        return False

    def _is_being_read(self) -> bool:
        return not self._is_stopped

    def stop(self) -> None:
        """End the reading and the threads; waits for nothing."""
        self._is_stopped = True
        self._pool.stop()
        for task in list(self._tasks.values()):
            task.is_cancelled = True
        self._wakeup.wake()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end after `stop`."""
        self._pool.join(self._clock() + timeout_s)

    def _died(self, name: str, error: BaseException) -> None:
        failure = StreamFailed(f"{name} has ended because of a bug: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._fault = failure
        self._wakeup.wake()

    def positions(self, last: Message | None) -> dict[TopicPartition, int]:
        """Return the next offset of each partition.

        Args:
            last: The message that was delivered last.
        """
        found = dict(self._positions)
        queue = self._queue
        if last is not None and queue is not None and (last.topic, last.partition) == queue.partition:
            found[queue.partition] = max(found[queue.partition], last.next_offset)
        return found

    # -- chunks --------------------------------------------------------------------------------------------------------

    @property
    def chunk(self) -> object:
        """The chunk whose messages `next_items` returned last; None between chunks."""
        return self._chunk

    def next_items(self, read: object, last: Message | None) -> Iterator[Message] | None:
        """Return the messages of the next chunk, after those of the open one; None when everything was read.

        Args:
            read: The chunk whose messages were read to their end. Another one is open if the caller was interrupted
                before it took its messages; the rest of that one is returned.
            last: The message that was delivered last.

        Raises:
            ConsumerTimeout: No chunk came within `consumer.timeout.ms`.
            MessageError: A message cannot be fetched; the next call continues after it.
            PartitionStopped: A partition cannot be read further; the next call continues with the others.
            StreamFailed: A thread has ended by a fault.
        """
        if self._chunk is not read:
            return self._reopen(last)
        self._leave_chunk(last)
        timeout_s = self._config.consumer_timeout_ms / 1000
        started_at = self._clock()
        while True:
            if self._is_stopped:
                return None
            if self._fault is not None:
                raise self._fault
            items = self._open_next()
            if items is not None:
                return items
            self._check_if_due(is_idle=True)
            if not self._tasks:
                return None
            wait_s = _LOOK_S if any(bound.end is not None for bound in self._bounds.values()) else _CHECK_S
            if timeout_s >= 0:
                left_s = started_at + timeout_s - self._clock()
                if left_s <= 0:
                    raise ConsumerTimeout(self._config.consumer_timeout_ms)
                wait_s = min(wait_s, left_s)
            if not self._ready:
                self._wakeup.wait(wait_s)

    def _open_next(self) -> Iterator[Message] | None:
        """Return the messages of the next chunk, None if none is queued."""
        self._check_if_due(is_idle=False)
        while self._ready:
            try:
                queue = self._ready[0]
            except IndexError:  # its fetcher has just dropped it
                continue
            if not queue.is_live:
                queue.drop()
                continue
            if not queue.chunks:
                queue.forget_entry()
                continue
            chunk = queue.chunks[0]
            self._queue, self._chunk = queue, chunk
            if isinstance(chunk.error, OutOfLog):
                self._leave_log(queue, chunk.error)
                continue
            if chunk.reset_to is not None:
                self._go_back(queue, chunk, chunk.reset_to)
                continue
            return self._items(queue.position, queue.index)
        return None

    def _go_back(self, queue: PartitionQueue, chunk: Chunk, start: int) -> None:
        """Read from the start of an entry of Kafka 0.7: the position that was named is within it."""
        self._queue = self._chunk = None
        queue.reset(start)
        self._positions[queue.partition] = start
        queue.take_out(chunk)

    def _items(self, start_offset: int, start_index: int = 0, resume: object = None) -> Iterator[Message]:
        """Return the messages of the open chunk from an offset on, or after an error."""
        queue, chunk = self._queue, self._chunk
        if queue is None or chunk is None or chunk.dialect is None:
            return iter(())
        items = chunk.opened(
            chunk.dialect.decode_messages, queue.partition, start_offset, start_index, self._config.decoded_max_bytes,
            resume,
        )  # fmt: skip
        end = self._bounds[queue.partition].end
        return items if end is None or chunk.next_offset <= end else self._before(items, end)

    def _before(self, items: Iterator[Message], end: int) -> Iterator[Message]:
        for message in items:
            if message.offset >= end:
                self._is_past_end = True
                return
            yield message

    def _reopen(self, last: Message | None) -> Iterator[Message]:
        """Return the rest of the open chunk, after the message that was delivered last or after an error."""
        queue, chunk = self._queue, self._chunk
        if queue is None or chunk is None:
            return iter(())
        position = self.positions(last)[queue.partition]
        is_of_queue = last is not None and (last.topic, last.partition) == queue.partition
        index = last._done_in_entry if last is not None and is_of_queue and last.next_offset == position else 0
        if position <= queue.position:
            index = max(index, queue.index)
        if chunk.resume is not None and position <= queue.position:
            return self._items(position, index, chunk.resume) if index else self._items(0, 0, chunk.resume)
        return self._items(position, index)

    def _leave_chunk(self, last: Message | None) -> None:
        """Take note that the open chunk was read to its end.

        Raises:
            MessageError, PartitionStopped: The message at its end cannot be read.
        """
        queue, chunk = self._queue, self._chunk
        if queue is None or chunk is None:
            return
        self._positions = self.positions(last)
        error, end = chunk.error, self._bounds[queue.partition].end
        if self._is_past_end or (isinstance(error, MessageError) and end is not None and error.offset >= end):
            error = None
        self._is_past_end = False
        if error is not None and (not isinstance(error, MessageError) or self._config.on_message_error == "stop"):
            self._stop(queue, str(error))
        # The position first: after an interrupt in between, the chunk is opened again, and nothing in it is left.
        self._move(queue, chunk.next_offset)
        self._queue = self._chunk = None
        queue.take_out(chunk)
        if error is not None:
            self._report(error)

    def _move(self, queue: PartitionQueue, next_offset: int) -> None:
        if next_offset > queue.position:
            queue.position, queue.index = next_offset, 0
        end = self._bounds[queue.partition].end
        self._positions[queue.partition] = queue.position if end is None else min(queue.position, end)
        if end is not None and queue.position >= end:
            self._finish(queue.partition)

    def _finish(self, name: TopicPartition) -> None:
        """Fetch and deliver nothing more of a partition."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.is_cancelled = True
            self._pool.finder.forget(name)
            if task.queue is not None:
                task.queue.end()

    # -- what cannot be read -------------------------------------------------------------------------------------------

    def take_error(self, error: MessageError | BrokenFraming, last: Message | None) -> None:
        """Take note of an error in the open chunk, and raise it or skip the message, as `on.message.error` says.

        Raises:
            MessageError: The error; `next_items` continues after it.
            PartitionStopped: Nothing after it can be read.
        """
        queue, chunk = self._queue, self._chunk
        assert queue is not None
        assert chunk is not None
        self._positions = self.positions(last)
        queue.position = self._positions[queue.partition]
        if isinstance(error, BrokenFraming):
            self._stop(queue, f"broken message set: {error}; nothing after it can be found")
        end = self._bounds[queue.partition].end
        if end is not None and error.offset >= end:
            self._queue = self._chunk = None
            self._finish(queue.partition)
            return
        if self._config.on_message_error == "stop":
            self._stop(queue, str(error))
        if error.next_offset > queue.position:
            queue.position, queue.index = error.next_offset, 0
        elif error.index >= queue.index:
            queue.index = error.index + 1  # within an entry of Kafka 0.7
        self._positions[queue.partition] = queue.position
        chunk.resume = error.resume
        self._report(error)

    def _report(self, error: Exception) -> None:
        self.failed += 1
        if self._config.on_message_error == "skip":
            log.warning("message skipped, on.message.error=skip: %s", error)
            return
        raise error

    def _leave_log(self, queue: PartitionQueue, error: OutOfLog) -> None:
        """Stop a partition whose position is not in its log; start again where its first message was just deleted."""
        name, bound = queue.partition, self._bounds[queue.partition]
        self._queue = self._chunk = None
        if not bound.is_exact and error.position == bound.start < error.earliest:
            end = bound.end
            start = error.earliest if end is None else min(error.earliest, end)
            self._finish(name)
            self._bounds[name] = ReadBounds(start, end, True)
            self._positions[name] = start
            if end is None or start < end:
                self._start(name, start)
            return
        if isinstance(error, LogTruncated):
            lost = f"messages {error.latest} to {error.position - 1}, which were read, are lost"
        elif error.position < error.earliest:
            lost = f"offsets {error.position} to {error.earliest - 1} were deleted before they were read"
        else:
            lost = f"the log was truncated at {error.latest}, and its later messages are lost"
        self._stop(queue, f"{error}: {lost}", f"start again at an offset from {error.earliest} to {error.latest}")

    def _stop(self, queue: PartitionQueue, reason: str, remedy: str = "") -> NoReturn:
        """Read a partition no further.

        Raises:
            PartitionStopped: Always.
        """
        self.failed += 1
        self._queue = self._chunk = None
        self._finish(queue.partition)
        raise PartitionStopped(*queue.partition, self._positions[queue.partition], reason, remedy)

    # -- progress ------------------------------------------------------------------------------------------------------

    def _check_if_due(self, is_idle: bool) -> None:
        """End partitions that are at their end without a message for it, and stop partitions that make no progress.

        Raises:
            PartitionStopped: Of the first such partition; the next call raises that of the next one.
        """
        now = self._clock()
        if is_idle:
            self._finish_reached()
            self._stop_if_gone()
        if now - self._checked_at < _CHECK_S:
            return
        was_suspended = now - self._checked_at > _SUSPENDED_S
        self._checked_at = now
        for name, task in list(self._tasks.items()):
            progress = self._progress[name]
            if was_suspended or self._made_progress(name, task, progress):
                progress.at, progress.offset = now, task.state.offset
            elif now - progress.at >= self._stall_timeout_s and task.queue is not None:
                self._checked_at = now - _CHECK_S  # the others, in the next call
                remedy = "read the partition again when a broker leads it"
                self._stop(task.queue, self._stall_reason(name, task), remedy)

    def _made_progress(self, name: TopicPartition, task: FetchTask, progress: _Progress) -> bool:
        state, queue = task.state, task.queue
        if state.throttled_until > self._clock():
            return True
        if (queue is not None and queue.chunks) or state.full_since is not None or state.offset != progress.offset:
            return True
        answered = state.answered_at is not None and state.answered_at > progress.at
        return answered and self._bounds[name].end is None

    def _stall_reason(self, name: TopicPartition, task: FetchTask) -> str:
        state, end = task.state, self._bounds[name].end
        if state.error is not None:
            reason = state.error if task.is_placed else f"{state.error}; now {self._why_unled(name)}"
        elif end is not None and state.answered_at is not None:
            reason = f"its log ends at {state.high_watermark} now, but ended at {end} at the start"
        elif task.is_placed:
            reason = "no answer"
        else:
            reason = self._why_unled(name)
        where = "" if state.leader is None else f" ({shown_broker(state.leader)} led it last)"
        return f"no message for {self._stall_timeout_s:g} s: {reason}{where}"

    def _why_unled(self, name: TopicPartition) -> str:
        try:
            if not self._cluster.reader.topic_exists(name.topic):
                return f"topic {name.topic!r} no longer exists"
            return self._cluster.why_unled([name])[name]
        except RebalanceError as error:
            return f"its leader is not known and cannot be looked up: {error}"

    def _finish_reached(self) -> None:
        """End partitions whose log has no messages between the position and the end."""
        for name, task in list(self._tasks.items()):
            end, state, queue = self._bounds[name].end, task.state, task.queue
            if end is None or queue is None or queue.chunks:
                continue
            if state.empty >= EMPTY_TRIES and state.high_watermark >= end:
                self._positions[name] = end
                self._finish(name)

    def _stop_if_gone(self) -> None:
        reason = self._gone()
        if not reason or self._ready:
            return
        for task in list(self._tasks.values()):
            if task.queue is not None:
                self._stop(task.queue, reason)
