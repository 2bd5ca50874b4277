"""BatchQueues: the messages that wait to be sent, by partition, and what is sent next.

Rules, and which failure each prevents:

- The batches of a partition leave in the order in which their messages came, and while some of them are in flight no
  others are sent. So a retry never changes the order.
- A batch is sent when it is full, when its first message has waited long enough, or when it was tried before.
- Of a compressed topic, a request has one batch of each partition: brokers from 2.4 on refuse several compressed sets.

Pure: the caller has the clock, the lock and the sockets.

Source: kafka.producer.async.ProducerSendThread (0.8.2.2); the order is ours.

`Limits` says how a producer gathers messages into batches, and how often it tries to send them.

Batch: messages of one partition that are sent, tried again and reported together.

A batch has its outcome, or goes on as two batches.

Numbering: under which producer id and sequence numbers batches are sent, so that brokers store each of them once.

Rules, and which failure each prevents:

- A batch that may be stored keeps its numbers, and its partition, until it has an outcome: leaders know a repeat by its
  numbers. They answer it with the offset of before, or with DUPLICATE_SEQUENCE_NUMBER.
- A batch that was refused, or never sent, gives its numbers back, so that there is no gap before the next one.
- Behind a batch that failed and may be stored, nobody knows which number the broker expects. The partition goes on with
  a new producer id, from 0. Other partitions keep theirs, since repeats of theirs may be under way.
- The same holds where the broker expects other numbers: it misses a batch (OUT_OF_ORDER_SEQUENCE_NUMBER), has forgotten
  the producer (UNKNOWN_PRODUCER_ID), or knows the numbers of a batch that was never sent before. A batch that no broker
  can have is sent again under a new id; one that may be stored fails. What each code says is in `produce_codes`.
- The id of a transactional producer is its coordinator's: behind a failure there is a new one when the transaction is
  aborted.

A partition has one batch in flight. Pure: the caller has the lock, and asks the brokers for ids.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9), kafka.log.ProducerStateManager (3.9).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from simpleconsumer.dialect import BatchProducer, ProducerId
from simpleconsumer.types import Headers, TopicPartition
from zkconsumer.producer.errors import ProducerError
from zkconsumer.producer.sending.layout import Layout

PlainPair = tuple[bytes | None, bytes | None]
"""Key and value of a message, encoded."""
Pair = PlainPair | tuple[bytes | None, bytes | None, Headers] | tuple[bytes | None, bytes | None, Headers, int]
"""Key and value of a message, encoded; its headers, if it has any; and its time in ms since 1970, if one was given."""
MESSAGE_OVERHEAD_BYTES: Final = 26
"""What an entry of a message set has beside key and value."""
_HEADER_OVERHEAD_BYTES: Final = 10
"""What a header has beside name and value, at most."""


def message_size(pair: Pair) -> int:
    """Return the bytes of a message in a message set."""
    size = len(pair[0] or b"") + len(pair[1] or b"") + MESSAGE_OVERHEAD_BYTES
    if len(pair) == 2:
        return size
    return size + sum(len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD_BYTES for name, content in pair[2])


def has_headers(pair: Pair) -> bool:
    """Return whether a message has headers."""
    return len(pair) > 2 and bool(pair[2])


def time_of(pair: Pair) -> int | None:
    """Return the time that a message was given, in ms since 1970; None: when it came."""
    return pair[3] if len(pair) > 3 else None


class Ahead(NamedTuple):
    """What was encoded before its request.

    Attributes:
        data: The message set.
        batches: The batches that it has, all of one partition.
    """

    data: bytes
    batches: tuple[Batch, ...]


class Batch:
    """Messages of one partition.

    Attributes:
        name: The partition.
        pairs: Keys and values, in order.
        size: Their bytes in a message set, before compression.
        created_at: When its first message came, in seconds of the clock that the caller uses.
        is_closed: No further message is added, and it does not wait for any.
        is_movable: None of its messages has a key or was sent to a given partition, so any partition will do.
        is_alone: It is sent without other batches of the partition, as it is compressed, or one of them is too large.
        tries: How often it failed.
        searches: How often in a row no leader was found for it.
        may_be_stored: A try ended without an answer, or with one after which it may be stored (`produce_codes`).
        outcome: What the caller reports to; None until it sets it.
        encoded: Its message set, if that was made before its request, maybe with batches behind it; None when it is
            sent.
        times: When each of its messages came, on the same clock; empty: all of them with the first one.
        numbers: Under which producer and numbers it is sent, with idempotence; None before that, and without it.
    """

    __slots__ = (
        "created_at", "encoded", "is_alone", "is_closed", "is_movable", "may_be_stored", "name", "numbers", "outcome",
        "pairs", "searches", "size", "times", "tries",
    )  # fmt: skip

    def __init__(self, name: TopicPartition, is_movable: bool, created_at: float) -> None:
        self.name = name
        self.pairs: list[Pair] = []
        self.size = 0
        self.created_at = created_at
        self.is_closed = False
        self.is_movable = is_movable
        self.is_alone = False
        self.tries = 0
        self.searches = 0
        self.may_be_stored = False
        self.outcome: Any = None
        self.encoded: Ahead | None = None
        self.times: list[float] = []
        self.numbers: BatchProducer | None = None

    def parts(self, first_messages: int) -> tuple[Batch, Batch]:
        """Return two batches with the messages of this one, which has more than one; both are alone and closed."""
        return self._part(slice(first_messages)), self._part(slice(first_messages, None))

    def _part(self, rows: slice) -> Batch:
        part = Batch(self.name, self.is_movable, self.created_at)
        part.pairs = pairs = self.pairs[rows]
        part.times = self.times[rows]
        part.size = sum(map(message_size, pairs))
        part.is_closed = part.is_alone = True
        part.tries, part.may_be_stored = self.tries, self.may_be_stored
        return part


def by_partition(batches: Sequence[Batch]) -> dict[TopicPartition, list[Batch]]:
    """Return the batches of each partition, in their order."""
    found: dict[TopicPartition, list[Batch]] = {}
    for batch in batches:
        found.setdefault(batch.name, []).append(batch)
    return found


class Finished(NamedTuple):
    """A batch has its outcome.

    Attributes:
        batch: The batch.
        offset: Offset of its first message; -1 where the broker names none.
        error: Why it failed; None if it is acknowledged.
        append_time_ms: Time of its messages, if the broker is known to have set it; else -1.
    """

    batch: Batch
    offset: int
    error: ProducerError | None
    append_time_ms: int = -1


class Split(NamedTuple):
    """A batch goes on as two."""

    batch: Batch
    halves: tuple[Batch, Batch]


Effect = Finished | Split


_NUMBERS: Final = 1 << 31
"""Behind the largest number comes 0."""


class Numbering:
    """The numbers of one idempotent producer.

    Args:
        is_transactional: The batches are parts of transactions.

    Attributes:
        is_transactional: As given.
        producer: The id for partitions that have none; None: a new one is needed.

    Threads: One at a time.
    """

    def __init__(self, is_transactional: bool) -> None:
        self.is_transactional = is_transactional
        self.producer: ProducerId | None = None
        self._of: dict[TopicPartition, tuple[ProducerId, int]] = {}

    def start(self, producer: ProducerId) -> None:
        """Take over a new id. That of a transactional producer holds for all partitions, from 0."""
        self.producer = producer
        if self.is_transactional:
            self._of.clear()

    def needs_id(self, batch: Batch) -> bool:
        """Return whether a batch cannot be numbered before there is a new id."""
        return batch.numbers is None and batch.name not in self._of and self.producer is None

    def number(self, batch: Batch) -> None:
        """Give numbers to a batch that is about to be sent, if it has none; `needs_id` is False."""
        if batch.numbers is not None:
            return
        found = self._of.get(batch.name)
        if found is None:
            assert self.producer is not None
            found = self.producer, 0
        producer, first = found
        batch.numbers = BatchProducer(producer.producer_id, producer.epoch, first, self.is_transactional)
        self._of[batch.name] = producer, (first + len(batch.pairs)) % _NUMBERS

    def give_back(self, batch: Batch) -> None:
        """Take the numbers of a batch that no broker has stored for the next one of its partition."""
        if batch.numbers is None or batch.may_be_stored:
            return
        found = self._of.get(batch.name)
        numbers, batch.numbers = batch.numbers, None
        if found is not None and found[0] == (numbers.id, numbers.epoch):
            self._of[batch.name] = found[0], numbers.base_sequence

    def lose(self, batch: Batch) -> None:
        """Go on from 0 with a new id, if the batch has numbers: it is not known which one the broker expects."""
        numbers, batch.numbers = batch.numbers, None
        if numbers is None:
            return
        found = self._of.get(batch.name)
        if found is not None and found[0] == (numbers.id, numbers.epoch):
            del self._of[batch.name]
        if self.producer == (numbers.id, numbers.epoch):
            self.producer = None


@dataclass(frozen=True)
class Limits:
    """How messages are gathered and how often they are tried.

    Attributes:
        batch_messages: Most messages of a batch.
        batch_bytes: Most bytes of a batch of several messages.
        request_bytes: Most bytes of a request of several batches.
        linger_s: Longest wait of a message for others of its batch.
        queue_messages: Most messages that wait or are in flight.
        queue_bytes: Most bytes of these.
        retries: How often a batch is tried again.
        backoff_s: Wait before each further try.
        absence_s: How long a topic that brokers do not know may be about to be created.
        repeats: A batch that may be stored is tried again.
        is_compressed: Topic -> whether its batches are compressed.
        acks: -1, 0 or 1; says after which errors a batch may be stored all the same.
        takes_turns: Messages without a key go to another partition with every batch, at random; else they stay with
            one until leaders are looked up again.
    """

    batch_messages: int = 200
    batch_bytes: int = 512 * 1024
    request_bytes: int = 1024 * 1024
    linger_s: float = 5.0
    queue_messages: int = 10_000
    queue_bytes: int = 32 * 1024 * 1024
    retries: int = 3
    backoff_s: float = 0.1
    repeats: bool = True
    is_compressed: Callable[[str], bool] = lambda topic: False
    acks: int = 1
    takes_turns: bool = False
    absence_s: float = 10.0


@dataclass
class BatchQueue:
    """The batches of one partition.

    Attributes:
        waiting: Those to be sent, in order.
        in_flight: Those that are sent and have no answer.
        retry_at: Nothing is sent before then.
        has_failed: The last try failed; what waits is sent as soon as `retry_at` is over.
    """

    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    retry_at: float = 0.0
    has_failed: bool = False


class BatchQueues:
    """What waits and what is in flight; `Accumulator` says what becomes of it.

    Attributes:
        messages: How many messages there are.
        size: Their bytes.
        repeated: How many were sent again after a lost connection, and may be stored twice.
        layout: The partitions and leaders.
        open: Topic -> the batch that its messages without a key are added to, unless it is closed by now, or another
            partition was chosen for them.
    """

    __slots__ = ("__dict__", "messages", "size")  # the kernel looks for these two at their places

    def __init__(self, limits: Limits, rng: random.Random | None = None, numbering: Numbering | None = None) -> None:
        self.messages = 0
        self.size = 0
        self.repeated = 0
        self.layout = Layout(rng, limits.absence_s, limits.backoff_s)
        self.open: dict[str, Batch] = {}
        self._numbering = numbering
        self._limits = limits
        self._queues: dict[TopicPartition, BatchQueue] = {}
        self._active: dict[TopicPartition, BatchQueue] = {}

    # -- messages ------------------------------------------------------------------------------------------------------

    def fullness(self, messages: int, size: int) -> str | None:
        """Return what there is no room for in words; None if there is room. An empty queue takes one of any size."""
        limits = self._limits
        if self.messages and self.messages + messages > limits.queue_messages:
            return f"{limits.queue_messages} messages (queue.buffering.max.messages)"
        if self.messages and self.size + size > limits.queue_bytes:
            return f"{limits.queue_bytes} bytes (queue.buffering.max.bytes)"
        return None

    def add(self, name: TopicPartition, pair: Pair, size: int, is_movable: bool, now: float) -> Batch:
        """Add a message, and return its batch, in which it is the last one."""
        waiting = self._activated(name).waiting
        batch = waiting[-1] if waiting else None
        if batch is None or batch.is_closed or batch.size + size > self._limits.batch_bytes:
            if batch is not None:
                batch.is_closed = True
            batch = self._new_batch(name, is_movable, now)
            waiting.append(batch)
            self._want_leader(name, now)
        batch.pairs.append(pair)
        batch.times.append(now)
        batch.size += size
        batch.is_movable &= is_movable
        if len(batch.pairs) >= self._limits.batch_messages:
            self._close(batch)
        elif is_movable and self.layout.sticky.get(name.topic) == name.partition:
            self.open[name.topic] = batch
        self.messages += 1
        self.size += size
        return batch

    def add_batch(self, name: TopicPartition, pairs: list[Pair], size: int, is_movable: bool, now: float) -> Batch:
        """Add messages that make a batch of their own, within the limits of one."""
        batch = self._new_batch(name, is_movable, now)
        batch.pairs, batch.size = pairs, size
        self._append(batch)
        self._want_leader(name, now)
        self._close(batch)
        self.messages += len(pairs)
        self.size += size
        return batch

    def close_batches(self) -> None:
        """Have everything that waits sent now."""
        for queue in self._active.values():
            if queue.waiting:
                queue.waiting[-1].is_closed = True

    def _new_batch(self, name: TopicPartition, is_movable: bool, now: float) -> Batch:
        batch = Batch(name, is_movable, now)
        batch.is_alone = self._numbering is not None or self._limits.is_compressed(name.topic)
        return batch

    def _want_leader(self, name: TopicPartition, now: float) -> None:
        """Have the leader of a partition looked up if none is known: the last look-up may have found none."""
        if self.layout.leader(name) is None:
            self.layout.want(name.topic, max(now, self._queues[name].retry_at))

    def _close(self, batch: Batch) -> None:
        """Add nothing more to a batch; the next messages without a key may go elsewhere."""
        self._end(batch)
        if self._limits.takes_turns and batch.is_movable:
            self.layout.choose_again(batch.name.topic)

    def _end(self, batch: Batch) -> None:
        """Add nothing more to a batch, wherever the next messages go."""
        batch.is_closed = True
        if self.open.get(batch.name.topic) is batch:
            del self.open[batch.name.topic]

    def _append(self, batch: Batch) -> None:
        """Add a batch that takes no further messages behind those of its partition."""
        waiting = self._activated(batch.name).waiting
        if waiting:
            waiting[-1].is_closed = True
        batch.is_closed = True
        waiting.append(batch)

    def _activated(self, name: TopicPartition) -> BatchQueue:
        """Return the queue of a partition, which then counts among those that have something to send."""
        queue = self._active.get(name)
        if queue is None:
            queue = self._active[name] = self._queues.setdefault(name, BatchQueue())
        return queue

    # -- requests ------------------------------------------------------------------------------------------------------

    def take(self, broker: int, now: float) -> list[Batch]:
        """Return what the next request to a broker has, batches of a partition in their order; empty if nothing is due.

        The batches are in flight until `answered` or `request_failed` is called with them.
        """
        taken: list[Batch] = []
        size = 0
        for name, queue in list(self._active.items()):
            if not queue.waiting:
                del self._active[name]
            elif self.layout.leader(name) == broker and self._due_at(queue) <= now:
                size = self._take_of(queue, taken, size, now)
                if queue.in_flight:
                    self._active[name] = self._active.pop(name)  # the next request starts with another partition
        return taken

    def upcoming(self, broker: int) -> list[Batch]:
        """Return the closed batches that the next request to a broker would have; nothing changes."""
        found: list[Batch] = []
        if self._numbering is not None:
            return found  # its numbers are known when the one before it is stored
        size = 0
        for name, queue in self._active.items():
            if self.layout.leader(name) != broker:
                continue
            for place, batch in enumerate(queue.waiting):
                fits = not found or size + batch.size <= self._limits.request_bytes
                if not batch.is_closed or not fits or (place and batch.is_alone):
                    break
                found.append(batch)
                size += batch.size
        return found

    def _take_of(self, queue: BatchQueue, taken: list[Batch], size: int, now: float) -> int:
        """Take the batches of one partition that are due and fit; return the size of the request then.

        Those that were encoded together are taken together, since they are one record batch.
        """
        ahead = queue.waiting[0].encoded
        together = () if ahead is None else ahead.batches
        is_whole = len(together) > 0 and tuple(islice(queue.waiting, len(together))) == together
        most = len(together) if is_whole else len(queue.waiting)
        while queue.waiting and len(queue.in_flight) < most:
            batch = queue.waiting[0]
            is_due = batch.is_closed or queue.has_failed or batch.created_at + self._limits.linger_s <= now
            fits = not taken or size + batch.size <= self._limits.request_bytes
            if not is_due or not fits or (queue.in_flight and (batch.is_alone or queue.in_flight[-1].is_alone)):
                break
            self._close(batch)
            if batch.may_be_stored:
                self.repeated += len(batch.pairs)
            queue.in_flight.append(queue.waiting.popleft())
            taken.append(batch)
            size += batch.size
        return size

    def due_at(self, broker: int) -> float | None:
        """Return when there is something to send to a broker; None if nothing waits for it. Times may be over."""
        led = (queue for name, queue in self._active.items() if self.layout.leader(name) == broker and queue.waiting)
        return min((at for queue in led if (at := self._due_at(queue)) != float("inf")), default=None)

    def _due_at(self, queue: BatchQueue) -> float:
        if queue.in_flight:
            return float("inf")
        head = queue.waiting[0]
        if head.is_closed or queue.has_failed:
            return queue.retry_at
        return max(queue.retry_at, head.created_at + self._limits.linger_s)

    def in_flight(self) -> list[Batch]:
        """Return the batches that are in flight."""
        return [batch for queue in self._queues.values() for batch in queue.in_flight]
