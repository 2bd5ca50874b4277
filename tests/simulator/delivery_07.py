"""The delivery of a simulated member that reads from Kafka 0.7: positions are bytes, and brokers do not wait.

The checks of positions are the production code's (`zkconsumer.fetching.entry_checks`); what a fetcher does about an
answer stands here.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, cast

from simpleconsumer.consumer import EARLIEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import BrokenFraming
from simpleconsumer.types import MAX_INT64, Broker, FetchedPartition, TopicPartition
from tests.simulator.actor import Record
from tests.simulator.application import SteppedStream
from tests.simulator.brokers import NO_LEADER, OUT_OF_RANGE, UNKNOWN, Brokers, Ends, Fetched
from tests.simulator.brokers_07 import Brokers07
from tests.simulator.delivery import LARGEST_BYTES, SteppedDelivery
from tests.simulator.process import Process
from tests.simulator.schedule import Event
from zkconsumer.backoff import Backoff
from zkconsumer.config import ConsumerConfig
from zkconsumer.fetching.entry_checks import CheckCalls, EntryChecks
from zkconsumer.fetching.fetch_state import BROKEN_TRIES, FETCHED, EntryMark, Need, OutOfRange
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, PartitionQueue

__all__ = ["SteppedDelivery07"]

_SHORTEST_PAUSE_S: Final = 0.002
_FAILED: Final = Backoff(0.2, 10.0)


class _Connection:
    """What the checks ask of a connection, answered at once."""

    dialect = KAFKA07

    def __init__(self, brokers: Brokers07) -> None:
        self._brokers = brokers

    def multi_offsets_before(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int = 1
    ) -> list[tuple[int, list[int]]]:
        """The starts of segments of partitions whose brokers are there."""
        found = [self._brokers.offsets_before(*each, time_ms == EARLIEST, max_offsets) for each in partitions]
        return [(0, each or []) for each in found]


class SteppedDelivery07(SteppedDelivery):
    """Fetches what the coordinator started, step by step; see `SteppedDelivery`."""

    def __init__(
        self,
        process: Process,
        rng: random.Random,
        brokers: Brokers,
        record: Record,
        config: ConsumerConfig,
        streams: Mapping[tuple[str, str], SteppedStream],
        out_of_range: OutOfRange,
    ) -> None:
        super().__init__(process, rng, brokers, record, config, streams, out_of_range)
        connection = cast(SimpleConsumer, _Connection(cast(Brokers07, brokers)))
        self._checks = EntryChecks(-1, connection, self._counters, CheckCalls(self._failed, out_of_range))
        self._pause = Backoff(_SHORTEST_PAUSE_S, max(config.fetcher_backoff_ms / 1000, _SHORTEST_PAUSE_S))
        self._empty: dict[FetchTask, int] = {}
        self._timers: dict[FetchTask, Event] = {}
        self._connected_to: dict[FetchTask, int] = {}

    def _ends(self, task: FetchTask, answer: Ends) -> list[int]:
        if task.since_ms is None:
            return super()._ends(task, answer)
        return [cast(Brokers07, self._cluster).start_since(*task.state.partition, task.since_ms / 1000)]

    def _broker(self, number: int) -> Broker:
        return Broker(number, f"b{number}", 9092, generation="kafka07")

    def _find_leader(self, partition: TopicPartition) -> None:
        super()._find_leader(partition)
        task = self._tasks.get(partition)
        if task is not None and task.is_placed:
            self._connected_to[task] = self._starts_of_broker(partition)

    def _starts_of_broker(self, partition: TopicPartition) -> int:
        """How often its broker was started: a connection does not outlive its broker."""
        return cast(Brokers07, self._cluster).starts_of(partition.partition)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, task: FetchTask) -> None:
        """Ask whatever the partition needs next, one question at a time, if there is room for an answer."""
        state, queue = task.state, task.queue
        if task in self._asking or not task.is_placed or not task.is_wanted or state.retry_at > self._process.clock():
            return
        topic, partition = state.partition
        if state.need is Need.SEGMENTS:
            if self._cluster.leader(topic, partition) is None:
                self._lose(task)
                return
            self._checks.ask([task], self._process.clock())
        if state.need not in FETCHED:
            super()._ask(task)
            return
        if queue is None or len(queue.chunks) > self._config.queued_max_message_chunks:
            return
        asked, size_bytes = state.asked_offset, state.size_bytes
        self._asking.add(task)

        def answered(answer: Fetched) -> None:
            self._asking.discard(task)
            if task.is_wanted and state.asked_offset == asked:
                self._answered(task, queue, size_bytes, answer)
            self._ask(task)

        self._cluster.fetch(self._process, topic, partition, asked, answered, size_bytes)

    def _answered(self, task: FetchTask, queue: PartitionQueue, size_bytes: int, answer: Fetched) -> None:
        state = task.state
        if answer.error in (NO_LEADER, UNKNOWN) or self._connected_to[task] != self._starts_of_broker(state.partition):
            self._lose(task)
            return
        code = 1 if answer.error == OUT_OF_RANGE else 0
        fetched = FetchedPartition(*state.partition, code, -1, answer.data)
        before = state.offset
        if state.need is Need.FETCH:
            self._take_bytes(task, queue, size_bytes, fetched)
        else:
            self._checks.take(task, fetched)
            self._checks.decide()
            if state.offset != before:
                self._record("reset", answer.place, state.offset)
        if answer.data or code:
            self._empty.pop(task, None)
        elif state.retry_at <= self._process.clock():
            rounds = self._empty.get(task, 0)
            self._empty[task] = rounds + 1
            self._wait(task, self._pause.wait_s(rounds))

    def _take_bytes(self, task: FetchTask, queue: PartitionQueue, size_bytes: int, answer: FetchedPartition) -> None:
        """Do what an answer comes to, as a fetcher does."""
        state = task.state
        result = KAFKA07.classify(answer, state.offset, size_bytes, LARGEST_BYTES)
        if not state.is_start_checked and self._checks.doubts(task, answer, result):
            return
        match result.outcome:
            case Outcome.CHUNK:
                chunk = _chunk(answer, state.offset, result)
                state.last_entry = chunk.last_entry
                queue.push(chunk)
                state.moved_on(result.next_offset)
            case Outcome.GROW:
                state.grow(result.size_bytes)
            case Outcome.CHECK_RANGE:
                state.need = Need.RANGE_CHECK
            case Outcome.NOTHING:
                pass
            case Outcome.BROKEN if state.broken < BROKEN_TRIES:
                state.broken += 1
                self._failed(task, result.reason)
            case Outcome.BROKEN if not self._checks.doubts_start(task, result.reason):
                state.need = Need.NOTHING
                queue.push(Chunk(b"", MAX_INT64, None, error=BrokenFraming(result.reason)))
            case Outcome.BROKEN:
                pass
            case _:
                raise AssertionError(f"{state.partition}: {result}")

    def _end_checked(self, task: FetchTask, answer: Ends) -> None:
        super()._end_checked(task, answer)
        self._checks.compare_later(task)

    def _failed(self, task: FetchTask, reason: str) -> None:
        now = self._process.clock()
        task.state.failed(reason, now, _FAILED)
        self._wait(task, task.state.retry_at - now)

    def _wait(self, task: FetchTask, wait_s: float) -> None:
        """Ask again after a pause."""
        before = self._timers.pop(task, None)
        if before is not None:
            self._process.schedule.cancel(before)
        task.state.retry_at = self._process.clock() + wait_s

        def due() -> None:
            self._timers.pop(task, None)
            task.state.retry_at = 0.0
            self._ask(task)

        self._timers[task] = self._process.after(wait_s, due)


def _chunk(answer: FetchedPartition, position: int, result: FetchResult) -> Chunk:
    data = bytes(answer.message_set[: result.valid_bytes])
    mark = EntryMark(position + result.last_byte, result.next_offset, zlib.crc32(data[result.last_byte :]))
    return Chunk(data, result.next_offset, KAFKA07, data_offset=position, last_entry=mark)
