"""InitProducerId: an id and an epoch for an idempotent or transactional producer.

Source: InitProducerIdRequest.json, InitProducerIdResponse.json (4.3).
"""

from __future__ import annotations

from typing import NamedTuple

from simpleconsumer.primitives import (
    encode_int32,
    encode_nullable_string,
    read_int16,
    read_int32,
    read_int64,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["ProducerId", "decode_init_producer_id", "encode_init_producer_id"]


class ProducerId(NamedTuple):
    """Under what a producer numbers its batches.

    Attributes:
        producer_id: The id; -1 with an error.
        epoch: Which of the producers with this id it is: a broker refuses those before it. -1 with an error.
    """

    producer_id: int
    epoch: int


def encode_init_producer_id(transactional_id: str | None, transaction_timeout_ms: int) -> bytes:
    """Return a request for an id, the same in versions 0 and 1.

    Args:
        transactional_id: None for a producer that is idempotent alone.
        transaction_timeout_ms: When the coordinator aborts a transaction that is not ended.
    """
    return encode_nullable_string(transactional_id) + encode_int32(transaction_timeout_ms)


def decode_init_producer_id(answer: Buffer) -> tuple[int, ProducerId]:
    """Return error code, and id and epoch."""
    _, offset = read_int32(answer, 0)  # throttle time
    code, offset = read_int16(answer, offset)
    producer_id, offset = read_int64(answer, offset)
    epoch, offset = read_int16(answer, offset)
    require_end(answer, offset, "init producer id response")
    return code, ProducerId(producer_id, epoch)
