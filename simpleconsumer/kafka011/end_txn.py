"""EndTxn: commits or aborts a transaction.

Source: EndTxnRequest.json, EndTxnResponse.json (4.3).
"""

from __future__ import annotations

from simpleconsumer.kafka011.init_producer_id import ProducerId
from simpleconsumer.primitives import (
    encode_int16,
    encode_int64,
    encode_string,
    read_int16,
    read_int32,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_end_txn", "encode_end_txn"]


def encode_end_txn(transactional_id: str, producer: ProducerId, *, commit: bool) -> bytes:
    """Return a request that ends a transaction, the same in versions 0 and 1.

    Args:
        commit: Whether its messages are to be read; else they are aborted.
    """
    head = encode_string(transactional_id) + encode_int64(producer.producer_id) + encode_int16(producer.epoch)
    return head + bytes([commit])


def decode_end_txn(answer: Buffer) -> int:
    """Return the error code."""
    code, end = read_int16(answer, read_int32(answer, 0)[1])  # behind the throttle time
    require_end(answer, end, "end transaction response")
    return code
