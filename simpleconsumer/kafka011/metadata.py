"""Metadata: the brokers of a cluster, and the leaders of topics.

Source: MetadataRequest.json, MetadataResponse.json (4.3). Version 1 says which topics are internal, 2 the cluster's
name, 4 takes a flag against the creation of topics, 7 has leader epochs, 10 and later have topic ids.
"""

from __future__ import annotations

from collections.abc import Collection

from simpleconsumer.kafka011.apis import METADATA
from simpleconsumer.kafka011.layout import (
    CLASSIC,
    FLEXIBLE,
    Layout,
    encode_compact_array,
    encode_compact_string,
    read_bool,
    read_uuid,
)
from simpleconsumer.primitives import (
    encode_array,
    encode_string,
    read_int16,
    read_int32,
    require_end,
)
from simpleconsumer.types import Broker, Buffer, ClusterMetadata, PartitionMetadata, TopicMetadata

__all__ = ["decode_metadata", "encode_metadata"]

_ALL_TOPICS = b"\xff\xff\xff\xff"
_ALL_TOPICS_COMPACT = b"\0"
_NO_ID = bytes(16)
_UNKNOWN_TOPIC = 3


def encode_metadata(topics: Collection[str] | None, version: int, *, create: bool = True) -> bytes:
    """Return a metadata request.

    Args:
        topics: Those that are asked about; None for all of them, which creates none, and none of them for the brokers
            alone.
        create: Whether the broker may create topics that do not exist. Before version 4 it does as it is set up.
    """
    if version < METADATA.flexible_from:
        listed = encode_array([encode_string(topic) for topic in topics]) if topics is not None else _ALL_TOPICS
        return listed + _flags(version, create)
    # In version 10 and later a topic can be named by its id instead, and 12 alone takes a null name then.
    rows = (_NO_ID + encode_compact_string(topic) + b"\0" for topic in topics or ())
    listed = encode_compact_array(rows) if topics is not None else _ALL_TOPICS_COMPACT
    return listed + _flags(version, create) + b"\0"


def _flags(version: int, create: bool) -> bytes:
    """Return the booleans of a request: creation, and whether to list what the caller may do (never)."""
    if version < 4:
        return b""
    operations = 0 if version < 8 else 2 if version <= 10 else 1
    return bytes([create]) + bytes(operations)


def decode_metadata(answer: Buffer, version: int, asked: Collection[str] | None = None) -> ClusterMetadata:
    """Return brokers and topics, error codes included.

    Args:
        asked: The topics that are wanted; None for all that came. One that did not come gets code 3, as a broker that
            was asked for all topics leaves it out.
    """
    layout = FLEXIBLE if version >= METADATA.flexible_from else CLASSIC
    offset = layout.end(answer, 0)  # of the header
    if version >= 3:
        _, offset = read_int32(answer, offset)  # throttle time
    brokers, offset = layout.read_array(answer, offset, _BrokerReader(layout), 11)
    cluster_id: str | None = None
    if version >= 2:
        cluster_id, offset = layout.read_nullable_string(answer, offset)
    _, offset = read_int32(answer, offset)  # controller
    topics, offset = layout.read_array(answer, offset, _TopicReader(layout, version), 9)
    if 8 <= version <= 10:
        _, offset = read_int32(answer, offset)  # what the caller may do to the cluster
    require_end(answer, layout.end(answer, offset), "metadata response")
    by_name = {topic.topic: topic for topic in topics}
    if asked is not None:
        by_name = {name: by_name.get(name, TopicMetadata(name, _UNKNOWN_TOPIC, ())) for name in asked}
    return ClusterMetadata({broker.id: broker for broker in brokers}, by_name, cluster_id)


class _BrokerReader:
    """Reads one broker."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def __call__(self, buffer: Buffer, offset: int) -> tuple[Broker, int]:
        number, offset = read_int32(buffer, offset)
        host, offset = self._layout.read_string(buffer, offset)
        port, offset = read_int32(buffer, offset)
        _, offset = self._layout.read_nullable_string(buffer, offset)  # rack
        # Fetch and commit versions are what every broker serves that lists its versions.
        return Broker(number, host, port, 2, "kafka011", 2), self._layout.end(buffer, offset)


class _TopicReader:
    """Reads one topic with its partitions."""

    def __init__(self, layout: Layout, version: int) -> None:
        self._layout = layout
        self._version = version

    def __call__(self, buffer: Buffer, offset: int) -> tuple[TopicMetadata, int]:
        layout, version = self._layout, self._version
        code, offset = read_int16(buffer, offset)
        if version >= 12:  # null for an unknown topic that was asked for by its id, which is never done here
            name, offset = layout.read_nullable_string(buffer, offset)
        else:
            name, offset = layout.read_string(buffer, offset)
        topic_id: str | None = None
        if version >= 10:
            topic_id, offset = read_uuid(buffer, offset)
        is_internal, offset = read_bool(buffer, offset)
        partitions, offset = layout.read_array(buffer, offset, self._read_partition, 18)
        if version >= 8:
            _, offset = read_int32(buffer, offset)  # what the caller may do
        topic = TopicMetadata(name or "", code, tuple(partitions), topic_id, is_internal)
        return topic, layout.end(buffer, offset)

    def _read_partition(self, buffer: Buffer, offset: int) -> tuple[PartitionMetadata, int]:
        layout, version = self._layout, self._version
        code, offset = read_int16(buffer, offset)
        number, offset = read_int32(buffer, offset)
        leader, offset = read_int32(buffer, offset)
        epoch = -1
        if version >= 7:
            epoch, offset = read_int32(buffer, offset)
        replicas, offset = layout.read_array(buffer, offset, read_int32, 4)
        isr, offset = layout.read_array(buffer, offset, read_int32, 4)
        if version >= 5:
            _, offset = layout.read_array(buffer, offset, read_int32, 4)  # replicas that are offline
        partition = PartitionMetadata(
            number, None if leader == -1 else leader, tuple(replicas), tuple(isr), code, epoch
        )
        return partition, layout.end(buffer, offset)
