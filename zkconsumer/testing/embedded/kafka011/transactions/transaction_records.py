"""Records of the topic `__transaction_state`: one for each change of a transactional id, the newest counts. Pure.

Key: `int16 0, string transactional id`; value: `int16 0, int64 producer id, int16 epoch, int32 time-out ms, int8 state,
[string topic, [int32 partition]], int64 time of the change, int64 time of the start`; the array is null without one.

Source: kafka.coordinator.transaction.TransactionLog (2.8).
"""

from __future__ import annotations

from struct import error, pack

from simpleconsumer.primitives import encode_string
from zkconsumer.testing.embedded.kafka011.transactions.transaction_state import Transaction, TransactionState
from zkconsumer.testing.embedded.kafka011.writing import NULL_ARRAY, by_topic
from zkconsumer.testing.embedded.reading import BadRequest, Reader


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
    """Return a transactional id and what it is; None for a record of another kind."""
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
