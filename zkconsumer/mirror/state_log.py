"""Reads and writes the runs of the lanes of one slot: a partition of the mirror's state topic on the target.

All processes apply the records in the order of the log, so that they agree on the runs.

Threads: any. No lock is held while a broker is asked.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from simpleconsumer.dialect import RECORD_BATCH, encode_producer_batch
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.errors import LaneStuck
from zkconsumer.mirror.lane_leaves import LeafRecord, decoded_leaf
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunRecord, decoded
from zkconsumer.mirror.pieces import message_set
from zkconsumer.topic_reader.start_at import StartAt
from zkconsumer.topic_reader.topic_reader import read_topic
from zkconsumer_error import ErrorCode

_ALL_REPLICAS: Final = -1
_RETRY_S: Final = 0.2
_NOT_KNOWN: Final = -1
"""What brokers before 0.10 answer is not believed: those of 0.8.0 and 0.8.1 answer wrong offsets."""
_FIRST_S: Final = 10.0


class StateLog:
    """The runs of one slot.

    Args:
        topic: The state topic.
        slot: Its partition.
        target: The cluster that has it.
        properties: Of a consumer of the target.
    """

    def __init__(self, topic: str, slot: int, target: Side, properties: Mapping[str, object]) -> None:
        self._name = TopicPartition(topic, slot)
        self._target = target
        self._properties = {**properties, "isolation.level": "read_uncommitted"}
        self._lock = threading.Lock()
        self._maps: dict[Lane, LaneMap] = {}
        self._next = 0
        self._first: threading.Event | None = None

    def refresh(self) -> None:
        """Read what was stored since.

        Raises:
            StateUnreadable: A record is not of a mirror.
            ReadFailed, PartitionStopped: The state topic cannot be read now.
        """
        with self._lock:
            first, is_first = self._first, self._first is None
            if first is None:
                first = self._first = threading.Event()
        if not is_first:
            first.wait(_FIRST_S)  # the lanes of a slot start together, and one of them reads what is there
        try:
            self._read()
        finally:
            first.set()

    def _read(self) -> None:
        for message in read_state(self._name, self._next, self._properties):
            self._take(message)

    def map_of(self, lane: Lane) -> LaneMap:
        """Return the runs of a lane as they are known now; an empty map for a new one."""
        with self._lock:
            found = self._maps.get(lane)
            return LaneMap(lane) if found is None else found.copy()

    def write(self, records: Sequence[RunRecord], timeout_s: float, stopping: threading.Event) -> bool:
        """Store the next runs of a lane durably; return whether they count.

        Returns:
            False: another process was first with a number, and its runs count.

        Raises:
            LaneStuck: It was not stored in time, or is not known to be.
            What `refresh` raises.
        """
        deadline = time.monotonic() + timeout_s
        writer = uuid.uuid4().hex[:12]
        rows = [record.encoded(writer) for record in records]
        while True:
            try:
                base = self._store(rows)
                break
            except (SimpleConsumerError, ClusterSilent) as error:
                if time.monotonic() > deadline or stopping.wait(_RETRY_S):
                    raise LaneStuck(self._name, timeout_s, f"the next runs could not be stored: {error}") from error
        with self._lock:
            is_next = base == self._next
            if is_next:
                self._next += len(records)
                lane_map = self._maps.setdefault(records[0].lane, LaneMap(records[0].lane))
                for record in records:
                    lane_map.apply(record)
        if not is_next:
            self.refresh()
        with self._lock:
            found = self._maps.get(records[0].lane)
            return found is not None and found.runs[-1]._replace(gap=0) == records[-1]._replace(gap=0)

    def put(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Store records of another kind durably: keys and values; None as a value deletes the key.

        Raises:
            SimpleConsumerError, ClusterSilent: They may not be stored.
        """
        base = self._store(rows)
        with self._lock:
            if base == self._next:  # nothing is left to be read again
                self._next += len(rows)

    def leaves_of(self, lane: Lane) -> dict[bytes, LeafRecord]:
        """Return the parts of a lane that are stored, by their keys; reads all of the slot."""
        return read_leaves(self._properties, self._name.topic, int(self._name.partition)).get(lane, {})

    def _store(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> int:
        return store_state(self._target, self._name, pairs)

    def _take(self, message: Message) -> None:
        record = _record(message)
        with self._lock:
            if message.offset < self._next:  # another lane of this slot has read it meanwhile
                return
            self._next = message.offset + 1
            if record is not None:
                self._maps.setdefault(record.lane, LaneMap(record.lane)).apply(record)


def read_state(name: TopicPartition, start_offset: int, properties: Mapping[str, object]) -> Iterator[Message]:
    """Yield what is in a partition of a state topic, from an offset to the end of now.

    Raises:
        ReadFailed, PartitionStopped: It cannot be read now.
    """
    start: StartAt = {name.partition: start_offset} if start_offset else "earliest"
    with read_topic(None, name.topic, [name.partition], start=start, properties=properties) as reader:
        yield from reader


def store_state(target: Side, name: TopicPartition, pairs: Sequence[tuple[bytes, bytes | None]]) -> int:
    """Store keys and values durably in a partition of a state topic, as one batch; return its first offset.

    Kafka 0.8 and 0.9 may answer another one: -1 is returned there.

    Raises:
        SimpleConsumerError, ClusterSilent: It is not stored, or is not known to be.
    """
    leader = target.cluster.leaders([name]).get(name)
    if leader is None:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *name)
    now_ms = int(time.time() * 1000)
    rows = [(*pair, (), now_ms) for pair in pairs]
    with target.connect(leader) as client:
        magic = client.dialect.newest_magic(client.served_versions()) or 0
        if magic == RECORD_BATCH:
            batch = encode_producer_batch([(rows, (0.0,))], "none", 0.0)
        else:
            batch = message_set(rows, "none", magic)
        [answer] = client.produce_sets({name: batch}, acks=_ALL_REPLICAS)
    if answer.error_code:
        raise BrokerError(answer.error_code, *name)
    return answer.base_offset if magic else _NOT_KNOWN


def _record(message: Message) -> RunRecord | None:
    place = f"{message.topic}/{message.partition} at {message.offset}"
    return decoded(place, message.key, message.value)


def read_runs(zookeeper: str | None, properties: Mapping[str, object], topic: str) -> dict[Lane, LaneMap]:
    """Return the runs of all lanes in a state topic.

    Raises:
        ReadFailed: There is no such topic.
        StateUnreadable: A record is not of a mirror.
    """
    found: dict[Lane, LaneMap] = {}
    for message in _all(zookeeper, properties, topic):
        record = _record(message)
        if record is not None:
            found.setdefault(record.lane, LaneMap(record.lane)).apply(record)
    return found


def read_leaves(
    properties: Mapping[str, object], topic: str, slot: int | None = None
) -> dict[Lane, dict[bytes, LeafRecord]]:
    """Return the parts of all lanes in a state topic of the target, or in one of its partitions, by their keys.

    Raises:
        ReadFailed: There is no such topic.
        StateUnreadable: A record is not of a mirror.
    """
    found: dict[bytes, LeafRecord] = {}
    for message in _all(None, properties, topic, slot):
        key = message.key or b""
        record = decoded_leaf(f"{message.topic}/{message.partition} at {message.offset}", key, message.value)
        if record is not None:
            found[key] = record
        else:
            found.pop(key, None)
    of_lanes: dict[Lane, dict[bytes, LeafRecord]] = {}
    for key, record in found.items():
        of_lanes.setdefault(record.lane, {})[key] = record
    return of_lanes


def _all(
    zookeeper: str | None, properties: Mapping[str, object], topic: str, slot: int | None = None
) -> Iterator[Message]:
    given = {**properties, "isolation.level": "read_uncommitted"}
    with read_topic(zookeeper, topic, None if slot is None else [slot], properties=given) as reader:
        yield from reader
