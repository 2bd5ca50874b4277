"""The offsets of a stream in Spark's checkpoint: `{"clicks": {"0": 42}, "@born": {"clicks": 8589934603}}`. Pure.

The format is that of Spark's own Kafka source, with one more entry: the transaction that created each topic's node in
ZooKeeper, which identifies the incarnation of the topic. Without it, a topic that was deleted and created anew could
not be distinguished from the old one once it has grown past the old position, and its first messages would be skipped
silently. Clusters that are set up in the same way number their transactions in the same way, so the time when the
cluster's node for topics was created is stored, too, as `@cluster`. No topic name contains `@`.

On Kafka 0.7 partitions have their names, and there is no incarnation: `{"clicks": {"0-0": 42}, "@born": {"@cluster":
1393632000000}}`. Topics cannot be deleted there, and their nodes in ZooKeeper say nothing about the logs.

Where the brokers alone are known, the topic id that they give each topic (Kafka 2.8 and later) takes the place of that
transaction, and the cluster's id that of the time: `{"clicks": {"0": 42}, "@ids": {"clicks": "b8f1...", "@cluster":
"mKBItNTP..."}}`. Both kinds are numbers here; those of ids are far larger than any of ZooKeeper.

Brokers of Kafka 2.1 and later report the epoch of a partition's leader. That of the leader that had the messages up to
each position stands in an entry `@epochs`, in the form of the offsets: `{"clicks": {"0": 42}, "@epochs": {"clicks":
{"0": 5}}}`. A later leader knows where its log differs from what earlier ones had (`log_cuts`).

The keys are in checkpoints and never change. Rule: equal offsets give equal text, because Spark compares texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.options.offsets_json import nested_offsets, read_offsets
from zkconsumer.spark.options.partition_names import are_byte_positions

__all__ = [
    "EPOCHS_KEY", "ZXIDS_KEY", "StreamOffsets", "cluster_id_of", "is_id", "number_of_cluster", "number_of_topic",
    "parse_stream_offsets",
]  # fmt: skip

ZXIDS_KEY = "@born"
"""The key of the entry with the number of each topic's incarnation, in place of offsets."""
IDS_KEY = "@ids"
"""The key of the entry with the id of each topic as the brokers give it, in hex digits."""
EPOCHS_KEY = "@epochs"
"""The key of the entry with the epochs of leaders, in place of offsets."""
CLUSTER_KEY = "@cluster"
"""The key of the cluster in that entry."""

_NO_TOPICS = (ZXIDS_KEY, IDS_KEY, EPOCHS_KEY)
_EXCERPT = 200
_SMALLEST_ID = 2**63
"""Transactions and times of ZooKeeper are below; topic ids, which are random UUIDs, and ids of clusters above."""


def number_of_topic(topic_id: str) -> int:
    """Return the number that stands for a topic id, given in hex digits."""
    return int(topic_id, 16)


def number_of_cluster(cluster_id: str) -> int:
    """Return the number that stands for the id of a cluster."""
    return int.from_bytes(b"\1" * 8 + cluster_id.encode())


def is_id(number: int) -> bool:
    """Return whether a number stands for an id that brokers give; else it is one of ZooKeeper."""
    return number >= _SMALLEST_ID


def cluster_id_of(number: int) -> str:
    """Return the id of a cluster for which a number stands."""
    return number.to_bytes((number.bit_length() + 7) // 8)[8:].decode()


@dataclass(frozen=True)
class StreamOffsets:
    """The position of a stream.

    Attributes:
        offsets: the next message of each partition.
        created_zxids: topic -> the transaction that created it, or the number of its id.
        cluster_ms: when the cluster was set up, or the number of its id; `None` if that is not known.
        epochs: partition -> the epoch of a leader whose log reached the position, as far as that is known.
    """

    offsets: Mapping[TopicPartition, int]
    created_zxids: Mapping[str, int] = field(default_factory=dict)
    cluster_ms: int | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def marks(self) -> list[int]:
        """The numbers by which topics and the cluster are known again."""
        return [*self.created_zxids.values(), *([] if self.cluster_ms is None else [self.cluster_ms])]

    def to_json(self) -> dict[str, Any]:
        """The value that Spark writes to the checkpoint and shows in the progress."""
        shown: dict[str, Any] = {**nested_offsets(self.offsets)}
        known = {name: self.epochs[name] for name in self.offsets if name in self.epochs}
        epochs = {EPOCHS_KEY: nested_offsets(known)} if known else {}
        created_zxids = {topic: self.created_zxids[topic] for topic in shown if topic in self.created_zxids}
        if any(map(is_id, self.marks)):
            ids = {topic: f"{number:032x}" for topic, number in created_zxids.items()}
            if self.cluster_ms is not None and shown:
                ids[CLUSTER_KEY] = cluster_id_of(self.cluster_ms)
            return {**shown, **({IDS_KEY: ids} if ids else {}), **epochs}
        if (created_zxids or are_byte_positions(self.offsets)) and self.cluster_ms is not None:
            created_zxids[CLUSTER_KEY] = self.cluster_ms
        return {**shown, **({ZXIDS_KEY: created_zxids} if created_zxids else {}), **epochs}


def parse_stream_offsets(value: object) -> StreamOffsets:
    """Parse what Spark returns of a value of `to_json`: a dictionary, or its JSON text.

    Raises:
        ValueError: it is anything else; the text names the place.
    """
    try:
        topics = json.loads(value) if isinstance(value, str) else value
        if not isinstance(topics, dict):
            raise ValueError("they are not an object of topics")
        offsets = read_offsets({topic: each for topic, each in topics.items() if topic not in _NO_TOPICS})
        epochs = read_offsets(topics.get(EPOCHS_KEY, {}))
        zxids = topics.get(ZXIDS_KEY, {})
        wrong = [name for name, offset in offsets.items() if offset < 0]
        if wrong:
            raise ValueError(f"{wrong[0].topic}/{wrong[0].partition} has {offsets[wrong[0]]}, not an offset from 0")
        if any(epoch < 0 for epoch in epochs.values()) or epochs.keys() - offsets.keys():
            raise ValueError(f"{EPOCHS_KEY!r} has no epochs of these partitions")
        if not isinstance(zxids, dict) or not all(type(zxid) is int and zxid >= 0 for zxid in zxids.values()):
            raise ValueError(f"{ZXIDS_KEY!r} has values that are not numbers")
        if IDS_KEY in topics:
            if zxids:
                raise ValueError(f"they have both {ZXIDS_KEY!r} and {IDS_KEY!r}")
            zxids = _numbers(topics[IDS_KEY])
    except RecursionError:
        raise ValueError("offsets of a stream cannot be read: they are nested too deep") from None
    except ValueError as error:
        raise ValueError(f"offsets of a stream cannot be read: {error}: {_excerpt(value)}") from None
    created_zxids = {topic: zxid for topic, zxid in zxids.items() if topic != CLUSTER_KEY}
    return StreamOffsets(offsets, created_zxids, zxids.get(CLUSTER_KEY), epochs)


def _excerpt(value: object) -> str:
    try:
        return str(value)[:_EXCERPT]
    except RecursionError:
        return "they are nested too deep"


def _numbers(ids: object) -> dict[str, int]:
    """Return the numbers of the ids of topics and of the cluster; ValueError if they are none."""
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise ValueError(f"{IDS_KEY!r} has values that are not ids")
    found = {topic: number_of_topic(each) for topic, each in ids.items() if topic != CLUSTER_KEY}
    if not all(map(is_id, found.values())):
        raise ValueError(f"{IDS_KEY!r} has values that are not ids of topics")
    return found if CLUSTER_KEY not in ids else {**found, CLUSTER_KEY: number_of_cluster(ids[CLUSTER_KEY])}
