"""Answers each kind of request as an embedded broker.

Source: kafka.server.KafkaApis, ReplicaManager, DelayedFetch, MetadataCache (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zkconsumer.testing.embedded import protocol as protocol
from zkconsumer.testing.embedded.broker import NoAnswer, Part
from zkconsumer.testing.embedded.cluster_image import ClusterImage, Codes, Host
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.fetch_wait import MAX_WAIT_S, FetchWait, close_all, interleaved
from zkconsumer.testing.embedded.leadership import NO_LEADER, PartitionState, is_legal_topic
from zkconsumer.testing.embedded.offsets import OFFSETS_CONFIG, OFFSETS_TOPIC, OffsetStorage
from zkconsumer.testing.embedded.protocol import PartitionAnswer, TopicAnswer, TopicPartition
from zkconsumer_error import ErrorCode


class Fetched(NamedTuple):
    """The result of a fetch for one partition."""

    code: int
    end_offset: int
    data: LogSlice


Results = dict[TopicPartition, Fetched]


class RequestHandler:
    """Turns requests into the bodies of answers.

    Threads: every method from any thread; a fetch may wait.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._offset_storage = OffsetStorage(host)

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
            results.update({where: (ErrorCode.REQUEST_TIMED_OUT, results[where][1]) for where in late})

    def _in_sync(self, where: TopicPartition) -> int:
        found = self._host.cluster.image.topics.get(where[0], {}).get(where[1])
        return len(found[1].isr) if found else 0

    # ---- fetch

    def _fetch(self, body: protocol.Fetch, errors: Codes) -> list[Part]:
        wait = FetchWait(body.max_wait_ms, body.min_bytes, self._host.stopping)
        return _fetch_parts(wait.answer(lambda watch: self._read_all(body, errors, watch)))

    def _read_all(self, body: protocol.Fetch, errors: Codes, watch: Callable[[PartitionLog], None]) -> Results:
        results: Results = {}
        for topic, partition in protocol.by_topic(body.positions):
            position = body.positions[topic, partition]
            try:
                _refuse(errors, topic, partition)
                log = self._host.log(topic, partition)
                watch(log)
                part = log.read(position.offset, position.max_bytes)
                results[topic, partition] = Fetched(0, log.end_offset, part)
            except Refusal as refusal:
                results[topic, partition] = Fetched(refusal.code, -1, LogSlice())
            except OSError:
                close_all(results)
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
            return protocol.encode_metadata(
                [], [TopicAnswer(ErrorCode.INVALID_TOPIC_EXCEPTION, name, ()) for name in names]
            )
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
            return TopicAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, ())
        return TopicAnswer(ErrorCode.LEADER_NOT_AVAILABLE, topic, ())

    # ---- committed offsets

    def _commit(self, body: protocol.OffsetCommit, errors: Codes) -> bytes:
        results: dict[TopicPartition, int] = {}
        for (topic, partition), offset in body.offsets.items():
            try:
                _refuse(errors, topic, partition)
                self._offset_storage.commit(body.group, topic, partition, offset, in_registry=body.version == 0)
                results[topic, partition] = 0
            except Refusal as refusal:
                results[topic, partition] = refusal.code
        return protocol.encode_offset_commit(results.items())

    def _committed(self, body: protocol.OffsetFetch, errors: Codes) -> bytes:
        results: dict[TopicPartition, tuple[int, str, int]] = {}
        for topic, partition in body.partitions:
            try:
                _refuse(errors, topic, partition)
                found = self._offset_storage.committed(body.group, topic, partition, in_registry=body.version == 0)
                results[topic, partition] = (-1, "", 0) if found is None else (found.offset, found.metadata, 0)
            except Refusal as refusal:
                results[topic, partition] = (-1, "", refusal.code)
        return protocol.encode_offset_fetch(results.items())

    def _coordinator(self, errors: Codes) -> bytes:
        code = errors.get(("", -1), 0)
        leader = None if code else self._offset_storage.coordinator()
        return protocol.encode_consumer_metadata(code or (0 if leader else ErrorCode.COORDINATOR_NOT_AVAILABLE), leader)


def _refuse(errors: Codes, topic: str, partition: int) -> None:
    code = errors.get((topic, partition), 0)
    if code:
        raise Refusal(code, f"{topic}/{partition}: on purpose")


def _partition_answer(
    image: ClusterImage, partition: int, replicas: Sequence[int], state: PartitionState
) -> PartitionAnswer:
    living = [replica for replica in replicas if replica in image.brokers]
    if state.leader == NO_LEADER or state.leader not in image.brokers:
        return PartitionAnswer(ErrorCode.LEADER_NOT_AVAILABLE, partition, NO_LEADER, living, ())
    isr = [replica for replica in state.isr if replica in image.brokers]
    complete = len(living) == len(replicas) and len(isr) == len(state.isr)
    return PartitionAnswer(0 if complete else ErrorCode.REPLICA_NOT_AVAILABLE, partition, state.leader, living, isr)


def _fetch_parts(results: Results) -> list[Part]:
    heads = protocol.encode_fetch(
        (where, (found.code, found.end_offset, found.data.length)) for where, found in results.items()
    )
    return interleaved(heads, [found.data for found in results.values()])
