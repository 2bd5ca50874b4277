"""The recorded frames of tests/golden/apis that change topics: how they are asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.types import TopicPartition

TOPIC = "g-topics"
RETENTION = {"retention.ms": "3600000"}
TIMEOUT_MS = 30_000
APIS = (
    "CreateTopics", "CreatePartitions", "DeleteTopics", "DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs",
    "DescribeProducers",
)  # fmt: skip
ZERO, ONE, MISSING = (TopicPartition(TOPIC, number) for number in (0, 1, 7))


def _create(topic: str, replication: int = 1, config: Mapping[str, str] = RETENTION, **more: Any) -> AnyRequest[Any]:
    return KAFKA011.create_topic(topic, 2, replication, more.pop("assignment", None), config, TIMEOUT_MS, **more)


_ASKED: Mapping[str, AnyRequest[Any]] = {
    "CreateTopics-setting": _create("g-none", config={"retention.mss": "1"}),
    "CreateTopics-value": _create("g-none", config={"retention.ms": "soon"}),
    "CreateTopics-replicas": _create("g-none", 3),
    "CreateTopics-collides": _create("g_topics_a"),
    "CreateTopics-assigned": _create(TOPIC, config={}, assignment={0: [0], 1: [0]}),
    "CreateTopics-checked": _create("g-none", validate_only=True),
    "CreatePartitions": KAFKA011.grow_topic(TOPIC, 3, None, TIMEOUT_MS),
    "CreatePartitions-checked": KAFKA011.grow_topic(TOPIC, 3, None, TIMEOUT_MS, validate_only=True),
    "CreatePartitions-assigned": KAFKA011.grow_topic(TOPIC, 4, [[0]], TIMEOUT_MS),
    "CreatePartitions-fewer": KAFKA011.grow_topic(TOPIC, 1, None, TIMEOUT_MS),
    "CreatePartitions-unknown": KAFKA011.grow_topic("g-none", 2, None, TIMEOUT_MS),
    "DeleteTopics-unknown": KAFKA011.delete_topic("g-none", TIMEOUT_MS),
    "DeleteRecords": KAFKA011.delete_records({ZERO: 3, ONE: -1}, TIMEOUT_MS),
    "DeleteRecords-beyond": KAFKA011.delete_records({ZERO: 9}, TIMEOUT_MS),
    "DeleteRecords-unknown": KAFKA011.delete_records({MISSING: 0}, TIMEOUT_MS),
    "AlterConfigs": KAFKA011.replace_settings(TOPIC, {"retention.ms": "7200000"}),
    "AlterConfigs-setting": KAFKA011.replace_settings(TOPIC, {"retention.mss": "1"}),
    "AlterConfigs-unknown": KAFKA011.replace_settings("g-none", {"retention.ms": "1"}),
    "IncrementalAlterConfigs": KAFKA011.change_settings(TOPIC, {"segment.bytes": "1048576", "retention.ms": None}),
    "IncrementalAlterConfigs-setting": KAFKA011.change_settings(TOPIC, {"retention.mss": "1"}),
    "IncrementalAlterConfigs-value": KAFKA011.change_settings(TOPIC, {"retention.ms": "soon"}, validate_only=True),
    "IncrementalAlterConfigs-unknown": KAFKA011.change_settings("g-none", {"retention.ms": "1"}),
    "DescribeProducers": KAFKA011.active_producers([ZERO, ONE]),
    "DescribeProducers-unknown": KAFKA011.active_producers([MISSING]),
}


def question(stem: str, body: bytes) -> AnyRequest[Any]:
    """Return what was asked; the topic that is created or deleted first is read from it."""
    if stem in _ASKED:
        return _ASKED[stem]
    name = next(name for name in (f"{TOPIC}-0", f"{TOPIC}-1", f"{TOPIC}-4", TOPIC) if name.encode() in body)
    if stem.startswith("CreateTopics"):
        return _create(name)
    return KAFKA011.delete_topic(name, TIMEOUT_MS)
