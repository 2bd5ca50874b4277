"""Fetch: messages of several partitions. Limits are soft: the first entry of the first partition comes whole.

Before version 3 the limit is hard, and the first entry may be cut off. From version 7 on there are sessions, in which
partitions of which nothing is new are not named.

Source: kafka.server.KafkaApis.handleFetchRequest, ReplicaManager.readFromLocalLog, FetchResponse.json (1.1, 2.8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011.batch_head import MAGIC
from simpleconsumer.messages import apis
from simpleconsumer.primitives import encode_int32, encode_string
from simpleconsumer.types import AbortedTransaction
from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.broker import Part, size_of
from zkconsumer.testing.embedded.cluster_image import ClusterImage
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.fetch_wait import FetchWait, close_all, interleaved
from zkconsumer.testing.embedded.kafka011.api import Asked, Host011, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.conversion import (
    down_converted,
    down_converted_together,
    needs_down_conversion,
    sent_for,
)
from zkconsumer.testing.embedded.kafka011.fetch_sessions import NO_SESSION, FetchContext, Position, Seen
from zkconsumer.testing.embedded.kafka011.writing import NULL_ARRAY, runs_of_topics
from zkconsumer.testing.embedded.protocol import Reader, TopicPartition
from zkconsumer_error import ErrorCode

_ANY_EPOCH: Final = -1
_LAST_EPOCH: Final = -1
_FIRST_WITH_TIMES: Final = 2
"""It takes messages of magic 1."""
_FIRST_SOFT: Final = 3
_FIRST_WITH_ISOLATION: Final = 4
_FIRST_WITH_SESSIONS: Final = 7
_NULL: Final = -1
_LARGEST: Final = 0x7FFFFFFF


class Fetch(NamedTuple):
    """The partitions to read; `session` and its `epoch` are as the request has them, `context` is what they mean."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_committed: bool
    session: int
    epoch: int
    named: dict[TopicPartition, Position]
    forgotten: Sequence[TopicPartition]
    context: FetchContext = FetchContext({})

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Those of the request, or of its session."""
        return self.context.positions


class Fetched(NamedTuple):
    """The data that was read of a partition."""

    code: int
    data: LogSlice = LogSlice()
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None
    is_null: bool = False


Results = dict[TopicPartition, Fetched]
Entries = Mapping[TopicPartition, tuple[Fetched, Part]]
"""The data that was read, and the part of it that is sent."""


def _read(reader: Reader, version: int) -> Fetch:
    def position() -> Position:
        epoch = reader.int32() if version >= 9 else _ANY_EPOCH
        offset = reader.int64()
        if version >= 5:
            reader.int64()  # the start of a follower's log
        return Position(offset, reader.int32(), epoch)

    reader.int32()  # replica id
    max_wait_ms, min_bytes = reader.int32(), reader.int32()
    max_bytes = reader.int32() if version >= _FIRST_SOFT else _LARGEST
    is_committed = bool(reader.int8()) if version >= _FIRST_WITH_ISOLATION else False
    has_session = version >= _FIRST_WITH_SESSIONS
    session, epoch = (reader.int32(), reader.int32()) if has_session else (NO_SESSION, _LAST_EPOCH)
    named = reader.partitions(position)
    forgotten = _forgotten(reader) if has_session else []
    return Fetch(max_wait_ms, min_bytes, max_bytes, is_committed, session, epoch, named, forgotten)


def _forgotten(reader: Reader) -> list[TopicPartition]:
    found: list[TopicPartition] = []

    def of_topic() -> None:
        topic = reader.string()
        found.extend((topic, number) for number in reader.nullable_array(reader.int32) or ())

    reader.nullable_array(of_topic)
    return found


def _prepare(host: Host011, body: Fetch) -> Fetch:
    """The same with what its session has; missing partitions come last, as they do in an answer."""
    context = host.fetch_sessions.begin(body.session, body.epoch, body.named, body.forgotten, time.monotonic())
    return body._replace(context=context)


def _in_order(body: Fetch, image: ClusterImage) -> list[tuple[TopicPartition, int]]:
    """The partitions as the answer names them: missing ones come last."""
    order = sorted(body.positions, key=lambda where: where[1] not in image.topics.get(where[0], {}))
    return [(where, body.positions[where].offset) for where in order]


def _answer(asked: Asked[Fetch]) -> list[Part]:
    body = asked.body
    if body.context.code:
        return [pack(">ihii", 0, body.context.code, NO_SESSION, 0)]
    wait = FetchWait(body.max_wait_ms, body.min_bytes, asked.host.stopping)
    results = wait.answer(lambda watch: _read_all(asked, watch))
    try:
        entries = {where: _as_asked(asked, where, found) for where, found in results.items()}
        session, included = asked.host.fetch_sessions.finish(body.context, _seen(entries), time.monotonic())
        return interleaved(_heads(asked, entries, session, included), [sent for _, sent in entries.values()])
    except BaseException:
        close_all(results)
        raise


def _seen(entries: Entries) -> dict[TopicPartition, Seen]:
    return {
        where: Seen(found.code, found.high_watermark, found.start_offset, size_of(sent))
        for where, (found, sent) in entries.items()
    }


def _as_asked(asked: Asked[Fetch], where: TopicPartition, found: Fetched) -> tuple[Fetched, Part]:
    """The data that was read, and its entries in a format that the version of the request knows."""
    if asked.version >= _FIRST_WITH_ISOLATION or not found.data.length:
        return found, found.data
    magic = 1 if asked.version >= _FIRST_WITH_TIMES else 0
    data = found.data.read()
    if not needs_down_conversion(data, magic):
        return found, found.data
    found.data.close()
    try:
        if asked.host.habits.log_magic < MAGIC:
            converted = down_converted_together(data)
        else:
            offset = asked.body.positions[where].offset
            converted = down_converted(data, magic, offset, drops_headers=asked.host.habits.drops_headers)
    except Refusal as refusal:
        return Fetched(refusal.code, is_null=asked.host.habits.is_since_3), b""
    return found, b"".join(converted) if asked.host.habits.is_before_2 else sent_for(data, converted)


def _read_all(asked: Asked[Fetch], watch: Callable[[PartitionLog], None]) -> Results:
    """Read the partitions one after the other; the limit of the answer is shared in their order."""
    results: Results = {}
    left = max(asked.body.max_bytes, 0)
    try:
        for where, _ in _in_order(asked.body, asked.host.cluster.image):
            position = asked.body.positions[where]
            is_first = not any(found.data.length for found in results.values())
            results[where] = found = _read_one(asked, where, position, left, is_first, watch)
            left = max(left - found.data.length, 0)
    except BaseException:
        close_all(results)
        raise
    return results


def _read_one(
    asked: Asked[Fetch],
    where: TopicPartition,
    position: Position,
    left: int,
    is_first: bool,
    watch: Callable[[PartitionLog], None],
) -> Fetched:
    is_old = asked.version < _FIRST_SOFT
    try:
        refuse(asked.errors, where)
        log = asked.host.log(*where)
        log.require_epoch(position.epoch)
        watch(log)
        read = log.read_batches(
            position.offset, min(position.max_bytes, left), whole_first=is_first and not is_old,
            is_committed=asked.body.is_committed, may_cut_first=is_old and not asked.host.habits.is_since_3,
        )  # fmt: skip
        return Fetched(0, *read)
    except Refusal as refusal:
        is_unknown = refusal.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Fetched(refusal.code, aborted=() if is_unknown and asked.host.habits.is_since_3 else None)


def _heads(asked: Asked[Fetch], entries: Entries, session: int, included: Collection[TopicPartition]) -> list[bytes]:
    """The bytes before the entries of each partition, and the bytes after the last ones.

    A partition that is not included has an empty head, so that faults find the others at their places.
    """
    version = asked.version
    before = pack(">i", 0) if version >= 1 else b""
    if version >= _FIRST_WITH_SESSIONS:
        before += pack(">hi", 0, session)
    runs = runs_of_topics(where for where in entries if where in included)
    before += encode_int32(len(runs))
    heads = dict.fromkeys(entries, b"")
    for topic, partitions in runs:
        before += encode_string(topic) + encode_int32(len(partitions))
        for where in partitions:
            heads[where] = before + _head(asked, where, *entries[where])
            before = b""
    return [*heads.values(), before] if before else list(heads.values())


def _head(asked: Asked[Fetch], where: TopicPartition, found: Fetched, sent: Part) -> bytes:
    version = asked.version
    head = pack(">ihq", where[1], found.code, found.high_watermark)
    if version >= _FIRST_WITH_ISOLATION:
        is_reported = asked.body.is_committed or not asked.host.habits.is_before_2
        head += pack(">q", found.last_stable_offset if is_reported else -1)
    if version >= 5:
        head += pack(">q", found.start_offset)
    if version >= _FIRST_WITH_ISOLATION:
        head += _aborted(asked, where, found)
    if version >= 11:
        head += pack(">i", -1)  # no replica is nearer
    return head + encode_int32(_NULL if found.is_null else size_of(sent))


def _aborted(asked: Asked[Fetch], where: TopicPartition, found: Fetched) -> bytes:
    """The aborted transactions, or those that a fault wants in their place."""
    aborted = found.aborted
    if aborted is None:
        return NULL_ARRAY
    fault = asked.take(faults.ABORTED, where)
    if fault is not None:
        aborted = [AbortedTransaction(*each) for each in fault.aborted_transactions]
    return encode_int32(len(aborted)) + b"".join(pack(">qq", *each) for each in aborted)


API: Final = ServedApi(
    apis.FETCH, "fetch", range(12), _read, _answer, lambda body: list(body.positions), _in_order, _prepare
)
