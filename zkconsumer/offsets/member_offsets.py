"""MemberOffsets: the interface of stores of offsets for a member; it has more than the coordination needs.

The offsets of a consumer that keeps none: it has no group, or one whose offsets it may not write.

Also keeps a member's view of the stored offsets of its group, and decides where its partitions start.

The stores in ZooKeeper and in Kafka share it: they differ in how offsets are read and written, not in what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from rebalance.loop import Loop
from rebalance.ports import Fence, Offsets
from rebalance.subscription import Partition
from zkconsumer.offsets.offset_records import OffsetRecord, WriteDecision, decide_write, start_position

log = logging.getLogger(__name__)
Done = Callable[[Mapping[Partition, str]], None]
"""Is called with the partitions whose position could not be written, and why."""
OnCommit = Callable[[Mapping[Partition, int]], None]
"""Is called with the positions that are stored by now."""
_NOTHING_TO_WRITE: Final = (WriteDecision.SKIP, WriteDecision.HOLD)


def telling(
    on_commit: OnCommit | None,
    stored: Callable[[Partition], int | None],
    positions: Mapping[Partition, int],
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
    """The offsets of one group as one member last saw them, and the positions that it has done itself.

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
            gone: The offsets after the end of the log which this member has read: they may still be committed.
            restart: Where this member goes on.
        """
        self.record(partition).out_of_range(gone, restart)

    def released(self, partition: Partition) -> None:
        """Take note that the member is about to release a partition, or lost it. The known offset stays."""

    def start_of(self, partition: Partition, incarnation: int) -> int | None:
        """Return the offset at which a partition starts whose offset was just read, None if there is none.

        Args:
            incarnation: Id of the transaction that created its topic; 0 if it was not created anew.
        """
        record = self.record(partition)
        if record.is_of_earlier_incarnation(incarnation):
            log.warning(
                "offset %s of %s-%s was stored before the topic was created again, and does not count",
                record.stored,
                *partition,
            )
            record.taken()
            record.void_version = record.version
            return None
        position, is_lowered = start_position(record)
        if is_lowered:
            log.warning(
                "offset of %s-%s was set to %s by another client, below %s; continuing from there",
                *partition,
                record.stored,
                record.baseline,
            )
            record.done = None
        elif record.stored is not None and position is not None and position > record.stored:
            log.info(
                "offset of %s-%s: continuing from %s, up to which this member had read; stored is %s",
                *partition,
                position,
                record.stored,
            )
        record.taken()
        return position


class MemberOffsets(Offsets, Protocol):
    """The offsets of one member.

    Attributes:
        failures: How many positions could not be committed so far.
        answering: Who answers a commit, for messages.
        commit_wait_s: How long the answer to a commit may take, in seconds.
        refused: Partition -> why it is not started, as a sentence.
        warnings: Warnings about the stores for the application, as sentences.
        on_commit: Called with what the member has committed by itself, before who asked for it; None for nobody.

    Threads: The coordinator's alone; `committed`, `behind` and `failures` from any, `close` too.
    """

    on_commit: OnCommit | None

    @property
    def failures(self) -> int: ...

    @property
    def answering(self) -> str: ...

    @property
    def commit_wait_s(self) -> float: ...

    @property
    def refused(self) -> Mapping[Partition, str]: ...

    @property
    def warnings(self) -> set[str]: ...

    def committed(self) -> dict[Partition, int]: ...

    def behind(self) -> dict[Partition, int]: ...

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None: ...

    def close(self, timeout_s: float) -> None: ...


class NoOffsets:
    """Has no offset of any partition, and refuses to store one; see `zkconsumer.offsets.member_offsets.MemberOffsets`.

    Args:
        loop: The coordinator's.
        reason: Why nothing can be stored, a clause.
    """

    failures = 0
    answering = "nobody"
    commit_wait_s = 0.0
    release_tries = 0
    on_commit: OnCommit | None = None

    def __init__(self, loop: Loop, reason: str) -> None:
        self._loop = loop
        self._reason = reason
        self.refused: dict[Partition, str] = {}
        self.warnings: set[str] = set()

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        """Return True for what nobody asked to be stored."""
        return not explicit

    def load(self, fence: Fence | None, partition: Partition, done: Callable[[int | None], None]) -> None:
        """Report that no offset is stored."""
        self._loop.post(done, None)

    def commit(
        self,
        fence: Fence | None,
        positions: Mapping[Partition, int],
        done: Callable[[Mapping[Partition, str]], None],
        explicit: bool = False,
    ) -> None:
        """Refuse to store positions."""
        self._loop.post(done, dict.fromkeys(positions, self._reason))

    def commit_start(
        self,
        fence: Fence | None,
        partition: Partition,
        offset: int,
        done: Callable[[Mapping[Partition, str]], None],
    ) -> None:
        """Store nothing: the start is where it is."""
        self._loop.post(done, {})

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str] = ()) -> None:
        """Do nothing."""

    def remember(self, partition: Partition, position: int) -> None:
        """Do nothing."""

    def start_at(self, partition: Partition, position: int) -> None:
        """Do nothing."""

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None:
        """Do nothing."""

    def released(self, partition: Partition) -> None:
        """Do nothing."""

    def session_opened(self, fence: Fence) -> None:
        """Do nothing."""

    def session_over(self) -> None:
        """Do nothing."""

    def committed(self) -> dict[Partition, int]:
        """Return nothing."""
        return {}

    def behind(self) -> dict[Partition, int]:
        """Return nothing."""
        return {}

    def close(self, timeout_s: float) -> None:
        """Do nothing."""
