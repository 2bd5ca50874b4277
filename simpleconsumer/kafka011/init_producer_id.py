"""InitProducerId: an id and an epoch for an idempotent or transactional producer.

Source: InitProducerIdRequest.json, InitProducerIdResponse.json (4.3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simpleconsumer.kafka011.apis import INIT_PRODUCER_ID
from simpleconsumer.kafka011.layout import CLASSIC, FLEXIBLE, encode_compact_string
from simpleconsumer.primitives import (
    encode_int16,
    encode_int32,
    encode_int64,
    encode_nullable_string,
    read_int16,
    read_int32,
    read_int64,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["FIRST_WITH_PRODUCER", "NO_ID", "ProducerId", "decode_init_producer_id", "encode_init_producer_id"]


class ProducerId(NamedTuple):
    """Under what a producer numbers its batches.

    Attributes:
        producer_id: The id; -1 with an error.
        epoch: Which of the producers with this id it is: a broker refuses those before it. -1 with an error.
    """

    producer_id: int
    epoch: int


NO_ID: Final = ProducerId(-1, -1)
"""Of a producer that has none yet."""
FIRST_WITH_PRODUCER: Final = 3
"""The first version whose request has the id and epoch of before: Kafka 2.5 (KIP-360)."""


def encode_init_producer_id(
    transactional_id: str | None, transaction_timeout_ms: int, before: ProducerId, version: int
) -> bytes:
    """Return a request for an id.

    Args:
        transactional_id: None for a producer that is idempotent alone.
        transaction_timeout_ms: When the coordinator aborts a transaction that is not ended.
        before: What the producer had; another one than `NO_ID` from version 3 on.

    Raises:
        ValueError: A producer that has an id, in an older version.
    """
    if version >= FIRST_WITH_PRODUCER:
        given = encode_int64(before.producer_id) + encode_int16(before.epoch)
        return encode_compact_string(transactional_id) + encode_int32(transaction_timeout_ms) + given + b"\0"
    if before != NO_ID:
        raise ValueError(f"InitProducerId {version} has no field for {before}")
    return encode_nullable_string(transactional_id) + encode_int32(transaction_timeout_ms)


def decode_init_producer_id(answer: Buffer, version: int) -> tuple[int, ProducerId]:
    """Return error code, and id and epoch."""
    layout = FLEXIBLE if version >= INIT_PRODUCER_ID.flexible_from else CLASSIC
    _, offset = read_int32(answer, layout.end(answer, 0))  # throttle time, behind the header
    code, offset = read_int16(answer, offset)
    producer_id, offset = read_int64(answer, offset)
    epoch, offset = read_int16(answer, offset)
    require_end(answer, layout.end(answer, offset), "init producer id response")
    return code, ProducerId(producer_id, epoch)
