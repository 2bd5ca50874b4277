"""Committed offsets in Kafka (offset commit and fetch of version 1): records in the topic `__consumer_offsets`.

Key: `int16 0, string group, string topic, int32 partition`; value: `int16 0, int64 offset, string metadata, int64
timestamp ms`, null for a deletion. The newest record of a key counts; the topic is never compacted here.

Source: kafka.server.OffsetManager (0.8.2.2).

Committed offsets of groups as one broker stores and reads them: in the registry, or in Kafka if it coordinates.

The topics in which brokers keep what they coordinate: offsets of groups, and states of transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from struct import Struct, pack
from typing import Final

from zkconsumer.testing.embedded.cluster_image import Cluster, Host
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.messages import (
    ENTRY_OVERHEAD,
    UNKNOWN,
    Refusal,
    deep_messages,
    key_of,
    plain_entry,
    value_of,
)
from zkconsumer.testing.embedded.protocol import BrokerAddress, CommittedOffset
from zkconsumer.testing.embedded.registries.registry import RegistryUnavailable
from zkconsumer_error import ErrorCode

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_CONFIG: Final[dict[str, object]] = {"segment.bytes": 100 * 1024 * 1024, "cleanup.policy": "compact"}
_READ_BYTES = 1024 * 1024
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_VALUE = Struct(">hq")
_INT64 = Struct(">q")
Key = tuple[str, str, int]


class GroupOffsets:
    """The offsets in one log of the offsets topic, read once and kept up to date by `commit`.

    Threads: every method from any thread.
    """

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self._lock = threading.Lock()
        self._offsets: dict[Key, CommittedOffset] = {}
        position = log.start_offset
        while position < log.end_offset:
            with log.read(position, _READ_BYTES) as part:
                data = part.read()
            for message in deep_messages(data):
                self._take(message)
            position = _behind(data, log.end_offset)

    def _take(self, message: memoryview) -> None:
        key, value = key_of(message), value_of(message)
        if key is None or _INT16.unpack_from(key)[0] > 1:
            return
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        where = (group, topic, int(_INT32.unpack_from(key, at)[0]))
        if value is None:
            self._offsets.pop(where, None)
            return
        _, offset = _VALUE.unpack_from(value)
        metadata, at = _text(value, _VALUE.size)
        self._offsets[where] = CommittedOffset(offset, metadata, _INT64.unpack_from(value, at)[0])

    def commit(self, group: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        """Append a record.

        Raises:
            Refusal: the log refused it.
        """
        stamp = offset.timestamp_ms if offset.timestamp_ms >= 0 else time.time_ns() // 1_000_000
        key = pack(">h", 0) + _sized(group) + _sized(topic) + _INT32.pack(partition)
        value = _VALUE.pack(0, offset.offset) + _sized(offset.metadata) + _INT64.pack(stamp)
        with self._lock:
            self.log.append(plain_entry(0, key, value))
            self._offsets[group, topic, partition] = offset._replace(timestamp_ms=stamp)

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return what was committed last."""
        with self._lock:
            return self._offsets.get((group, topic, partition))

    def partitions(self, group: str) -> list[tuple[str, int]]:
        """Return the partitions of which a group has offsets."""
        with self._lock:
            return sorted((topic, partition) for owner, topic, partition in self._offsets if owner == group)


def _behind(message_set: bytes, end_offset: int) -> int:
    """Return the offset after the last whole entry."""
    position, offset = 0, end_offset - 1
    while position + ENTRY_OVERHEAD <= len(message_set):
        (found,), (size,) = _INT64.unpack_from(message_set, position), _INT32.unpack_from(message_set, position + 8)
        if position + ENTRY_OVERHEAD + size > len(message_set):
            break
        offset = found
        position += ENTRY_OVERHEAD + size
    return int(offset) + 1


def _text(view: memoryview, at: int) -> tuple[str, int]:
    end = at + 2 + int(_INT16.unpack_from(view, at)[0])
    return str(view[at + 2 : end], "utf-8", "replace"), end


def _sized(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final[Mapping[str, dict[str, object]]] = {
    OFFSETS_TOPIC: OFFSETS_CONFIG,
    TRANSACTIONS_TOPIC: {"segment.bytes": 100 * 1024 * 1024, "cleanup.policy": "compact"},
}
"""Settings by name; each has one partition, so one broker coordinates all groups, or all transactions."""


def make_internal(cluster: Cluster, topic: str) -> None:
    """Make one of these topics; its leader follows."""
    cluster.create_automatically(topic, partitions=1, config=INTERNAL_TOPICS[topic])


def coordinator_by(cluster: Cluster, topic: str) -> BrokerAddress | None:
    """Return the leader of the only partition of one of these topics.

    The topic is made if there is none; None until it has a leader.
    """
    image = cluster.image
    if topic not in image.topics:
        make_internal(cluster, topic)
        return None
    return image.brokers.get(image.topics[topic][0][1].leader)


MAX_METADATA_BYTES: Final = 4096


class OffsetStorage:
    """The offsets of all groups.

    Threads: every method from any thread.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._group_offsets: GroupOffsets | None = None

    def commit(
        self, group: str, topic: str, partition: int, offset: CommittedOffset, *, in_registry: bool = False
    ) -> None:
        """Store an offset.

        Args:
            in_registry: where ZooKeeper consumers keep theirs, else in Kafka.

        Raises:
            Refusal: 3 there is no such topic, 12 the metadata is too large, 16 another broker coordinates, -1 the
                registry did not answer.
        """
        self._require_topic(topic)
        if len(offset.metadata.encode()) > MAX_METADATA_BYTES:
            raise Refusal(ErrorCode.OFFSET_METADATA_TOO_LARGE, f"metadata above {MAX_METADATA_BYTES} bytes")
        if not in_registry:
            self.in_kafka().commit(group, topic, partition, offset)
            return
        try:
            self._host.cluster.registry.commit_offset(group, topic, partition, offset.offset)
        except RegistryUnavailable as error:
            raise Refusal(UNKNOWN, str(error)) from error

    def committed(self, group: str, topic: str, partition: int, *, in_registry: bool = False) -> CommittedOffset | None:
        """Return a stored offset; None without one in Kafka.

        Raises:
            Refusal: 3 there is no such partition, or no offset in the registry; 16 and -1 as for `commit`.
        """
        if in_registry:
            return self._registered(group, topic, partition)
        if partition not in self._host.cluster.image.topics.get(topic, {}):
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}/{partition} does not exist")
        return self.in_kafka().committed(group, topic, partition)

    def _registered(self, group: str, topic: str, partition: int) -> CommittedOffset:
        self._require_topic(topic)
        try:
            offset = self._host.cluster.registry.committed_offset(group, topic, partition)
        except RegistryUnavailable as error:
            raise Refusal(UNKNOWN, str(error)) from error
        if offset is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"group {group} has no offset of {topic}/{partition}")
        return CommittedOffset(offset, "")

    def _require_topic(self, topic: str) -> None:
        if topic not in self._host.cluster.image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")

    def in_kafka(self) -> GroupOffsets:
        """Return the offsets kept in Kafka.

        Raises:
            Refusal: 16 this broker does not coordinate.
        """
        try:
            log = self._host.log(OFFSETS_TOPIC, 0)
        except Refusal as refusal:
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC}/0 is not led here") from refusal
        with self._lock:
            if self._group_offsets is None or self._group_offsets.log is not log:
                self._group_offsets = GroupOffsets(log)
            return self._group_offsets

    def coordinator(self) -> BrokerAddress | None:
        """Return the coordinator of all groups, the leader of the only partition of the offsets topic.

        The topic is made if there is none; None until it has a leader.
        """
        return coordinator_by(self._host.cluster, OFFSETS_TOPIC)
