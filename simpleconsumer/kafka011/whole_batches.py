"""Takes record batches over whole: their heads are written anew for another log, and their records stay as stored.

Pure: nothing is decompressed. What the head says of the former log goes: offset, epoch of the leader, and the bits of
broker times, transactions, control batches and of the time at which compaction may remove tombstones. The producer and
the checksum are new.

    refused           why
    holes             0.11 numbers the records again without a word, and later brokers refuse the batch (87)
    control batches   brokers write them, and refuse those of clients
    empty batches     compaction leaves them; brokers refuse them, and those that state less than no record
    zstd              only with Produce 7 and later, which Kafka 2.1 has

A batch whose times a broker had set (LogAppendTime) gets the times back that its producer gave.

Source: org.apache.kafka.common.record.DefaultRecordBatch, LogValidator, RecordBatch.deleteHorizonMs (3.9).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from simpleconsumer import codecs
from simpleconsumer.codecs import crc32c
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.kafka011.batch_head import (
    CODEC_MASK,
    CRC_BODY_AT,
    HEAD,
    HEAD_BYTES,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    SMALLEST_SIZE,
    BatchHead,
    has_batch_checksum,
    read_head,
)
from simpleconsumer.kafka011.record_encode import BatchProducer
from simpleconsumer.types import Buffer, TopicPartition

HAS_DELETE_HORIZON: Final = 64
"""The base timestamp of the batch is the time at which compaction may remove its tombstones (Kafka 3.1 and later)."""
_NO_LEADER_EPOCH: Final = -1
_NO_TIMESTAMP: Final = -1


class Obstacle(enum.Enum):
    """Why a batch cannot be copied whole."""

    TRUNCATED = "it is cut off"
    SEVERAL = "more bytes follow it"
    MAGIC = "it is no record batch"
    DAMAGED = "its checksum is wrong"
    CONTROL = "it is a control batch"
    EMPTY = "it has no records"
    HOLES = "it has holes"
    CODEC = "its codec is unknown"
    ZSTD = "it is compressed with zstd"


class BatchNotWhole(SimpleConsumerError):  # noqa: N818 - like its siblings, it says what happened
    """A batch cannot be copied whole.

    Attributes:
        topic: Where it was read.
        partition: Where it was read.
        offset: Its base offset; None if not even that is there.
        obstacle: Why.
        detail: The values that say so, a clause.
    """

    def __init__(self, topic: str, partition: int | str, offset: int | None, obstacle: Obstacle, detail: str) -> None:
        super().__init__(topic, partition, offset, obstacle, detail)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.obstacle = obstacle
        self.detail = detail

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at {self.offset}"
        why = f"{self.obstacle.value} ({self.detail})"
        return f"{self.topic}/{self.partition}{at}: the batch cannot be copied whole: {why}"


class WholeBatch(NamedTuple):
    """A batch that may be sent as it is.

    Attributes:
        data: Its bytes.
        records: How many records it has; so many offsets it takes.
        newest_ms: The largest time of its records, in milliseconds since 1970, as far as the head tells: a broker goes
            by it when it forgets producers. The first time where a broker had set the largest one; -1 if neither is
            known.
    """

    data: bytes
    records: int
    newest_ms: int


def restamped(data: Buffer, read_from: TopicPartition, producer: BatchProducer, *, takes_zstd: bool) -> WholeBatch:
    """Return a batch with the head that a producer gives it, and its records as they are.

    Args:
        data: One whole record batch.
        read_from: Where it was read, for errors.
        producer: Who sends it, the number of its first record, and whether it belongs to a transaction.
        takes_zstd: Whether the broker takes zstd (`simpleconsumer.dialect.takes_zstd`).

    Raises:
        BatchNotWhole: It cannot be copied whole.
    """
    head = _checked(data, read_from, takes_zstd)
    dropped = LOG_APPEND_TIME | IS_TRANSACTIONAL | IS_CONTROL | HAS_DELETE_HORIZON
    attributes = (head.attributes & ~dropped) | (IS_TRANSACTIONAL if producer.is_transactional else 0)
    new = HEAD.pack(
        0, head.size, _NO_LEADER_EPOCH, MAGIC, 0, attributes, head.last_delta, head.base_timestamp_ms,
        head.max_timestamp_ms, producer.id, producer.epoch, producer.base_sequence, head.records,
    )  # fmt: skip
    body = b"".join((new[CRC_BODY_AT:], memoryview(data)[HEAD_BYTES:]))
    whole = b"".join((new[: CRC_BODY_AT - 4], crc32c(body).to_bytes(4, "big"), body))
    return WholeBatch(whole, head.records, newest_ms(head))


def head_with(data: Buffer, offset: int) -> BatchHead | None:
    """Return the head of the record batch of a fetched set that holds an offset; None if there is no such batch."""
    position = 0
    while position + HEAD_BYTES <= len(data):
        head = read_head(data, position)
        if head.size <= 0:
            break
        if head.magic == MAGIC and head.base_offset <= offset <= head.last_offset:
            return head
        position += OVERHEAD + head.size
    return None


def _checked(data: Buffer, read_from: TopicPartition, takes_zstd: bool) -> BatchHead:
    """Return the head of a batch that can be copied whole."""
    offset = int.from_bytes(data[:8], "big", signed=True) if len(data) >= 8 else None

    def refused(obstacle: Obstacle, detail: str) -> BatchNotWhole:
        return BatchNotWhole(*read_from, offset, obstacle, detail)

    if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC:
        raise refused(Obstacle.MAGIC, f"magic {data[MAGIC_AT]}, not {MAGIC}")
    if len(data) < HEAD_BYTES:
        raise refused(Obstacle.TRUNCATED, f"{len(data)} bytes, and its head alone has {HEAD_BYTES}")
    head = read_head(data, 0)
    end = OVERHEAD + head.size
    if head.size < SMALLEST_SIZE:
        raise refused(Obstacle.DAMAGED, f"its size is {head.size}, at least {SMALLEST_SIZE} is possible")
    if end > len(data):
        raise refused(Obstacle.TRUNCATED, f"{len(data)} of {end} bytes")
    if end < len(data):
        raise refused(Obstacle.SEVERAL, f"it has {end} bytes, and {len(data)} are given")
    if not has_batch_checksum(data, 0, end):
        raise refused(Obstacle.DAMAGED, f"{end} bytes, stated checksum {head.crc:#010x}")
    if head.attributes & IS_CONTROL:
        raise refused(Obstacle.CONTROL, f"attributes {head.attributes:#x}")
    if head.records <= 0:
        raise refused(Obstacle.EMPTY, f"{head.records} records, offsets up to {head.last_offset}")
    if head.last_delta + 1 != head.records:
        raise refused(Obstacle.HOLES, f"{head.records} records on {head.last_delta + 1} offsets")
    codec = head.attributes & CODEC_MASK
    if codec not in codecs.BATCH_CODECS.values():
        raise refused(Obstacle.CODEC, f"codec {codec}")
    if codec == codecs.ZSTD and not takes_zstd:
        raise refused(Obstacle.ZSTD, "the brokers are older than Kafka 2.1")
    return head


def newest_ms(head: BatchHead) -> int:
    """Return the largest time that brokers will find in the records, as far as the head tells."""
    if not head.attributes & LOG_APPEND_TIME:
        return head.max_timestamp_ms
    return _NO_TIMESTAMP if head.attributes & HAS_DELETE_HORIZON else head.base_timestamp_ms
