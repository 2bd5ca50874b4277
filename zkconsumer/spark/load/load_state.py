"""What a run passes on to the next: offsets, last messages, and partitions that had no leader. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.stream_offsets import StreamOffsets

__all__ = ["LastMessage", "LoadState"]


class LastMessage(NamedTuple):
    """The last message that was read of a partition: if another one stands there, the log is not the one that was read.

    Attributes:
        offset: of it.
        key_crc, value_crc: CRC-32 of its key and value, `None` for those that are null.
    """

    offset: int
    key_crc: int | None
    value_crc: int | None


@dataclass(frozen=True)
class LoadState:
    """Where the runs of a folder stand.

    Attributes:
        offsets: where the next run begins, everything that was ever loaded into the folder.
        last_messages: of the partitions of which messages were read.
        waiting: partitions that were seen, and had no leader to say where they begin.
        topics_seen: the last transaction that had changed the list of topics when they were looked at; `None` before
            the first run, and when the last one was that of a release that did not note it.
    """

    offsets: StreamOffsets = field(default_factory=lambda: StreamOffsets({}))
    last_messages: Mapping[TopicPartition, LastMessage] = field(default_factory=dict)
    waiting: frozenset[TopicPartition] = frozenset()
    topics_seen: int | None = None

    def equals(self, other: LoadState) -> bool:
        """Whether nothing has changed that the next run would have to know."""
        return (self.offsets, self.last_messages, self.waiting) == (other.offsets, other.last_messages, other.waiting)

    def starts_at_latest(self, name: TopicPartition, created_zxid: int) -> bool:
        """Whether a partition that was never loaded was there when somebody asked for what comes from now on.

        A topic that was created since the last run, or has got another partition, has messages that nobody has seen.
        """
        known = name.topic in self.offsets.created_zxids or name in self.offsets.offsets
        return not known and (self.topics_seen is None or created_zxid <= self.topics_seen)
