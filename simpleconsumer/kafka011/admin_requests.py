"""The requests that change topics: created, grown, deleted, their settings, their logs; and who has written to a log.

The controller gets requests that create, grow and delete. The leader gets those about its log, and any broker settings.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from simpleconsumer.dialect_types import VersionedRequest, numbered
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.calls import call, serves
from simpleconsumer.messages import topics as apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import results_of, topics_of
from simpleconsumer.types import ActiveProducer, TopicPartition, TopicVerdict

_TOPIC_RESOURCE: Final = 2
_AS_THE_BROKER_CHOOSES: Final = -1
_SET: Final = 0
_DELETE: Final = 1
_SOURCE_TOPIC: Final = 1
"""DescribeConfigs: the source of a setting that stands at the topic, and not at a broker or in Kafka's own defaults."""

Assignment = Mapping[int, Sequence[int]]
"""Partition -> ids of brokers, the preferred leader first."""


class AdminRequests:
    """The part of a dialect that makes the requests which change topics."""

    # -- topics: the controller ----------------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,
        assignment: Assignment | None,
        config: Mapping[str, str],
        timeout_ms: int,
        *,
        validate_only: bool = False,
    ) -> VersionedRequest[TopicVerdict]:
        """Return the request that creates a topic: Kafka 0.10.1 and later.

        Args:
            partitions, replication: How many; not looked at with an assignment.
            assignment: The replicas of each partition; None: the controller chooses them.
            config: Settings of the topic, by their names in Kafka.
            timeout_ms: Longest wait of the controller until the topic is there.
            validate_only: Check everything, and create nothing: Kafka 0.10.2 and later.
        """
        given = assignment is not None
        row = {
            "name": topic, "num_partitions": _AS_THE_BROKER_CHOOSES if given else partitions,
            "replication_factor": _AS_THE_BROKER_CHOOSES if given else replication,
            "assignments": [
                {"partition_index": number, "broker_ids": ids} for number, ids in sorted((assignment or {}).items())
            ],
            "configs": [{"name": name, "value": value} for name, value in config.items()],
        }  # fmt: skip
        return call(
            apis.CREATE_TOPICS, {"topics": [row], "timeout_ms": timeout_ms, "validate_only": validate_only},
            lambda answer: _verdict(answer["topics"], topic), apis.CREATE_TOPICS.versions[int(validate_only) :],
        )  # fmt: skip

    def grow_topic(
        self,
        topic: str,
        partitions: int,
        added: Sequence[Sequence[int]] | None,
        timeout_ms: int,
        *,
        validate_only: bool = False,
    ) -> VersionedRequest[TopicVerdict]:
        """Return the request that adds partitions to a topic: Kafka 1.0 and later.

        Args:
            partitions: How many the topic shall have.
            added: Ids of brokers for each new partition; None: the controller chooses them.
            timeout_ms, validate_only: As for `create_topic`.
        """
        assignments = None if added is None else [{"broker_ids": ids} for ids in added]
        row = {"name": topic, "count": partitions, "assignments": assignments}
        return call(
            apis.CREATE_PARTITIONS, {"topics": [row], "timeout_ms": timeout_ms, "validate_only": validate_only},
            lambda answer: _verdict(answer["results"], topic),
        )  # fmt: skip

    def delete_topic(self, topic: str, timeout_ms: int) -> VersionedRequest[TopicVerdict]:
        """Return the request that deletes a topic: Kafka 0.10.1 and later; arguments as for `create_topic`."""
        return call(
            apis.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": timeout_ms},
            lambda answer: _verdict(answer["responses"], topic),
        )  # fmt: skip

    def serves_topic_changes(self, served: Mapping[int, range], what: str) -> bool:
        """Return whether a broker that serves these versions has a request.

        Args:
            what: `create`, `grow`, `delete`, `set`, `cut` or `producers`; or `check`: `create` can be checked alone.
        """
        if what == "check":
            return serves(served, apis.CREATE_TOPICS, apis.CREATE_TOPICS.versions[1:])
        return any(serves(served, api) for api in _APIS[what])

    # -- settings: any broker ------------------------------------------------------------------------------------------

    def topic_overrides(self, topic: str) -> VersionedRequest[tuple[TopicVerdict, dict[str, str]]]:
        """Return the request for the settings that stand at a topic itself: Kafka 0.11 and later."""
        row = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": None}

        def result(answer: Values) -> tuple[TopicVerdict, dict[str, str]]:
            [found] = _resources(answer["results"], topic)
            at_topic = {
                each["name"]: each["value"] or "" for each in found["configs"]
                if (each["config_source"] == _SOURCE_TOPIC if "config_source" in each else not each["is_default"])
            }  # fmt: skip
            return TopicVerdict(found["error_code"], found["error_message"]), at_topic

        return call(apis.DESCRIBE_CONFIGS, {"resources": [row]}, result, can_resend=True)

    def change_settings(
        self, topic: str, config: Mapping[str, str | None], *, validate_only: bool = False
    ) -> VersionedRequest[TopicVerdict]:
        """Return the request that changes some settings of a topic: Kafka 2.3 and later.

        Args:
            config: Value by name; None takes the setting away from the topic.
            validate_only: Check everything, and change nothing.
        """
        rows = [
            {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
            for name, value in config.items()
        ]
        return call(
            apis.INCREMENTAL_ALTER_CONFIGS, _of_topic(topic, rows, validate_only),
            lambda answer: _verdict(_resources(answer["responses"], topic), topic), can_resend=True,
        )  # fmt: skip

    def replace_settings(
        self, topic: str, config: Mapping[str, str], *, validate_only: bool = False
    ) -> VersionedRequest[TopicVerdict]:
        """Return the request that replaces all settings of a topic: Kafka 0.11 and later.

        Args:
            config: All that the topic shall have.
            validate_only: As for `change_settings`.
        """
        rows = [{"name": name, "value": value} for name, value in config.items()]
        return call(
            apis.ALTER_CONFIGS, _of_topic(topic, rows, validate_only),
            lambda answer: _verdict(_resources(answer["responses"], topic), topic), can_resend=True,
        )  # fmt: skip

    def serves_changed_settings(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `change_settings`."""
        return serves(served, apis.INCREMENTAL_ALTER_CONFIGS)

    # -- logs: the leader ----------------------------------------------------------------------------------------------

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> VersionedRequest[list[tuple[int, int]]]:
        """Return the request that deletes the messages below an offset of each partition: Kafka 0.11 and later.

        Returns:
            Error code, and the new start of the log, of each partition.
        """
        wanted = {numbered(partition): offset for partition, offset in offsets.items()}
        rows = [(topic, {"partition_index": number, "offset": at}) for (topic, number), at in wanted.items()]
        return call(
            apis.DELETE_RECORDS, {"topics": topics_of(rows), "timeout_ms": timeout_ms},
            lambda answer: results_of(
                "delete records", answer["topics"], list(wanted), lambda row: (row["error_code"], row["low_watermark"])
            ), can_resend=True,
        )  # fmt: skip

    def active_producers(
        self, partitions: Sequence[TopicPartition]
    ) -> VersionedRequest[list[tuple[TopicVerdict, list[ActiveProducer]]]]:
        """Return the request for the producers with an id that have written to partitions: Kafka 2.8 and later."""
        wanted = [numbered(partition) for partition in partitions]
        topics = [{"name": row["name"], "partition_indexes": row["partitions"]} for row in topics_of(wanted)]

        def result(row: Values) -> tuple[TopicVerdict, list[ActiveProducer]]:
            producers = [
                ActiveProducer(
                    each["producer_id"], each["producer_epoch"], each["last_sequence"], each["last_timestamp"],
                    start if (start := each["current_txn_start_offset"]) >= 0 else None,
                )
                for each in row["active_producers"]
            ]  # fmt: skip
            return TopicVerdict(row["error_code"], row["error_message"]), producers

        return call(
            apis.DESCRIBE_PRODUCERS, {"topics": topics},
            lambda answer: results_of("describe producers", answer["topics"], wanted, result), can_resend=True,
        )  # fmt: skip


_APIS: Final = {
    "create": (apis.CREATE_TOPICS,),
    "grow": (apis.CREATE_PARTITIONS,),
    "delete": (apis.DELETE_TOPICS,),
    "set": (apis.INCREMENTAL_ALTER_CONFIGS, apis.ALTER_CONFIGS),
    "cut": (apis.DELETE_RECORDS,),
    "producers": (apis.DESCRIBE_PRODUCERS,),
}


def _of_topic(topic: str, configs: Sequence[Values], validate_only: bool) -> Values:
    row = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configs": configs}
    return {"resources": [row], "validate_only": validate_only}


def _verdict(rows: Sequence[Values], topic: str) -> TopicVerdict:
    names = [row.get("name", row.get("resource_name")) for row in rows]
    if names != [topic]:
        raise DecodeError(f"an answer about topic {topic} has {len(names)} results, or another topic's")
    return TopicVerdict(rows[0]["error_code"], rows[0].get("error_message"))


def _resources(rows: Sequence[Values], topic: str) -> Sequence[Values]:
    if [(row["resource_type"], row["resource_name"]) for row in rows] != [(_TOPIC_RESOURCE, topic)]:
        raise DecodeError(f"an answer about topic {topic} has {len(rows)} results, or another resource's")
    return rows
