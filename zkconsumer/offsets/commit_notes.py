"""Remembers what is stored beside the offsets of a member: a text, and the leader epoch of the record before.

The epoch lets whoever goes on from the offset find out that the log was cut off below it, as Java members do.

Source: org.apache.kafka.clients.consumer.internals.SubscriptionState.allConsumed (3.9); KIP-320.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from simpleconsumer.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommitNotes", "GivenNotes"]

GivenNotes = Mapping[tuple[TopicPartition, int], tuple[str, int | None]]
"""What the application stores beside offsets: partition and offset -> text, and leader epoch if it names one."""

_UNKNOWN: Final = -1


class _Run(NamedTuple):
    """Records that follow each other and are of one epoch: those before an offset behind `first`, up to `behind`."""

    first: int
    behind: int
    epoch: int


class CommitNotes:
    """What is stored beside offsets.

    Of each partition the records of the last two polls are remembered: auto-commit stores those of the poll before.

    Threads: `returned` belongs to the polling thread, `read` to the one that reads offsets; the rest to the
        coordinator's.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
        self._runs: dict[TopicPartition, tuple[_Run, ...]] = {}
        self._read: dict[TopicPartition, tuple[int, int]] = {}

    def read(self, rows: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take note of what was stored beside offsets, as it was just read."""
        self._read |= {name: (row.offset, row.leader_epoch) for name, row in rows.items()}

    def epoch_read(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch that was read with an offset; -1 if another offset was read, or none."""
        at, epoch = self._read.get(partition, (-1, _UNKNOWN))
        return epoch if at == offset else _UNKNOWN

    def returned(
        self, partition: TopicPartition, first: int, behind: int, epochs: tuple[int | None, int | None]
    ) -> None:
        """Take note of records that the application got.

        Args:
            partition: Their partition.
            first: The offset of the first one.
            behind: The offset behind the last one.
            epochs: In which the first and the last one were appended; None: not known.
        """
        start = first if epochs[0] == epochs[1] else behind - 1
        run = _Run(start, behind, _UNKNOWN if epochs[1] is None else epochs[1])
        self._runs[partition] = (*self._runs.get(partition, ())[-1:], run)

    @contextmanager
    def given(self, offsets: GivenNotes) -> Iterator[None]:
        """Have the commits that are asked for in the block store these texts and epochs with these offsets."""
        self._given |= {key: (text, _UNKNOWN if epoch is None else epoch) for key, (text, epoch) in offsets.items()}
        try:
            yield
        finally:
            for key in offsets:
                self._given.pop(key, None)

    def to_store(self, partition: TopicPartition, offset: int) -> OffsetAndMetadata:
        """Return an offset with what is stored beside it."""
        text, epoch = self._given.get((partition, offset), ("", _UNKNOWN))
        if epoch == _UNKNOWN:
            runs = self._runs.get(partition, ())
            epoch = next((run.epoch for run in reversed(runs) if run.first < offset <= run.behind),
                         self.epoch_read(partition, offset))  # fmt: skip
        return OffsetAndMetadata(offset, text, epoch)
