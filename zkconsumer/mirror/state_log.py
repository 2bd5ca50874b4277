"""Reads and writes the runs of the lanes of one slot: a partition of the mirror's state topic on the target.

All processes apply the records in the order of the log, so that they agree on the runs.

Threads: any; one at a time is inside.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import encode_producer_batch
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, Message, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.mirror.errors import LaneStuck
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunRecord, decoded
from zkconsumer.topic_reader.start_at import StartAt
from zkconsumer.topic_reader.topic_reader import read_topic

_ALL_REPLICAS: Final = -1
_RETRY_S: Final = 0.2


class StateLog:
    """The runs of one slot.

    Args:
        topic: The state topic.
        slot: Its partition.
        cluster: The target.
        connect: Returns a new connection to a broker of the target.
        properties: Of a consumer of the target.
    """

    def __init__(
        self, topic: str, slot: int, cluster: Cluster, connect: Callable[[Broker], SimpleConsumer],
        properties: Mapping[str, object],
    ) -> None:  # fmt: skip
        self._name = TopicPartition(topic, slot)
        self._cluster = cluster
        self._connect = connect
        self._properties = dict(properties)
        self._writer = uuid.uuid4().hex[:12]
        self._lock = threading.Lock()
        self._maps: dict[Lane, LaneMap] = {}
        self._next = 0

    def load(self) -> None:
        """Read all that is stored.

        Raises:
            StateUnreadable: A record is not of a mirror.
            ReadFailed, PartitionStopped: The state topic cannot be read.
        """
        with self._lock:
            self._maps, self._next = {}, 0
            self._read()

    def map_of(self, lane: Lane) -> LaneMap:
        """Return the runs of a lane; an empty map for a new one. Only `write` changes it."""
        with self._lock:
            return self._maps.setdefault(lane, LaneMap(lane))

    def lanes(self) -> list[Lane]:
        """Return the lanes that have runs."""
        with self._lock:
            return [lane for lane, found in self._maps.items() if found.runs]

    def write(self, records: Sequence[RunRecord], timeout_s: float) -> bool:
        """Store the next runs of a lane durably; return whether they count.

        Returns:
            False: another process was first with a number, and its runs count.

        Raises:
            LaneStuck: It was not stored in time, or is not known to be.
        """
        deadline = time.monotonic() + timeout_s
        reason = "no broker leads it"
        while True:
            try:
                base = self._stored_at(records)
                break
            except (SimpleConsumerError, ClusterSilent) as error:
                reason = str(error)
            if time.monotonic() > deadline:
                raise LaneStuck(self._name, timeout_s, f"the next runs could not be stored: {reason}")
            time.sleep(_RETRY_S)
        with self._lock:
            lane_map = self._maps.setdefault(records[0].lane, LaneMap(records[0].lane))
            if base == self._next:
                self._next += len(records)
                counted = [lane_map.apply(record) for record in records]  # each of them, also after one that does not
                return all(counted)
            before = lane_map.number
            self._read()
            return lane_map.number >= records[-1].number > before and lane_map.runs[-1] == records[-1]

    def _stored_at(self, records: Sequence[RunRecord]) -> int:
        leader = self._cluster.leaders([self._name]).get(self._name)
        if leader is None:
            raise BrokerError(5, *self._name)
        now_ms = int(time.time() * 1000)
        rows = [(*record.encoded(self._writer), (), now_ms) for record in records]
        batch = encode_producer_batch([(rows, (0.0,))], "none", 0.0)
        with self._connect(leader) as client:
            [answer] = client.produce_sets({self._name: batch}, acks=_ALL_REPLICAS)
        if answer.error_code:
            raise BrokerError(answer.error_code, *self._name)
        return answer.base_offset

    def _read(self) -> None:
        for message in self._messages():
            self._next = max(self._next, message.offset + 1)
            place = f"{self._name.topic}/{self._name.partition} at {message.offset}"
            record = decoded(place, message.key, message.value)
            if record is not None:
                self._maps.setdefault(record.lane, LaneMap(record.lane)).apply(record)

    def _messages(self) -> Iterator[Message[Any, Any]]:
        properties = {**self._properties, "isolation.level": "read_uncommitted"}
        start: StartAt = {self._name.partition: self._next} if self._next else "earliest"
        with read_topic(None, self._name.topic, [self._name.partition], start=start, properties=properties) as reader:
            yield from reader
