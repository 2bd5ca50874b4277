"""OffsetFetch: the offsets that a group has in ZooKeeper (version 0) or in Kafka.

Source: kafka.server.KafkaApis.handleOffsetFetchRequest, OffsetFetchRequest.json (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011 import apis
from simpleconsumer.primitives import encode_string
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.epochs import UNKNOWN_EPOCH
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.messages import UNKNOWN_TOPIC_OR_PARTITION, Refusal
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]


class OffsetFetch(NamedTuple):
    """Partitions; None for all that the group has offsets of."""

    group: str
    partitions: list[TopicPartition] | None


def _read(reader: Reader, version: int) -> OffsetFetch:
    group = reader.string()
    at = reader.position
    if version >= 2 and reader.nullable_array(lambda: None) is None:
        return OffsetFetch(group, None)
    reader.position = at
    return OffsetFetch(group, list(reader.partitions(lambda: None)))


def _answer(asked: Asked[OffsetFetch]) -> list[Part]:
    body, version = asked.body, asked.version
    group_code, partitions = asked.errors.get(("", -1), 0), body.partitions
    if partitions is None:
        try:
            partitions = asked.host.offset_storage.in_kafka().partitions(body.group)
        except Refusal as refusal:
            group_code, partitions = refusal.code, []
    answer = by_topic((where, _row(asked, where)) for where in partitions)
    if version >= 3:
        answer = pack(">i", 0) + answer
    return [answer + pack(">h", group_code) if version >= 2 else answer]


def _row(asked: Asked[OffsetFetch], where: TopicPartition) -> bytes:
    offset, metadata, code = -1, "", 0
    is_in_registry = asked.version == 0
    try:
        refuse(asked.errors, where)
        found = asked.host.offset_storage.committed(asked.body.group, *where, in_registry=is_in_registry)
        if found is not None:
            offset, metadata = found.offset, found.metadata
    except Refusal as refusal:
        # From 0.9 on a partition that there is not has no offset, and that is no error.
        code = 0 if refusal.code == UNKNOWN_TOPIC_OR_PARTITION and not is_in_registry else refusal.code
    epoch = pack(">i", UNKNOWN_EPOCH) if asked.version >= 5 else b""
    return pack(">iq", where[1], offset) + epoch + encode_string(metadata) + pack(">h", code)


API: Final = ServedApi(
    apis.OFFSET_FETCH, "offset_fetch", range(6), _read, _answer, lambda body: body.partitions or [("", -1)]
)
