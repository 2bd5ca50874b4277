"""Numbering: under which producer id and sequence numbers batches are sent, so that brokers store each of them once.

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

from typing import Final

from simpleconsumer.producer_batches import BatchProducer, ProducerId
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.batching.batch import Batch

__all__ = ["Numbering"]

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
