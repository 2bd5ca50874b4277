"""The requests that create, grow and delete topics: CreateTopics, CreatePartitions and DeleteTopics.

The controller answers them, the broker with the lowest id; with KRaft any broker passes the
request on. Messages are those of Kafka's brokers, so far as a client can tell anything by them.

Source: kafka.server.AdminManager, KafkaApis (1.1), ZkAdminManager (2.8), org.apache.kafka.controller.
ReplicationControlManager (4.3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from simpleconsumer.kafka011.batch_head import MAGIC
from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.cluster import spread
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.config_requests import Denied, as_it_is, check_config, verdict
from zkconsumer.testing.embedded.leadership import is_legal_topic
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer.testing.embedded.registries.registry import TopicExists
from zkconsumer_error import ErrorCode

_POLL_S: Final = 0.01
_BY_DEFAULT: Final = -1
_MAX_NAME: Final = 249


def _refuse_elsewhere(asked: Asked[Any]) -> None:
    """Raise where another broker is the controller."""
    host = asked.host
    living = host.cluster.image.brokers
    if not host.habits.forwards_changes and living and host.broker_id != min(living):
        said = None if host.habits.is_before_2 else "This is not the correct controller for this cluster."
        raise Denied(ErrorCode.NOT_CONTROLLER, said)


def _wait(asked: Asked[Any], timeout_ms: int, is_done: Callable[[], bool]) -> None:
    """Wait until the controller has done it.

    Raises:
        _No: 7, it has not in time.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    while not is_done():
        if time.monotonic() >= deadline or asked.host.stopping.is_set():
            raise Denied(ErrorCode.REQUEST_TIMED_OUT, None)
        time.sleep(_POLL_S)


# -- CreateTopics ------------------------------------------------------------------------------------------------------


def _answer_create(asked: Asked[Values]) -> Values:
    return {"topics": [_created_row(asked, row) for row in asked.body["topics"]]}


def _created_row(asked: Asked[Values], row: Values) -> Values:
    said = verdict(asked, row["name"], lambda: _create(asked, row))
    topic_id = asked.host.cluster.image.topic_ids.get(row["name"])
    count, copies = _counts(asked, row) if not said.code else (_BY_DEFAULT, _BY_DEFAULT)
    return {
        "name": row["name"], "error_code": said.code, "error_message": said.message,
        "topic_id": topic_id.hex() if topic_id and not said.code else None, "num_partitions": count,
        "replication_factor": copies,
        "configs": [] if not said.code else None,
    }  # fmt: skip


def _counts(asked: Asked[Values], row: Values) -> tuple[int, int]:
    """Return how many partitions and replicas a new topic gets."""
    if row["assignments"]:
        return len(row["assignments"]), len(row["assignments"][0]["broker_ids"])
    count, copies = row["num_partitions"], row["replication_factor"]
    is_chosen = asked.version >= _FIRST_WITH_DEFAULTS
    return (
        asked.host.cluster.num_partitions if count == _BY_DEFAULT and is_chosen else count,
        1 if copies == _BY_DEFAULT and is_chosen else copies,
    )


_FIRST_WITH_DEFAULTS: Final = 4


def _create(asked: Asked[Values], row: Values) -> None:
    _refuse_elsewhere(asked)
    cluster, name = asked.host.cluster, row["name"]
    image = cluster.image
    _check_name(asked, name, list(image.topics))
    living = sorted(image.brokers)
    assignment = _assignment(asked, row, living)
    config = {each["name"]: each["value"] for each in row["configs"]}
    check_config(asked, config)
    if asked.body.get("validate_only", False):
        return
    try:
        cluster.registry.create_topic(name, assignment, config)
    except TopicExists:
        raise Denied(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from None
    cluster.look_again()
    _wait(asked, asked.body["timeout_ms"], lambda: len(cluster.image.topics.get(name, {})) == len(assignment))


def _check_name(asked: Asked[Values], name: str, known: Sequence[str]) -> None:
    if name in known:
        raise Denied(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if not is_legal_topic(name) or len(name) > _MAX_NAME:
        raise Denied(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name '{name}' is illegal")
    alike = [other for other in sorted(known) if other.replace(".", "_") == name.replace(".", "_")]
    if alike:
        noun = "topic" if asked.host.habits.forwards_changes else "topics"
        raise Denied(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing {noun}: {alike[0]}")


def _assignment(asked: Asked[Values], row: Values, living: Sequence[int]) -> Mapping[int, Sequence[int]]:
    if row["assignments"]:
        found = {each["partition_index"]: each["broker_ids"] for each in row["assignments"]}
        _check_assignment(found, living)
        return found
    count, copies = _counts(asked, row)
    if count <= 0:
        raise Denied(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if copies <= 0:
        raise Denied(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if copies > len(living):
        raise Denied(ErrorCode.INVALID_REPLICATION_FACTOR, _too_few(asked, copies, len(living)))
    return spread(count, copies, living)


def _too_few(asked: Asked[Values], copies: int, living: int) -> str:
    habits = asked.host.habits
    if habits.forwards_changes:
        return (f"Unable to replicate the partition {copies} time(s): The target replication factor of {copies} cannot "
                f"be reached because only {living} broker(s) are registered or some brokers have all their log "
                "directories cordoned.")  # fmt: skip
    sentence = f"eplication factor: {copies} larger than available brokers: {living}"
    return f"R{sentence}." if habits.log_magic >= MAGIC else f"r{sentence}"


def _check_assignment(found: Mapping[int, Sequence[int]], living: Sequence[int]) -> None:
    ids = list(found.values())
    if sorted(found) != list(range(len(found))) or len({len(each) for each in ids}) != 1 or not ids[0]:
        raise Denied(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions and replicas must be consecutive and as many.")
    for each in ids:
        if len(set(each)) < len(each) or not set(each) <= set(living):
            raise Denied(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Replicas {list(each)} are not brokers that live.")


def _topics_of_rows(body: Values) -> list[TopicPartition]:
    return [(row["name"], -1) for row in body["topics"]]


CREATE_TOPICS: Final = ServedApi(
    apis.CREATE_TOPICS, "create_topics", range(8), as_it_is, _answer_create, _topics_of_rows
)


# -- CreatePartitions --------------------------------------------------------------------------------------------------


def _answer_grow(asked: Asked[Values]) -> Values:
    said = [(row["name"], verdict(asked, row["name"], lambda row=row: _grow(asked, row)))  # type: ignore[misc]
            for row in asked.body["topics"]]  # fmt: skip
    return {"results": [
        {"name": name, "error_code": each.code, "error_message": each.message} for name, each in said
    ]}  # fmt: skip


def _grow(asked: Asked[Values], row: Values) -> None:
    _refuse_elsewhere(asked)
    cluster, name, total = asked.host.cluster, row["name"], row["count"]
    entry = cluster.registry.topics().get(name)
    if entry is None:
        said = None if asked.host.habits.forwards_changes else f"The topic '{name}' does not exist."
        raise Denied(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, said)
    present, living = entry.assignment, sorted(cluster.image.brokers)
    if total <= len(present):
        raise Denied(ErrorCode.INVALID_PARTITIONS, _no_more(asked, name, len(present), total))
    added = {number: ids for number, ids in spread(total, min(len(present[0]), len(living)), living).items()
             if number >= len(present)}  # fmt: skip
    if row["assignments"] is not None:
        given = [each["broker_ids"] for each in row["assignments"]]
        if len(given) != len(added):
            more = f"Increasing the number of partitions by {len(added)} but {len(given)} assignments provided."
            raise Denied(ErrorCode.INVALID_REPLICA_ASSIGNMENT, more)
        _check_assignment(dict(enumerate(given)), living)
        added = dict(zip(sorted(added), given, strict=True))
    if asked.body["validate_only"]:
        return
    cluster.registry.set_assignment(name, {**present, **added})
    cluster.look_again()
    _wait(asked, asked.body["timeout_ms"], lambda: len(cluster.image.topics.get(name, {})) == total)


def _no_more(asked: Asked[Values], name: str, present: int, total: int) -> str:
    if asked.host.habits.forwards_changes:
        if total == present:
            return f"Topic already has {present} partition(s)."
        return f"The topic {name} currently has {present} partition(s); {total} would not be an increase."
    if total == present:
        return f"Topic already has {present} partitions."
    return f"Topic currently has {present} partitions, which is higher than the requested {total}."


CREATE_PARTITIONS: Final = ServedApi(
    apis.CREATE_PARTITIONS, "create_partitions", range(4), as_it_is, _answer_grow, _topics_of_rows
)


# -- DeleteTopics ------------------------------------------------------------------------------------------------------


def _read_delete(values: Values, version: int) -> Values:
    names = values["topic_names"] if "topic_names" in values else [row["name"] or "" for row in values["topics"]]
    return {"topics": [{"name": name} for name in names], "timeout_ms": values["timeout_ms"]}


def _answer_delete(asked: Asked[Values]) -> Values:
    return {"responses": [_deleted_row(asked, row["name"]) for row in asked.body["topics"]]}


def _deleted_row(asked: Asked[Values], name: str) -> Values:
    topic_id = asked.host.cluster.image.topic_ids.get(name)
    said = verdict(asked, name, lambda: _delete(asked, name))
    return {
        "name": name, "error_code": said.code, "error_message": said.message,
        "topic_id": topic_id.hex() if topic_id else None,
    }  # fmt: skip


def _delete(asked: Asked[Values], name: str) -> None:
    _refuse_elsewhere(asked)
    cluster = asked.host.cluster
    if name not in cluster.registry.topics():
        said = "This server does not host this topic-partition." if asked.host.habits.forwards_changes else None
        raise Denied(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, said)
    cluster.registry.doom_topic(name)
    cluster.look_again()
    _wait(asked, asked.body["timeout_ms"], lambda: name not in cluster.image.topics)


DELETE_TOPICS: Final = ServedApi(
    apis.DELETE_TOPICS, "delete_topics", range(7), _read_delete, _answer_delete, _topics_of_rows
)
