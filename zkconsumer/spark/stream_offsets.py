"""The offsets of a stream as Spark keeps them: `{"clicks": {"0": 42}, "@born": {"clicks": 8589934603}}`. Pure.

The shape is that of Spark's own Kafka source, with one more entry: the transaction that created each topic's node in
ZooKeeper. Without it a topic that was deleted and created anew under the same name could not be told from the old one
once it has grown past the old position, and its first messages would be skipped without a word. Clusters that were set
up alike number their transactions alike, so the moment in which the cluster's node for topics came up is there, too, as
`@cluster`. `@` is in no topic's name.

Rule: equal offsets give equal text, because Spark compares texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.offsets_json import nested_offsets, read_offsets

__all__ = ["ZXIDS_KEY", "StreamOffsets", "parse_stream_offsets"]

ZXIDS_KEY = "@born"
"""The entry that holds a number for each topic instead of offsets."""
CLUSTER_KEY = "@cluster"
"""What stands there for the cluster."""

_EXCERPT = 200


@dataclass(frozen=True)
class StreamOffsets:
    """Where a stream stands.

    Attributes:
        offsets: the next message of each partition.
        created_zxids: topic -> the transaction that created it.
        cluster_ms: when the cluster was set up; `None` where that is not known.
    """

    offsets: Mapping[TopicPartition, int]
    created_zxids: Mapping[str, int] = field(default_factory=dict)
    cluster_ms: int | None = None

    def to_json(self) -> dict[str, dict[str, int]]:
        """A value that Spark writes to the checkpoint and shows in the progress."""
        shown = nested_offsets(self.offsets)
        created_zxids = {topic: self.created_zxids[topic] for topic in shown if topic in self.created_zxids}
        if created_zxids and self.cluster_ms is not None:
            created_zxids[CLUSTER_KEY] = self.cluster_ms
        return {**shown, ZXIDS_KEY: created_zxids} if created_zxids else shown


def parse_stream_offsets(value: object) -> StreamOffsets:
    """What `to_json` gave, back from Spark: a dictionary, or its JSON text.

    Raises:
        ValueError: it is anything else; shows the place.
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
