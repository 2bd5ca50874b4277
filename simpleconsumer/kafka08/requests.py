"""Encodes requests and decodes responses of Kafka 0.8 and later, in the versions that 0.8.0 to 0.10 serve.

An encoder returns the body of a request, and `frame_request` adds size and header. A decoder takes the body of the
answer (behind the correlation id) and what was asked, and compares them: a partition that was not asked for, comes
twice or is missing is a `DecodeError`, as is every length or count that does not fit.

Every broker serves version 0. Brokers of 0.8 answer with version 0 of produce, fetch, offsets and metadata whatever
version was sent, so use a newer one only if the broker is known to serve it:
produce and fetch 1: 0.9; produce and fetch 2: 0.10.0; fetch 3 and offsets 1: 0.10.1; offset commit and fetch 0: 0.8.1;
offset commit and fetch 1: 0.8.2; offset commit 2: 0.9; delete groups 0: 1.1. From 0.10.0 on a broker lists what it
serves (API versions); 0.8 closes the connection on that request, and 0.9 does not answer it.

Source: kafka.api.* (0.8.2.2), org.apache.kafka.common.protocol.Protocol (0.10.2.2), DeleteGroupsRequest (1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final

from simpleconsumer.partition_rows import Partition, by_topic, in_order, read_topics
from simpleconsumer.primitives import (
    encode_array,
    encode_int32,
    encode_int64,
    encode_string,
    read_array,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    read_string,
    require_end,
)
from simpleconsumer.types import (
    Broker,
    Buffer,
    ClusterMetadata,
    FetchedPartition,
    FetchRequest,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionMetadata,
    ProducedPartition,
    TopicMetadata,
)

PRODUCE: Final = 0
FETCH: Final = 1
OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
CONSUMER_METADATA: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
API_VERSIONS: Final = 18
DELETE_GROUPS: Final = 42
NEWEST_VERSION: Final = {PRODUCE: 2, FETCH: 3, OFFSETS: 1, METADATA: 0, OFFSET_COMMIT: 2, OFFSET_FETCH: 1,
                         CONSUMER_METADATA: 0, JOIN_GROUP: 0, HEARTBEAT: 0, LEAVE_GROUP: 0, SYNC_GROUP: 0,
                         DESCRIBE_GROUPS: 0, LIST_GROUPS: 0, API_VERSIONS: 0, DELETE_GROUPS: 0}  # fmt: skip
"""The newest version of each API that this package supports."""

_HEADER = Struct(">ihhi")
_PRODUCE_HEAD = Struct(">hi")
_FETCH_HEAD = Struct(">iii")
_FETCH_PARTITION = Struct(">iqi")
_OFFSETS_PARTITION = Struct(">iqi")
_TIME_PARTITION = Struct(">iq")
_CONSUMER_REPLICA = -1
_NO_GENERATION = -1
_BROKER_RETENTION = -1
_BROKER_TIME = -1


def frame_request(
    api_key: int, version: int, correlation_id: int, client_id: str, body: bytes, tail_bytes: int = 0
) -> bytes:
    """Return a whole request: `int32 size, int16 api key, int16 version, int32 correlation id, string client id`, body.

    Args:
        tail_bytes: How many bytes the caller sends behind the body.

    Raises:
        ValueError: This package does not support that version of that API.
    """
    if not 0 <= version <= NEWEST_VERSION[api_key]:
        raise ValueError(f"version {version} of API {api_key}: 0 to {NEWEST_VERSION[api_key]} are spoken")
    name = encode_string(client_id)
    return _HEADER.pack(8 + len(name) + len(body) + tail_bytes, api_key, version, correlation_id) + name + body


def encode_produce(message_sets: Mapping[Partition, bytes], acks: int, timeout_ms: int) -> list[bytes]:
    """Return a produce request, the same in versions 0 to 2; with acks 0 no answer comes.

    It comes in pieces: every second one is a message set, which is not copied.
    """
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for (topic, number), data in message_sets.items():
        topics.setdefault(topic, []).append((number, data))
    head = _PRODUCE_HEAD.pack(acks, timeout_ms) + encode_int32(len(topics))
    pieces: list[bytes] = []
    for topic, rows in topics.items():
        head += encode_string(topic) + encode_int32(len(rows))
        for number, data in rows:
            pieces += head + encode_int32(number) + encode_int32(len(data)), data
            head = b""
    return pieces or [head]


def decode_produce(answer: Buffer, asked: Sequence[Partition], version: int) -> list[ProducedPartition]:
    """Return error code and base offset of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, ProducedPartition], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        base_offset, offset = read_int64(buffer, offset)
        if version >= 2:
            offset = read_int64(buffer, offset)[1]  # append time
        return (number, ProducedPartition(code, base_offset)), offset

    topics, end = read_topics(answer, 0, read, 14 if version < 2 else 22)
    if version >= 1:
        end = read_int32(answer, end)[1]  # throttle time, in produce at the end
    require_end(answer, end, "produce response")
    return in_order("produce", topics, asked)


def encode_fetch(
    requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int, version: int = 0, max_bytes: int = 0x7FFFFFFF
) -> bytes:
    """Return a fetch request; partitions are grouped by topic, in the order of first mention.

    Args:
        max_bytes: Most bytes of the whole answer; only version 3 can say so.
    """
    head = _FETCH_HEAD.pack(_CONSUMER_REPLICA, max_wait_ms, min_bytes)
    if version >= 3:
        head += encode_int32(max_bytes)
    return head + by_topic((r.topic, _FETCH_PARTITION.pack(r.partition, r.offset, r.max_bytes)) for r in requests)


def decode_fetch(answer: Buffer, requests: Sequence[FetchRequest], version: int = 0) -> list[FetchedPartition]:
    """Return one result for each request, in its order; message sets are views of `answer`.

    There is none at all if the broker throttles the client and reads no further request for some time.
    """

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, tuple[int, int, memoryview]], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        high_watermark, offset = read_int64(buffer, offset)
        if code and read_int32(buffer, offset)[0] == -1:  # as brokers of Kafka 3 have it beside some errors
            return (number, (code, high_watermark, memoryview(b""))), offset + 4
        message_set, offset = read_bytes(buffer, offset)
        return (number, (code, high_watermark, message_set)), offset

    start = read_int32(answer, 0)[1] if version >= 1 else 0  # throttle time, in fetch at the start
    topics, end = read_topics(answer, start, read, 18)
    require_end(answer, end, "fetch response")
    if not topics and (version < 1 or read_int32(answer, 0)[0] > 0):  # Kafka 2.0 and later: the client is throttled
        return []
    found = in_order("fetch", topics, [(r.topic, int(r.partition)) for r in requests])
    return [FetchedPartition(r.topic, r.partition, *result) for r, result in zip(requests, found, strict=True)]


def throttle(api_key: int, version: int, answer: Buffer) -> tuple[str, int]:
    """Return the name of a fetch or produce, and for how many ms the answer says that the client was throttled."""
    name, at = {FETCH: ("fetch", 0), PRODUCE: ("produce", len(answer) - 4)}.get(api_key, ("", -1))
    if version < 1 or not 0 <= at <= len(answer) - 4:
        return name, 0
    return name, max(read_int32(answer, at)[0], 0)


def encode_offsets(partitions: Iterable[Partition], time_ms: int, max_offsets: int) -> bytes:
    """Return a request for segment starts (and the end) of partitions before a time; -1 latest, -2 earliest."""
    wanted = ((topic, _OFFSETS_PARTITION.pack(number, time_ms, max_offsets)) for topic, number in partitions)
    return encode_int32(_CONSUMER_REPLICA) + by_topic(wanted)


def decode_offsets(answer: Buffer, asked: Sequence[Partition]) -> list[tuple[int, list[int]]]:
    """Return error code and offsets, newest first, of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, tuple[int, list[int]]], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        offsets, offset = read_array(buffer, offset, read_int64, 8)
        return (number, (code, offsets)), offset

    topics, end = read_topics(answer, 0, read, 10)
    require_end(answer, end, "offsets response")
    return in_order("offsets", topics, asked)


def encode_offsets_for_times(times_ms: Mapping[Partition, int]) -> bytes:
    """Return a request for the first message at or after a time in each partition: offsets of version 1."""
    wanted = ((topic, _TIME_PARTITION.pack(number, time_ms)) for (topic, number), time_ms in times_ms.items())
    return encode_int32(_CONSUMER_REPLICA) + by_topic(wanted)


def decode_offsets_for_times(answer: Buffer, asked: Sequence[Partition]) -> list[tuple[int, OffsetAndTimestamp]]:
    """Return error code, and offset and timestamp of the message, of each partition, in the order asked.

    No message at or after the time is offset -1 and timestamp -1, with code 0.
    """

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, tuple[int, OffsetAndTimestamp]], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        timestamp_ms, offset = read_int64(buffer, offset)
        found, offset = read_int64(buffer, offset)
        return (number, (code, OffsetAndTimestamp(found, timestamp_ms))), offset

    topics, end = read_topics(answer, 0, read, 22)
    require_end(answer, end, "offsets response")
    return in_order("offsets", topics, asked)


def decode_api_versions(answer: Buffer) -> tuple[int, dict[int, range]]:
    """Return error code, and for each API key the versions that the broker serves; the request has no body."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, range], int]:
        api_key, offset = read_int16(buffer, offset)
        oldest, offset = read_int16(buffer, offset)
        newest, offset = read_int16(buffer, offset)
        return (api_key, range(oldest, newest + 1)), offset

    code, offset = read_int16(answer, 0)
    served, end = read_array(answer, offset, read, 6)
    require_end(answer, end, "API versions response")
    return code, dict(served)


def encode_metadata(topics: Iterable[str]) -> bytes:
    """Return a metadata request; no topics means all topics."""
    return encode_array([encode_string(topic) for topic in topics])


def decode_metadata(answer: Buffer) -> ClusterMetadata:
    """Return brokers and topics, error codes included."""
    brokers, offset = read_array(answer, 0, _read_broker, 10)
    topics, offset = read_array(answer, offset, _read_topic_metadata, 8)
    require_end(answer, offset, "metadata response")
    return ClusterMetadata({broker.id: broker for broker in brokers}, {topic.topic: topic for topic in topics})


def encode_offset_commit(
    group: str, offsets: Mapping[Partition, OffsetAndMetadata], version: int = 0, timestamp_ms: int = _BROKER_TIME
) -> bytes:
    """Return an offset commit of a consumer that no broker coordinates.

    Version 0 is stored in ZooKeeper, 1 and 2 in Kafka. Versions 1 and 2 are of equal length: the int64 moves from
    behind each offset (timestamp) to before the topics (retention), so reading one as the other does not fail.

    Args:
        timestamp_ms: When the offsets were committed, from which the broker counts their retention; -1: now. Version 1
            alone has it.
    """
    head = encode_string(group)
    if version >= 1:
        head += encode_int32(_NO_GENERATION) + encode_string("")
    if version >= 2:
        head += encode_int64(_BROKER_RETENTION)
    timestamp = encode_int64(timestamp_ms) if version == 1 else b""
    return head + by_topic(
        (topic, encode_int32(number) + encode_int64(value.offset) + timestamp + encode_string(value.metadata))
        for (topic, number), value in offsets.items()
    )


def decode_offset_commit(answer: Buffer, asked: Sequence[Partition]) -> list[int]:
    """Return the error code of each partition, in the order asked; the same in all versions."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, int], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, code), offset

    topics, end = read_topics(answer, 0, read, 6)
    require_end(answer, end, "offset commit response")
    return in_order("offset commit", topics, asked)


def encode_offset_fetch(group: str, partitions: Iterable[Partition]) -> bytes:
    """Return an offset fetch, the same in versions 0 (from ZooKeeper) and 1 (from Kafka)."""
    return encode_string(group) + by_topic((topic, encode_int32(number)) for topic, number in partitions)


def decode_offset_fetch(answer: Buffer, asked: Sequence[Partition]) -> list[tuple[int, OffsetAndMetadata]]:
    """Return error code and committed offset of each partition, in the order asked.

    Nothing committed is offset -1, with code 3 in version 0 and code 0 in version 1.
    """

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, tuple[int, OffsetAndMetadata]], int]:
        number, offset = read_int32(buffer, offset)
        committed, offset = read_int64(buffer, offset)
        metadata, offset = read_nullable_string(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (number, (code, OffsetAndMetadata(committed, metadata or ""))), offset

    topics, end = read_topics(answer, 0, read, 16)
    require_end(answer, end, "offset fetch response")
    return in_order("offset fetch", topics, asked)


def encode_consumer_metadata(group: str) -> bytes:
    """Return a request for the broker that coordinates a group (and keeps its offsets in Kafka)."""
    return encode_string(group)


def decode_consumer_metadata(answer: Buffer) -> tuple[int, Broker]:
    """Return error code and coordinator (id and port -1 with an error)."""
    code, offset = read_int16(answer, 0)
    broker, offset = _read_broker(answer, offset)
    require_end(answer, offset, "consumer metadata response")
    return code, broker


def encode_delete_groups(groups: Iterable[str]) -> bytes:
    """Return a request that deletes groups with all offsets that a broker keeps of them in Kafka."""
    return encode_array([encode_string(group) for group in groups])


def decode_delete_groups(answer: Buffer) -> dict[str, int]:
    """Return the error code of each group."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[str, int], int]:
        group, offset = read_string(buffer, offset)
        code, offset = read_int16(buffer, offset)
        return (group, code), offset

    found, end = read_array(answer, read_int32(answer, 0)[1], read, 4)  # behind the throttle time
    require_end(answer, end, "delete groups response")
    return dict(found)


def _read_broker(buffer: Buffer, offset: int) -> tuple[Broker, int]:
    number, offset = read_int32(buffer, offset)
    host, offset = read_string(buffer, offset)
    port, offset = read_int32(buffer, offset)
    return Broker(number, host, port), offset


def _read_topic_metadata(buffer: Buffer, offset: int) -> tuple[TopicMetadata, int]:
    code, offset = read_int16(buffer, offset)
    topic, offset = read_string(buffer, offset)
    partitions, offset = read_array(buffer, offset, _read_partition_metadata, 18)
    return TopicMetadata(topic, code, tuple(partitions)), offset


def _read_partition_metadata(buffer: Buffer, offset: int) -> tuple[PartitionMetadata, int]:
    code, offset = read_int16(buffer, offset)
    number, offset = read_int32(buffer, offset)
    leader, offset = read_int32(buffer, offset)
    replicas, offset = read_array(buffer, offset, read_int32, 4)
    isr, offset = read_array(buffer, offset, read_int32, 4)
    return PartitionMetadata(number, None if leader == -1 else leader, tuple(replicas), tuple(isr), code), offset
