"""Fetch and Produce: the requests that carry messages.

Fetch: messages of several partitions.

Source: FetchRequest.json, FetchResponse.json (4.3). Versions 2 and 3 are Kafka 0.10's, with message sets alone; record
batches come from version 4 on. 5 names the start of the log, 7 has fetch sessions, of which none is used, 9 carries the
leader epoch, 10 says that the reader takes zstd, 11 names the reader's rack.

Produce: appends record batches to partitions.

Source: ProduceRequest.json, ProduceResponse.json (4.3). Version 2 is Kafka 0.10's and takes message sets of magic 0 and
1; 3 and later take record batches alone. 5 answers the start of the log, 7 lets zstd in, 8 explains errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from simpleconsumer.dialect_types import MAX_ANSWER_BYTES
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka08 import requests as requests_08
from simpleconsumer.messages.schema import read_nullable_array
from simpleconsumer.primitives import (
    Partition,
    by_topic,
    encode_array,
    encode_int32,
    encode_nullable_string,
    encode_string,
    in_order,
    read_array,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    read_topics,
    require_end,
)
from simpleconsumer.types import AbortedTransaction, Buffer, FetchedPartition, FetchRequest, ProducedPartition

_HEAD = Struct(">iii")
_NO_SESSION = encode_int32(0) + encode_int32(-1)
_CONSUMER = -1
_NO_LOG_START = -1
_ABORTED = Struct(">qq")
_PARTITION = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")


def encode_fetch(
    requests: Sequence[FetchRequest],
    max_wait_ms: int,
    min_bytes: int,
    version: int,
    *,
    read_committed: bool = False,
    rack: str = "",
    max_bytes: int = MAX_ANSWER_BYTES,
) -> bytes:
    """Return a fetch request outside of any fetch session; topics stand in the order of their first mention.

    Args:
        read_committed: Nothing from the first open transaction on, and a list of the aborted ones; version 4.
        rack: Of the reader; version 11.
        max_bytes: Most bytes of the whole answer; a first batch comes whole, however large. Version 3.
    """

    def row(wanted: FetchRequest) -> bytes:
        number = int(wanted.partition)
        if version < 5:
            return _PARTITION.pack(number, wanted.offset, wanted.max_bytes)
        if version < 9:
            return _PARTITION_5.pack(number, wanted.offset, _NO_LOG_START, wanted.max_bytes)
        return _PARTITION_9.pack(number, wanted.leader_epoch, wanted.offset, _NO_LOG_START, wanted.max_bytes)

    head = _HEAD.pack(_CONSUMER, max_wait_ms, min_bytes)
    if version >= 3:
        head += encode_int32(max_bytes)
    if version >= 4:
        head += bytes([read_committed])
    if version >= 7:
        head += _NO_SESSION
    tail = encode_array([]) if version >= 7 else b""  # partitions to take out of the session
    if version >= 11:
        tail += encode_string(rack)
    return head + by_topic((wanted.topic, row(wanted)) for wanted in requests) + tail


def decode_fetch(answer: Buffer, requests: Sequence[FetchRequest], version: int) -> list[FetchedPartition]:
    """Return one result for each request, in its order; message sets are views of `answer`.

    There is none at all if the broker throttles the client and reads no further request for some time.
    """
    throttle_ms, offset = read_int32(answer, 0)
    code = 0
    if version >= 7:
        code, offset = read_int16(answer, offset)
        session, offset = read_int32(answer, offset)
        if session:
            raise DecodeError(f"fetch response: session {session}, and no session was requested")
    topics, end = read_topics(answer, offset, _PartitionReader(version), 18 if version < 4 else 30)
    require_end(answer, end, "fetch response")
    if code and not topics:  # of the request as a whole
        return [FetchedPartition(r.topic, r.partition, code, -1, memoryview(b"")) for r in requests]
    if not topics and throttle_ms > 0:  # Kafka 2.0 and later
        return []
    found = in_order("fetch", topics, [(r.topic, int(r.partition)) for r in requests])
    return [FetchedPartition(r.topic, r.partition, *result) for r, result in zip(requests, found, strict=True)]


_Result = tuple[int, int, memoryview, int, int, tuple[AbortedTransaction, ...], int]
"""The fields of `FetchedPartition` from the error code on."""


class _PartitionReader:
    """Reads the data of one partition."""

    def __init__(self, version: int) -> None:
        self._version = version

    def __call__(self, buffer: Buffer, offset: int) -> tuple[tuple[int, _Result], int]:
        version = self._version
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        high_watermark, offset = read_int64(buffer, offset)
        last_stable = log_start = preferred = -1
        aborted: list[AbortedTransaction] = []
        if version >= 4:
            last_stable, offset = read_int64(buffer, offset)
            if version >= 5:
                log_start, offset = read_int64(buffer, offset)
            aborted, offset = read_nullable_array(buffer, offset, _read_aborted, _ABORTED.size)
            if version >= 11:
                preferred, offset = read_int32(buffer, offset)
        if read_int32(buffer, offset)[0] == -1:  # as brokers of Kafka 3 send with some errors
            message_set, offset = memoryview(b""), offset + 4
        else:
            message_set, offset = read_bytes(buffer, offset)
        return (number, (code, high_watermark, message_set, last_stable, log_start, tuple(aborted), preferred)), offset


def _read_aborted(buffer: Buffer, offset: int) -> tuple[AbortedTransaction, int]:
    producer_id, offset = read_int64(buffer, offset)
    first_offset, offset = read_int64(buffer, offset)
    return AbortedTransaction(producer_id, first_offset), offset


_MAGIC_AT = 16
"""Where the magic stands in every entry: after offset, size, and checksum or leader epoch."""


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
    """Return error code, base offset and append time of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, ProducedPartition], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        base_offset, offset = read_int64(buffer, offset)
        append_time_ms, offset = read_int64(buffer, offset)
        if version >= 5:
            _, offset = read_int64(buffer, offset)  # start of the log
        if version >= 8:
            _, offset = read_array(buffer, offset, _read_record_error, 6)
            _, offset = read_nullable_string(buffer, offset)  # the error in words
        return (number, ProducedPartition(code, base_offset, append_time_ms)), offset

    smallest = 22 if version < 5 else 30 if version < 8 else 36
    topics, end = read_topics(answer, 0, read, smallest)
    _, end = read_int32(answer, end)  # throttle time, in produce at the end
    require_end(answer, end, "produce response")
    return in_order("produce", topics, asked)


def _read_record_error(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the index of a record that was refused; the error code of the partition says why."""
    index, offset = read_int32(buffer, offset)
    return index, read_nullable_string(buffer, offset)[1]
