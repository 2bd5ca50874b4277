"""Produce: appends record batches to partitions.

Source: ProduceRequest.json, ProduceResponse.json (4.3). Version 2 is Kafka 0.10's and takes message sets of magic 0 and
1; 3 and later take record batches alone. 5 answers the start of the log, 7 lets zstd in, 8 explains errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simpleconsumer.kafka08 import requests as requests_08
from simpleconsumer.partition_rows import Partition, in_order, read_topics
from simpleconsumer.primitives import (
    encode_nullable_string,
    read_array,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    require_end,
)
from simpleconsumer.types import Buffer, ProducedPartition

__all__ = ["decode_produce", "encode_produce", "magic_of"]

_MAGIC_AT = 16
"""Where the magic stands in every entry: behind offset, size, and checksum or leader epoch."""


def magic_of(data: Buffer) -> int:
    """Return the magic of the first entry of a message set that is to be produced.

    Raises:
        ValueError: The set is shorter than the head of an entry.
    """
    if len(data) <= _MAGIC_AT:
        raise ValueError(f"a message set of {len(data)} bytes has no entry")
    return data[_MAGIC_AT]


def encode_produce(
    message_sets: Mapping[Partition, bytes],
    acks: int,
    timeout_ms: int,
    version: int,
    transactional_id: str | None = None,
) -> list[bytes]:
    """Return a produce request in pieces; with acks 0 no answer comes. Message sets are not copied.

    Args:
        transactional_id: Of the transaction to which the batches belong; None for none. From version 3 on.
    """
    head = encode_nullable_string(transactional_id) if version >= 3 else b""
    first, *others = requests_08.encode_produce(message_sets, acks, timeout_ms)
    return [head + first, *others]


def decode_produce(answer: Buffer, asked: Sequence[Partition], version: int) -> list[ProducedPartition]:
    """Return error code and base offset of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, ProducedPartition], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        base_offset, offset = read_int64(buffer, offset)
        _, offset = read_int64(buffer, offset)  # append time
        if version >= 5:
            _, offset = read_int64(buffer, offset)  # start of the log
        if version >= 8:
            _, offset = read_array(buffer, offset, _read_record_error, 6)
            _, offset = read_nullable_string(buffer, offset)  # the error in words
        return (number, ProducedPartition(code, base_offset)), offset

    smallest = 22 if version < 5 else 30 if version < 8 else 36
    topics, end = read_topics(answer, 0, read, smallest)
    _, end = read_int32(answer, end)  # throttle time, in produce at the end
    require_end(answer, end, "produce response")
    return in_order("produce", topics, asked)


def _read_record_error(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the index of a record that was refused; the error code of the partition says why."""
    index, offset = read_int32(buffer, offset)
    return index, read_nullable_string(buffer, offset)[1]
