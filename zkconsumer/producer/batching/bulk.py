"""Sends many messages in batches that share one outcome each, and counts what became of them. Pure.

A list is cut into batches here, and those of plain values pass without a look at single messages. Messages of any other
iterable are taken one by one, so that they leave in time while it waits for more.

`SendSummary` says what became of many messages, and `Counts` counts it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from traceback import clear_frames
from typing import Any, Final, NamedTuple, Self

from simpleconsumer.types import TopicPartition
from zkconsumer.producer.batching.batch_queues import MESSAGE_OVERHEAD_BYTES, Limits, Pair
from zkconsumer.producer.batching.outcome import BatchOutcome
from zkconsumer.producer.errors import (
    MessageNotSent,
    MessagesNotSent,
    ProducerClosed,
    ProducerError,
    QueueFull,
    without_frames,
)
from zkconsumer.producer.keyed_message import GivenHeaders, as_keyed_messages
from zkconsumer.producer.placing import PlacedMessage, Placer
from zkconsumer.producer.sending.delivery import Delivery

_MOST_NAMED: Final = 100
"""Failures that are kept one by one; the others are only counted."""


class SendSummary(NamedTuple):
    """The outcome of many messages.

    Attributes:
        sent: How many were acknowledged (with acks 0: written to a socket).
        failed: How many were not.
        failures: The number of the message among those given, from 0, and its error, of the first hundred that failed.
    """

    sent: int
    failed: int
    failures: tuple[tuple[int, Exception], ...]

    def checked(self) -> Self:
        """Return this summary.

        Raises:
            MessagesNotSent: Some messages failed.
        """
        if self.failed:
            raise MessagesNotSent(*self)
        return self


class Counts:
    """Counts what becomes of many messages.

    Attributes:
        sent: How many messages were acknowledged so far.
        failed: How many were not.
        failures: The number and the error of the first hundred that failed, in the order in which that was found.
        sent_to: Partition -> how many messages it acknowledged so far.
        on_failure: Called with number and error of each that failed; None: nothing is.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.failures: list[tuple[int, Exception]] = []
        self.sent_to: Counter[TopicPartition] = Counter()
        self.on_failure: Callable[[int, Exception], None] | None = None
        self._first_failure: tuple[int, Exception] | None = None

    def count_sent(self, name: TopicPartition, messages: int) -> None:
        """Count messages that were acknowledged."""
        self.sent += messages
        self.sent_to[name] += messages

    def fail(self, number: int, error: Exception) -> None:
        """Count a message that was not sent, by its number among those given."""
        self.failed += 1
        if isinstance(error, ProducerError):
            without_frames(error)
        else:  # of an encoder or a partitioner: where it was raised is of use, what was encoded is not
            clear_frames(error.__traceback__)
        if self.on_failure is not None:
            self.on_failure(number, error)
        if len(self.failures) < _MOST_NAMED:
            self.failures.append((number, error))
        if self._first_failure is None or number < self._first_failure[0]:
            self._first_failure = number, error

    def summary(self) -> SendSummary:
        """Return what became of the messages so far; the first failure by number is among those that are named."""
        failures = sorted(self.failures, key=itemgetter(0))
        if self._first_failure is not None and self._first_failure[0] < failures[0][0]:
            failures = [self._first_failure, *failures[: _MOST_NAMED - 1]]
        return SendSummary(self.sent, self.failed, tuple(failures))


class _Gathered:
    """Messages of one partition that become a batch."""

    __slots__ = ("is_movable", "numbers", "pairs", "size")

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.numbers: list[int] = []
        self.size = 0
        self.is_movable = True


class _Turn:
    """The partitions of a topic that messages without a key take turns in.

    Attributes:
        leaders: Partitions and leaders, as they were looked up.
        names: Those with a leader; all, if none has one.
        at: How many turns there were.
    """

    __slots__ = ("at", "leaders", "names")

    def __init__(self, leaders: Mapping[int | str, int | None], names: list[int | str], at: int) -> None:
        self.leaders = leaders
        self.names = names
        self.at = at


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


class BulkSend(Counts):
    """`Producer.send_all`, in one call (`send`) or in steps (`add`, `flush`, `count_finished`, `finish`).

    Args:
        placer: Encodes and chooses partitions.
        delivery: Takes the batches.
        limits: Those of a batch.
        wait_s: Longest wait for room in the queue; None waits for ever.
        spreads: Messages without a key go to one partition after the other; else to one for some time.
        stall_s: Longest wait of `finish` for the outcome of one batch; those that have none then fail. None waits for
            ever, and there is an outcome in the end.

    Threads: one at a time.
    """

    def __init__(
        self, placer: Placer, delivery: Delivery, limits: Limits, wait_s: float | None, *, spreads: bool = False,
        stall_s: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._stall_s = stall_s
        self._has_stalled = False
        self._placer = placer
        self._delivery = delivery
        self._limits = limits
        self._wait_s = wait_s
        self._gathered: dict[TopicPartition, _Gathered] = {}
        self._gathered_messages = self._gathered_bytes = 0
        self._open: dict[BatchOutcome, _SentBatch] = {}
        self._finished: deque[BatchOutcome] = deque()
        self._latest: dict[TopicPartition, _SentBatch] = {}
        self._gathers = True
        self._spreads = spreads
        self._turns: dict[str, _Turn] = {}

    def send(self, messages: Iterable[Any], topic: str | None) -> SendSummary:
        """Send all messages, and return what became of them; see `Producer.send_all`."""
        self._gathers = isinstance(messages, list | tuple)
        try:
            if self._gathers and topic is not None and self._placer.takes_bytes:
                for first in range(0, len(messages), self._limits.batch_messages):  # type: ignore[arg-type]
                    self._add_slice(first, messages[first : first + self._limits.batch_messages], topic)  # type: ignore[index]
            else:
                self._add_each(0, messages, topic)
        finally:
            summary = self.finish()
        return summary.checked()

    def add(
        self,
        number: int,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | str | None = None,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Take a message, and send its batch when it is full; an error counts as its failure.

        Args:
            number: Names the message if it fails.
            topic, value, key, partition, headers, timestamp_ms: As for `Producer.send`.
        """
        try:
            if self._spreads and key is None and partition is None:
                placed = self._placer.place(
                    topic, value, None, self._next_partition(topic), None, headers, timestamp_ms
                )
                self._gather(number, PlacedMessage(placed.name, placed.pair, placed.size, True))
            else:
                self._gather(number, self._placer.place(topic, value, key, partition, None, headers, timestamp_ms))
        except BaseException as error:  # noqa: BLE001  (an encoder or partitioner of the application raised it)
            self.refuse(number, error)

    def refuse(self, number: int, error: BaseException) -> None:
        """Count a message that was not taken; an interrupt is raised again."""
        self._delivery.refused(error)
        if not isinstance(error, Exception):
            raise error
        self.fail(number, error)

    def flush(self) -> None:
        """Have all messages sent that were added."""
        for name in list(self._gathered):
            self._flush(name)
        self._delivery.close_batches()

    def finish(self) -> SendSummary:
        """Send what is left, wait for every outcome, and return what became of all messages."""
        self.flush()
        while self._open:
            outcome = next(iter(self._open))
            if outcome.wait(0.0 if self._has_stalled else self._stall_s):
                self._count(outcome)
            else:
                self._give_up()
        return self.summary()

    def _give_up(self) -> None:
        """Fail the batches that have no outcome."""
        reason = f"no message got an outcome for {self._stall_s:g} s"
        while self._open:
            outcome, batch = next(iter(self._open.items()))
            if outcome.is_done:
                self._count(outcome)
                continue
            del self._open[outcome]
            error = MessageNotSent(outcome.topic, outcome.partition, reason, may_be_stored=True)
            for number in batch.numbers:
                self.fail(number, error)

    def _next_partition(self, topic: str) -> int | str:
        """Return the partition whose turn it is, of those that have a leader."""
        leaders = self._placer.leaders(topic)
        turn = self._turns.get(topic)
        if turn is None or turn.leaders is not leaders:
            at = 0 if turn is None else turn.at
            led = [name for name, leader in leaders.items() if leader is not None]
            turn = self._turns[topic] = _Turn(leaders, led or list(leaders), at)
        turn.at += 1
        return turn.names[(turn.at - 1) % len(turn.names)]

    def _add_each(self, first: int, messages: Iterable[Any], topic: str | None) -> None:
        for number, message in enumerate(messages, first):
            try:
                self._add(number, message, topic)
            except ProducerClosed:
                raise
            except BaseException as error:  # noqa: BLE001  (an encoder or partitioner of the application raised it)
                self.refuse(number, error)

    def _add_slice(self, first: int, values: Sequence[Any], topic: str) -> None:
        """Add messages that make one batch, or several if they are large; as a whole if they are plain values."""
        if set(map(type, values)) == {bytes}:
            size = sum(map(len, values)) + MESSAGE_OVERHEAD_BYTES * len(values)
            if size > self._limits.batch_bytes and len(values) > 1:
                count = max(len(values) * self._limits.batch_bytes // size, 1)
                for start in range(0, len(values), count):
                    self._add_slice(first + start, values[start : start + count], topic)
                return
            if max(map(len, values)) <= self._placer.max_bytes:
                name = self._placer.name_without_key(topic)
                if name is not None and name not in self._gathered:
                    pairs: list[Pair] = [(None, value) for value in values]
                    self.send_batch(name, pairs, range(first, first + len(pairs)), size, True)
                    return
        self._add_each(first, values, topic)

    def _add(self, number: int, message: Any, topic: str | None) -> None:
        place = self._placer.place
        if topic is not None and type(message) is bytes:
            self._gather(number, place(topic, message))
            return
        for each in as_keyed_messages(message, topic):
            placed = place(
                each.topic, each.message, each.key, each.partition, each.part_key, each.headers, each.timestamp_ms
            )
            self._gather(number, placed)

    def _gather(self, number: int, placed: PlacedMessage) -> None:
        """Add a message to a batch: here, or in the queue, from where it leaves in time."""
        name, pair, size, is_movable = placed
        if not self._gathers:
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
        self._gathered_messages += 1
        self._gathered_bytes += size
        limits = self._limits
        if len(gathered.pairs) >= limits.batch_messages:
            self._flush(name)
        elif self._gathered_messages >= limits.queue_messages or self._gathered_bytes >= limits.queue_bytes:
            for each in list(self._gathered):  # of many partitions, no batch may be full yet
                self._flush(each)

    def _queue(self, number: int, placed: PlacedMessage) -> None:
        outcome, index = self._delivery.add(placed.name, placed.pair, placed.size, placed.is_movable, self._wait_s)
        mine = self._latest.get(placed.name)
        if mine is None or mine.outcome is not outcome:
            mine = self._latest[placed.name] = _SentBatch(outcome, [], [])
            self._watch(mine)
        mine.numbers.append(number)
        mine.indexes.append(index)

    def _flush(self, name: TopicPartition) -> None:
        gathered = self._gathered.pop(name)
        self._gathered_messages -= len(gathered.pairs)
        self._gathered_bytes -= gathered.size
        self.send_batch(name, gathered.pairs, gathered.numbers, gathered.size, gathered.is_movable)

    def send_batch(
        self, name: TopicPartition, pairs: list[Pair], numbers: Sequence[int], size: int, is_movable: bool
    ) -> None:
        """Send encoded messages that make a batch, within the limits of one; a full queue fails them."""
        try:
            outcome = self._delivery.add_batch(name, pairs, size, is_movable, self._wait_s)
        except BaseException as error:
            self._delivery.refused(error)
            if not isinstance(error, ProducerError):
                raise
            # `finish` need not wait again for brokers that made no room for so long.
            self._has_stalled |= self._stall_s is not None and isinstance(error, QueueFull)
            for number in numbers:
                self.fail(number, error)
        else:
            self._watch(_SentBatch(outcome, numbers, range(len(numbers))))

    def _watch(self, batch: _SentBatch) -> None:
        """Have a batch counted when it has its outcome."""
        self._open[batch.outcome] = batch
        batch.outcome.when_done(partial(self._finished.append, batch.outcome))
        self.count_finished()

    def count_finished(self) -> None:
        """Count the messages of batches that have their outcome."""
        while self._finished:
            self._count(self._finished.popleft())

    def _count(self, outcome: BatchOutcome) -> None:
        """Count the messages of a batch that has its outcome, once."""
        batch = self._open.pop(outcome, None)
        if batch is None:
            return
        if outcome.error is None and outcome.halves is None:
            self.count_sent(TopicPartition(outcome.topic, outcome.partition), len(batch.numbers))
            return
        for number, index in zip(batch.numbers, batch.indexes, strict=True):
            found = outcome.of_message(index)
            if isinstance(found, ProducerError):
                self.fail(number, found)
            else:
                self.count_sent(TopicPartition(found.topic, found.partition), 1)
