"""Produce: appends record batches. Batches of idempotent producers are stored once, and in order.

Message sets of requests before version 3 are stored in the format of the log.

Source: kafka.server.KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceResponse.json (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011.batch_head import HEAD_BYTES, IS_TRANSACTIONAL, MAGIC, MAGIC_AT, read_head
from simpleconsumer.messages import apis
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.broker import NoAnswer, Part
from zkconsumer.testing.embedded.disk.messages import Refusal, entries
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, fenced_code, refuse
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.reading import Reader, TopicPartition
from zkconsumer_error import ErrorCode

_FIRST_OF_BATCHES: Final = 3
_FIRST_WITH_ZSTD: Final = 7


class Produce(NamedTuple):
    """Batches by partition, and the transactional id of their producer."""

    name: str | None
    acks: int
    batches: dict[TopicPartition, memoryview]


class _Stored(NamedTuple):
    code: int
    base_offset: int = -1
    start_offset: int = -1


def _read(reader: Reader, version: int) -> Produce:
    name = reader.nullable_string() if version >= _FIRST_OF_BATCHES else None
    acks = reader.int16()
    reader.int32()  # time-out: there is no replica to wait for
    return Produce(name, acks, reader.partitions(reader.sized))


def _answer(asked: Asked[Produce]) -> list[Part] | None:
    body = asked.body
    results = {where: _store(asked, where, data) for where, data in body.batches.items()}
    if body.acks == 0:
        if any(stored.code for stored in results.values()):
            raise NoAnswer("a batch was refused, and the producer wants no answer")
        return None
    rows = ((where, _row(asked.version, where[1], stored)) for where, stored in results.items())
    return [by_topic(rows) + (pack(">i", 0) if asked.version >= 1 else b"")]


def _store(asked: Asked[Produce], where: TopicPartition, data: memoryview) -> _Stored:
    try:
        refuse(asked.errors, where)
        if asked.body.acks not in (-1, 0, 1):
            raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {asked.body.acks}")
        log = asked.host.log(*where)
        _check_transaction(asked, where, log, data)
        base_offset = _append(asked, log, data)
        return _Stored(0, base_offset, log.start_offset)
    except Refusal as refusal:
        return _Stored(refusal.code)


def _check_transaction(asked: Asked[Produce], where: TopicPartition, log: BatchLog, data: memoryview) -> None:
    """Return if a batch may begin, or go on with, a transaction here: brokers since 3.6 ask the coordinator.

    Raises:
        Refusal: 48 the partition was not added to the transaction, 47 another producer has the name.
    """
    if not asked.host.habits.is_since_3 or len(data) < HEAD_BYTES or data[MAGIC_AT] != MAGIC:
        return
    head = read_head(data, 0)
    if not head.attributes & IS_TRANSACTIONAL or log.has_open_transaction(head.producer_id):
        return
    producer = ProducerId(head.producer_id, head.producer_epoch)
    try:
        asked.host.transactions.require_added(asked.body.name or "", producer, where)
    except Refusal as refusal:
        raise Refusal(fenced_code(refusal.code, False), str(refusal)) from refusal


def _append(asked: Asked[Produce], log: BatchLog, data: memoryview) -> int:
    """Return the base offset."""
    magic = asked.host.habits.log_magic
    is_batch = len(data) > MAGIC_AT and data[MAGIC_AT] == MAGIC and magic == MAGIC
    if is_batch or asked.version >= _FIRST_OF_BATCHES:
        return log.append_batch(data, takes_zstd=asked.version >= _FIRST_WITH_ZSTD)
    if not asked.host.habits.is_before_2 and len({data[position + MAGIC_AT] for position, _ in entries(data)}) > 1:
        raise Refusal(ErrorCode.INVALID_RECORD, "messages of several formats in one set")
    return log.append_set(data, magic)


def _row(version: int, partition: int, stored: _Stored) -> bytes:
    row = pack(">ihq", partition, stored.code, stored.base_offset)
    if version >= 2:
        row += pack(">q", -1)  # no append time
    if version >= 5:
        row += pack(">q", stored.start_offset)
    if version >= 8:
        row += pack(">ih", 0, -1)  # no record is named, and the error has no words
    return row


API: Final = ServedApi(
    apis.PRODUCE, "produce", range(9), _read, _answer, lambda body: list(body.batches)
)
