"""OffsetCommit: stores offsets of a group, in ZooKeeper (version 0) or in Kafka, for one of its members or for nobody.

Source: kafka.server.KafkaApis.handleOffsetCommitRequest, GroupMetadataManager.storeOffsets, OffsetCommitRequest.json
(0.9, 2.8, 4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.groups.values import Who
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.member_requests import read_who, throttled
from zkconsumer.testing.embedded.kafka011.offset_records import StoredOffset
from zkconsumer.testing.embedded.kafka011.topic_names import NAMELESS, answered_by_topic, read_by_topic, with_names
from zkconsumer.testing.embedded.messages import OFFSET_METADATA_TOO_LARGE, UNKNOWN_TOPIC_OR_PARTITION, Refusal
from zkconsumer.testing.embedded.offset_storage import MAX_METADATA_BYTES
from zkconsumer.testing.embedded.protocol import CommittedOffset
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]

_FIRST_WITH_MEMBER: Final = 1
_FIRST_WITH_THROTTLE: Final = 3
_FIRST_WITH_EPOCH: Final = 6
_FIRST_WITH_INSTANCE: Final = 7
_FIRST_WITH_TOPIC_IDS: Final = 10
_WITH_RETENTION: Final = range(2, 5)
_NOBODY: Final = Who(-1, "")
UNKNOWN_TOPIC_ID: Final = 100


class OffsetCommit(NamedTuple):
    """Offsets by partition, and who commits them; topics are named by their ids as they came."""

    group: str
    who: Who
    offsets: dict[TopicPartition, StoredOffset]


def _read(reader: Reader, version: int) -> OffsetCommit:
    def offset() -> StoredOffset:
        value = reader.int64()
        epoch = reader.int32() if version >= _FIRST_WITH_EPOCH else -1
        commit_ms = reader.int64() if version == _FIRST_WITH_MEMBER else -1
        return StoredOffset(value, reader.string(), epoch, commit_ms, retention_ms)

    if version >= _FIRST_WITH_MEMBER:
        group, who = read_who(reader, has_instance=version >= _FIRST_WITH_INSTANCE)
    else:
        group, who = reader.string(), _NOBODY
    retention_ms = reader.int64() if version in _WITH_RETENTION else -1
    offsets = read_by_topic(reader, offset, has_ids=version >= _FIRST_WITH_TOPIC_IDS)
    reader.end()
    return OffsetCommit(group, who, offsets)


def _prepare(host: Host011, body: OffsetCommit) -> OffsetCommit:
    return body._replace(offsets=with_names(host, body.offsets))


def _answer(asked: Asked[OffsetCommit]) -> list[Part]:
    codes = _in_registry(asked) if asked.version == 0 else _in_kafka(asked)
    encoding = asked.encoding(apis.OFFSET_COMMIT)
    order = list(asked.body.offsets)
    if asked.host.habits.is_since_3:  # which name what they refuse by themselves before they ask the coordinator
        order.sort(key=lambda where: codes[where] not in (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID))
    rows = ((where, pack(">ih", where[1], codes[where])) for where in order)
    has_ids = asked.version >= _FIRST_WITH_TOPIC_IDS
    topics = answered_by_topic(asked.host, rows, encoding, has_ids=has_ids)
    return [throttled(asked, _FIRST_WITH_THROTTLE) + topics + encoding.end]


def _in_registry(asked: Asked[OffsetCommit]) -> dict[TopicPartition, int]:
    def store(where: TopicPartition, stored: StoredOffset) -> int:
        try:
            refuse(asked.errors, where)
            offset = CommittedOffset(stored.offset, stored.metadata)
            asked.host.offset_storage.commit(asked.body.group, *where, offset, in_registry=True)
        except Refusal as refusal:
            return refusal.code
        return 0

    return {where: store(where, stored) for where, stored in asked.body.offsets.items()}


def _in_kafka(asked: Asked[OffsetCommit]) -> dict[TopicPartition, int]:
    """Error codes: of partitions that there are not, else of the group, else of metadata that is too large."""
    group, who, offsets = asked.body
    codes = {where: asked.errors.get(where, 0) or _code_of_topic(asked, where) for where in offsets}
    known = {where: each for where, each in offsets.items() if not codes[where]}
    small = {where: each for where, each in known.items() if len(each.metadata.encode()) <= MAX_METADATA_BYTES}
    if not known:
        return codes
    try:
        code = asked.host.groups.commit(group, who, small)
    except Refusal as refusal:
        code = refusal.code
    for where in known:
        codes[where] = code or (0 if where in small else OFFSET_METADATA_TOO_LARGE)
    return codes


def _code_of_topic(asked: Asked[OffsetCommit], where: TopicPartition) -> int:
    topic, partition = where
    if topic.startswith(NAMELESS):
        return UNKNOWN_TOPIC_ID
    partitions = asked.host.cluster.image.topics.get(topic)
    # Before 2.0 nobody looks whether there is such a partition.
    is_there = partitions is not None and (partition in partitions or asked.host.habits.is_before_2)
    return 0 if is_there else UNKNOWN_TOPIC_OR_PARTITION


API: Final = ServedApi(
    apis.OFFSET_COMMIT, "offset_commit", range(11), _read, _answer, lambda body: list(body.offsets),
    prepare=_prepare,
)  # fmt: skip
