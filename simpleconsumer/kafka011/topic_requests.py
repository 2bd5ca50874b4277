"""The requests about brokers and topics: served versions, leaders, ends of logs, settings of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from simpleconsumer.dialect_types import Request, VersionedRequest, numbered
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.calls import call, request_of, serves
from simpleconsumer.messages import topics as apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import Partition, results_of, topics_of
from simpleconsumer.types import (
    Broker,
    ClusterMetadata,
    EpochEnd,
    LogEnd,
    OffsetAndTimestamp,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
)
from zkconsumer_error import ErrorCode

_LATEST: Final = -1
_DEBUGGING: Final = -2
"""As the id of a replica: whoever looks at logs as they are."""
_EARLIEST: Final = -2
_FIRST_WITHOUT_CREATION: Final = 4
_TOPIC_RESOURCE: Final = 2
_FIRST_FETCH_OF_KAFKA_4: Final = 4
_FIRST_PRODUCE_OF_KAFKA_4: Final = 3

Settings = Mapping[str, str | None]


class TopicRequests:
    """The part of a dialect that makes the requests about brokers and topics."""

    # -- ends of logs --------------------------------------------------------------------------------------------------

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int, *, read_committed: bool = False
    ) -> list[VersionedRequest[list[tuple[int, list[int]]]]]:
        """Return one request for all partitions.

        Ends of logs are served in all versions. Starts of segments are in version 0 alone, which Kafka 4 does not have.
        """
        wanted = [numbered(partition) for partition in partitions]
        is_one = time_ms == _EARLIEST or (time_ms == _LATEST and max_offsets == 1)

        def result(row: Values) -> tuple[int, list[int]]:
            if "old_style_offsets" in row:
                return row["error_code"], row["old_style_offsets"]
            return row["error_code"], [row["offset"]] if row["offset"] >= 0 else []

        versions = apis.LIST_OFFSETS.versions
        return [call(
            apis.LIST_OFFSETS, _times(dict.fromkeys(wanted, time_ms), read_committed, max_offsets),
            lambda answer: results_of("offsets", answer["topics"], wanted, result),
            versions if is_one else versions[:1], can_resend=True,
        )]  # fmt: skip

    def log_ends(
        self, partitions: Sequence[TopicPartition], *, read_committed: bool = False
    ) -> VersionedRequest[list[LogEnd]]:
        """Return the request for the ends of logs, with the epochs of their leaders from Kafka 2.1 on.

        Kafka 0.10.1 and later.

        Source: kafka.cluster.Partition.fetchOffsetForTimestamp (2.8): the leader's current epoch comes with an end.
        """
        wanted = [numbered(partition) for partition in partitions]
        return call(
            apis.LIST_OFFSETS, _times(dict.fromkeys(wanted, _LATEST), read_committed),
            lambda answer: results_of("list offsets", answer["topics"], wanted, _log_end),
            apis.LIST_OFFSETS.versions[1:], can_resend=True,
        )  # fmt: skip

    def appended_ends(self, epochs: Mapping[TopicPartition, int]) -> VersionedRequest[list[LogEnd]]:
        """Return the request for the ends of what leaders have appended, whether or not replicas have it.

        Kafka 0.10.1 and later. `log_ends` returns less where replicas lag behind: the high watermark. A follower
        answers, too, before Kafka 2.1; later ones compare the epoch.

        Args:
            epochs: Partition -> the epoch of its leader, as `log_ends` has returned it; -1: not known.

        Source: kafka.cluster.Partition.fetchOffsetForTimestamp, ListOffsetsRequest.DEBUGGING_REPLICA_ID (0.11 to 4.3).
        """
        wanted = {numbered(partition): epoch for partition, epoch in epochs.items()}
        rows = [
            (topic, {"partition_index": number, "timestamp": _LATEST, "current_leader_epoch": epoch})
            for (topic, number), epoch in wanted.items()
        ]
        return call(
            apis.LIST_OFFSETS, {"replica_id": _DEBUGGING, "isolation_level": 0, "topics": topics_of(rows)},
            lambda answer: results_of("list offsets", answer["topics"], list(wanted), _log_end),
            apis.LIST_OFFSETS.versions[1:], can_resend=True,
        )  # fmt: skip

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> VersionedRequest[list[tuple[int, OffsetAndTimestamp]]]:
        """Return the request for the first messages at or after some times: Kafka 0.10.1 and later.

        A partition without such a message has offset -1 and timestamp -1, with code 0.
        """
        wanted = {numbered(partition): time_ms for partition, time_ms in times_ms.items()}

        def result(row: Values) -> tuple[int, OffsetAndTimestamp]:
            epoch = row.get("leader_epoch", -1)  # in which the message was written
            return row["error_code"], OffsetAndTimestamp(row["offset"], row["timestamp"], epoch)

        return call(
            apis.LIST_OFFSETS, _times(wanted, read_committed),
            lambda answer: results_of("list offsets", answer["topics"], list(wanted), result),
            apis.LIST_OFFSETS.versions[1:], can_resend=True,
        )  # fmt: skip

    def serves_offsets_for_times(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `offsets_for_times`."""
        return serves(served, apis.LIST_OFFSETS, apis.LIST_OFFSETS.versions[1:])

    def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> VersionedRequest[list[EpochEnd]]:
        """Return the request for the ends of epochs of leaders, which show truncations: Kafka 0.11 and later.

        Up to version 2 a broker with access lists answers brokers alone.

        Args:
            epochs: Partition -> the epoch, and the current epoch as far as it is known (-1: not known), which a broker
                compares with its own.
        """
        wanted = {numbered(partition): epoch for partition, epoch in epochs.items()}
        rows = [
            (topic, {"partition_index": number, "leader_epoch": epoch, "current_leader_epoch": current})
            for (topic, number), (epoch, current) in wanted.items()
        ]

        def result(row: Values) -> EpochEnd:
            return EpochEnd(row["error_code"], row.get("leader_epoch", -1), row["end_offset"])

        return call(
            apis.OFFSET_FOR_LEADER_EPOCH, {"topics": topics_of(rows)},
            lambda answer: results_of("offset for leader epoch", answer["topics"], list(wanted), result),
            can_resend=True,
        )  # fmt: skip

    # -- brokers and topics --------------------------------------------------------------------------------------------

    def api_versions(self) -> Request[tuple[int, dict[int, range]]]:
        """Return the request for error code and served versions."""
        return request_of(apis.API_VERSIONS, 0, b"", served_versions, True)

    def metadata(self, topics: Sequence[str], *, create: bool = True) -> VersionedRequest[ClusterMetadata]:
        """Return the request for brokers and leaders; no topics means all of them.

        Args:
            create: Whether the broker may create topics that do not exist.
        """
        return self.cluster_metadata(topics or None, create=create)

    def cluster_metadata(
        self, topics: Collection[str] | None, *, create: bool = False
    ) -> VersionedRequest[ClusterMetadata]:
        """Return the request for brokers, and leaders of some topics; a topic that is missing gets code 3.

        Args:
            topics: Their names; None for all, and none of them for the brokers alone.
            create: Whether the broker may create topics that do not exist.
        """

        def values(version: int) -> Values:
            # Older brokers create whatever is named, so nothing is named.
            is_safe = create or not topics or version >= _FIRST_WITHOUT_CREATION
            named = None if topics is None or not is_safe else [{"name": topic} for topic in topics]
            return {"topics": named, "allow_auto_topic_creation": create}

        return call(apis.METADATA, values, lambda answer: _cluster(answer, topics), can_resend=True)

    def topic_settings(
        self, topics: Sequence[str], names: Sequence[str]
    ) -> VersionedRequest[list[tuple[int, Settings]]]:
        """Return the request for error code and settings in force of each topic: Kafka 0.11 and later.

        Settings that come from the broker's own are included.

        Args:
            names: Of the settings that are asked for.
        """
        resources = [
            {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": names} for topic in topics
        ]

        def result(answer: Values) -> list[tuple[int, Settings]]:
            rows = answer["results"]
            found: dict[str, tuple[int, Settings]] = {
                row["resource_name"]: (row["error_code"], {each["name"]: each["value"] for each in row["configs"]})
                for row in rows if row["resource_type"] == _TOPIC_RESOURCE
            }  # fmt: skip
            if len(rows) != len(topics) or found.keys() != set(topics):
                raise DecodeError(
                    f"describe configs response: {len(rows)} results, not one for each of the {len(topics)} topics"
                )
            return [found[topic] for topic in topics]

        return call(apis.DESCRIBE_CONFIGS, {"resources": resources}, result, can_resend=True)


def _log_end(row: Values) -> LogEnd:
    return LogEnd(row["error_code"], row["offset"], row.get("leader_epoch", -1))


def served_versions(answer: memoryview) -> tuple[int, dict[int, range]]:
    """Return the error code of an answer to ApiVersions 0, and for each API key the versions that the broker serves."""
    values = apis.API_VERSIONS.decode(0, answer)
    served = {row["api_key"]: range(row["min_version"], row["max_version"] + 1) for row in values["api_keys"]}
    produce, fetch = served.get(apis.PRODUCE.key), served.get(apis.FETCH.key)
    if produce and fetch and fetch.start >= _FIRST_FETCH_OF_KAFKA_4:
        # Kafka 4 names versions of Produce that it does not have, for an old client (KAFKA-18659), and closes on them.
        served[apis.PRODUCE.key] = range(max(produce.start, _FIRST_PRODUCE_OF_KAFKA_4), produce.stop)
    return values["error_code"], served


def _times(times_ms: Mapping[Partition, int], read_committed: bool, max_offsets: int = 1) -> Values:
    """Return the values of a ListOffsets request.

    Args:
        times_ms: Milliseconds since 1970, -1 for the end of the log, -2 for its start.
        read_committed: Take the first open transaction for the end, also of messages with a time; from version 2 on.
    """
    rows = [
        (topic, {"partition_index": number, "timestamp": time_ms, "max_num_offsets": max_offsets})
        for (topic, number), time_ms in times_ms.items()
    ]
    return {"isolation_level": int(read_committed), "topics": topics_of(rows)}


def _cluster(answer: Values, asked: Collection[str] | None) -> ClusterMetadata:
    """Return brokers and topics, error codes included.

    Args:
        asked: The topics that are wanted; None for all that came. A broker that was asked for all topics leaves out
            one that is missing.
    """
    # Fetch and commit versions are what every broker serves that lists its versions.
    brokers = {
        row["node_id"]: Broker(row["node_id"], row["host"], row["port"], 2, "kafka011", 2) for row in answer["brokers"]
    }
    topics = {topic.topic: topic for topic in map(_topic, answer["topics"])}
    if asked is not None:
        topics = {
            name: topics.get(name, TopicMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())) for name in asked
        }
    controller = answer["controller_id"]
    return ClusterMetadata(brokers, topics, answer.get("cluster_id"), controller if controller >= 0 else None)


def _topic(row: Values) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            each["partition_index"], None if each["leader_id"] == -1 else each["leader_id"],
            tuple(each["replica_nodes"]), tuple(each["isr_nodes"]), each["error_code"], each.get("leader_epoch", -1),
        )
        for each in row["partitions"]
    )  # fmt: skip
    # The name is null for an unknown topic that was asked for by its id, which the client never does.
    return TopicMetadata(row["name"] or "", row["error_code"], partitions, row.get("topic_id"), row["is_internal"])
