"""Encodes requests and decodes responses of Kafka 0.8 and later, in the versions that 0.8.0 to 0.10 serve.

An encoder returns the body of a request, and `frame_request` adds size and header. A decoder takes the body of the
answer (after the correlation id) and what was asked, and compares them: a partition that was not asked for, comes
twice or is missing is a `DecodeError`, as is every length or count that does not fit.

Every broker serves version 0. Brokers of 0.8 answer with version 0 of produce, fetch, offsets and metadata whatever
version was sent, so use a newer one only if the broker is known to serve it:
produce and fetch 1: 0.9; produce and fetch 2: 0.10.0; fetch 3 and offsets 1: 0.10.1; offset commit and fetch 0: 0.8.1;
offset commit and fetch 1: 0.8.2; offset commit 2: 0.9; delete groups 0: 1.1. From 0.10.0 on a broker lists the versions
that it serves (API versions); 0.8 closes the connection on that request, and 0.9 does not answer it.

Source: kafka.api.* (0.8.2.2), org.apache.kafka.common.protocol.Protocol (0.10.2.2), DeleteGroupsRequest (1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import (
    Partition,
    by_topic,
    encode_int32,
    encode_string,
    in_order,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_topics,
    require_end,
    results_of,
    topics_of,
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
_CONSUMER_REPLICA = -1
_NO_GENERATION = -1
_BROKER_TIME = -1


def frame_request(
    api_key: int, version: int, correlation_id: int, client_id: str, body: bytes, tail_bytes: int = 0
) -> bytes:
    """Return a whole request: `int32 size, int16 api key, int16 version, int32 correlation id, string client id`, body.

    Args:
        tail_bytes: How many bytes the caller sends after the body.

    Raises:
        ValueError: This package does not support that version of that API.
    """
    if not 0 <= version <= NEWEST_VERSION[api_key]:
        raise ValueError(f"version {version} of API {api_key} is not supported; 0 to {NEWEST_VERSION[api_key]} are")
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
    """Return error code, base offset and append time of each partition, in the order asked."""

    def read(buffer: Buffer, offset: int) -> tuple[tuple[int, ProducedPartition], int]:
        number, offset = read_int32(buffer, offset)
        code, offset = read_int16(buffer, offset)
        base_offset, offset = read_int64(buffer, offset)
        append_time_ms = -1
        if version >= 2:
            append_time_ms, offset = read_int64(buffer, offset)
        return (number, ProducedPartition(code, base_offset, append_time_ms)), offset

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
        if code and read_int32(buffer, offset)[0] == -1:  # as brokers of Kafka 3 send with some errors
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
    rows = [
        (topic, {"partition_index": number, "timestamp": time_ms, "max_num_offsets": max_offsets})
        for topic, number in partitions
    ]
    return apis.LIST_OFFSETS.request.encode(0, {"topics": topics_of(rows)})


def decode_offsets(answer: Buffer, asked: Sequence[Partition]) -> list[tuple[int, list[int]]]:
    """Return error code and offsets, newest first, of each partition, in the order asked."""
    values = apis.LIST_OFFSETS.decode(0, answer)
    return results_of("offsets", values["topics"], asked, lambda row: (row["error_code"], row["old_style_offsets"]))


def encode_offsets_for_times(times_ms: Mapping[Partition, int]) -> bytes:
    """Return a request for the first message at or after a time in each partition: offsets of version 1."""
    rows = [(topic, {"partition_index": number, "timestamp": time_ms}) for (topic, number), time_ms in times_ms.items()]
    return apis.LIST_OFFSETS.request.encode(1, {"topics": topics_of(rows)})


def decode_offsets_for_times(answer: Buffer, asked: Sequence[Partition]) -> list[tuple[int, OffsetAndTimestamp]]:
    """Return error code, and offset and timestamp of the message, of each partition, in the order asked.

    No message at or after the time is offset -1 and timestamp -1, with code 0.
    """

    def result(row: Values) -> tuple[int, OffsetAndTimestamp]:
        return row["error_code"], OffsetAndTimestamp(row["offset"], row["timestamp"])

    return results_of("offsets", apis.LIST_OFFSETS.decode(1, answer)["topics"], asked, result)


def decode_api_versions(answer: Buffer) -> tuple[int, dict[int, range]]:
    """Return error code, and for each API key the versions that the broker serves; the request has no body."""
    values = apis.API_VERSIONS.decode(0, answer)
    return values["error_code"], {
        row["api_key"]: range(row["min_version"], row["max_version"] + 1) for row in values["api_keys"]
    }


def encode_metadata(topics: Iterable[str]) -> bytes:
    """Return a metadata request; no topics means all topics."""
    return apis.METADATA.request.encode(0, {"topics": [{"name": topic} for topic in topics]})


def decode_metadata(answer: Buffer) -> ClusterMetadata:
    """Return brokers and topics, error codes included."""
    values = apis.METADATA.decode(0, answer)
    brokers = {row["node_id"]: Broker(row["node_id"], row["host"], row["port"]) for row in values["brokers"]}
    return ClusterMetadata(brokers, {row["name"]: _topic(row) for row in values["topics"]})


def _topic(row: Values) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            each["partition_index"], None if each["leader_id"] == -1 else each["leader_id"],
            tuple(each["replica_nodes"]), tuple(each["isr_nodes"]), each["error_code"],
        )
        for each in row["partitions"]
    )  # fmt: skip
    return TopicMetadata(row["name"], row["error_code"], partitions)


def encode_offset_commit(
    group: str, offsets: Mapping[Partition, OffsetAndMetadata], version: int = 0, timestamp_ms: int = _BROKER_TIME
) -> bytes:
    """Return an offset commit of a consumer that no broker coordinates.

    Version 0 is stored in ZooKeeper, 1 and 2 in Kafka. Versions 1 and 2 are of equal length: the int64 moves from
    after each offset (timestamp) to before the topics (retention), so reading one as the other does not fail.

    Args:
        timestamp_ms: When the offsets were committed, from which the broker counts their retention; -1: now. Version 1
            alone has it.
    """
    rows = [
        (topic, {"partition_index": number, "committed_offset": value.offset, "commit_timestamp": timestamp_ms,
                 "committed_metadata": value.metadata})
        for (topic, number), value in offsets.items()
    ]  # fmt: skip
    values = {"group_id": group, "generation_id": _NO_GENERATION, "member_id": "", "topics": topics_of(rows)}
    return apis.OFFSET_COMMIT.request.encode(version, values)


def decode_offset_commit(answer: Buffer, asked: Sequence[Partition]) -> list[int]:
    """Return the error code of each partition, in the order asked; the same in all versions."""
    values = apis.OFFSET_COMMIT.decode(0, answer)
    return results_of("offset commit", values["topics"], asked, lambda row: int(row["error_code"]))


def encode_offset_fetch(group: str, partitions: Iterable[Partition]) -> bytes:
    """Return an offset fetch, the same in versions 0 (from ZooKeeper) and 1 (from Kafka)."""
    return apis.OFFSET_FETCH.request.encode(0, {"group_id": group, "topics": topics_of(partitions)})


def decode_offset_fetch(answer: Buffer, asked: Sequence[Partition]) -> list[tuple[int, OffsetAndMetadata]]:
    """Return error code and committed offset of each partition, in the order asked.

    Nothing committed is offset -1, with code 3 in version 0 and code 0 in version 1.
    """

    def result(row: Values) -> tuple[int, OffsetAndMetadata]:
        return row["error_code"], OffsetAndMetadata(row["committed_offset"], row["metadata"] or "")

    return results_of("offset fetch", apis.OFFSET_FETCH.decode(0, answer)["topics"], asked, result)


def encode_consumer_metadata(group: str) -> bytes:
    """Return a request for the broker that coordinates a group (and keeps its offsets in Kafka)."""
    return apis.FIND_COORDINATOR.request.encode(0, {"key": group})


def decode_consumer_metadata(answer: Buffer) -> tuple[int, Broker]:
    """Return error code and coordinator (id and port -1 with an error)."""
    values = apis.FIND_COORDINATOR.decode(0, answer)
    return values["error_code"], Broker(values["node_id"], values["host"], values["port"])


def encode_delete_groups(groups: Iterable[str]) -> bytes:
    """Return a request that deletes groups with all offsets that a broker keeps of them in Kafka."""
    return apis.DELETE_GROUPS.request.encode(0, {"groups_names": list(groups)})


def decode_delete_groups(answer: Buffer) -> dict[str, int]:
    """Return the error code of each group."""
    return {row["group_id"]: row["error_code"] for row in apis.DELETE_GROUPS.decode(0, answer)["results"]}
