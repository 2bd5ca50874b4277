"""The records of a poll that an iteration over a consumer has not returned yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.records import ConsumerRecord

__all__ = ["UnreadRecords"]


class UnreadRecords:
    """Records that were polled, and are returned one by one.

    Attributes:
        rows: The rest of them.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: Iterator[ConsumerRecord[Any, Any]] = iter(())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that was not returned; nothing of those that were all returned."""
        rest: Iterable[ConsumerRecord[Any, Any]] = list(self.rows)
        self.rows = iter(rest)
        found: dict[TopicPartition, int] = {}
        for record in rest:
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    def drop(self) -> None:
        """Forget the rest."""
        self.rows = iter(())
