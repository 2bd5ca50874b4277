"""Committed offsets of groups as one broker stores and reads them: in the registry, or in Kafka if it coordinates."""

from __future__ import annotations

import threading
from typing import Final

from zkconsumer.testing.embedded.cluster_image import Host
from zkconsumer.testing.embedded.disk.messages import UNKNOWN, Refusal
from zkconsumer.testing.embedded.internal_topics import coordinator_by
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC, GroupOffsets
from zkconsumer.testing.embedded.protocol import BrokerAddress, CommittedOffset
from zkconsumer.testing.embedded.registries.registry import RegistryUnavailable
from zkconsumer_error import ErrorCode

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

    def committed(
        self, group: str, topic: str, partition: int, *, in_registry: bool = False
    ) -> CommittedOffset | None:
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
