"""What a member knows of the stored offsets of its group, and where its partitions start from that.

The stores in ZooKeeper and in Kafka share it: they differ in how offsets are read and written, not in what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from rebalance.assignment import Partition
from zkconsumer.offsets.offset_records import OffsetRecord, WriteDecision, decide_write, start_position

__all__ = ["Done", "KnownOffsets", "OnCommit", "telling"]

log = logging.getLogger(__name__)

Done = Callable[[Mapping[Partition, str]], None]
"""Is called with the partitions whose position could not be written, and why."""
OnCommit = Callable[[Mapping[Partition, int]], None]
"""Is called with the positions that are stored by now."""

_NOTHING_TO_WRITE: Final = (WriteDecision.SKIP, WriteDecision.HOLD)


def telling(
    on_commit: OnCommit | None, stored: Callable[[Partition], int | None], positions: Mapping[Partition, int],
    done: Done,
) -> Done:
    """Return a `done` of a commit that first tells `on_commit` which of its positions are stored."""
    if on_commit is None:
        return done

    def told(failed: Mapping[Partition, str]) -> None:
        found = {name: at for name, at in positions.items() if name not in failed and stored(name) == at}
        if found:
            on_commit(found)
        done(failed)

    return told


class KnownOffsets:
    """The offsets of one group as one member last saw them, and what it has done itself.

    Attributes:
        records: Partition -> what is known of its offset.
        on_commit: Called with what the member has committed by itself, before who asked for it; None for nobody.

    Threads: The coordinator's alone; `committed`, `behind` and `is_stored` may be called from any thread.
    """

    def __init__(self) -> None:
        self.records: dict[Partition, OffsetRecord] = {}
        self.on_commit: OnCommit | None = None

    def _told(self, positions: Mapping[Partition, int], done: Done, explicit: bool = False) -> Done:
        return done if explicit else telling(self.on_commit, self.stored, positions, done)

    def record(self, partition: Partition) -> OffsetRecord:
        """Return what is known of the offset of a partition; a new record if nothing is."""
        return self.records.setdefault(partition, OffsetRecord())

    def committed(self) -> dict[Partition, int]:
        """Return the stored offsets as last seen."""
        return {name: record.stored for name, record in list(self.records.items()) if record.stored is not None}

    def stored(self, partition: Partition) -> int | None:
        """Return the stored offset of a partition as last seen; what this member has done does not count."""
        record = self.records.get(partition)
        return None if record is None else record.stored

    def behind(self) -> dict[Partition, int]:
        """Return the done positions of ended ownerships that are not stored."""
        return {
            name: record.done
            for name, record in list(self.records.items())
            if record.done is not None and not self.is_stored(name, record.done)
        }

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        """Return whether a commit of a position would change nothing, as far as the offset was last seen.

        A higher offset that the log does not have is not enough, nor is any for an explicit commit, which may lower it.
        """
        record = self.records.get(partition)
        return record is not None and decide_write(record, position, explicit) in _NOTHING_TO_WRITE

    def remember(self, partition: Partition, position: int) -> None:
        """Keep the done position of an ownership that ends, for the next claim by this member."""
        self.record(partition).done = position

    def start_at(self, partition: Partition, position: int) -> None:
        """Take note that the application has chosen a start, whatever is stored or was done: it may be lowered."""
        self.record(partition).start_at(position)

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None:
        """Take note that a position was outside its log and is reset: the stored offset may be lowered.

        Args:
            gone: The offsets behind the end of the log which this member has read: they may still be committed.
            restart: Where this member goes on.
        """
        self.record(partition).out_of_range(gone, restart)

    def released(self, partition: Partition) -> None:
        """Take note that the member is about to release a partition, or lost it. What is known of its offset stays."""

    def start_of(self, partition: Partition, incarnation: int) -> int | None:
        """Return the offset at which a partition starts whose offset was just read, None if there is none.

        Args:
            incarnation: Id of the transaction that created its topic; 0 if it was not created anew.
        """
        record = self.record(partition)
        if record.is_of_earlier_incarnation(incarnation):
            log.warning("offset %s of %s-%s was stored before the topic was created again, and does not count",
                        record.stored, *partition)
            record.taken()
            record.void_version = record.version
            return None
        position, is_lowered = start_position(record)
        if is_lowered:
            log.warning("offset of %s-%s was set to %s by another client, below %s; continuing from there",
                        *partition, record.stored, record.baseline)
            record.done = None
        elif record.stored is not None and position is not None and position > record.stored:
            log.info("offset of %s-%s: continuing from %s, up to which this member had read; stored is %s",
                     *partition, position, record.stored)
        record.taken()
        return position
