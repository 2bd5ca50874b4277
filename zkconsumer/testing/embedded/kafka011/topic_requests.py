"""The requests about brokers and logs: ApiVersions, Metadata, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, ...

Source: kafka.server.KafkaApis.handleApiVersionsRequest, handleTopicMetadataRequest, handleListOffsetRequest,
handleOffsetForLeaderEpochRequest, MetadataCache, kafka.log.Log.fetchOffsetByTimestamp,
kafka.cluster.Partition.fetchOffsetForTimestamp (1.1, 2.8); the schemas of Kafka 4.3.
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import topics_of
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.cluster_image import ClusterImage
from zkconsumer.testing.embedded.disk.log import EARLIEST, LATEST
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.batches import UNKNOWN_EPOCH
from zkconsumer.testing.embedded.leadership import NO_LEADER, PartitionState, is_legal_topic
from zkconsumer.testing.embedded.offsets import INTERNAL_TOPICS, make_internal
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer_error import ErrorCode

_TO_THE_END: Final = -1
_NOBODY: Final = -1


# -- ApiVersions: a version that is not known is answered, too, in the encoding of version 0 ---------------------------


_FIRST_THAT_NAMES_THE_RANGE: Final = 3
"""Brokers that serve this version of ApiVersions (2.4 and later) say so when they refuse another one."""


def _answer_api_versions(asked: Asked[Values]) -> Values | list[Part]:
    served = asked.host.served
    code = asked.errors.get(("", -1), 0)
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return [refused_version(served[apis.API_VERSIONS.key])]
    return {"error_code": code, "api_keys": [
        {"api_key": key, "min_version": each.start, "max_version": each.stop - 1}
        for key, each in ([] if code else sorted(served.items()))
    ]}  # fmt: skip


def refused_version(own: range) -> bytes:
    """Return the answer to an unknown version of this request.

    Args:
        own: the versions of it that are served.
    """
    newest = own.stop - 1
    if newest < _FIRST_THAT_NAMES_THE_RANGE:
        return pack(">hi", ErrorCode.UNSUPPORTED_VERSION, 0)
    return pack(">hihhh", ErrorCode.UNSUPPORTED_VERSION, 1, apis.API_VERSIONS.key, own.start, newest)


API_VERSIONS: Final = ServedApi(
    apis.API_VERSIONS, "api_versions", range(4), lambda values, version: values, _answer_api_versions
)


# -- Metadata: brokers, topics and leaders -----------------------------------------------------------------------------


_UNKNOWN_OPERATIONS: Final = -(1 << 31)


class Metadata(NamedTuple):
    """Names of topics, None for all of them, and whether missing ones may be created."""

    topics: list[str] | None
    may_create: bool


def _read_metadata(values: Values, version: int) -> Metadata:
    rows = values["topics"]
    topics = None if rows is None or (version == 0 and not rows) else [row["name"] or "" for row in rows]
    return Metadata(topics, values.get("allow_auto_topic_creation", True))


def _topics_of_metadata(body: Metadata) -> list[TopicPartition]:
    return [(topic, -1) for topic in body.topics] if body.topics else [("", -1)]


def _answer_metadata(asked: Asked[Metadata]) -> Values:
    image, names = asked.host.cluster.image, asked.body.topics
    listed = sorted(image.topics) if names is None else list(dict.fromkeys(names))
    brokers = sorted(image.brokers.values())
    return {
        "brokers": [{"node_id": each.broker_id, "host": each.host, "port": each.port} for each in brokers],
        "cluster_id": asked.host.cluster.registry.cluster_id() if asked.version >= 2 else None,
        "controller_id": brokers[0].broker_id if brokers else NO_LEADER,
        "topics": [_topic(asked, image, name) for name in listed],
        "cluster_authorized_operations": _UNKNOWN_OPERATIONS,
    }  # fmt: skip


def _topic(asked: Asked[Metadata], image: ClusterImage, name: str) -> Values:
    code, partitions = _found_topic(asked, image, name)
    topic_id = image.topic_ids.get(name)
    return {
        "error_code": code, "name": name, "topic_id": topic_id.hex() if topic_id else None,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [_partition(asked, image, name, *each) for each in sorted(partitions.items())],
        "topic_authorized_operations": _UNKNOWN_OPERATIONS,
    }  # fmt: skip


def _found_topic(
    asked: Asked[Metadata], image: ClusterImage, name: str
) -> tuple[int, dict[int, tuple[tuple[int, ...], PartitionState]]]:
    """Return error code and partitions of a topic, which is made if it does not exist and may be."""
    errors, cluster = asked.errors, asked.host.cluster
    code = errors.get((name, -1)) or errors.get(("", -1), 0)
    if code:
        return code, {}
    if name in image.topics:
        return 0, image.topics[name]
    if not is_legal_topic(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, {}
    if not asked.body.may_create or not (cluster.auto_create_topics or name in INTERNAL_TOPICS):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {}
    if name in INTERNAL_TOPICS:
        make_internal(cluster, name)
    else:
        cluster.create_automatically(name, config={})
    return ErrorCode.LEADER_NOT_AVAILABLE, {}


def _partition(
    asked: Asked[Metadata], image: ClusterImage, topic: str, number: int,
    each: tuple[tuple[int, ...], PartitionState],
) -> Values:  # fmt: skip
    replicas, state = each
    code, leader = _leader(image, state)
    isr = state.isr
    if asked.version == 0:
        code, replicas, isr = _of_version_0(image, code, replicas, state)
    return {
        "error_code": asked.errors.get((topic, number), code), "partition_index": number, "leader_id": leader,
        "leader_epoch": state.leader_epoch, "replica_nodes": replicas, "isr_nodes": isr,
        "offline_replicas": [replica for replica in replicas if replica not in image.brokers],
    }  # fmt: skip


def _of_version_0(
    image: ClusterImage, code: int, replicas: tuple[int, ...], state: PartitionState
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return error code, replicas and replicas in sync as version 0 names them: living ones alone."""
    living = tuple(each for each in replicas if each in image.brokers)
    isr = () if code else tuple(each for each in state.isr if each in image.brokers)
    is_whole = len(living) == len(replicas) and len(isr) == len(state.isr)
    return code if code or is_whole else ErrorCode.REPLICA_NOT_AVAILABLE, living, isr


def _leader(image: ClusterImage, state: PartitionState) -> tuple[int, int]:
    """Return error code and leader of a partition."""
    if state.leader == NO_LEADER or state.leader not in image.brokers:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    return 0, state.leader


METADATA: Final = ServedApi(apis.METADATA, "metadata", range(13), _read_metadata, _answer_metadata, _topics_of_metadata)


# -- ListOffsets: ends of logs, and the first message at or after a time; version 0 lists the starts of segments -------


class ListOffsets(NamedTuple):
    """Rows by partition; `is_committed`: the log ends for the client where the first open transaction begins."""

    wanted: dict[TopicPartition, Values]
    is_committed: bool


def _rows_of(values: Values) -> dict[TopicPartition, Values]:
    """Return the rows of a request by partition; of a partition that comes twice the last."""
    return {(topic["name"], row["partition_index"]): row for topic in values["topics"] for row in topic["partitions"]}


def _read_offsets(values: Values, version: int) -> ListOffsets:
    return ListOffsets(_rows_of(values), bool(values.get("isolation_level", 0)))


def _answer_offsets(asked: Asked[ListOffsets]) -> Values:
    return {"topics": topics_of((where[0], _offsets(asked, where, row)) for where, row in asked.body.wanted.items())}


def _offsets(asked: Asked[ListOffsets], where: TopicPartition, row: Values) -> Values:
    code, stamp, offset, epoch = 0, -1, -1, UNKNOWN_EPOCH
    starts: list[int] = []
    try:
        refuse(asked.errors, where)
        if asked.version == 0:
            starts = asked.host.log(*where).offsets_before(row["timestamp"], row["max_num_offsets"])
        else:
            stamp, offset, epoch = _found_offset(asked, where, row)
    except Refusal as refusal:
        code = refusal.code
    return {
        "partition_index": where[1], "error_code": code, "old_style_offsets": starts, "timestamp": stamp,
        "offset": offset, "leader_epoch": epoch,
    }  # fmt: skip


def _found_offset(asked: Asked[ListOffsets], where: TopicPartition, row: Values) -> tuple[int, int, int]:
    """Return timestamp, offset and epoch; an offset after the end for the client counts as not found."""
    log = asked.host.log(*where)
    log.require_epoch(row.get("current_leader_epoch", UNKNOWN_EPOCH))
    if row["timestamp"] == LATEST:
        end = log.last_stable_offset if asked.body.is_committed else log.end_offset
        return -1, end, log.leader_epoch
    if row["timestamp"] == EARLIEST:
        return -1, log.start_offset, log.epoch_at(log.start_offset)
    found = log.at_time(row["timestamp"])
    if found is None or (asked.body.is_committed and found.offset >= log.last_stable_offset):
        return -1, -1, UNKNOWN_EPOCH
    return found.timestamp_ms, found.offset, log.epoch_at(found.offset)


LIST_OFFSETS: Final = ServedApi(
    apis.LIST_OFFSETS, "offsets", range(6), _read_offsets, _answer_offsets, lambda body: list(body.wanted)
)


# -- OffsetForLeaderEpoch: where an epoch of a partition's leader ended ------------------------------------------------


def _answer_epochs(asked: Asked[dict[TopicPartition, Values]]) -> Values:
    return {"topics": topics_of((where[0], _epoch_end(asked, where, row)) for where, row in asked.body.items())}


def _epoch_end(asked: Asked[dict[TopicPartition, Values]], where: TopicPartition, row: Values) -> Values:
    code, epoch, end = 0, UNKNOWN_EPOCH, -1
    try:
        refuse(asked.errors, where)
        log = asked.host.log(*where)
        log.require_epoch(row.get("current_leader_epoch", UNKNOWN_EPOCH))
        epoch, end = log.epoch_end(row["leader_epoch"])
    except Refusal as refusal:
        code = refusal.code
    return {"error_code": code, "partition_index": where[1], "leader_epoch": epoch, "end_offset": end}


OFFSET_FOR_LEADER_EPOCH: Final = ServedApi(
    apis.OFFSET_FOR_LEADER_EPOCH, "offset_for_leader_epoch", range(4), lambda values, version: _rows_of(values),
    _answer_epochs, list,
)  # fmt: skip


# -- DeleteRecords: the log of a partition starts at an offset ---------------------------------------------------------


def _read_records(values: Values, version: int) -> dict[TopicPartition, int]:
    return {
        (topic["name"], row["partition_index"]): row["offset"] for topic in values["topics"]
        for row in topic["partitions"]
    }  # fmt: skip


def _answer_records(asked: Asked[dict[TopicPartition, int]]) -> Values:
    return {"topics": topics_of((where[0], _cut(asked, where, offset)) for where, offset in asked.body.items())}


def _cut(asked: Asked[dict[TopicPartition, int]], where: TopicPartition, offset: int) -> Values:
    code, start = 0, _NOBODY
    try:
        refuse(asked.errors, where)
        log = asked.host.log(*where)
        start = log.delete_records(log.end_offset if offset == _TO_THE_END else offset)
    except Refusal as refusal:
        code = refusal.code
    return {"partition_index": where[1], "low_watermark": start, "error_code": code}


DELETE_RECORDS: Final = ServedApi(apis.DELETE_RECORDS, "delete_records", range(3), _read_records, _answer_records, list)


# -- DescribeProducers -------------------------------------------------------------------------------------------------


def _read_partitions(values: Values, version: int) -> list[TopicPartition]:
    return [(topic["name"], number) for topic in values["topics"] for number in topic["partition_indexes"]]


def _answer_producers(asked: Asked[list[TopicPartition]]) -> Values:
    return {"topics": topics_of((where[0], _producers(asked, where)) for where in asked.body)}


def _producers(asked: Asked[list[TopicPartition]], where: TopicPartition) -> Values:
    code, message, rows = 0, None, []
    try:
        refuse(asked.errors, where)
        rows = [
            {"producer_id": each.producer_id, "producer_epoch": each.epoch, "last_sequence": each.last_sequence,
             "last_timestamp": each.last_timestamp_ms, "coordinator_epoch": _NOBODY,
             "current_txn_start_offset": _NOBODY if each.transaction_start is None else each.transaction_start}
            for each in asked.host.log(*where).active_producers()
        ]  # fmt: skip
    except Refusal as refusal:
        code, message = refusal.code, None
    return {"partition_index": where[1], "error_code": code, "error_message": message, "active_producers": rows}


DESCRIBE_PRODUCERS: Final = ServedApi(
    apis.DESCRIBE_PRODUCERS, "describe_producers", range(1), _read_partitions, _answer_producers, list
)
