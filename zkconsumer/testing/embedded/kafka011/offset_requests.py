"""The requests about offsets of groups: OffsetCommit and OffsetFetch.

Version 0 of both stores offsets in ZooKeeper, all others in Kafka. The newest versions name topics by id alone.

Source: kafka.server.KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest, GroupMetadataManager.storeOffsets
(0.9, 2.8); the schemas of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import topics_of
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.group_values import Who
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.group_records import StoredOffset
from zkconsumer.testing.embedded.kafka011.member_requests import who_of
from zkconsumer.testing.embedded.offsets import MAX_METADATA_BYTES
from zkconsumer.testing.embedded.protocol import CommittedOffset, TopicPartition
from zkconsumer_error import ErrorCode

_NAMELESS: Final = "\0"
"""The character before the id, in hex, of a topic that has no name."""
_FIRST_WITH_TOPIC_IDS: Final = 10
_NO_ID: Final = "0" * 32

T = TypeVar("T")


def _topic_of(values: Values) -> str:
    """Return the name of a topic in a request, or its id as it came."""
    return _NAMELESS + (values["topic_id"] or _NO_ID) if "topic_id" in values else values["name"]


def _with_names(host: Host011, partitions: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
    """Return the same with the names of topics that exist."""
    names = {_NAMELESS + each.hex(): name for name, each in host.cluster.image.topic_ids.items()}
    return {(names.get(topic, topic), number): each for (topic, number), each in partitions.items()}


def _answered_topics(asked: Asked[Any], rows: Iterable[tuple[TopicPartition, Values]]) -> list[Values]:
    """Return rows of partitions by topic, each topic with its name, or in the newest versions its id."""
    ids = asked.host.cluster.image.topic_ids

    def topic_id(name: str) -> str | None:
        return name[1:] if name.startswith(_NAMELESS) else ids[name].hex() if name in ids else None

    listed = dict(rows)
    topics = topics_of((topic, {"partition_index": number, **row}) for (topic, number), row in listed.items())
    if asked.version < _FIRST_WITH_TOPIC_IDS:
        return topics
    return [{"topic_id": topic_id(topic["name"]), "partitions": topic["partitions"]} for topic in topics]


# -- OffsetCommit ------------------------------------------------------------------------------------------------------


_NOBODY: Final = Who(-1, "")


class OffsetCommit(NamedTuple):
    """Offsets by partition, and who commits them; topics are named by their ids as they came."""

    group: str
    who: Who
    offsets: dict[TopicPartition, StoredOffset]


def _read_commit(values: Values, version: int) -> OffsetCommit:
    retention_ms = values.get("retention_time_ms", -1)
    offsets = {
        (_topic_of(topic), row["partition_index"]): StoredOffset(
            row["committed_offset"], row["committed_metadata"] or "", row.get("committed_leader_epoch", -1),
            row.get("commit_timestamp", -1), retention_ms,
        )
        for topic in values["topics"] for row in topic["partitions"]
    }  # fmt: skip
    return OffsetCommit(values["group_id"], who_of(values) if version else _NOBODY, offsets)


def _prepare_commit(host: Host011, body: OffsetCommit) -> OffsetCommit:
    return body._replace(offsets=_with_names(host, body.offsets))


def _answer_commit(asked: Asked[OffsetCommit]) -> Values:
    codes = _in_registry(asked) if asked.version == 0 else _in_kafka(asked)
    order = list(asked.body.offsets)
    if asked.host.habits.is_since_3:  # which name what they refuse by themselves before they ask the coordinator
        order.sort(
            key=lambda where: codes[where] not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        )
    return {"topics": _answered_topics(asked, ((where, {"error_code": codes[where]}) for where in order))}


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
    """Return error codes: of partitions that do not exist, else of the group, else of metadata that is too large."""
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
        codes[where] = code or (0 if where in small else ErrorCode.OFFSET_METADATA_TOO_LARGE)
    return codes


def _code_of_topic(asked: Asked[OffsetCommit], where: TopicPartition) -> int:
    topic, partition = where
    if topic.startswith(_NAMELESS):
        return ErrorCode.UNKNOWN_TOPIC_ID
    partitions = asked.host.cluster.image.topics.get(topic)
    # Before 2.0 nobody looks whether the partition exists.
    is_there = partitions is not None and (partition in partitions or asked.host.habits.is_before_2)
    return 0 if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


OFFSET_COMMIT: Final = ServedApi(
    apis.OFFSET_COMMIT, "offset_commit", range(11), _read_commit, _answer_commit, lambda body: list(body.offsets),
    prepare=_prepare_commit,
)  # fmt: skip


# -- OffsetFetch: from version 8 on of several groups ------------------------------------------------------------------


_FIRST_IN_KAFKA: Final = 1
_FIRST_WITH_GROUP_CODE: Final = 2
_FIRST_OF_SEVERAL: Final = 8
_NOTHING: Final = StoredOffset(-1)


class OfGroup(NamedTuple):
    """A group and its partitions; None for all of which it has offsets."""

    group: str
    partitions: list[TopicPartition] | None


def _read_fetch(values: Values, version: int) -> list[OfGroup]:
    return [_group(each) for each in (values["groups"] if version >= _FIRST_OF_SEVERAL else [values])]


def _group(values: Values) -> OfGroup:
    topics = values["topics"]
    if topics is None:
        return OfGroup(values["group_id"], None)
    wanted = [(_topic_of(topic), number) for topic in topics for number in topic["partitions"]]
    return OfGroup(values["group_id"], list(dict.fromkeys(wanted)))


def _prepare_fetch(host: Host011, body: list[OfGroup]) -> list[OfGroup]:
    return [
        each if each.partitions is None
        else each._replace(partitions=list(_with_names(host, dict.fromkeys(each.partitions))))
        for each in body
    ]  # fmt: skip


def _partitions(body: Sequence[OfGroup]) -> list[TopicPartition]:
    return [where for each in body for where in each.partitions or ()] or [("", -1)]


def _answer_fetch(asked: Asked[list[OfGroup]]) -> Values:
    if asked.version < _FIRST_OF_SEVERAL:
        return _of_group(asked, asked.body[0])
    return {"groups": [{"group_id": each.group, **_of_group(asked, each)} for each in asked.body]}


def _of_group(asked: Asked[list[OfGroup]], one: OfGroup) -> Values:
    """Return the topics of a group, and its error code."""
    code, found, partitions = asked.errors.get(("", -1), 0), {}, one.partitions
    if not code and asked.version >= _FIRST_IN_KAFKA:
        try:
            found = asked.host.groups.offsets(one.group)
        except Refusal as refusal:
            code = refusal.code
    if code and asked.version >= _FIRST_WITH_GROUP_CODE:
        partitions = []
    rows = _rows(asked, one.group, sorted(found) if partitions is None else partitions, found, code)
    return {"topics": _answered_topics(asked, rows), "error_code": code}


def _rows(
    asked: Asked[list[OfGroup]],
    group: str,
    partitions: Sequence[TopicPartition],
    found: Mapping[TopicPartition, StoredOffset],
    code: int,
) -> Iterator[tuple[TopicPartition, Values]]:
    for where in partitions:
        # A partition that does not exist has no offset, and that is no error.
        stored, of_partition = found.get(where, _NOTHING), code
        try:
            if not code:
                refuse(asked.errors, where)
                if asked.version < _FIRST_IN_KAFKA:
                    stored = _registered(asked.host, group, where)
                elif where[0].startswith(_NAMELESS):
                    raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "a topic that does not exist")
        except Refusal as refusal:
            stored, of_partition = _NOTHING, refusal.code
        yield where, {
            "committed_offset": stored.offset, "committed_leader_epoch": stored.leader_epoch,
            "metadata": stored.metadata, "error_code": of_partition,
        }  # fmt: skip


def _registered(host: Host011, group: str, where: TopicPartition) -> StoredOffset:
    found = host.offset_storage.committed(group, *where, in_registry=True)
    return _NOTHING if found is None else StoredOffset(found.offset, found.metadata)


OFFSET_FETCH: Final = ServedApi(
    apis.OFFSET_FETCH, "offset_fetch", range(11), _read_fetch, _answer_fetch, _partitions, prepare=_prepare_fetch
)
