"""AddPartitionsToTxn: names the partitions of a transaction to its coordinator, before the first batch.

Either all partitions are added or none: one that there is not, or a fault, keeps the others out.

Source: kafka.server.KafkaApis.handleAddPartitionToTxnRequest, AddPartitionsToTxnRequest.json (2.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, fenced_code
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.messages import UNKNOWN_TOPIC_OR_PARTITION, Refusal
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]

OPERATION_NOT_ATTEMPTED: Final = 55
_FIRST_WITH_FENCED: Final = 2


class AddPartitionsToTxn(NamedTuple):
    """Whose transaction, and its new partitions."""

    name: str
    producer: ProducerId
    partitions: Sequence[TopicPartition]


def _read(reader: Reader, version: int) -> AddPartitionsToTxn:
    name, producer = reader.string(), ProducerId(reader.int64(), reader.int16())
    partitions: list[TopicPartition] = []

    def of_topic() -> None:
        topic = reader.string()
        partitions.extend((topic, number) for number in reader.nullable_array(reader.int32) or ())
        reader.end()

    reader.nullable_array(of_topic)
    reader.end()
    return AddPartitionsToTxn(name, producer, partitions)


def _answer(asked: Asked[AddPartitionsToTxn]) -> list[Part]:
    encoding = asked.encoding(apis.ADD_PARTITIONS_TO_TXN)
    codes = _codes(asked)
    rows = ((where, pack(">ih", where[1], codes[where])) for where in asked.body.partitions)
    return [pack(">i", 0) + by_topic(rows, encoding) + encoding.end]


def _codes(asked: Asked[AddPartitionsToTxn]) -> Mapping[TopicPartition, int]:
    body = asked.body
    refused = {where: asked.errors[where] for where in body.partitions if asked.errors.get(where)}
    for where in body.partitions:
        if not _exists(asked.host, where):
            refused.setdefault(where, UNKNOWN_TOPIC_OR_PARTITION)
    if refused:
        return dict.fromkeys(body.partitions, OPERATION_NOT_ATTEMPTED) | refused
    code = 0
    try:
        asked.host.transactions.add(body.name, body.producer, body.partitions)
    except Refusal as refusal:
        code = fenced_code(refusal.code, asked.version >= _FIRST_WITH_FENCED)
    return dict.fromkeys(body.partitions, code)


def _exists(host: Host011, where: TopicPartition) -> bool:
    """Whether there is such a partition; some brokers look at the topic alone."""
    partitions = host.cluster.image.topics.get(where[0])
    return partitions is not None and (where[1] in partitions or not host.habits.checks_added_partitions)


API: Final = ServedApi(
    apis.ADD_PARTITIONS_TO_TXN, "add_partitions_to_txn", range(4), _read, _answer, lambda body: body.partitions
)
