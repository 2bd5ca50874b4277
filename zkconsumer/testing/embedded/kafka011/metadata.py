"""Metadata: brokers, topics and leaders.

Source: kafka.server.KafkaApis.handleTopicMetadataRequest, MetadataCache, MetadataResponse.json (1.1, 2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.cluster_image import ClusterImage
from zkconsumer.testing.embedded.internal_topics import INTERNAL_TOPICS, make_internal
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.writing import Encoding
from zkconsumer.testing.embedded.leadership import NO_LEADER, PartitionState, is_legal_topic
from zkconsumer.testing.embedded.messages import INVALID_TOPIC, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]

REPLICA_NOT_AVAILABLE: Final = 9
_NO_ID: Final = bytes(16)
_UNKNOWN_OPERATIONS: Final = -(1 << 31)


class Metadata(NamedTuple):
    """Names of topics, None for all of them, and whether those that do not exist may be created."""

    topics: list[str] | None
    may_create: bool


def _read(reader: Reader, version: int) -> Metadata:
    def topic() -> str:
        if version >= 10:
            reader.raw(len(_NO_ID))
        name = reader.string()
        reader.end()
        return name

    topics = reader.nullable_array(topic)
    if version == 0 and not topics:
        topics = None
    may_create = bool(reader.int8()) if version >= 4 else True
    for _ in range(0 if version < 8 else 2 if version <= 10 else 1):
        reader.int8()  # whether to say what the client may do
    reader.end()
    return Metadata(topics, may_create)


def _partitions(body: Metadata) -> list[TopicPartition]:
    return [(topic, -1) for topic in body.topics] if body.topics else [("", -1)]


def _answer(asked: Asked[Metadata]) -> list[Part]:
    return [_Answer(asked).encoded()]


class _Answer:
    """One answer."""

    def __init__(self, asked: Asked[Metadata]) -> None:
        self._asked = asked
        self._version = asked.version
        self._encoding: Encoding = asked.encoding(apis.METADATA)
        self._image = asked.host.cluster.image

    def encoded(self) -> bytes:
        version, encoding = self._version, self._encoding
        names = self._asked.body.topics
        listed = sorted(self._image.topics) if names is None else list(dict.fromkeys(names))
        brokers = sorted(self._image.brokers.values())
        answer = pack(">i", 0) if version >= 3 else b""
        answer += encoding.array(self._broker(broker) for broker in brokers)
        if version >= 2:
            answer += encoding.string(self._asked.host.cluster.registry.cluster_id())
        if version >= 1:
            answer += pack(">i", brokers[0].broker_id if brokers else NO_LEADER)  # the controller
        answer += encoding.array([self._topic(name) for name in listed])
        if 8 <= version <= 10:
            answer += pack(">i", _UNKNOWN_OPERATIONS)
        return answer + encoding.end

    def _broker(self, broker: BrokerAddress) -> bytes:
        rack = self._encoding.string(None) if self._version >= 1 else b""
        place = pack(">i", broker.broker_id) + self._encoding.string(broker.host) + pack(">i", broker.port)
        return place + rack + self._encoding.end

    def _topic(self, name: str) -> bytes:
        version, encoding = self._version, self._encoding
        code, partitions = self._found(name)
        row = pack(">h", code) + encoding.string(name)
        if version >= 10:
            row += self._image.topic_ids.get(name) or _NO_ID
        if version >= 1:
            row += bytes([name in INTERNAL_TOPICS])
        row += encoding.array([self._partition(name, number, *each) for number, each in sorted(partitions.items())])
        if version >= 8:
            row += pack(">i", _UNKNOWN_OPERATIONS)
        return row + encoding.end

    def _found(self, name: str) -> tuple[int, dict[int, tuple[tuple[int, ...], PartitionState]]]:
        """Error code and partitions of a topic, which is made if it is not there and may be."""
        errors, cluster = self._asked.errors, self._asked.host.cluster
        code = errors.get((name, -1)) or errors.get(("", -1), 0)
        if code:
            return code, {}
        if name in self._image.topics:
            return 0, self._image.topics[name]
        if not is_legal_topic(name):
            return INVALID_TOPIC, {}
        if not self._asked.body.may_create or not (cluster.auto_create_topics or name in INTERNAL_TOPICS):
            return UNKNOWN_TOPIC_OR_PARTITION, {}
        if name in INTERNAL_TOPICS:
            make_internal(cluster, name)
        else:
            cluster.create_automatically(name, config={})
        return LEADER_NOT_AVAILABLE, {}

    def _partition(self, topic: str, number: int, replicas: tuple[int, ...], state: PartitionState) -> bytes:
        version, encoding = self._version, self._encoding
        code, leader = _leader(self._image, state)
        isr = state.isr
        if version == 0:
            code, replicas, isr = _of_version_0(self._image, code, replicas, state)
        code = self._asked.errors.get((topic, number), code)
        row = pack(">hii", code, number, leader)
        if version >= 7:
            row += pack(">i", state.leader_epoch)
        row += encoding.numbers(replicas) + encoding.numbers(isr)
        if version >= 5:
            row += encoding.numbers([replica for replica in replicas if replica not in self._image.brokers])
        return row + encoding.end


def _of_version_0(
    image: ClusterImage, code: int, replicas: tuple[int, ...], state: PartitionState
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Error code, replicas and replicas in sync as version 0 names them: those that live."""
    living = tuple(each for each in replicas if each in image.brokers)
    isr = () if code else tuple(each for each in state.isr if each in image.brokers)
    is_whole = len(living) == len(replicas) and len(isr) == len(state.isr)
    return code if code or is_whole else REPLICA_NOT_AVAILABLE, living, isr


def _leader(image: ClusterImage, state: PartitionState) -> tuple[int, int]:
    """Error code and leader of a partition."""
    if state.leader == NO_LEADER or state.leader not in image.brokers:
        return LEADER_NOT_AVAILABLE, NO_LEADER
    return 0, state.leader


API: Final = ServedApi(apis.METADATA, "metadata", range(13), _read, _answer, _partitions)
