"""What generations have in common whose offsets are numbers of messages: Kafka 0.8 and all later ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simpleconsumer.dialect_types import Boundary, PositionIs
from simpleconsumer.types import Buffer, TopicPartition

__all__ = ["NumberedOffsets", "numbered"]


class NumberedOffsets:
    """That part of a dialect (`simpleconsumer.dialect.Dialect`) which follows from numbered messages."""

    has_byte_positions: Final = False
    chooses_partition: Final = False
    place_columns: Final = ("offset",)

    def partition_number(self, partition: int | str) -> int:
        """Return the number itself."""
        return int(partition)

    def cuts(self, batch: Any, max_rows: int | None) -> Iterator[tuple[int, int]]:
        """Yield parts of so many rows."""
        count = batch.num_rows if max_rows is None else max_rows
        for first in range(0, batch.num_rows, count):
            yield first, min(first + count, batch.num_rows)

    def place_of(self, batch: Any, row: int) -> tuple[int, int]:
        """Return the offset of a row, and 0."""
        return batch.column("offset")[row].as_py(), 0

    def place_behind(self, batch: Any, row: int) -> tuple[int, int]:
        """Return the offset behind a row: the next number."""
        return batch.column("offset")[row].as_py() + 1, 0

    def first_entry_fault(self, data: Buffer) -> str | None:
        """Return None: an offset is found wherever it is."""
        return None

    def find_boundary(self, data: Buffer, data_offset: int, position: int) -> Boundary:
        """Return that every offset can be asked for."""
        return Boundary(PositionIs.BOUNDARY, position, position)

    def last_entry_before(self, data: Buffer, data_offset: int, position: int) -> int | None:
        """Return None: entries are found by their offsets."""
        return None


def numbered(partition: TopicPartition) -> tuple[str, int]:
    """Return topic and number of a partition.

    Raises:
        ValueError: It has a name of Kafka 0.7 instead of a number.
    """
    topic, number = partition
    if not isinstance(number, int):
        raise ValueError(f"{topic}/{number}: partitions of Kafka 0.8 and later are numbers")
    return topic, number
