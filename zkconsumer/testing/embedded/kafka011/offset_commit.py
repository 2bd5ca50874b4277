"""OffsetCommit: stores offsets of a group, in ZooKeeper (version 0) or in Kafka. Groups have no members here.

Source: kafka.server.KafkaApis.handleOffsetCommitRequest, OffsetCommitRequest.json (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011 import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.protocol import CommittedOffset
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]


class OffsetCommit(NamedTuple):
    """Offsets by partition."""

    group: str
    offsets: dict[TopicPartition, CommittedOffset]


def _read(reader: Reader, version: int) -> OffsetCommit:
    def offset() -> CommittedOffset:
        value = reader.int64()
        if version >= 6:
            reader.int32()  # epoch of the leader
        timestamp_ms = reader.int64() if version == 1 else -1
        return CommittedOffset(value, reader.string(), timestamp_ms)

    group = reader.string()
    if version >= 1:
        reader.int32()  # generation
        reader.string()  # member
    if version >= 7:
        reader.nullable_string()  # its static id
    if 2 <= version <= 4:
        reader.int64()  # retention
    return OffsetCommit(group, reader.partitions(offset))


def _answer(asked: Asked[OffsetCommit]) -> list[Part]:
    rows = ((where, pack(">ih", where[1], _store(asked, where))) for where in asked.body.offsets)
    throttle = pack(">i", 0) if asked.version >= 3 else b""
    return [throttle + by_topic(rows)]


def _store(asked: Asked[OffsetCommit], where: TopicPartition) -> int:
    body = asked.body
    try:
        refuse(asked.errors, where)
        is_in_registry = asked.version == 0
        asked.host.offset_storage.commit(body.group, *where, body.offsets[where], in_registry=is_in_registry)
    except Refusal as refusal:
        return refusal.code
    return 0


API: Final = ServedApi(
    apis.OFFSET_COMMIT, "offset_commit", range(8), _read, _answer, lambda body: list(body.offsets)
)
