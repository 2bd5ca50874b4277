"""Sends many messages in batches that share one outcome each, and counts what became of them.

A list is cut into batches here, and those of plain values pass without a look at single messages. Messages of any other
iterable are taken one by one, so that they leave in time while it waits for more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.producer.accumulator import Limits
from zkconsumer.producer.batch import MESSAGE_OVERHEAD_BYTES, Pair
from zkconsumer.producer.delivery import Delivery
from zkconsumer.producer.errors import MessagesNotSent, ProducerError
from zkconsumer.producer.keyed_message import KeyedMessage, ProducerData
from zkconsumer.producer.outcome import BatchOutcome
from zkconsumer.producer.placing import PlacedMessage, Placer

__all__ = ["BulkSend", "SendSummary"]

_MOST_NAMED: Final = 100
"""Failures that are kept one by one; the others are only counted."""


class SendSummary(NamedTuple):
    """What became of many messages.

    Attributes:
        sent: How many were acknowledged (with acks 0: written to a socket).
        failed: How many were not.
        failures: The number of the message among those given, from 0, and its error, of the first hundred that failed.
    """

    sent: int
    failed: int
    failures: tuple[tuple[int, Exception], ...]


class _Gathered:
    """Messages of one partition that become a batch."""

    __slots__ = ("is_movable", "numbers", "pairs", "size")

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.numbers: list[int] = []
        self.size = 0
        self.is_movable = True


class _SentBatch(NamedTuple):
    """Messages of one batch.

    Attributes:
        outcome: The outcome of the batch.
        numbers: The numbers of the messages among those given.
        indexes: Their numbers in the batch, which other threads may share.
    """

    outcome: BatchOutcome
    numbers: Any
    indexes: Any


class BulkSend:
    """One call of `Producer.send_all`.

    Args:
        placer: Encodes and chooses partitions.
        delivery: Takes the batches.
        limits: Those of a batch.
        wait_s: Longest wait for room in the queue; None waits for ever.
    """

    def __init__(self, placer: Placer, delivery: Delivery, limits: Limits, wait_s: float | None) -> None:
        self._placer = placer
        self._delivery = delivery
        self._limits = limits
        self._wait_s = wait_s
        self._gathered: dict[TopicPartition, _Gathered] = {}
        self._open: deque[_SentBatch] = deque()
        self._latest: dict[TopicPartition, _SentBatch] = {}
        self._is_list = False
        self._sent = 0
        self._failed = 0
        self._failures: list[tuple[int, Exception]] = []

    def send(self, messages: Iterable[Any], topic: str | None) -> SendSummary:
        """Send all messages, and return what became of them; see `Producer.send_all`."""
        self._is_list = isinstance(messages, list | tuple)
        try:
            if self._is_list and topic is not None and self._placer.takes_bytes:
                for first in range(0, len(messages), self._limits.batch_messages):  # type: ignore[arg-type]
                    self._add_slice(first, messages[first : first + self._limits.batch_messages], topic)  # type: ignore[index]
            else:
                self._add_each(0, messages, topic)
        finally:
            for name in list(self._gathered):
                self._flush(name)
            self._delivery.close_batches()
            while self._open:
                self._open[0].outcome.wait()
                self._count_finished()
        failures = tuple(sorted(self._failures, key=lambda each: each[0])[:_MOST_NAMED])
        summary = SendSummary(self._sent, self._failed, failures)
        if summary.failed:
            raise MessagesNotSent(*summary)
        return summary

    def _add_each(self, first: int, messages: Iterable[Any], topic: str | None) -> None:
        for number, message in enumerate(messages, first):
            try:
                self._add(number, message, topic)
            except (ProducerError, TypeError, ValueError) as error:
                self._fail(number, error)

    def _add_slice(self, first: int, values: Sequence[Any], topic: str) -> None:
        """Add messages that make one batch, as a whole if they are plain values."""
        if set(map(type, values)) == {bytes}:
            size = sum(map(len, values)) + MESSAGE_OVERHEAD_BYTES * len(values)
            if size <= self._limits.batch_bytes and max(map(len, values)) <= self._placer.max_bytes:
                name = self._placer.name_without_key(topic)
                if name is not None and name not in self._gathered:
                    pairs: list[Pair] = [(None, value) for value in values]
                    self._send_batch(name, pairs, range(first, first + len(pairs)), size, True)
                    return
        self._add_each(first, values, topic)

    def _add(self, number: int, message: Any, topic: str | None) -> None:
        place = self._placer.place
        if isinstance(message, KeyedMessage):
            self._gather(number, place(
                message.topic, message.message, message.key, message.partition, message.part_key
            ))  # fmt: skip
        elif isinstance(message, ProducerData):
            for each in message.messages():
                self._gather(number, place(each.topic, each.message, None, None, each.part_key))
        elif topic is None:
            raise TypeError(f"{message!r:.60} is no KeyedMessage, which is needed without a topic")
        elif isinstance(message, tuple):
            if len(message) != 2:
                raise TypeError(f"a tuple of {len(message)} is no pair of key and value")
            self._gather(number, place(topic, message[1], message[0]))
        else:
            self._gather(number, place(topic, message))

    def _gather(self, number: int, placed: PlacedMessage) -> None:
        """Add a message to a batch: here, or in the queue, from where it leaves in time."""
        name, pair, size, is_movable = placed
        if not self._is_list:
            self._queue(number, placed)
            return
        gathered = self._gathered.get(name)
        if gathered is None:
            gathered = self._gathered[name] = _Gathered()
        elif gathered.size + size > self._limits.batch_bytes:
            self._flush(name)
            gathered = self._gathered[name] = _Gathered()
        gathered.pairs.append(pair)
        gathered.numbers.append(number)
        gathered.size += size
        gathered.is_movable &= is_movable
        if len(gathered.pairs) >= self._limits.batch_messages:
            self._flush(name)

    def _queue(self, number: int, placed: PlacedMessage) -> None:
        outcome, index = self._delivery.add(placed.name, placed.pair, placed.size, placed.is_movable, self._wait_s)
        mine = self._latest.get(placed.name)
        if mine is None or mine.outcome is not outcome:
            mine = self._latest[placed.name] = _SentBatch(outcome, [], [])
            self._open.append(mine)
            self._count_finished()
        mine.numbers.append(number)
        mine.indexes.append(index)

    def _flush(self, name: TopicPartition) -> None:
        gathered = self._gathered.pop(name)
        self._send_batch(name, gathered.pairs, gathered.numbers, gathered.size, gathered.is_movable)

    def _send_batch(
        self, name: TopicPartition, pairs: list[Pair], numbers: Sequence[int], size: int, is_movable: bool
    ) -> None:
        try:
            outcome = self._delivery.add_batch(name, pairs, size, is_movable, self._wait_s)
        except ProducerError as error:
            for number in numbers:
                self._fail(number, error)
        else:
            self._open.append(_SentBatch(outcome, numbers, range(len(numbers))))
            self._count_finished()

    def _count_finished(self) -> None:
        """Count the batches that have their outcome, from the oldest one on."""
        while self._open and self._open[0].outcome.is_done:
            outcome, numbers, indexes = self._open.popleft()
            if outcome.error is None and outcome.halves is None:
                self._sent += len(numbers)
                continue
            for number, index in zip(numbers, indexes, strict=True):
                found = outcome.of_message(index)
                if isinstance(found, ProducerError):
                    self._fail(number, found)
                else:
                    self._sent += 1

    def _fail(self, number: int, error: Exception) -> None:
        self._failed += 1
        if len(self._failures) < _MOST_NAMED:
            self._failures.append((number, error))
