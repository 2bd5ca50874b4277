"""Decides which positions of a member are committed: periodically, by `commit_offsets`, and when it leaves.

It knows which partitions are held (from the coordinator) and how far the application is (from the delivery). It writes
nothing itself and never waits: `zkconsumer.offsets.zookeeper_offsets` writes and reports. Rule: only positions of held
partitions are committed, under the fence under which they were decided.

Source: docs/SEMANTICS.md, "Delivery" and "The rebalance listener".

Remembers the metadata stored with the offsets of a member: a text, and the leader epoch of the record before.

The epoch lets whoever goes on from the offset find out that the log was cut off below it, as Java members do.

Source: org.apache.kafka.clients.consumer.internals.SubscriptionState.allConsumed (3.9); KIP-320.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from rebalance import partition as steps
from rebalance.loop import Loop
from rebalance.ports import Fence, Member, Offsets
from rebalance.subscription import Partition
from rebalance.takeover import MemberPartition, by_reason
from simpleconsumer.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)
Positions = Mapping[TopicPartition, int]
Failed = Mapping[Partition, str]


class _Asked(NamedTuple):
    """The position that the application wants to be stored, and why the last attempt failed, if it did."""

    position: int
    explicit: bool
    reason: str | None = None


class Holder(Protocol):
    """Knows which partitions a member holds, and under which fence."""

    @property
    def member(self) -> Member: ...

    @property
    def fence(self) -> Fence | None: ...

    @property
    def partitions(self) -> Mapping[Partition, MemberPartition]: ...


class Commits:
    """The commits of one member.

    Args:
        coordinator: knows which partitions are held, and the fence.
        offsets: writes them.
        positions: the done positions of all partitions in delivery.
        loop: the coordinator's.

    Threads: the coordinator's alone, but for `not_stored`.
    """

    def __init__(self, coordinator: Holder, offsets: Offsets, positions: Callable[[], Positions], loop: Loop) -> None:
        self._coordinator = coordinator
        self._offsets = offsets
        self._positions = positions
        self._loop = loop
        self._auto_commit_enable = coordinator.member.auto_commit
        self._is_committing = False
        self._released: dict[Partition, int] = {}
        self._asked: dict[Partition, _Asked] = {}

    # -- periodically ------------------------------------------------------------------------------------------------

    def start_auto_commit(self, interval_s: float) -> None:
        """Commit what is done every `interval_s` seconds."""
        self._loop.call_later(interval_s, self._auto_commit, interval_s)

    def _auto_commit(self, interval_s: float) -> None:
        self.start_auto_commit(interval_s)
        self.commit_done()

    def commit_done(self) -> None:
        """Commit what is done by now, unless that is under way."""
        if self._is_committing:
            return
        positions: dict[Partition, int] = {
            partition: position for partition, position in self._positions().items() if self.holds(partition)
        }
        self._is_committing = True
        self._offsets.commit(self._coordinator.fence, positions, self._auto_committed)

    def _auto_committed(self, failed: Failed) -> None:
        self._is_committing = False
        for names, reason in by_reason(failed):
            log.warning("offset of %s is not committed: %s", names, reason)

    # -- by commit_offsets -------------------------------------------------------------------------------------------

    def choose(
        self, explicit: Mapping[Partition, int] | None, in_hand: Positions
    ) -> tuple[dict[Partition, int], dict[Partition, str]]:
        """The positions that `commit_offsets` commits, and the partitions that it may not commit, with reasons.

        Args:
            explicit: positions that the application has named, None for all that are done.
            in_hand: positions that count the message in hand; for a call without a map.
        """
        if explicit is not None:
            wanted = dict(explicit)
        else:
            wanted = self._drained()
            wanted.update((partition, at) for partition, at in in_hand.items() if self.holds(partition))
        refused = {partition: "this member does not own it" for partition in wanted if not self.holds(partition)}
        return {partition: at for partition, at in wanted.items() if partition not in refused}, refused

    def commit(
        self, fence: Fence | None, positions: Mapping[Partition, int], done: Callable[[Failed], None], *, explicit: bool
    ) -> None:
        """Commit what the application wants to be stored, and remember it until it is.

        Args:
            fence: the registration that stood when the application decided.
            positions: what to commit.
            done: called with what failed, and why.
            explicit: whether stored offsets may be lowered.
        """
        asked = {partition: _Asked(at, explicit) for partition, at in positions.items()}
        self._asked.update(asked)

        def committed(failed: Failed) -> None:
            for partition, mine in asked.items():
                if self._asked.get(partition) is not mine:
                    continue  # asked for again meanwhile
                if partition in failed:
                    self._asked[partition] = mine._replace(reason=failed[partition])
                else:
                    del self._asked[partition]
            done(failed)

        self._offsets.commit(fence, positions, committed, explicit=explicit)

    def holds(self, partition: Partition) -> bool:
        """Whether the member owns a partition, or has not released it yet."""
        entry = self._coordinator.partitions.get(partition)
        return entry is not None and entry.machine.state in (steps.PartitionState.OWNED, steps.PartitionState.DRAINING)

    def _drained(self) -> dict[Partition, int]:
        """Partitions between drain and release: the listener may still commit what was done of them."""
        draining = {
            partition: entry.position
            for partition, entry in list(self._coordinator.partitions.items())
            if entry.machine.state is steps.PartitionState.DRAINING and entry.position is not None
        }
        return {**self._released, **draining}

    # -- at the end ----------------------------------------------------------------------------------------------------

    def release(self, positions: Positions, leave: Callable[[], None]) -> None:
        """Call `leave`, which notifies the listener of the release: from now on its commits count these as final."""

        def note() -> None:
            # The final position of a drain that has ended is kept by its partition.
            self._released = {partition: at for partition, at in positions.items() if self.holds(partition)}
            leave()

        # After the notifications of this very step: callbacks of drains that end just now.
        self._loop.after_step(note)

    def commit_last(self, fence: Fence | None, positions: Positions, done: Callable[[Failed], None]) -> None:
        """Commit what is done when delivery has ended, under the fence that stood then."""
        self._offsets.commit(fence, self._last(positions), done)

    def _last(self, positions: Positions) -> dict[Partition, int]:
        held = self._drained()
        held.update((partition, at) for partition, at in positions.items() if self.holds(partition))
        return held

    def not_stored(self, positions: Positions, reason: str) -> dict[Partition, str]:
        """Partition -> why its position is not known to be stored; `reason` where nothing more exact is known.

        Without auto-commit only the positions count that the application has asked to be stored. Threads: any.
        """
        asked = dict(self._asked)
        if self._auto_commit_enable:
            wanted = {partition: _Asked(at, explicit=False) for partition, at in self._last(positions).items()}
        else:
            wanted = {partition: one for partition, one in asked.items() if self.holds(partition)}
        return {
            partition: (asked.get(partition, one).reason or reason)
            for partition, one in wanted.items()
            if not self._offsets.is_stored(partition, one.position, one.explicit)
        }


GivenNotes = Mapping[tuple[TopicPartition, int], tuple[str, int | None]]
"""The application's metadata for offsets: partition and offset -> text, and leader epoch if it names one."""
_UNKNOWN: Final = -1


class _Run(NamedTuple):
    """Consecutive records of one epoch, from the offset `first` up to the one before `behind`."""

    first: int
    behind: int
    epoch: int


class CommitNotes:
    """The metadata that is stored with offsets.

    Of each partition it remembers the records of the last two polls: auto-commit stores the offsets of the one before.

    Threads: `returned` belongs to the polling thread, `read` to the one that reads offsets; the rest to the
        coordinator's.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
        self._runs: dict[TopicPartition, tuple[_Run, ...]] = {}
        self._read: dict[TopicPartition, tuple[int, int]] = {}

    def read(self, rows: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take note of the metadata stored with offsets, as it was just read."""
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
            behind: The offset after the last one.
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
        """Return an offset with the metadata to store with it."""
        text, epoch = self._given.get((partition, offset), ("", _UNKNOWN))
        if epoch == _UNKNOWN:
            runs = self._runs.get(partition, ())
            epoch = next((run.epoch for run in reversed(runs) if run.first < offset <= run.behind),
                         self.epoch_read(partition, offset))  # fmt: skip
        return OffsetAndMetadata(offset, text, epoch)
