"""What a run passes on to the next run: offsets, last messages, and partitions without a leader. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

__all__ = ["LastMessage", "LoadState"]


class LastMessage(NamedTuple):
    """The last message that was read of a partition. If another one has its offset now, the log was truncated.

    Attributes:
        offset: its offset.
        key_crc, value_crc: CRC-32 of its key and value, `None` for those that are null.
    """

    offset: int
    key_crc: int | None
    value_crc: int | None


@dataclass(frozen=True)
class LoadState:
    """What the runs of a folder have loaded so far.

    Attributes:
        offsets: where the next run starts, for everything that was ever loaded into the folder.
        last_messages: the last message of each partition of which messages were read.
        waiting: partitions that no run has reached yet, because they had no leader.
        topics_seen: the last transaction that had changed the list of topics when it was read; `None` before the first
            run, and if the last run was that of a release that did not store it. 0 where the brokers alone are known.
        by_brokers: topics are known again by what brokers say of them, and not by ZooKeeper.
    """

    offsets: StreamOffsets = field(default_factory=lambda: StreamOffsets({}))
    last_messages: Mapping[TopicPartition, LastMessage] = field(default_factory=dict)
    waiting: frozenset[TopicPartition] = frozenset()
    topics_seen: int | None = None
    by_brokers: bool = False

    @property
    def is_new(self) -> bool:
        """Whether no run has read the state of a cluster yet."""
        offsets = self.offsets
        return not (offsets.offsets or offsets.created_zxids or self.waiting) and self.topics_seen is None

    def equals(self, other: LoadState) -> bool:
        """Whether the next run would start from the same offsets, last messages and waiting partitions."""
        return (self.offsets, self.last_messages, self.waiting) == (other.offsets, other.last_messages, other.waiting)

    def starts_at_latest(self, name: TopicPartition, created_zxid: int | None) -> bool:
        """Whether a partition that was never loaded existed at the last run, so that `latest` applies to it.

        A topic that was created since the last run, or was given another partition, has messages that no run has seen.
        Brokers do not tell when a topic was created: there, `latest` applies to the first run alone.

        Args:
            created_zxid: the transaction that created its topic, or the number of its id, which is larger than any;
                `None` if neither is known.
        """
        known = name.topic in self.offsets.created_zxids or name in self.offsets.offsets
        is_older = created_zxid is not None and created_zxid <= (self.topics_seen or 0)
        return not known and (self.topics_seen is None or is_older)
