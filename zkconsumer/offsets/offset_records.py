"""Decides from what is known of an offset node where a partition starts and whether a position may be written. Rule: a
stored offset is lowered only when somebody asked for it.

Pure.

Source: docs/SEMANTICS.md, "Fencing".

Checks the start offsets that `on_partitions_assigned` returned. Rule: a value that is no offset is refused, with the
value and what was expected, and never replaced by another offset: the application stores its offsets with its data,
and any other start would skip or repeat some of it.

Source: docs/SEMANTICS.md, "The rebalance listener".
"""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rebalance.ports import Starts
from rebalance.subscription import Partition
from simpleconsumer.types import MAX_INT64
from zkconsumer_error import shown

_NO_VERSION: Final = -1
"""No node has it, and it is not that of an absent node either."""


@dataclass(slots=True)
class OffsetRecord:
    """One offset node as last seen, and what this member did with it.

    Attributes:
        stored: offset in the node; `None` when it is absent or unreadable.
        version: the node's version; `None` when it is absent.
        baseline: the value that this member last read at a claim, or wrote; others may have changed it since.
        baseline_version: its version.
        done: own done position of an earlier ownership, `None` without one.
        held_at: the stored value that the commits of this member have not passed yet, for one log line instead of many.
        lowered: whether this member itself lowered the offset on purpose, which overrules its done position.
        void_version: the version at which the node held an offset that the leader's log does not have, or one after
            the start that the application chose. Such an offset may be lowered, or no commit would be written until
            the position has grown past it. `None` is the version of an absent node.
        gone: the offsets that this member may still commit of a log that became shorter. A commit that was decided
            before the reset is written after it was found out, and may be lowered as well.
        restart: where this member went on when it found that the log does not have the stored offset. Its next claim
            starts there, if nothing was stored since: by then the log may have grown past the stored offset, and its
            messages up to there would be skipped.
        mzxid: the transaction that last wrote the node; 0 when that is not known.
        earlier: (version, offset) that this member saw or wrote before it noticed that the topic was created anew.
    """

    stored: int | None = None
    version: int | None = None
    baseline: int | None = None
    baseline_version: int | None = None
    done: int | None = None
    held_at: int | None = None
    lowered: bool = False
    void_version: int | None = _NO_VERSION
    gone: range = range(0)
    restart: int | None = None
    mzxid: int = 0
    earlier: set[tuple[int, int | None]] = field(default_factory=set)

    def seen(self, stored: int | None, version: int | None, mzxid: int = 0) -> None:
        """Take note of what was read."""
        if version != self.version or (self.mzxid and mzxid != self.mzxid):
            self._end_void()  # versions start at 0 again when a node is created anew
        self.stored, self.version, self.mzxid = stored, version, mzxid

    @property
    def is_void(self) -> bool:
        """Whether the stored offset may be lowered."""
        return self.version == self.void_version

    def _end_void(self) -> None:
        self.void_version, self.gone, self.restart = _NO_VERSION, range(0), None

    def taken(self) -> None:
        """Take note that a claim starts from what was last seen."""
        self.baseline, self.baseline_version = self.stored, self.version

    def forget_incarnation(self, under_way: int | None) -> None:
        """Take note that the topic was created anew: earlier positions and commits belong to a log that is gone.

        So do later writes of a member: a member that has not noticed it yet goes on committing.
        """
        self.done = self.restart = None
        self.gone = range(0)
        if self.version is not None:
            self.earlier.add((self.version, self.stored))
        if under_way is not None:
            self.earlier.add((0 if self.version is None else self.version + 1, under_way))

    def is_of_earlier_incarnation(self, created_zxid: int) -> bool:
        """Whether the offset belongs to the log that the topic had before it was created anew, by `created_zxid`."""
        if self.version is None:
            return False
        return self.mzxid < created_zxid or (self.version, self.stored) in self.earlier

    def written(self, value: int, version: int) -> None:
        """Take note of what was written."""
        # Replacing an offset that the log does not have is not lowering it.
        is_lower = self.stored is not None and value < self.stored
        self.lowered = is_lower and not self.is_void
        if self.is_void and (value == self.stored or (not is_lower and value in self.gone)):
            self.void_version = version
        else:
            self._end_void()
        self.stored, self.version, self.mzxid = value, version, 0
        self.baseline, self.baseline_version = value, version
        self.held_at = value  # A commit that was decided before this one, on another thread, needs no line in the log.

    def start_at(self, position: int) -> None:
        """Take note that the application chose a start, which overrules the stored offset and the done position."""
        self.done = self.restart = None
        self.lowered = False
        self.gone = range(0)
        if self.stored is not None and position < self.stored:
            self.void_version = self.version

    def out_of_range(self, gone: range, restart: int) -> None:
        """Take note that the position of this member is outside the log.

        Args:
            gone: The offsets after the end of the log which this member has read in this ownership.
            restart: Where this member goes on.
        """
        if self.version != self.baseline_version:
            return
        # A commit from before an earlier reset may still be on its way.
        self.gone = range(gone.start, max(gone.stop, self.gone.stop))
        self.void_version, self.restart = self.version, restart


def start_position(record: OffsetRecord) -> tuple[int | None, bool]:
    """The offset at which a claimed partition starts, and whether it is one that somebody else lowered.

    The done position of this member counts although it was not committed, unless somebody else has lowered the node
    below what this member last knew: then that was intended, and is followed. An offset that the log did not have
    does not count.

    >>> start_position(OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3, done=17))
    (17, False)
    >>> start_position(OffsetRecord(stored=4, version=4, baseline=10, baseline_version=3, done=17))
    (4, True)
    >>> start_position(OffsetRecord(stored=900, version=3, void_version=3, restart=31))
    (31, False)
    """
    if record.is_void and record.restart is not None:
        return record.restart if record.done is None else record.done, False
    if record.done is None or record.lowered:
        return record.stored, False
    if record.stored is None or record.is_void:
        return record.done, False
    moved = record.version != record.baseline_version
    if moved and record.baseline is not None and record.stored < record.baseline:
        return record.stored, True
    return max(record.stored, record.done), False


class WriteDecision(enum.Enum):
    """The decision about a position that is to be committed."""

    SKIP = "stored already"
    WRITE = "set at the version last seen"
    CREATE = "create the node"
    HOLD = "a higher offset is stored; it is left until this member has passed it"


def decide_write(record: OffsetRecord, value: int, may_lower: bool) -> WriteDecision:
    """Whether and how `value` may replace the stored offset.

    >>> decide_write(OffsetRecord(stored=10, version=2), 7, may_lower=False)
    <WriteDecision.HOLD: 'a higher offset is stored; it is left until this member has passed it'>
    """
    if record.version is None:
        return WriteDecision.CREATE
    if record.stored is None or record.stored < value:
        return WriteDecision.WRITE
    if record.stored == value:
        return WriteDecision.SKIP
    return WriteDecision.WRITE if may_lower or record.is_void else WriteDecision.HOLD


def read_starts(answer: object, assigned: Collection[Partition]) -> Starts:
    """The chosen and refused starts of the partitions that were assigned.

    A wrong offset refuses its partition. A value that is no mapping, or names a partition that was not assigned in this
    call, refuses all of them: it is unknown which one was meant.
    """
    if answer is None:
        return Starts()
    if not isinstance(answer, Mapping):
        reason = (
            f"on_partitions_assigned returned {reprlib.repr(answer)}; it must return None, or a mapping of assigned "
            "partitions to offsets, such as {TopicPartition('clicks', 0): 42}"
        )
        return Starts(refused=dict.fromkeys(assigned, reason))
    try:
        entries = dict(answer)
    except Exception as error:  # noqa: BLE001 - a mapping of the application's own making
        reason = f"the value that on_partitions_assigned returned cannot be read: {shown(error)}"
        return Starts(refused=dict.fromkeys(assigned, reason))
    unassigned = [key for key in entries if not (isinstance(key, tuple) and key in assigned)]
    if unassigned:
        names = ", ".join(_shown(key) for key in unassigned[:5]) + (", ..." if len(unassigned) > 5 else "")
        reason = f"on_partitions_assigned returned an offset for {names}, which this call did not assign"
        return Starts(refused=dict.fromkeys(assigned, reason))
    chosen: dict[Partition, int] = {}
    refused: dict[Partition, str] = {}
    for (topic, partition), offset in entries.items():
        if isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= MAX_INT64:
            chosen[topic, partition] = offset
        else:
            refused[topic, partition] = (
                f"on_partitions_assigned returned offset {reprlib.repr(offset)}; it must be an integer from 0 to 2^63-1"
            )
    return Starts(chosen, refused)


def _shown(key: object) -> str:
    if isinstance(key, tuple) and len(key) == 2:
        return f"{key[0]}-{key[1]}"
    return reprlib.repr(key)
