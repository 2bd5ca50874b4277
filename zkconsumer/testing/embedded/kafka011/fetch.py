"""Fetch: messages of several partitions. Limits are soft: the first entry of the first partition comes whole.

Every fetch is answered in full: the broker keeps no fetch sessions, as a real one whose cache of them is full. It does
not convert to older formats either, so versions below 4 are not served.

Source: kafka.server.KafkaApis.handleFetchRequest, ReplicaManager.readFromLocalLog, FetchResponse.json (1.1, 2.8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011 import apis
from simpleconsumer.primitives import encode_int32, encode_string
from simpleconsumer.types import AbortedTransaction
from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.cluster_image import ClusterImage
from zkconsumer.testing.embedded.fetch_wait import FetchWait, close_all, interleaved
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.writing import NULL_ARRAY, runs_of_topics
from zkconsumer.testing.embedded.log import PartitionLog
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader, TopicPartition
from zkconsumer.testing.embedded.segment import LogSlice

__all__ = ["API"]

SESSION_NOT_FOUND: Final = 70
_NO_SESSION: Final = 0
_ANY_EPOCH: Final = -1
_LARGEST: Final = 0x7FFFFFFF


class Position(NamedTuple):
    """Where to read a partition; the epoch of the leader as the client knows it, -1: not known."""

    offset: int
    max_bytes: int
    epoch: int = _ANY_EPOCH


class Fetch(NamedTuple):
    """What is to be read."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_committed: bool
    session: int
    positions: dict[TopicPartition, Position]


class Fetched(NamedTuple):
    """What was read of a partition."""

    code: int
    data: LogSlice = LogSlice()
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None


Results = dict[TopicPartition, Fetched]


def _read(reader: Reader, version: int) -> Fetch:
    def position() -> Position:
        epoch = reader.int32() if version >= 9 else _ANY_EPOCH
        offset = reader.int64()
        if version >= 5:
            reader.int64()  # the start of a follower's log
        return Position(offset, reader.int32(), epoch)

    reader.int32()  # replica id
    max_wait_ms, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    is_committed = bool(reader.int8())
    session = _NO_SESSION
    if version >= 7:
        session = reader.int32()
        reader.int32()  # epoch of the session
    return Fetch(max_wait_ms, min_bytes, max_bytes, is_committed, session, reader.partitions(position))


def _in_order(body: Fetch, image: ClusterImage) -> list[tuple[TopicPartition, int]]:
    """The partitions as the answer names them: those that do not exist come last."""
    order = sorted(body.positions, key=lambda where: where[1] not in image.topics.get(where[0], {}))
    return [(where, body.positions[where].offset) for where in order]


def _answer(asked: Asked[Fetch]) -> list[Part]:
    body = asked.body
    if body.session != _NO_SESSION:
        return [pack(">ihii", 0, SESSION_NOT_FOUND, _NO_SESSION, 0)]
    wait = FetchWait(body.max_wait_ms, body.min_bytes, asked.host.stopping)
    results = wait.answer(lambda watch: _read_all(asked, watch))
    try:
        return interleaved(_heads(asked, results), [found.data for found in results.values()])
    except BaseException:
        close_all(results)
        raise


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
    try:
        refuse(asked.errors, where)
        log = asked.host.log(*where)
        log.require_epoch(position.epoch)
        watch(log)
        read = log.read_batches(
            position.offset, min(position.max_bytes, left), whole_first=is_first, is_committed=asked.body.is_committed
        )
        return Fetched(0, *read)
    except Refusal as refusal:
        return Fetched(refusal.code)


def _heads(asked: Asked[Fetch], results: Results) -> list[bytes]:
    """What stands before the entries of each partition, and what is left behind the last ones."""
    version = asked.version
    before = pack(">i", 0)
    if version >= 7:
        before += pack(">hi", 0, _NO_SESSION)
    heads: list[bytes] = []
    runs = runs_of_topics(results)
    before += encode_int32(len(runs))
    for topic, partitions in runs:
        before += encode_string(topic) + encode_int32(len(partitions))
        for where in partitions:
            heads.append(before + _head(asked, where, results[where]))
            before = b""
    return heads or [before]


def _head(asked: Asked[Fetch], where: TopicPartition, found: Fetched) -> bytes:
    version = asked.version
    told = asked.body.is_committed or not asked.host.is_before_2
    stable = found.last_stable_offset if told else -1
    head = pack(">ihqq", where[1], found.code, found.high_watermark, stable)
    if version >= 5:
        head += pack(">q", found.start_offset)
    head += _aborted(asked, where, found)
    if version >= 11:
        head += pack(">i", -1)  # no replica is nearer
    return head + encode_int32(found.data.length)


def _aborted(asked: Asked[Fetch], where: TopicPartition, found: Fetched) -> bytes:
    """The aborted transactions, or those that a fault wants in their place."""
    told = found.aborted
    if told is None:
        return NULL_ARRAY
    fault = asked.take(faults.ABORTED, where)
    if fault is not None:
        told = [AbortedTransaction(*each) for each in fault.aborted_transactions]
    return encode_int32(len(told)) + b"".join(pack(">qq", *each) for each in told)


API: Final = ServedApi(
    apis.FETCH, "fetch", range(4, 12), _read, _answer, lambda body: list(body.positions), _in_order
)
