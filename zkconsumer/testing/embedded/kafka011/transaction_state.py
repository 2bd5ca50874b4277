"""Where a transactional id is, and what each request makes of it. Pure.

    EMPTY, COMPLETE_* --add partitions--> ONGOING --end--> PREPARE_COMMIT, PREPARE_ABORT --markers--> COMPLETE_*
    ONGOING --init, time-out--> PREPARE_ABORT with a new epoch, which fences the producer
    EMPTY, COMPLETE_* --init--> the same with a new epoch

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionMetadata (2.8).

Records of the topic `__transaction_state`: one for each change of a transactional id, the newest counts.

Key: `int16 0, string transactional id`; value: `int16 0, int64 producer id, int16 epoch, int32 time-out ms, int8 state,
[string topic, [int32 partition]], int64 time of the change, int64 time of the start`; the array is null without one.

Source: kafka.coordinator.transaction.TransactionLog (2.8).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from struct import error, pack
from typing import Final

from simpleconsumer.primitives import encode_string
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.writing import NULL_ARRAY, by_topic
from zkconsumer.testing.embedded.protocol import BadRequest, Reader, TopicPartition
from zkconsumer_error import ErrorCode

NO_PRODUCER: Final = ProducerId(-1, -1)
LAST_EPOCH: Final = 0x7FFF - 1
_NO_EPOCH: Final = -1


class TransactionState(enum.IntEnum):
    """The states, under Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


_PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True)
class Transaction:
    """A transactional id.

    Attributes:
        producer_id, epoch: of the producer that has the name now.
        timeout_ms: after which an open transaction is aborted.
        last_producer_id, last_epoch: what the producer had before it asked for a new epoch; -1 without.
        partitions: of the transaction.
        started_ms: when the transaction was opened, in milliseconds since 1970; -1 without one.
    """

    producer_id: int
    epoch: int = _NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    last_producer_id: int = -1
    last_epoch: int = _NO_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1

    @property
    def producer(self) -> ProducerId:
        """Id and epoch."""
        return ProducerId(self.producer_id, self.epoch)

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided how the transaction ends, and markers are to be written."""
        return self.state in _PREPARED

    @property
    def is_commit(self) -> bool:
        """Of a prepared transaction: whether it is committed."""
        return self.state is TransactionState.PREPARE_COMMIT

    # ---- what requests make of it

    def started(self, expected: ProducerId, timeout_ms: int, new_id: Callable[[], int]) -> Transaction:
        """Return it with a new epoch, for a producer that starts; an open transaction is prepared for its abort.

        Args:
            expected: what the producer had before, `NO_PRODUCER` if it starts anew.
            new_id: returns an unused producer id, for when the epochs of this one are used up.

        Raises:
            Refusal: 51 a transaction is still being ended, 90 another producer has the name.
        """
        if not self._may_be(expected):
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"{expected} is not {self.producer}")
        if self.is_prepared:
            raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {self.producer} is being ended")
        if self.state is TransactionState.ONGOING:
            return self.fenced()
        if self.epoch >= LAST_EPOCH and expected.epoch in (_NO_EPOCH, self.epoch):
            fresh = Transaction(new_id(), 0, timeout_ms)
            is_known = expected != NO_PRODUCER
            return replace(fresh, last_producer_id=self.producer_id, last_epoch=self.epoch if is_known else _NO_EPOCH)
        epoch, last_epoch = self._next_epoch(expected)
        return Transaction(self.producer_id, epoch, timeout_ms, last_epoch=last_epoch)

    def _may_be(self, expected: ProducerId) -> bool:
        if expected == NO_PRODUCER or self.epoch == _NO_EPOCH or expected.producer_id == self.producer_id:
            return True
        return expected.producer_id == self.last_producer_id and expected.epoch >= LAST_EPOCH

    def _next_epoch(self, expected: ProducerId) -> tuple[int, int]:
        """The next epoch, and the one before it if the producer named that."""
        if expected == NO_PRODUCER:
            return self.epoch + 1, _NO_EPOCH
        if self.epoch in (_NO_EPOCH, expected.epoch):
            return self.epoch + 1, self.epoch
        if expected.epoch == self.last_epoch:
            return self.epoch, self.last_epoch  # the answer to its first request was lost
        raise Refusal(ErrorCode.PRODUCER_FENCED, f"epoch {expected.epoch} is not {self.epoch}")

    def fenced(self) -> Transaction:
        """Return an open transaction prepared for its abort, under an epoch that its producer does not have."""
        return replace(self, epoch=self.epoch + 1, last_epoch=_NO_EPOCH, state=TransactionState.PREPARE_ABORT)

    def with_partitions(self, producer: ProducerId, partitions: Collection[TopicPartition], now_ms: int) -> Transaction:
        """Return it with partitions added, which opens a transaction.

        Raises:
            Refusal: 49 the producer has another id, 90 another epoch; 51 the transaction before is being ended.
        """
        self._require(producer)
        if self.is_prepared:
            raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {self.producer} is being ended")
        is_open = self.state is TransactionState.ONGOING
        if is_open and self.partitions.issuperset(partitions):
            return self
        return replace(
            self, state=TransactionState.ONGOING, partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if is_open else now_ms,
        )  # fmt: skip

    def ended(self, producer: ProducerId, *, commit: bool) -> Transaction:
        """Return it prepared for its end; one that has ended in this way already is returned as it is.

        Raises:
            Refusal: 49 the producer has another id, 90 another epoch; 48 there is no transaction, or it ends otherwise;
                51 it is being ended.
        """
        self._require(producer)
        if self.state is TransactionState.ONGOING:
            state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
            return replace(self, state=state)
        wanted = "COMMIT" if commit else "ABORT"
        if not self.state.name.endswith(wanted):
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"{self.producer} is in {self.state.name}, not to be ended")
        if self.is_prepared:
            raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {self.producer} is being ended")
        return self

    def _require(self, producer: ProducerId) -> None:
        if producer.producer_id != self.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{producer} is not {self.producer}")
        if producer.epoch != self.epoch:
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"{producer} is not {self.producer}")

    # ---- what the coordinator does by itself

    def without(self, marked: Collection[TopicPartition]) -> Transaction:
        """Return a prepared transaction after markers were written; it is complete with the last one."""
        left = self.partitions.difference(marked)
        if left:
            return replace(self, partitions=left)
        state = TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT
        return replace(self, state=state, partitions=frozenset(), started_ms=-1)

    def is_late(self, now_ms: int) -> bool:
        """Return whether it is open for longer than its producer wanted."""
        return self.state is TransactionState.ONGOING and self.started_ms + self.timeout_ms < now_ms


def encode_transaction(name: str, transaction: Transaction, now_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of a record."""
    one = transaction
    head = pack(">hqhib", 0, one.producer_id, one.epoch, one.timeout_ms, one.state)
    partitions = by_topic((where, pack(">i", where[1])) for where in sorted(one.partitions))
    has_none = one.state is TransactionState.EMPTY
    return pack(">h", 0) + encode_string(name), b"".join(
        (head, NULL_ARRAY if has_none else partitions, pack(">qq", now_ms, one.started_ms))
    )


def decode_transaction(key: bytes, value: bytes) -> tuple[str, Transaction] | None:
    """Return a transactional id and its transaction; None for a record of another kind."""
    name, fields = Reader(key), Reader(value)
    try:
        if name.int16() or fields.int16():
            return None
        producer_id, epoch, timeout_ms = fields.int64(), fields.int16(), fields.int32()
        state = TransactionState(fields.int8())
        partitions = frozenset(fields.partitions(lambda: None))
        fields.int64()  # time of the change
        return name.string(), Transaction(
            producer_id, epoch, timeout_ms, state, partitions=partitions, started_ms=fields.int64()
        )
    except (error, BadRequest, ValueError):
        return None
