"""Produce, and the other requests of producers with an id.

Produce: appends record batches. Batches of idempotent producers are stored once, and in order.

Message sets of requests before version 3 are stored in the format of the log.

Source: kafka.server.KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceResponse.json (2.8);
kafka.log.Log.append (2.8), UnifiedLog.append (4.3): a batch that comes again is answered with its newest time.

The requests of producers with an id: InitProducerId, AddPartitionsToTxn and EndTxn.

AddPartitionsToTxn adds all partitions or none: a partition that does not exist, or a fault, keeps the others out.

Source: kafka.server.KafkaApis.handleInitProducerIdRequest, handleAddPartitionToTxnRequest, handleEndTxnRequest (2.8);
the schemas of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011.batch_head import (
    HEAD_BYTES,
    IS_TRANSACTIONAL,
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    read_head,
)
from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import topics_of
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.broker import NoAnswer, Part
from zkconsumer.testing.embedded.disk.messages import Refusal, entries
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, fenced_code, refuse
from zkconsumer.testing.embedded.kafka011.log import AppendedBatch, BatchLog
from zkconsumer.testing.embedded.kafka011.transaction_state import NO_PRODUCER
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.protocol import Reader, TopicPartition
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
    append_time_ms: int = -1


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
        time_ms = log.append_time()
        appended = _append(asked, log, data, time_ms)
        return _Stored(0, appended.base_offset, log.start_offset, appended.append_time_ms)
    except Refusal as refusal:
        is_unknown = refusal.code == ErrorCode.INVALID_RECORD and asked.host.habits.is_before_2  # 2.4 has it first
        return _Stored(ErrorCode.CORRUPT_MESSAGE if is_unknown else refusal.code)


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


def _append(asked: Asked[Produce], log: BatchLog, data: memoryview, time_ms: int | None) -> AppendedBatch:
    habits = asked.host.habits
    magic = habits.log_magic
    is_batch = len(data) > MAGIC_AT and data[MAGIC_AT] == MAGIC and magic == MAGIC
    if is_batch or asked.version >= _FIRST_OF_BATCHES:
        if habits.is_before_2 and asked.version >= _FIRST_OF_BATCHES and not _is_one_batch(data):
            raise NoAnswer("not one batch alone in a set: brokers before 2.4 close the connection")
        return log.append_produced(
            data, takes_zstd=asked.version >= _FIRST_WITH_ZSTD, append_time_ms=time_ms,
            remembered=habits.remembered_batches, unknown_code=habits.unknown_producer_code,
        )  # fmt: skip
    if not asked.host.habits.is_before_2 and len({data[position + MAGIC_AT] for position, _ in entries(data)}) > 1:
        raise Refusal(ErrorCode.INVALID_RECORD, "messages of several formats in one set")
    return AppendedBatch(log.append_set(data, magic, time_ms), -1 if time_ms is None else time_ms)


def _is_one_batch(data: memoryview) -> bool:
    """Return whether a set is one record batch by its head; what is cut off is refused with a code."""
    if len(data) < HEAD_BYTES:
        return bool(data)
    return data[MAGIC_AT] == MAGIC and OVERHEAD + read_head(data, 0).size >= len(data)


def _row(version: int, partition: int, stored: _Stored) -> bytes:
    row = pack(">ihq", partition, stored.code, stored.base_offset)
    if version >= 2:
        row += pack(">q", stored.append_time_ms)
    if version >= 5:
        row += pack(">q", stored.start_offset)
    if version >= 8:
        row += pack(">ih", 0, -1)  # no record is named, and the error has no words
    return row


API: Final = ServedApi(apis.PRODUCE, "produce", range(9), _read, _answer, lambda body: list(body.batches))


# -- InitProducerId: an id for an idempotent producer, or the next epoch of a transactional one ------------------------


_FIRST_INIT_WITH_FENCED: Final = 4


class InitProducerId(NamedTuple):
    """Transactional id (None: an idempotent producer), longest time of a transaction, and what the producer had."""

    name: str | None
    timeout_ms: int
    producer: ProducerId


def _read_init(values: Values, version: int) -> InitProducerId:
    producer = ProducerId(values.get("producer_id", NO_PRODUCER[0]), values.get("producer_epoch", NO_PRODUCER[1]))
    return InitProducerId(values["transactional_id"], values["transaction_timeout_ms"], producer)


def _answer_init(asked: Asked[InitProducerId]) -> Values:
    code, producer = asked.errors.get(("", -1), 0), NO_PRODUCER
    if not code:
        code, producer = _started(asked)
    return {"error_code": code, "producer_id": producer[0], "producer_epoch": producer[1]}


def _started(asked: Asked[InitProducerId]) -> tuple[int, ProducerId]:
    """Return error code, and id and epoch."""
    body = asked.body
    if body.name is None:
        return 0, ProducerId(asked.host.cluster.next_producer_id(), 0)
    try:
        return 0, asked.host.transactions.start(body.name, body.timeout_ms, body.producer)
    except Refusal as refusal:
        return fenced_code(refusal.code, asked.version >= _FIRST_INIT_WITH_FENCED), NO_PRODUCER


INIT_PRODUCER_ID: Final = ServedApi(apis.INIT_PRODUCER_ID, "init_producer_id", range(5), _read_init, _answer_init)
# -- AddPartitionsToTxn: names the partitions of a transaction to its coordinator, before the first batch --------------


_FIRST_WITH_FENCED: Final = 2


class AddPartitionsToTxn(NamedTuple):
    """Whose transaction, and its new partitions."""

    name: str
    producer: ProducerId
    partitions: Sequence[TopicPartition]


def _read_add(values: Values, version: int) -> AddPartitionsToTxn:
    partitions = [(topic["name"], number) for topic in values["topics"] for number in topic["partitions"]]
    return AddPartitionsToTxn(values["transactional_id"], _producer(values), partitions)


def _producer(values: Values) -> ProducerId:
    return ProducerId(values["producer_id"], values["producer_epoch"])


def _answer_add(asked: Asked[AddPartitionsToTxn]) -> Values:
    codes = _codes(asked)
    return {"topics": topics_of(
        (topic, {"partition_index": number, "error_code": codes[topic, number]})
        for topic, number in dict.fromkeys(asked.body.partitions)
    )}  # fmt: skip


def _codes(asked: Asked[AddPartitionsToTxn]) -> Mapping[TopicPartition, int]:
    body = asked.body
    refused = {where: asked.errors[where] for where in body.partitions if asked.errors.get(where)}
    for where in body.partitions:
        if not _exists(asked.host, where):
            refused.setdefault(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if refused:
        return dict.fromkeys(body.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    code = 0
    try:
        asked.host.transactions.add(body.name, body.producer, body.partitions)
    except Refusal as refusal:
        code = fenced_code(refusal.code, asked.version >= _FIRST_WITH_FENCED)
    return dict.fromkeys(body.partitions, code)


def _exists(host: Host011, where: TopicPartition) -> bool:
    """Return whether a partition exists; some brokers look at the topic alone."""
    partitions = host.cluster.image.topics.get(where[0])
    return partitions is not None and (where[1] in partitions or not host.habits.checks_added_partitions)


ADD_PARTITIONS_TO_TXN: Final = ServedApi(
    apis.ADD_PARTITIONS_TO_TXN, "add_partitions_to_txn", range(4), _read_add, _answer_add,
    lambda body: body.partitions,
)  # fmt: skip


# -- EndTxn: commits or aborts the transaction of a producer -----------------------------------------------------------


class EndTxn(NamedTuple):
    """Whose transaction, and whether its messages are to be read."""

    name: str
    producer: ProducerId
    commit: bool


def _read_end(values: Values, version: int) -> EndTxn:
    return EndTxn(values["transactional_id"], _producer(values), values["committed"])


def _answer_end(asked: Asked[EndTxn]) -> Values:
    body = asked.body
    code = asked.errors.get(("", -1), 0)
    if not code:
        try:
            asked.host.transactions.end(body.name, body.producer, commit=body.commit)
        except Refusal as refusal:
            code = fenced_code(refusal.code, asked.version >= _FIRST_WITH_FENCED)
    return {"error_code": code}


END_TXN: Final = ServedApi(apis.END_TXN, "end_txn", range(4), _read_end, _answer_end)
