"""The delivery of a simulated member: the production code without the threads that find leaders and fetch.

Queues, drains, positions and what is in hand are `zkconsumer.member.delivery`'s. Here stands in their stead
what the leader finder and the fetchers do between them: look for the leader, ask it for the ends of its log where that
is needed, fetch while there is room, and start over where the leader is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, cast

from simpleconsumer.consumer import LATEST
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.dialect_types import Outcome
from simpleconsumer.errors import DamagedOffset
from simpleconsumer.types import Broker, FetchedPartition, TopicPartition
from tests.simulator.actor import Record
from tests.simulator.application import SteppedStream
from tests.simulator.brokers import NO_LEADER, OUT_OF_RANGE, UNKNOWN, Brokers, Ends, Fetched
from tests.simulator.process import Process
from tests.simulator.stepping import lateness_s
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.config import ConsumerConfig
from zkconsumer.fetching.fetch_state import BROKEN_TRIES, Need, OutOfRange, check_range
from zkconsumer.fetching.leader_finder import LeaderFinder
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, PartitionQueue
from zkconsumer.member.delivery import Delivery
from zkconsumer.testing.history import Place

__all__ = ["SteppedDelivery"]

_BACKOFF_S: Final = 0.2
LARGEST_BYTES: Final = 2**30


class _Finder:
    """Takes the place of the leader finder."""

    def __init__(self, process: Process, rng: random.Random, find: Callable[[TopicPartition], None]) -> None:
        self._process = process
        self._rng = rng
        self._find = find
        self._missing: dict[TopicPartition, int] = {}
        self._serial = 0
        self._is_stopped = False

    def look_for(self, partition: TopicPartition, denied_by: int | None = None, *, is_new: bool = False) -> None:
        """Find the leader of a partition."""
        if self._is_stopped:
            return
        self._serial += 1
        self._missing[partition] = self._serial
        wait_s = lateness_s(self._rng) if is_new else _BACKOFF_S * self._rng.uniform(0.75, 1.25)
        self._process.after(wait_s, self._due, partition, self._serial)

    def _due(self, partition: TopicPartition, serial: int) -> None:
        if self._missing.get(partition) == serial and not self._is_stopped:
            del self._missing[partition]
            self._find(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Stop looking."""
        self._missing.pop(partition, None)

    def missing(self) -> list[TopicPartition]:
        """The partitions without a leader."""
        return list(self._missing)

    def stop(self) -> None:
        """Look no more."""
        self._is_stopped = True

    def join(self, timeout_s: float) -> None:
        """There is no thread to wait for."""


class SteppedDelivery(Delivery):
    """Fetches what the coordinator started, step by step.

    Args:
        process, rng: where it runs.
        brokers: where it fetches.
        record: hears of `reset`.
        config, streams, out_of_range: as in `Delivery`.
    """

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
        directory = cast(BrokerDirectory, None)  # asked by the leader finder alone
        super().__init__(config, streams, directory, process.clock, out_of_range)
        self._started_ms = int(process.schedule.now * 1000)
        self._finder = cast(LeaderFinder, _Finder(process, rng, self._find_leader))
        self._out_of_range = out_of_range
        self._process = process
        self._rng = rng
        self._cluster = brokers
        self._record = record
        self._asking: set[FetchTask] = set()

    # -- finding ----------------------------------------------------------------------------------------------------

    def _find_leader(self, partition: TopicPartition) -> None:
        task = self._tasks.get(partition)
        if task is None or not task.is_wanted or task.is_placed:
            return
        leader = self._cluster.leader(*partition)
        if leader is None:
            self._finder.look_for(partition)
            return
        task.is_placed = True
        task.state.led_by(self._broker(leader))
        if task.queue is not None:
            task.queue.on_room(lambda: self._ask(task))
        self._ask(task)

    def _broker(self, number: int) -> Broker:
        return Broker(number, f"b{number}", 9092)

    def _lose(self, task: FetchTask) -> None:
        task.is_placed = False
        if task.is_wanted and self._tasks.get(task.state.partition) is task:
            self._finder.look_for(task.state.partition)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, task: FetchTask) -> None:
        """Ask whatever the partition needs next, one question at a time, if there is room for an answer."""
        state, queue = task.state, task.queue
        if task in self._asking or not task.is_placed or not task.is_wanted:
            return
        topic, partition = state.partition
        if state.need is Need.FETCH:
            if queue is None or len(queue.chunks) > self._config.queued_max_message_chunks:
                return
            asked = state.offset
            self._asking.add(task)
            most = self._rng.randint(1, 12) + (state.size_bytes // state.configured_bytes - 1)
            self._cluster.fetch(
                self._process, topic, partition, asked, lambda answer: self._fetched(task, queue, asked, answer), most
            )
        elif state.need is not Need.NOTHING:
            self._asking.add(task)
            self._cluster.ask_ends(self._process, topic, partition, lambda answer: self._ends_told(task, answer))

    def _fetched(self, task: FetchTask, queue: PartitionQueue, asked: int, answer: Fetched) -> None:
        self._asking.discard(task)
        state = task.state
        if not task.is_wanted or state.offset != asked:
            return
        if answer.error in (NO_LEADER, UNKNOWN):
            self._lose(task)
            return
        if answer.error == OUT_OF_RANGE:
            state.need = Need.RANGE_CHECK
        else:
            self._take(task, queue, asked, answer)
        self._ask(task)

    def _take(self, task: FetchTask, queue: PartitionQueue, asked: int, answer: Fetched) -> None:
        """Do what the messages of an answer come to, as a fetcher does."""
        state = task.state
        data = b"".join(message.entry for message in answer.messages)
        size_bytes = state.size_bytes
        if answer.behind:  # the broker had no room for more: it cuts the next entry off somewhere, elsewhere each time
            data += answer.behind[: asked % len(answer.behind)]
            size_bytes = len(data)
        fetched = FetchedPartition(*state.partition, 0, answer.high_watermark, data)
        result = KAFKA08.classify(fetched, asked, size_bytes, LARGEST_BYTES)
        match result.outcome:
            case Outcome.CHUNK:
                part = data[: result.valid_bytes]
                queue.push(Chunk(part, result.next_offset, KAFKA08, high_watermark=answer.high_watermark))
                state.moved_on(result.next_offset)
                state.broken = 0
            case Outcome.GROW:
                state.grow(min(2 * state.size_bytes, LARGEST_BYTES))
            case Outcome.DAMAGED if state.broken < BROKEN_TRIES:
                state.broken += 1
            case Outcome.DAMAGED:
                error = DamagedOffset(*state.partition, result.offset, result.next_offset, result.reason)
                queue.push(Chunk(b"", result.next_offset, None, error=error))
                state.moved_on(result.next_offset)
            case Outcome.NOTHING:
                pass
            case _:
                raise AssertionError(f"{state.partition}: {result}")

    def _ends_told(self, task: FetchTask, answer: Ends) -> None:
        self._asking.discard(task)
        state = task.state
        if not task.is_wanted:
            return
        if answer.error:
            self._lose(task)
            return
        if state.need in (Need.RESOLVE, Need.BOUNDS):
            if task.resolved is not None:
                task.is_cancelled = True
                task.resolved(*self._ends(task, answer))
        elif state.need is Need.RANGE_CHECK:
            self._decide_range(task, answer)
        else:
            self._end_checked(task, answer)
        self._ask(task)

    def _ends(self, task: FetchTask, answer: Ends) -> list[int]:
        """What was asked for of the ends of a log."""
        return [answer.latest if end == LATEST else answer.earliest for end in task.ends_needed]

    def _end_checked(self, task: FetchTask, answer: Ends) -> None:
        """Go on after a look at the end of the log of a new leader."""
        task.state.need = Need.FETCH

    def _decide_range(self, task: FetchTask, answer: Ends) -> None:
        state, queue = task.state, task.queue
        state.need = Need.FETCH
        checked = check_range(state.offset, answer.earliest, answer.latest, task.policy)
        if queue is not None and checked.is_reset:
            gone = state.behind_end(answer.latest)
            self._out_of_range(state.partition, gone, checked.offset)
            self._record("reset", answer.place, checked.offset)
            queue.push_reset(checked.offset, gone)
            state.start_again(checked.offset)

    def place(self, topic: str, partition: int | str) -> Place:
        """The partition's name in a history."""
        return self._cluster.place(topic, partition)

    # -- the end ----------------------------------------------------------------------------------------------------

    def stop_stepwise(self, wait_s: float, done: Callable[[dict[TopicPartition, int]], None]) -> None:
        """`stop` for a thread that reads no stream: `done` gets the final positions when nothing is in hand."""
        for stream in self._streams:
            stream._end()
        self._is_stopping = True
        self._finder.stop()
        queues = self._queues()
        told = False

        def look(is_over: bool) -> None:
            nonlocal told
            hands = [(queue.in_hand, queue.committed) for queue in queues.values()]
            is_in_hand = any(hand and hand.next_offset > committed for hand, committed in hands)
            if not told and (is_over or not is_in_hand):
                told = True
                done({name: self._give_up_entry(queue) for name, queue in queues.items()})

        for queue in queues.values():
            queue.end(lambda _: look(False))
        self._process.after(0.0, look, False)
        self._process.after(wait_s, look, True)
