"""Encodes record batches (magic 2) as the Java producer does, and what a producer sends to brokers of Kafka 0.10.

Source: org.apache.kafka.common.record.DefaultRecordBatch, MemoryRecordsBuilder (1.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

from simpleconsumer import codecs, kernel
from simpleconsumer.codecs import crc32c
from simpleconsumer.kafka011.batch_head import (
    CODEC_MASK,
    CRC_BODY_AT,
    HEAD,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    LOG_APPEND_TIME,
    MAGIC,
    SMALLEST_SIZE,
)
from simpleconsumer.kafka011.records import NO_TIMESTAMP, encode_varint
from simpleconsumer.kafka08.message_encode import encode_message_set, encode_wrapper
from simpleconsumer.types import Encodable, Headers, Message

Run = tuple[Sequence[tuple[Any, ...]], Sequence[float]]
"""Messages, each key and value and, if it has any, headers, and behind these its own time in ms since 1970; and when
they came, in seconds of some clock: one time for each of them, or one for all."""

_NO_LEADER_EPOCH: Final = -1


class BatchProducer(NamedTuple):
    """Who sends a batch, for a broker that keeps each batch once and in order.

    Attributes:
        id: Producer id, from InitProducerId; -1 for none.
        epoch: Producer epoch; -1 for none.
        base_sequence: Number of the first record of the batch in its partition; -1 for none.
        is_transactional: Whether the batch is a part of a transaction.
    """

    id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


NO_PRODUCER: Final = BatchProducer()
"""A producer without idempotence."""


def encode_record_batch(
    messages: Iterable[Encodable],
    codec: str = "none",
    *,
    first_offset: int = 0,
    offsets: Sequence[int] | None = None,
    timestamp_ms: int | None = None,
    log_append_time_ms: int | None = None,
    producer: BatchProducer = NO_PRODUCER,
    is_control: bool = False,
    leader_epoch: int = _NO_LEADER_EPOCH,
    last_offset: int | None = None,
) -> bytes:
    """Return a record batch with the headers of the messages; empty for no messages without `last_offset`.

    Args:
        codec: none, gzip, snappy, lz4 or zstd.
        first_offset: Base offset. A producer uses 0: the broker assigns offsets.
        offsets: Offset of each message, ascending, with holes as compaction leaves them; the first one is at least
            `first_offset`, which stays the base offset if it is above 0.
        timestamp_ms: Creation time of messages without a timestamp; None for "no timestamp".
        log_append_time_ms: Timestamp that a broker with LogAppendTime sets.
        producer: Of an idempotent or transactional producer.
        is_control: Whether the batch holds a marker of a transaction, as coordinators write it.
        leader_epoch: As a broker sets it.
        last_offset: Last offset of the batch, if compaction has removed the record of it.

    Raises:
        ValueError: Unknown codec, or offsets that do not fit the messages.
    """
    if codec not in codecs.BATCH_CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(codecs.BATCH_CODECS)}")
    stamp = NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
    rows = [_row(message, stamp) for message in messages]
    if offsets is None:
        offsets = range(first_offset, first_offset + len(rows))
    if len(offsets) != len(rows):
        raise ValueError(f"{len(offsets)} offsets for {len(rows)} messages")
    if not rows and last_offset is None:
        return b""
    base = first_offset or (offsets[0] if offsets else 0)
    last = offsets[-1] if last_offset is None else last_offset
    base_time = rows[0][2] if rows else stamp
    newest = max((row[2] for row in rows), default=stamp) if log_append_time_ms is None else log_append_time_ms
    records = b"".join(
        _encode_record(offset - base, time - base_time, key, value, headers)
        for offset, (key, value, time, headers) in zip(offsets, rows, strict=True)
    )
    attributes = (
        codecs.BATCH_CODECS[codec]
        | (LOG_APPEND_TIME if log_append_time_ms is not None else 0)
        | (IS_TRANSACTIONAL if producer.is_transactional else 0)
        | (IS_CONTROL if is_control else 0)
    )
    return _sealed(records, attributes, base, last, leader_epoch, (base_time, newest), producer, len(rows))


def encode_producer_batch(
    runs: Sequence[Run], codec: str, clock_s: float, producer: BatchProducer = NO_PRODUCER
) -> bytes:
    """Return the record batch of a producer, with the headers of its messages.

    A message without a time of its own has that at which it came.

    Args:
        runs: The messages; at least one.
        codec: none, gzip, snappy, lz4 or zstd.
        clock_s: The clock of the times read 0 so many seconds after the start of 1970.
        producer: Of an idempotent or transactional producer.
    """
    number = codecs.BATCH_CODECS[codec]
    attributes = number | (IS_TRANSACTIONAL if producer.is_transactional else 0)
    if kernel.compiled is not None:
        compress = partial(codecs.compress, number) if number else None
        data: bytes | None = kernel.compiled.record_batch(
            runs, clock_s, attributes, producer, _encode_headers, compress
        )
        if data is not None:
            return data
    rows = [(row, time_ms) for run in runs for row, time_ms in timed_rows(run, clock_s)]
    start = rows[0][1]
    records = b"".join(
        _encode_record(index, time_ms - start, row[0], row[1], row[2] if len(row) > 2 else ())
        for index, (row, time_ms) in enumerate(rows)
    )
    times = start, max(time_ms for _, time_ms in rows)
    return _sealed(records, attributes, 0, len(rows) - 1, _NO_LEADER_EPOCH, times, producer, len(rows))


def encode_producer_set(runs: Sequence[Run], codec: str, clock_s: float) -> bytes:
    """Return the messages of a producer for brokers of Kafka 0.10: a message set of magic 1, without headers.

    Args:
        runs: The messages; at least one, and none has headers. Otherwise as for `encode_producer_batch`.
        codec: none, gzip, snappy or lz4.
        clock_s: The clock of the times read 0 so many seconds after the start of 1970.
    """
    if kernel.compiled is not None:
        found: tuple[bytes, int] | None = kernel.compiled.timed_message_set(runs, clock_s)
        if found is not None:
            inside, newest = found
            last = sum(len(rows) for rows, _ in runs) - 1
            return inside if codec == "none" else encode_wrapper(inside, codec, 1, last, timestamp_ms=newest)
    timed = [each for run in runs for each in timed_rows(run, clock_s)]
    return encode_message_set([Message("", 0, 0, 1, row[0], row[1], time_ms) for row, time_ms in timed], codec, 1)


def timed_rows(run: Run, clock_s: float) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield each message of a run with its time in ms since 1970."""
    rows, times = run
    for row, at in zip(rows, repeat(times[0], len(rows)) if len(times) == 1 else times, strict=True):
        yield row, row[3] if len(row) > 3 else int((clock_s + at) * 1000)


def _sealed(
    records: bytes,
    attributes: int,
    base: int,
    last: int,
    leader_epoch: int,
    times: tuple[int, int],
    producer: BatchProducer,
    count: int,
) -> bytes:
    """Return a batch of encoded records, compressed as the attributes say, with head and checksum."""
    codec = attributes & CODEC_MASK
    if codec:
        records = codecs.compress(codec, records)
    head = HEAD.pack(
        base, SMALLEST_SIZE + len(records), leader_epoch, MAGIC, 0, attributes, last - base, *times, producer.id,
        producer.epoch, producer.base_sequence, count,
    )  # fmt: skip
    body = head[CRC_BODY_AT:] + records
    return b"".join((head[: CRC_BODY_AT - 4], crc32c(body).to_bytes(4, "big"), body))


def _encode_record(delta: int, stamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    body = b"\0", encode_varint(stamp), encode_varint(delta), _encode_bytes(key), _encode_bytes(value)
    record = b"".join((*body, _encode_headers(headers)))
    return encode_varint(len(record)) + record


def _encode_headers(headers: Headers) -> bytes:
    each = b"".join(_encode_bytes(name.encode()) + _encode_bytes(content) for name, content in headers)
    return encode_varint(len(headers)) + each


def _encode_bytes(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _row(message: Encodable, stamp: int) -> tuple[bytes | None, bytes | None, int, Headers]:
    """Return key, value, timestamp and headers of a message to encode."""
    if isinstance(message, Message):
        own = message.timestamp_ms
        return message.key, message.value, stamp if own is None else own, message.headers
    if isinstance(message, tuple):
        key, value = message
        return key, value, stamp, ()
    return None, message, stamp, ()
