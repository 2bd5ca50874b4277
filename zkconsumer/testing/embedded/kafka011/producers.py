"""Idempotent and transactional producers of a partition: which batch comes next, open and aborted transactions. Pure.

Source: kafka.log.ProducerStateManager, ProducerAppendInfo, kafka.log.TransactionIndex (2.8).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simpleconsumer.kafka011.batch_head import IS_CONTROL, IS_TRANSACTIONAL, BatchHead
from simpleconsumer.types import ActiveProducer
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer_error import ErrorCode

INVALID_EPOCH: Final = 47
_KEPT_BATCHES: Final = 5
_SEQUENCES: Final = 1 << 31


class _Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass
class _Producer:
    epoch: int
    last_timestamp_ms: int = -1
    batches: deque[_Batch] = field(default_factory=lambda: deque(maxlen=_KEPT_BATCHES))
    open_since: int | None = None


class AbortedSpan(NamedTuple):
    """A transaction that was aborted.

    Attributes:
        producer_id: whose.
        first_offset: of its first message.
        marker_offset: of its marker.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


class Producers:
    """The producers of a log.

    Threads: guarded by its log's lock.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Producer] = {}
        self.aborted: list[AbortedSpan] = []

    @property
    def first_open_offset(self) -> int | None:
        """The first message of the oldest open transaction; None without one."""
        return min((each.open_since for each in self._known.values() if each.open_since is not None), default=None)

    def has_open(self, producer_id: int) -> bool:
        """Return whether a producer has a transaction open."""
        known = self._known.get(producer_id)
        return known is not None and known.open_since is not None

    def stored_at(self, head: BatchHead) -> int | None:
        """Return where a batch that is sent again was stored; None for the next batch of its producer.

        Raises:
            Refusal: 45 batches are missing before it; 47 a newer producer has the id; 48 it belongs to no transaction
                while one is open.
        """
        if head.producer_id < 0:
            return None
        known = self._known.get(head.producer_id)
        if known is None:
            return None
        if head.producer_epoch < known.epoch:
            raise Refusal(INVALID_EPOCH, f"producer {head.producer_id} has epoch {known.epoch}")
        if head.producer_epoch > known.epoch:
            if head.base_sequence:
                raise Refusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"the first batch of an epoch has sequence {head.base_sequence}",
                )
            return None
        if known.open_since is not None and not head.attributes & IS_TRANSACTIONAL:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"producer {head.producer_id} has a transaction open")
        last = (head.base_sequence + head.last_delta) % _SEQUENCES
        for batch in known.batches:
            if (batch.first_sequence, batch.last_sequence) == (head.base_sequence, last):
                return batch.base_offset
        if known.batches:
            expected = (known.batches[-1].last_sequence + 1) % _SEQUENCES
            if head.base_sequence != expected:
                raise Refusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"sequence {head.base_sequence} of {head.producer_id}, not {expected}",
                )
        return None

    def note(self, head: BatchHead, *, is_abort: bool = False) -> None:
        """Take note of a stored batch.

        Args:
            is_abort: of a control batch, whether it ends its transaction by an abort.
        """
        if head.producer_id < 0:
            return
        known = self._known.get(head.producer_id)
        if known is None or known.epoch != head.producer_epoch:
            since = None if known is None else known.open_since
            known = self._known[head.producer_id] = _Producer(head.producer_epoch, open_since=since)
        if head.attributes & IS_CONTROL:
            if is_abort and known.open_since is not None:
                self.aborted.append(AbortedSpan(head.producer_id, known.open_since, head.base_offset))
            known.open_since = None
            return
        if head.attributes & IS_TRANSACTIONAL and known.open_since is None:
            known.open_since = head.base_offset
        last = (head.base_sequence + head.last_delta) % _SEQUENCES
        known.last_timestamp_ms = head.max_timestamp_ms
        known.batches.append(_Batch(head.base_sequence, last, head.base_offset))

    def active(self) -> list[ActiveProducer]:
        """Return all producers with an id that have written to the log, by id."""
        return [
            ActiveProducer(
                number, each.epoch, each.batches[-1].last_sequence if each.batches else -1, each.last_timestamp_ms,
                each.open_since,
            )
            for number, each in sorted(self._known.items())
        ]  # fmt: skip

    def aborted_between(self, start: int, end: int) -> list[AbortedSpan]:
        """Return the aborted transactions that reach into the offsets from start up to end."""
        return [each for each in self.aborted if each.marker_offset >= start and each.first_offset < end]
