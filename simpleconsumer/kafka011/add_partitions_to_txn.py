"""AddPartitionsToTxn: names the partitions of a transaction to its coordinator, before the first batch.

Source: AddPartitionsToTxnRequest.json, AddPartitionsToTxnResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.kafka011.init_producer_id import ProducerId
from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import (
    encode_int16,
    encode_int32,
    encode_int64,
    encode_string,
    read_int16,
    read_int32,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_add_partitions_to_txn", "encode_add_partitions_to_txn"]


def encode_add_partitions_to_txn(
    transactional_id: str, producer: ProducerId, partitions: Sequence[Partition]
) -> bytes:
    """Return a request that adds partitions to a transaction, which it starts; the same in versions 0 and 1."""
    head = encode_string(transactional_id) + encode_int64(producer.producer_id) + encode_int16(producer.epoch)
    return head + by_topic((topic, encode_int32(number)) for topic, number in partitions)


def decode_add_partitions_to_txn(answer: Buffer, asked: Sequence[Partition]) -> list[int]:
    """Return the error code of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, int], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, code), offset

    topics, end = read_topics(answer, read_int32(answer, 0)[1], read, 6)  # behind the throttle time
    require_end(answer, end, "add partitions to transaction response")
    return in_order("add partitions to transaction", topics, asked)
