"""The reads and commits of offsets in Kafka that wait for the offset manager; what waits together is sent together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rebalance.assignment import Partition
from rebalance.fence import Fence
from simpleconsumer.types import OffsetAndMetadata
from zkconsumer.offsets.commit_batch import Done

__all__ = ["RELEASED", "CommitJob", "LoadJob", "Loaded", "SurveyJob"]

RELEASED: Final = "the partition was released in the meantime"

Loaded = Callable[[int | None], None]
"""Is called with the offset at which a partition starts, None if there is none."""


@dataclass(slots=True)
class LoadJob:
    """Loads that one request answers.

    Attributes:
        fence: The registration under which the partitions were claimed.
        waiting: Partition -> who waits for its offset, and how many attempts have failed before.
    """

    fence: Fence | None
    waiting: dict[Partition, tuple[list[Loaded], int]] = field(default_factory=dict)

    def add(self, partition: Partition, waiting: list[Loaded], failures: int) -> None:
        """Load the offset of one more partition."""
        others, _ = self.waiting.get(partition, ([], 0))
        self.waiting[partition] = ([*others, *waiting], failures)


@dataclass(slots=True)
class SurveyJob:
    """Reads the offsets that are stored when a topic was just created anew: those of its earlier incarnation.

    Attributes:
        topic: Its name.
        partitions: Its partitions now.
    """

    topic: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class CommitJob:
    """Commits that one request stores.

    Attributes:
        fence: The registration under which they were decided.
        is_explicit: Whether stored offsets may be lowered.
        positions: What to store.
        callers: The partitions of each commit, and who is called with those that failed.
        starts: Partitions whose position is a start offset, which never replaces a stored one.
        rows: What is stored beside the positions.
        writes: What was sent.
        failed: Partition -> why it is not sent.
        wait_until: Until when it waits for ZooKeeper to confirm the session, on the loop's clock.
    """

    fence: Fence | None
    is_explicit: bool
    positions: dict[Partition, int]
    callers: list[tuple[frozenset[Partition], Done]]
    starts: set[Partition] = field(default_factory=set)
    rows: dict[Partition, OffsetAndMetadata] = field(default_factory=dict)
    writes: dict[Partition, int] = field(default_factory=dict)
    failed: dict[Partition, str] = field(default_factory=dict)
    wait_until: float | None = None

    def may_join(self, later: CommitJob) -> bool:
        """Return whether a later commit is sent together with this one, which still waits.

        Of two that the application has asked for the later one replaces the earlier one, up or down. One with a text is
        sent alone: brokers refuse texts that are too long, and the other commit would fail with it.
        """
        if self.failed or self.fence != later.fence or self.is_explicit is not later.is_explicit:
            return False
        if self.is_explicit:
            return not any(row.metadata for row in (*self.rows.values(), *later.rows.values()))
        goes_back = any(self.positions.get(partition, at) > at for partition, at in later.positions.items())
        return not (goes_back or later.starts & self.positions.keys())

    def join(self, later: CommitJob) -> None:
        """Take in a later commit."""
        self.positions.update(later.positions)
        self.rows = {**self.rows, **later.rows}
        self.starts = self.starts - later.positions.keys() | later.starts
        self.callers += later.callers

    def forget_topic(self, topic: str) -> None:
        """Send nothing of a topic that was created anew."""
        for partition in [each for each in self.positions if each[0] == topic]:
            del self.positions[partition]
            self.failed[partition] = "the topic was created again"

    def forget_partition(self, partition: Partition, stored: int | None) -> None:
        """Send nothing of a partition that is released; fine if the position is stored already."""
        position = self.positions.pop(partition, None)
        self.rows.pop(partition, None)
        if position is not None and position != stored:
            self.failed[partition] = RELEASED

    def report(self, failed: Mapping[Partition, str]) -> int:
        """Call the callers, once, with what failed; return how many partitions that were."""
        callers, self.callers = self.callers, []
        if not callers:
            return 0
        reasons = {**self.failed, **failed}
        for partitions, done in callers:
            done({partition: reasons[partition] for partition in partitions & reasons.keys()})
        return len(reasons)
