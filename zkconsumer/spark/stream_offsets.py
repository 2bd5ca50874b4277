"""The offsets of a stream in Spark's checkpoint: `{"clicks": {"0": 42}, "@born": {"clicks": 8589934603}}`. Pure.

The format is that of Spark's own Kafka source, with one more entry: the transaction that created each topic's node in
ZooKeeper, which identifies the incarnation of the topic. Without it, a topic that was deleted and created anew could
not be distinguished from the old one once it has grown past the old position, and its first messages would be skipped
silently. Clusters that are set up in the same way number their transactions in the same way, so the time when the
cluster's node for topics was created is stored, too, as `@cluster`. No topic name contains `@`.

On Kafka 0.7 partitions have their names, and there is no incarnation: `{"clicks": {"0-0": 42}, "@born": {"@cluster":
1393632000000}}`. Topics cannot be deleted there, and their nodes in ZooKeeper say nothing about the logs.

The keys are in checkpoints and never change. Rule: equal offsets give equal text, because Spark compares texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.offsets_json import nested_offsets, read_offsets
from zkconsumer.spark.partition_names import are_byte_positions

__all__ = ["ZXIDS_KEY", "StreamOffsets", "parse_stream_offsets"]

ZXIDS_KEY = "@born"
"""The key of the entry with the number of each topic's incarnation, in place of offsets."""
CLUSTER_KEY = "@cluster"
"""The key of the cluster in that entry."""

_EXCERPT = 200


@dataclass(frozen=True)
class StreamOffsets:
    """The position of a stream.

    Attributes:
        offsets: the next message of each partition.
        created_zxids: topic -> the transaction that created it.
        cluster_ms: when the cluster was set up; `None` if that is not known.
    """

    offsets: Mapping[TopicPartition, int]
    created_zxids: Mapping[str, int] = field(default_factory=dict)
    cluster_ms: int | None = None

    def to_json(self) -> dict[str, dict[str, int]]:
        """The value that Spark writes to the checkpoint and shows in the progress."""
        shown = nested_offsets(self.offsets)
        created_zxids = {topic: self.created_zxids[topic] for topic in shown if topic in self.created_zxids}
        if (created_zxids or are_byte_positions(self.offsets)) and self.cluster_ms is not None:
            created_zxids[CLUSTER_KEY] = self.cluster_ms
        return {**shown, ZXIDS_KEY: created_zxids} if created_zxids else shown


def parse_stream_offsets(value: object) -> StreamOffsets:
    """Parse what Spark returns of a value of `to_json`: a dictionary, or its JSON text.

    Raises:
        ValueError: it is anything else; the text names the place.
    """
    try:
        topics = json.loads(value) if isinstance(value, str) else value
        if not isinstance(topics, dict):
            raise ValueError("they are not an object of topics")
        offsets = read_offsets({topic: each for topic, each in topics.items() if topic != ZXIDS_KEY})
        zxids = topics.get(ZXIDS_KEY, {})
        wrong = [name for name, offset in offsets.items() if offset < 0]
        if wrong:
            raise ValueError(f"{wrong[0].topic}/{wrong[0].partition} has {offsets[wrong[0]]}, not an offset from 0")
        if not isinstance(zxids, dict) or not all(type(zxid) is int and zxid >= 0 for zxid in zxids.values()):
            raise ValueError(f"{ZXIDS_KEY!r} holds no numbers")
    except ValueError as error:
        raise ValueError(f"offsets of a stream cannot be read: {error}: {str(value)[:_EXCERPT]}") from None
    created_zxids = {topic: zxid for topic, zxid in zxids.items() if topic != CLUSTER_KEY}
    return StreamOffsets(offsets, created_zxids, zxids.get(CLUSTER_KEY))
