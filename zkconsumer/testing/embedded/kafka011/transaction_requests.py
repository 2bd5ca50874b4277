"""The requests of producers with an id: InitProducerId, AddPartitionsToTxn and EndTxn.

AddPartitionsToTxn adds all partitions or none: a partition that does not exist, or a fault, keeps the others out.

Source: kafka.server.KafkaApis.handleInitProducerIdRequest, handleAddPartitionToTxnRequest, handleEndTxnRequest (2.8);
the schemas of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.partition_rows import topics_of
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, fenced_code
from zkconsumer.testing.embedded.kafka011.transactions.transaction_state import NO_PRODUCER
from zkconsumer.testing.embedded.reading import TopicPartition
from zkconsumer_error import ErrorCode

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
