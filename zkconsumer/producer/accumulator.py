"""Accumulator: the messages that wait to be sent, by partition; what is sent next, and what becomes of it.

Rules, and which failure each prevents:

- The batches of a partition leave in the order in which their messages came, and while some of them are in flight no
  others are sent. A batch that failed goes back to the front. So a retry never changes the order.
- A batch is sent when it is full, when its first message has waited long enough, or when it was tried before.
- A failed try moves a batch to a partition of another broker if any partition will do for its messages. A dead broker
  delays only messages that belong to its partitions.
- Of a compressed topic, a request has one batch of each partition: brokers from 2.4 on refuse several compressed sets.
- A batch that the broker refuses for a message in it is sent alone, then in parts, until the message is found: one that
  is too large, or has no key in a compacted topic. One such message fails no other.
- Every batch has an end: it fails after `retries` failures, the search for a leader that found none among them.

Pure: the caller has the clock, the lock and the sockets.

Source: kafka.producer.async.DefaultEventHandler, ProducerSendThread (0.8.2.2); order and splitting are ours.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from simpleconsumer.errors import BrokerError, broker_error
from simpleconsumer.types import ProducedPartition, TopicPartition
from zkconsumer.producer.batch import Batch, Pair, by_partition, undecided_codes
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage, ProducerError
from zkconsumer.producer.layout import Layout
from zkconsumer.producer.numbering import DUPLICATE, OUT_OF_STEP, Numbering
from zkconsumer.producer.refusals import (
    MOST_CHECKSUM_TRIES,
    TOO_LARGE,
    WRONG_CHECKSUM,
    cut_at,
    is_about_a_message,
    remedy_for,
)

__all__ = ["Accumulator", "Effect", "Finished", "Limits", "Split"]

_NO_LEADER: Final = "no broker leads it"


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
        undecided: The errors after which a batch may be stored all the same.
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
    undecided: Sequence[int] = undecided_codes(1)
    takes_turns: bool = False
    absence_s: float = 10.0


class Finished(NamedTuple):
    """A batch has its outcome.

    Attributes:
        batch: The batch.
        offset: Offset of its first message; -1 where the broker names none.
        error: Why it failed; None if it is acknowledged.
    """

    batch: Batch
    offset: int
    error: ProducerError | None


class Split(NamedTuple):
    """A batch goes on as two."""

    batch: Batch
    halves: tuple[Batch, Batch]


Effect = Finished | Split


@dataclass
class _Queue:
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


class Accumulator:
    """The messages of one producer that have no outcome yet.

    Attributes:
        messages: How many there are.
        size: Their bytes.
        repeated: How many were sent again after a lost connection, and may be stored twice.
        retries: How often a batch was put back after a failure.
        layout: The partitions and leaders.

    Threads: One at a time.
    """

    def __init__(
        self, limits: Limits, rng: random.Random | None = None, numbering: Numbering | None = None
    ) -> None:
        self._numbering = numbering
        self.messages = 0
        self.size = 0
        self.repeated = 0
        self.retries = 0
        self.layout = Layout(rng, limits.absence_s)
        self._limits = limits
        self._queues: dict[TopicPartition, _Queue] = {}
        self._active: dict[TopicPartition, _Queue] = {}

    # -- look-ups ------------------------------------------------------------------------------------------------------

    def set_partitions(self, topic: str, leaders: Mapping[int | str, int | None], now: float) -> list[Effect]:
        """Take over what a look-up found; partitions that found no leader have failed once more."""
        self.layout.found(topic, leaders)
        effects: list[Effect] = []
        for name, queue in self._waiting_of(topic):
            if name.partition not in leaders:
                self.layout.forget_leader(name)
            if self.layout.leader(name) is not None:
                for batch in queue.waiting:
                    batch.searches = 0
            else:
                effects += self._unled(name, queue, now)
        return effects

    def topic_not_found(
        self, topic: str, reason: str, is_final: bool, now: float, is_absent: bool = False
    ) -> list[Effect]:
        """Count a look-up that found no such topic, or no answer, for everything that waits for its leaders.

        What waits has known the topic: a broker that has just started says of each topic that it is absent, so this
        counts as a failed search only.
        """
        self.layout.not_found(topic, reason, is_final, is_absent, now)
        effects: list[Effect] = []
        for name, queue in self._waiting_of(topic):
            if self.layout.leader(name) is None:
                queue.retry_at = now + self._limits.backoff_s
                waiting, queue.waiting = queue.waiting, deque()
                effects += self._search_again(queue, waiting, reason, is_final)
                if queue.waiting:
                    self.layout.want(topic, queue.retry_at)
        return effects

    def _waiting_of(self, topic: str) -> list[tuple[TopicPartition, _Queue]]:
        """Return the partitions of a topic for which messages wait."""
        return [(name, queue) for name, queue in self._active.items() if name.topic == topic and queue.waiting]

    def _unled(self, name: TopicPartition, queue: _Queue, now: float) -> list[Effect]:
        """Move what may be moved; count a failed search for the others."""
        queue.retry_at = now + self._limits.backoff_s
        queue.has_failed = True
        self.layout.want(name.topic, queue.retry_at)
        is_there = name.partition in (self.layout.partitions(name.topic) or ())
        waiting, queue.waiting = queue.waiting, deque()
        kept = [batch for batch in waiting if not self._move(batch, None)]
        return self._search_again(queue, kept, _NO_LEADER if is_there else "the topic has no such partition", False)

    def _search_again(
        self, queue: _Queue, batches: Iterable[Batch], reason: str, is_final: bool
    ) -> list[Effect]:
        """Count a search that found no leader for batches, and put them back; the last search fails them."""
        effects: list[Effect] = []
        for batch in batches:
            batch.searches += 1
            tries = batch.searches + batch.tries
            if is_final or tries > self._limits.retries:
                effects.append(self._failed(batch, reason, tries))
            else:
                self.retries += 1
                queue.waiting.append(batch)
        return effects

    def _move(self, batch: Batch, avoided: int | None) -> bool:
        """Give a batch to another partition, if any one will do and another broker leads one."""
        is_bound = batch.numbers is not None or (self._numbering is not None and self._numbering.is_transactional)
        is_movable = batch.is_movable and not is_bound  # elsewhere nobody would know a repeat
        partition = self.layout.elsewhere(batch.name.topic, avoided) if is_movable else None
        if partition is None:
            return False
        batch.name = TopicPartition(batch.name.topic, partition)
        batch.encoded = None  # or every broker that fails would leave behind what was encoded for it
        self._append(batch)
        return True

    def _append(self, batch: Batch) -> None:
        """Add a batch that takes no further messages behind those of its partition."""
        waiting = self._activated(batch.name).waiting
        if waiting:
            waiting[-1].is_closed = True
        batch.is_closed = True
        waiting.append(batch)

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
        self.messages += 1
        self.size += size
        return batch

    def _close(self, batch: Batch) -> None:
        """Add nothing more to a batch; the next messages without a key may go elsewhere."""
        batch.is_closed = True
        if self._limits.takes_turns and batch.is_movable:
            self.layout.choose_again(batch.name.topic)

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

    def _new_batch(self, name: TopicPartition, is_movable: bool, now: float) -> Batch:
        batch = Batch(name, is_movable, now)
        batch.is_alone = self._numbering is not None or self._limits.is_compressed(name.topic)
        return batch

    def _want_leader(self, name: TopicPartition, now: float) -> None:
        """Have the leader of a partition looked up if none is known: the last look-up may have found none."""
        if self.layout.leader(name) is None:
            self.layout.want(name.topic, max(now, self._queues[name].retry_at))

    def close_batches(self) -> None:
        """Have everything that waits sent now."""
        for queue in self._active.values():
            if queue.waiting:
                queue.waiting[-1].is_closed = True

    def _activated(self, name: TopicPartition) -> _Queue:
        """Return the queue of a partition, which then counts among those that have something to send."""
        queue = self._active.get(name)
        if queue is None:
            queue = self._active[name] = self._queues.setdefault(name, _Queue())
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

    def _take_of(self, queue: _Queue, taken: list[Batch], size: int, now: float) -> int:
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

    def _due_at(self, queue: _Queue) -> float:
        if queue.in_flight:
            return float("inf")
        head = queue.waiting[0]
        if head.is_closed or queue.has_failed:
            return queue.retry_at
        return max(queue.retry_at, head.created_at + self._limits.linger_s)

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(
        self, batches: Sequence[Batch], results: Mapping[TopicPartition, ProducedPartition], now: float
    ) -> list[Effect]:
        """Take over a broker's answer about the batches of a request."""
        effects: list[Effect] = []
        for name, mine in by_partition(batches).items():
            self._queues[name].in_flight.clear()
            code, offset = results[name]
            if code == DUPLICATE and all(each.numbers is not None for each in mine):
                code, offset = 0, -1
            for each in mine:
                each.may_be_stored |= code in self._limits.undecided
            if code:
                self._give_back(mine)
            if code == 0:
                effects += self._acknowledged(name, mine, offset)
            elif any(is_about_a_message(code, each.pairs) for each in mine):
                effects += self._refused(name, mine, code, now)
            elif code in OUT_OF_STEP and self._can_start_again(mine):
                effects += self._again(name, mine, BrokerError(code, *name), None, now)
            elif broker_error(code).retriable:
                self._forget_leader(name, now)
                effects += self._again(name, mine, BrokerError(code, name.topic, name.partition), None, now)
            else:
                reason = BrokerError(code, name.topic, name.partition)
                effects += [self._failed(each, reason, each.tries + 1) for each in mine]
        return effects

    def request_failed(
        self, batches: Sequence[Batch], broker: int, reason: str | Exception, may_be_stored: bool, now: float,
        is_final: bool = False,
    ) -> list[Effect]:  # fmt: skip
        """Take over that a request was lost; the messages may be stored if it was sent.

        Args:
            is_final: Another request would be lost, too, and none is sent.
        """
        effects: list[Effect] = []
        for name, mine in by_partition(batches).items():
            self._queues[name].in_flight.clear()
            self._forget_leader(name, now)
            for each in mine:
                each.may_be_stored |= may_be_stored
            self._give_back(mine)
            if is_final:
                effects += [self._failed(each, reason, each.tries + 1) for each in mine]
            else:
                effects += self._again(name, mine, reason, broker, now)
        return effects

    def in_flight(self) -> list[Batch]:
        """Return the batches that are in flight."""
        return [batch for queue in self._queues.values() for batch in queue.in_flight]

    def abandon(self, reason: str) -> list[Effect]:
        """Fail everything that waits."""
        effects: list[Effect] = []
        for queue in self._active.values():
            waiting, queue.waiting = queue.waiting, deque()
            effects += [self._failed(each, reason, max(each.tries, 1)) for each in waiting]
        return effects

    def _give_back(self, batches: Sequence[Batch]) -> None:
        """Use the numbers of batches that are not stored again."""
        if self._numbering is not None:
            for batch in reversed(batches):
                self._numbering.give_back(batch)

    def _can_start_again(self, batches: Sequence[Batch]) -> bool:
        """Have batches that no broker has sent under a new producer id; return False if that cannot be."""
        numbering = self._numbering
        if numbering is None or numbering.is_transactional or any(batch.may_be_stored for batch in batches):
            return False
        for batch in batches:
            numbering.forget(batch.name)
        return True

    def _acknowledged(self, name: TopicPartition, batches: Sequence[Batch], offset: int) -> Iterator[Effect]:
        queue = self._queues[name]
        queue.has_failed = False
        for batch in batches:
            self._release(batch)
            yield Finished(batch, offset, None)
            offset += len(batch.pairs) if offset >= 0 else 0

    def _refused(
        self, name: TopicPartition, batches: Sequence[Batch], code: int, now: float
    ) -> Iterator[Effect]:
        """Have what was refused for a message in it sent in parts; fail what cannot be parted."""
        queue = self._activated(name)
        for batch in reversed(batches):
            if len(batches) > 1:
                batch.is_alone = True
                queue.waiting.appendleft(batch)
            elif (first := cut_at(code, batch.pairs)) is not None:
                parts = batch.parts(first)
                queue.waiting.extendleft(reversed(parts))
                if self._numbering is not None:
                    self._numbering.lose(batch)  # one that may be stored still has numbers
                yield Split(batch, parts)
            elif code == WRONG_CHECKSUM and batch.tries < MOST_CHECKSUM_TRIES:
                self._forget_leader(name, now)
                yield from self._again(name, [batch], BrokerError(code, *name), None, now)
            elif code in TOO_LARGE:
                self._release(batch)
                refusal = BrokerError(code, name.topic, name.partition)
                error = OversizedMessage(*name, f"{refusal}; it has {batch.size} bytes", batch.tries + 1)
                error.__cause__ = refusal
                yield Finished(batch, -1, error)
            else:
                yield self._failed(batch, BrokerError(code, *name), batch.tries + 1)

    def _forget_leader(self, name: TopicPartition, now: float) -> None:
        self.layout.forget_leader(name)
        self.layout.choose_again(name.topic)
        self.layout.want(name.topic, now + self._limits.backoff_s)

    def _again(
        self, name: TopicPartition, batches: Sequence[Batch], reason: str | Exception, avoided: int | None, now: float
    ) -> Iterator[Effect]:
        """Put batches back, or move them; those that were tried often enough fail."""
        queue = self._activated(name)
        queue.retry_at = now + self._limits.backoff_s
        queue.has_failed = True
        kept = []
        for batch in batches:
            batch.tries += 1
            if batch.tries > self._limits.retries or (batch.may_be_stored and not self._limits.repeats):
                yield self._failed(batch, reason, batch.tries)
            else:
                kept.append(batch)
        self.retries += len(kept)
        waiting = deque([*kept, *queue.waiting])
        queue.waiting = deque()
        for batch in waiting:
            if not self._move(batch, avoided):
                queue.waiting.append(batch)

    def _failed(self, batch: Batch, reason: str | Exception, tries: int) -> Finished:
        self._release(batch)
        if self._numbering is not None:
            self._numbering.lose(batch)
        error = MessageNotSent(*batch.name, str(reason), tries, batch.may_be_stored)
        error.__cause__ = reason if isinstance(reason, Exception) else None
        error.remedy = remedy_for(reason, batch.pairs)
        return Finished(batch, -1, error)

    def _release(self, batch: Batch) -> None:
        self.messages -= len(batch.pairs)
        self.size -= batch.size
