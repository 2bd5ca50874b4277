"""Answers each kind of request as an embedded broker.

Source: kafka.server.KafkaApis, ReplicaManager, DelayedFetch, MetadataCache (0.8.2.2).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zkconsumer.testing.embedded import protocol as protocol
from zkconsumer.testing.embedded.broker import NoAnswer, Part
from zkconsumer.testing.embedded.leadership import NO_LEADER, PartitionState, is_legal_topic
from zkconsumer.testing.embedded.log import PartitionLog
from zkconsumer.testing.embedded.messages import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    NOT_COORDINATOR,
    OFFSET_METADATA_TOO_LARGE,
    REQUEST_TIMED_OUT,
    UNKNOWN,
    UNKNOWN_TOPIC_OR_PARTITION,
    Refusal,
)
from zkconsumer.testing.embedded.offsets import OFFSETS_CONFIG, OFFSETS_TOPIC, GroupOffsets
from zkconsumer.testing.embedded.protocol import BrokerAddress, PartitionAnswer, TopicAnswer, TopicPartition
from zkconsumer.testing.embedded.registry import Registry, RegistryUnavailable
from zkconsumer.testing.embedded.segment import LogSlice
from zkconsumer.testing.waiting import Deadline

MAX_METADATA_BYTES = 4096
MAX_WAIT_S = 600.0
REPLICA_NOT_AVAILABLE = 9

Codes = dict[TopicPartition, int]


@dataclass(frozen=True)
class ClusterImage:
    """What brokers know of the cluster: running brokers, and by topic and partition replicas and state."""

    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    topics: dict[str, dict[int, tuple[tuple[int, ...], PartitionState]]] = field(default_factory=dict)


class Cluster(Protocol):
    """What a broker needs of its cluster."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""

    @property
    def registry(self) -> Registry:
        """Where offsets of version 0 are kept."""

    @property
    def auto_create_topics(self) -> bool:
        """Whether asking for a topic makes it."""

    def create_automatically(self, topic: str, *, partitions: int | None = None, config: dict[str, object]) -> None:
        """Register a topic unless it exists; its leaders follow."""


class Host(Protocol):
    """What the answers need of their broker."""

    @property
    def broker_id(self) -> int:
        """Its id."""

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""

    @property
    def stopping(self) -> threading.Event:
        """Set when the broker ends."""

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition that is led here; Refusal 3 or 6 otherwise."""


class RequestHandler:
    """Turns requests into the bodies of answers.

    Threads: every method from any thread; a fetch may wait.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._offsets_lock = threading.Lock()
        self._group_offsets: GroupOffsets | None = None

    def answer(self, request: protocol.Request, errors: Codes) -> list[Part] | None:
        """Return the body of the answer, None for a request that gets none; slices in it must be closed.

        Args:
            errors: error codes that are answered for partitions (-1: the topic, or the group) without doing anything.

        Raises:
            NoAnswer: a produce request without acknowledgement failed.
        """
        body = request.body
        if isinstance(body, protocol.Fetch):
            return self._fetch(body, errors)
        if isinstance(body, protocol.Produce):
            return self._produce(body, errors)
        if isinstance(body, protocol.Metadata):
            return [self._metadata(body, errors)]
        if isinstance(body, protocol.Offsets):
            return [self._offsets(body, errors)]
        if isinstance(body, protocol.OffsetCommit):
            return [self._commit(body, errors)]
        if isinstance(body, protocol.OffsetFetch):
            return [self._committed(body, errors)]
        return [self._coordinator(errors)]

    # ---- produce

    def _produce(self, body: protocol.Produce, errors: Codes) -> list[Part] | None:
        results: dict[TopicPartition, tuple[int, int]] = {}
        for (topic, partition), message_set in body.message_sets.items():
            try:
                _refuse(errors, topic, partition)
                results[topic, partition] = (0, self._host.log(topic, partition).append(message_set))
            except Refusal as refusal:
                results[topic, partition] = (refusal.code, -1)
        if body.acks == 0:
            if any(code for code, _ in results.values()):
                raise NoAnswer("a message set was refused, and the producer wants no answer")
            return None
        self._await_copies(body, results)
        return [protocol.encode_produce(results.items())]

    def _await_copies(self, body: protocol.Produce, results: dict[TopicPartition, tuple[int, int]]) -> None:
        """More acknowledgements than in-sync replicas never come: those partitions time out."""
        late = [where for where, (code, _) in results.items() if code == 0 and body.acks > self._in_sync(where)]
        if late:
            self._host.stopping.wait(min(max(body.timeout_ms, 0) / 1000, MAX_WAIT_S))
            results.update({where: (REQUEST_TIMED_OUT, results[where][1]) for where in late})

    def _in_sync(self, where: TopicPartition) -> int:
        found = self._host.cluster.image.topics.get(where[0], {}).get(where[1])
        return len(found[1].isr) if found else 0

    # ---- fetch

    def _fetch(self, body: protocol.Fetch, errors: Codes) -> list[Part]:
        """Answer at once if there is enough, an error, or no wish to wait; else when one of these comes true."""
        deadline = Deadline(min(max(body.max_wait_ms, 0) / 1000, MAX_WAIT_S))
        waiter = threading.Event()
        watched: set[PartitionLog] = set()
        try:
            while True:
                waiter.clear()
                results = self._read_all(body, errors, waiter, watched)
                readable = sum(part.length for _, _, part in results.values())
                failed = any(code for code, _, _ in results.values())
                done = readable >= body.min_bytes or failed or not results or deadline.expired
                if done or self._host.stopping.is_set():
                    return _fetch_parts(results)
                _close(part for _, _, part in results.values())
                waiter.wait(deadline.remaining_s)
        finally:
            for log in watched:
                log.remove_waiter(waiter)

    def _read_all(
        self, body: protocol.Fetch, errors: Codes, waiter: threading.Event, watched: set[PartitionLog]
    ) -> dict[TopicPartition, tuple[int, int, LogSlice]]:
        results: dict[TopicPartition, tuple[int, int, LogSlice]] = {}
        for topic, partition in protocol.by_topic(body.positions):
            position = body.positions[topic, partition]
            try:
                _refuse(errors, topic, partition)
                log = self._host.log(topic, partition)
                if log not in watched and body.max_wait_ms > 0:
                    log.add_waiter(waiter)
                    watched.add(log)
                part = log.read(position.offset, position.max_bytes)
                results[topic, partition] = (0, log.end_offset, part)
            except Refusal as refusal:
                results[topic, partition] = (refusal.code, -1, LogSlice())
            except OSError:
                _close(part for _, _, part in results.values())
                raise
        return results

    # ---- offsets by time

    def _offsets(self, body: protocol.Offsets, errors: Codes) -> bytes:
        results: dict[TopicPartition, tuple[int, list[int]]] = {}
        for (topic, partition), (time_ms, count) in body.wanted.items():
            try:
                _refuse(errors, topic, partition)
                results[topic, partition] = (0, self._host.log(topic, partition).offsets_before(time_ms, count))
            except Refusal as refusal:
                results[topic, partition] = (refusal.code, [])
        return protocol.encode_offsets(results.items())

    # ---- metadata

    def _metadata(self, body: protocol.Metadata, errors: Codes) -> bytes:
        image = self._host.cluster.image
        names = list(dict.fromkeys(body.topics)) or sorted(image.topics)
        missing = [name for name in names if name not in image.topics]
        if self._host.cluster.auto_create_topics and not all(is_legal_topic(name) for name in missing):
            # The Java broker stumbles over the first such name and answers so for the whole request.
            return protocol.encode_metadata([], [TopicAnswer(INVALID_TOPIC, name, ()) for name in names])
        answers = [self._topic_answer(image, name, errors) for name in names]
        return protocol.encode_metadata(sorted(image.brokers.values()), answers)

    def _topic_answer(self, image: ClusterImage, topic: str, errors: Codes) -> TopicAnswer:
        if (topic, -1) in errors:
            return TopicAnswer(errors[topic, -1], topic, ())
        if topic in image.topics:
            partitions = []
            for number, (replicas, state) in sorted(image.topics[topic].items()):
                told = _partition_answer(image, number, replicas, state)
                partitions.append(told._replace(error=errors.get((topic, number), told.error)))
            return TopicAnswer(0, topic, partitions)
        if topic == OFFSETS_TOPIC:
            self._host.cluster.create_automatically(topic, partitions=1, config=OFFSETS_CONFIG)
        elif self._host.cluster.auto_create_topics:
            self._host.cluster.create_automatically(topic, config={})
        else:
            return TopicAnswer(UNKNOWN_TOPIC_OR_PARTITION, topic, ())
        return TopicAnswer(LEADER_NOT_AVAILABLE, topic, ())

    # ---- committed offsets

    def _commit(self, body: protocol.OffsetCommit, errors: Codes) -> bytes:
        results: dict[TopicPartition, int] = {}
        for (topic, partition), offset in body.offsets.items():
            try:
                _refuse(errors, topic, partition)
                self._require_topic(topic)
                if len(offset.metadata.encode()) > MAX_METADATA_BYTES:
                    raise Refusal(OFFSET_METADATA_TOO_LARGE, f"metadata above {MAX_METADATA_BYTES} bytes")
                if body.version == 0:
                    self._host.cluster.registry.commit_offset(body.group, topic, partition, offset.offset)
                else:
                    self._kept_offsets().commit(body.group, topic, partition, offset)
                results[topic, partition] = 0
            except Refusal as refusal:
                results[topic, partition] = refusal.code
            except RegistryUnavailable:
                results[topic, partition] = UNKNOWN
        return protocol.encode_offset_commit(results.items())

    def _committed(self, body: protocol.OffsetFetch, errors: Codes) -> bytes:
        results: dict[TopicPartition, tuple[int, str, int]] = {}
        for topic, partition in body.partitions:
            try:
                _refuse(errors, topic, partition)
                read = self._from_registry if body.version == 0 else self._from_log
                results[topic, partition] = read(body.group, topic, partition)
            except Refusal as refusal:
                results[topic, partition] = (-1, "", refusal.code)
            except RegistryUnavailable:
                results[topic, partition] = (-1, "", UNKNOWN)
        return protocol.encode_offset_fetch(results.items())

    def _from_registry(self, group: str, topic: str, partition: int) -> tuple[int, str, int]:
        self._require_topic(topic)
        offset = self._host.cluster.registry.committed_offset(group, topic, partition)
        return (-1, "", UNKNOWN_TOPIC_OR_PARTITION) if offset is None else (offset, "", 0)

    def _from_log(self, group: str, topic: str, partition: int) -> tuple[int, str, int]:
        if partition not in self._host.cluster.image.topics.get(topic, {}):
            raise Refusal(UNKNOWN_TOPIC_OR_PARTITION, f"{topic}/{partition} does not exist")
        found = self._kept_offsets().committed(group, topic, partition)
        return (-1, "", 0) if found is None else (found.offset, found.metadata, 0)

    def _require_topic(self, topic: str) -> None:
        if topic not in self._host.cluster.image.topics:
            raise Refusal(UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")

    def _kept_offsets(self) -> GroupOffsets:
        """The offsets kept in Kafka, if this broker coordinates."""
        try:
            log = self._host.log(OFFSETS_TOPIC, 0)
        except Refusal as refusal:
            raise Refusal(NOT_COORDINATOR, f"{OFFSETS_TOPIC}/0 is not led here") from refusal
        with self._offsets_lock:
            if self._group_offsets is None or self._group_offsets.log is not log:
                self._group_offsets = GroupOffsets(log)
            return self._group_offsets

    def _coordinator(self, errors: Codes) -> bytes:
        """All groups have one coordinator: the leader of the only partition of the offsets topic."""
        if ("", -1) in errors:
            return protocol.encode_consumer_metadata(errors["", -1], None)
        image = self._host.cluster.image
        if OFFSETS_TOPIC not in image.topics:
            self._host.cluster.create_automatically(OFFSETS_TOPIC, partitions=1, config=OFFSETS_CONFIG)
            return protocol.encode_consumer_metadata(COORDINATOR_NOT_AVAILABLE, None)
        leader = image.brokers.get(image.topics[OFFSETS_TOPIC][0][1].leader)
        return protocol.encode_consumer_metadata(0 if leader else COORDINATOR_NOT_AVAILABLE, leader)


def _refuse(errors: Codes, topic: str, partition: int) -> None:
    code = errors.get((topic, partition), 0)
    if code:
        raise Refusal(code, f"{topic}/{partition}: on purpose")


def _partition_answer(
    image: ClusterImage, partition: int, replicas: Sequence[int], state: PartitionState
) -> PartitionAnswer:
    living = [replica for replica in replicas if replica in image.brokers]
    if state.leader == NO_LEADER or state.leader not in image.brokers:
        return PartitionAnswer(LEADER_NOT_AVAILABLE, partition, NO_LEADER, living, ())
    isr = [replica for replica in state.isr if replica in image.brokers]
    complete = len(living) == len(replicas) and len(isr) == len(state.isr)
    return PartitionAnswer(0 if complete else REPLICA_NOT_AVAILABLE, partition, state.leader, living, isr)


def _fetch_parts(results: dict[TopicPartition, tuple[int, int, LogSlice]]) -> list[Part]:
    heads = protocol.encode_fetch((where, (code, end, part.length)) for where, (code, end, part) in results.items())
    parts: list[Part] = []
    slices = [part for _, _, part in results.values()]
    for number, head in enumerate(heads):
        parts.append(head)
        if number < len(slices):
            parts.append(slices[number])
    return parts


def _close(slices: Iterable[LogSlice]) -> None:
    for each in slices:
        each.close()
