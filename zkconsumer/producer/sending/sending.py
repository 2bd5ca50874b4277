"""The way of messages from `Producer` to the brokers, without handlers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zkconsumer.producer.batching.batch_queues import Limits
from zkconsumer.producer.batching.bulk import BulkSend, SendSummary
from zkconsumer.producer.batching.columns import ColumnSend
from zkconsumer.producer.batching.outcome import BatchFuture, SendFuture, failed_future
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.messages.keyed_message import GivenHeaders
from zkconsumer.producer.messages.placing import Placer
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer.producer.transactions.transactions import Transactions

__all__ = ["DirectSending"]


class DirectSending:
    """Encodes messages, chooses their partitions, and gives them to the delivery.

    Args:
        placer: Encodes and chooses partitions.
        delivery: Takes the messages.
        limits: Those of a batch.
        wait_s: Longest wait for room in the queue; None waits for ever.
        transactions: Those that messages belong to; None for none.

    Attributes:
        transactions: As given.
        delivery: As given.
        append: Adds a message without a key to an open batch, if it can (`Delivery.appender`); None: nothing does.
    """

    def __init__(
        self,
        placer: Placer,
        delivery: Delivery,
        limits: Limits,
        wait_s: float | None,
        transactions: Transactions | None = None,
    ) -> None:
        self.transactions = transactions
        self._placer = placer
        self._delivery = self.delivery = delivery
        self._limits = limits
        self._wait_s = wait_s
        is_as_given = placer.takes_bytes and placer.keeps_no_key
        self.append = delivery.appender(placer.max_bytes) if is_as_given else None
        self.flush = delivery.flush
        self.close = delivery.close
        self.refused = delivery.refused
        self.statistics = delivery.statistics

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | str | None,
        part_key: Any,
        headers: GivenHeaders | None,
    ) -> SendFuture:
        """Take a message, and return the future of its outcome."""
        try:
            if self.transactions is not None:
                self.transactions.check_open()
            name, pair, size, is_movable = self._placer.place(topic, value, key, partition, part_key, headers)
            return SendFuture(*self._delivery.add(name, pair, size, is_movable, self._wait_s))
        except BaseException as error:
            self._delivery.refused(error)
            if isinstance(error, MessageNotSent):
                return failed_future(error)
            raise

    def send_all(self, messages: Iterable[Any], topic: str | None) -> SendSummary:
        """Send messages, and return what became of them."""
        return BulkSend(self._placer, self._delivery, self._limits, self._wait_s).send(messages, topic)

    def bulk(self, spreads: bool) -> BulkSend:
        """Return `send_all` in steps; see `Producer.bulk`."""
        return BulkSend(self._placer, self._delivery, self._limits, self._wait_s, spreads=spreads)

    def columns(self, stall_s: float | None) -> ColumnSend:
        """Return what sends columns; see `Producer.columns`."""
        wait_s = self._wait_s if stall_s is None else stall_s
        bulk = BulkSend(self._placer, self._delivery, self._limits, wait_s, stall_s=stall_s)
        return ColumnSend(self._placer, self._delivery, self._limits, bulk, stall_s)

    def send_batch(self, topic: str, messages: Sequence[tuple[Any, Any]], partition: int | str) -> BatchFuture:
        """Send messages of one partition as a batch; see `Producer.send_batch`."""
        try:
            name, pairs, size = self._placer.place_batch(topic, messages, partition)
            return BatchFuture(self._delivery.add_batch(name, pairs, size, False, self._wait_s), len(pairs))
        except BaseException as error:
            self._delivery.refused(error)
            raise

    @property
    def repeated(self) -> int:
        """How many messages were sent again after a lost connection."""
        return self._delivery.repeated
