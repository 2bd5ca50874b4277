"""Accumulator: the messages of a producer that have no outcome yet, and what becomes of them.

Rules, and which failure each prevents, beside those of `batch_queues`:

- A batch that failed goes back to the front. So a retry never changes the order.
- A failed try moves a batch to a partition of another broker if any partition will do for its messages. A dead broker
  delays only messages that belong to its partitions.
- A batch that the broker refuses for a message in it is sent alone, then in parts, until the message is found: one that
  is too large, or has no key in a compacted topic. One such message fails no other.
- Every batch has an end: it fails after `retries` failures, the search for a leader that found none among them.

Pure: the caller has the clock, the lock and the sockets.

Source: kafka.producer.async.DefaultEventHandler (0.8.2.2); order and splitting are ours. kafka.log.Log.append (2.8),
UnifiedLog.append (4.3): the answer to a repeat.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from simpleconsumer.errors import BrokerError, broker_error
from simpleconsumer.types import ProducedPartition, TopicPartition
from zkconsumer.producer.batching.batch_queues import (
    Batch,
    BatchQueue,
    BatchQueues,
    Effect,
    Finished,
    Limits,
    Numbering,
    Split,
    by_partition,
)
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage
from zkconsumer.producer.sending.produce_codes import (
    DUPLICATE,
    MOST_CHECKSUM_TRIES,
    OUT_OF_STEP,
    TOO_LARGE,
    WRONG_CHECKSUM,
    cut_at,
    is_about_a_message,
    may_be_stored,
    remedy_for,
)

_NO_LEADER: Final = "no broker leads it"


class Accumulator(BatchQueues):
    """The messages of one producer that have no outcome yet.

    Attributes:
        retries: How often a batch was put back after a failure.

    Threads: One at a time.
    """

    __slots__ = ()

    def __init__(self, limits: Limits, rng: random.Random | None = None, numbering: Numbering | None = None) -> None:
        super().__init__(limits, rng, numbering)
        self.retries = 0

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

    def _waiting_of(self, topic: str) -> list[tuple[TopicPartition, BatchQueue]]:
        """Return the partitions of a topic for which messages wait."""
        return [(name, queue) for name, queue in self._active.items() if name.topic == topic and queue.waiting]

    def _unled(self, name: TopicPartition, queue: BatchQueue, now: float) -> list[Effect]:
        """Move what may be moved; count a failed search for the others."""
        queue.retry_at = now + self._limits.backoff_s
        queue.has_failed = True
        self.layout.want(name.topic, queue.retry_at)
        is_there = name.partition in (self.layout.partitions(name.topic) or ())
        waiting, queue.waiting = queue.waiting, deque()
        kept = [batch for batch in waiting if not self._move(batch, None)]
        return self._search_again(queue, kept, _NO_LEADER if is_there else "the topic has no such partition", False)

    def _search_again(self, queue: BatchQueue, batches: Iterable[Batch], reason: str, is_final: bool) -> list[Effect]:
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

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(
        self, batches: Sequence[Batch], results: Mapping[TopicPartition, ProducedPartition], now: float
    ) -> list[Effect]:
        """Take over a broker's answer about the batches of a request."""
        effects: list[Effect] = []
        for name, mine in by_partition(batches).items():
            self._queues[name].in_flight.clear()
            code, offset, append_time_ms = results[name]
            if code == DUPLICATE and all(each.numbers is not None and each.may_be_stored for each in mine):
                code, offset = 0, -1
            if any(each.numbers is not None and each.may_be_stored for each in mine):
                append_time_ms = -1  # of a repeat that it knows a broker names the newest time, with any setting
            for each in mine:
                each.may_be_stored |= may_be_stored(code, self._limits.acks)
            if code and code not in OUT_OF_STEP:
                self._give_back(mine)
            if code == 0:
                effects += self._acknowledged(name, mine, offset, append_time_ms)
            elif any(is_about_a_message(code, each.pairs) for each in mine) and not self._is_bound(mine):
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

    def postponed(self, batches: Sequence[Batch]) -> None:
        """Put batches back that were taken and not sent, since the broker throttles the producer: no try was made."""
        for name, mine in by_partition(batches).items():
            queue = self._activated(name)
            queue.in_flight.clear()
            self._give_back(mine)
            queue.waiting.extendleft(reversed(mine))

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

    def _is_bound(self, batches: Sequence[Batch]) -> bool:
        """Return whether parts of batches would be stored twice: brokers know a repeat as a whole by its numbers."""
        return self._numbering is not None and any(batch.may_be_stored for batch in batches)

    def _can_start_again(self, batches: Sequence[Batch]) -> bool:
        """Have batches that no broker has sent under a new producer id; return False if that cannot be."""
        numbering = self._numbering
        if numbering is None or numbering.is_transactional or any(batch.may_be_stored for batch in batches):
            return False
        for batch in batches:
            numbering.lose(batch)
        return True

    def _acknowledged(
        self, name: TopicPartition, batches: Sequence[Batch], offset: int, append_time_ms: int
    ) -> Iterator[Effect]:
        queue = self._queues[name]
        queue.has_failed = False
        for batch in batches:
            self._release(batch)
            yield Finished(batch, offset, None, append_time_ms)
            offset += len(batch.pairs) if offset >= 0 else 0

    def _refused(self, name: TopicPartition, batches: Sequence[Batch], code: int, now: float) -> Iterator[Effect]:
        """Have what was refused for a message in it sent in parts; fail what cannot be parted."""
        queue = self._activated(name)
        for batch in reversed(batches):
            if len(batches) > 1:
                batch.is_alone = True
                queue.waiting.appendleft(batch)
            elif (first := cut_at(code, batch.pairs)) is not None:
                parts = batch.parts(first)
                queue.waiting.extendleft(reversed(parts))
                yield Split(batch, parts)
            elif code == WRONG_CHECKSUM and batch.tries < MOST_CHECKSUM_TRIES:
                self._forget_leader(name, now)
                yield from self._again(name, [batch], BrokerError(code, *name), None, now)
            elif code in TOO_LARGE:
                self._release(batch)
                refusal = BrokerError(code, name.topic, name.partition)
                reason = f"{refusal}; it has {batch.size} bytes"
                error = OversizedMessage(*name, reason, batch.tries + 1, batch.may_be_stored)
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
        self._end(batch)  # one that failed while it waited was open
        self.messages -= len(batch.pairs)
        self.size -= batch.size
