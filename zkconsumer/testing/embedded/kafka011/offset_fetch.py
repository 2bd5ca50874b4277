"""OffsetFetch: the offsets that a group has in ZooKeeper (version 0) or in Kafka; from version 8 on of several groups.

Source: kafka.server.KafkaApis.handleOffsetFetchRequest, OffsetFetchRequest.json, OffsetFetchResponse.json (2.8, 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.member_requests import throttled
from zkconsumer.testing.embedded.kafka011.offset_records import StoredOffset
from zkconsumer.testing.embedded.kafka011.topic_names import NAMELESS, answered_by_topic, with_names
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]

_FIRST_IN_KAFKA: Final = 1
_FIRST_WITH_GROUP_CODE: Final = 2
_FIRST_WITH_THROTTLE: Final = 3
_FIRST_WITH_EPOCH: Final = 5
_FIRST_WITH_STABLE: Final = 7
_FIRST_OF_SEVERAL: Final = 8
_FIRST_WITH_MEMBER: Final = 9
_FIRST_WITH_TOPIC_IDS: Final = 10
_ID_BYTES: Final = 16
_UNKNOWN_TOPIC_ID: Final = 100
_NOTHING: Final = StoredOffset(-1)


class OfGroup(NamedTuple):
    """A group and its partitions; None for all of which it has offsets."""

    group: str
    partitions: list[TopicPartition] | None


def _read(reader: Reader, version: int) -> list[OfGroup]:
    several = version >= _FIRST_OF_SEVERAL
    groups = (reader.nullable_array(lambda: _group(reader, version)) or []) if several else [_group(reader, version)]
    if version >= _FIRST_WITH_STABLE:
        reader.int8()  # offsets of open transactions are none here
    reader.end()
    return groups


def _group(reader: Reader, version: int) -> OfGroup:
    def topic() -> list[TopicPartition]:
        has_id = version >= _FIRST_WITH_TOPIC_IDS
        name = NAMELESS + bytes(reader.raw(_ID_BYTES)).hex() if has_id else reader.string()
        found = [(name, number) for number in reader.nullable_array(reader.int32) or ()]
        reader.end()
        return found

    group = reader.string()
    if version >= _FIRST_WITH_MEMBER:
        reader.nullable_string()  # member and its epoch, of groups of another kind
        reader.int32()
    topics = reader.nullable_array(topic)
    if version >= _FIRST_OF_SEVERAL:
        reader.end()
    if topics is None and version >= _FIRST_WITH_GROUP_CODE:
        return OfGroup(group, None)
    return OfGroup(group, list(dict.fromkeys(where for each in topics or () for where in each)))


def _prepare(host: Host011, body: list[OfGroup]) -> list[OfGroup]:
    return [
        each if each.partitions is None
        else each._replace(partitions=list(with_names(host, dict.fromkeys(each.partitions))))
        for each in body
    ]  # fmt: skip


def _partitions(body: Sequence[OfGroup]) -> list[TopicPartition]:
    return [where for each in body for where in each.partitions or ()] or [("", -1)]


def _answer(asked: Asked[list[OfGroup]]) -> list[Part]:
    encoding = asked.encoding(apis.OFFSET_FETCH)
    head = throttled(asked, _FIRST_WITH_THROTTLE)
    if asked.version >= _FIRST_OF_SEVERAL:
        rows = [encoding.string(each.group) + _of_group(asked, each) + encoding.end for each in asked.body]
        return [head + encoding.array(rows) + encoding.end]
    return [head + _of_group(asked, asked.body[0]) + encoding.end]


def _of_group(asked: Asked[list[OfGroup]], one: OfGroup) -> bytes:
    """Topics of a group, and its error code in the versions that have one."""
    code, found, partitions = asked.errors.get(("", -1), 0), {}, one.partitions
    if not code and asked.version >= _FIRST_IN_KAFKA:
        try:
            found = asked.host.groups.offsets(one.group)
        except Refusal as refusal:
            code = refusal.code
    if code and asked.version >= _FIRST_WITH_GROUP_CODE:
        partitions = []
    rows = _rows(asked, one.group, sorted(found) if partitions is None else partitions, found, code)
    has_ids = asked.version >= _FIRST_WITH_TOPIC_IDS
    topics = answered_by_topic(asked.host, rows, asked.encoding(apis.OFFSET_FETCH), has_ids=has_ids)
    return topics + (pack(">h", code) if asked.version >= _FIRST_WITH_GROUP_CODE else b"")


def _rows(
    asked: Asked[list[OfGroup]],
    group: str,
    partitions: Sequence[TopicPartition],
    found: Mapping[TopicPartition, StoredOffset],
    code: int,
) -> Iterator[tuple[TopicPartition, bytes]]:
    encoding = asked.encoding(apis.OFFSET_FETCH)
    for where in partitions:
        # A partition that there is not has no offset, and that is no error.
        stored, of_partition = found.get(where, _NOTHING), code
        try:
            if not code:
                refuse(asked.errors, where)
                if asked.version < _FIRST_IN_KAFKA:
                    stored = _registered(asked.host, group, where)
                elif where[0].startswith(NAMELESS):
                    raise Refusal(_UNKNOWN_TOPIC_ID, "a topic that there is not")
        except Refusal as refusal:
            stored, of_partition = _NOTHING, refusal.code
        epoch = pack(">i", stored.leader_epoch) if asked.version >= _FIRST_WITH_EPOCH else b""
        row = pack(">iq", where[1], stored.offset) + epoch + encoding.string(stored.metadata)
        yield where, row + pack(">h", of_partition)


def _registered(host: Host011, group: str, where: TopicPartition) -> StoredOffset:
    found = host.offset_storage.committed(group, *where, in_registry=True)
    return _NOTHING if found is None else StoredOffset(found.offset, found.metadata)


API: Final = ServedApi(
    apis.OFFSET_FETCH, "offset_fetch", range(11), _read, _answer, _partitions, prepare=_prepare
)
