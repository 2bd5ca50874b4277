"""What is known of one offset node, and what that means for the next write and the next start.

Pure. Two questions are answered here: where to go on after a claim, and whether a position may be written over what
is stored. Rule: an offset goes back only when somebody asked for it.

Source: docs/SEMANTICS.md, "Fenced commits".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = ["OffsetRecord", "Verdict", "start_position", "verdict"]


@dataclass(slots=True)
class OffsetRecord:
    """One offset node as last seen, and what this member did with it.

    Attributes:
        stored: offset in the node; `None` when it is absent or unreadable.
        version: the node's version; `None` when it is absent.
        baseline: the value that this member last read at a claim or wrote: what others may have moved since.
        baseline_version: the version that went with it.
        done: own done position of an earlier ownership, `None` without one.
        held_at: the stored value that my commits wait to pass, for one log line instead of many.
        lowered: whether this member itself set the offset back on purpose, which overrules what it has done.
        void_version: the version at which the node held an offset that the leader's log does not have, or behind the
            start that the application chose: it may be written over with less, or it would hold up every commit until
            the position has grown past it.
        mzxid: when the node was last written, on ZooKeeper's own clock; 0 when that is not known.
        earlier: (version, offset) that this member saw or wrote before it noticed that the topic was created anew.
    """

    stored: int | None = None
    version: int | None = None
    baseline: int | None = None
    baseline_version: int | None = None
    done: int | None = None
    held_at: int | None = None
    lowered: bool = False
    void_version: int | None = None
    mzxid: int = 0
    earlier: set[tuple[int, int | None]] = field(default_factory=set)

    def seen(self, stored: int | None, version: int | None, mzxid: int = 0) -> None:
        """Take note of what was read."""
        if version != self.version or (self.mzxid and mzxid != self.mzxid):
            self.void_version = None  # versions begin at 0 again when a node is made anew
        self.stored, self.version, self.mzxid = stored, version, mzxid

    @property
    def is_void(self) -> bool:
        """Whether what is stored may be written over with less."""
        return self.version is not None and self.version == self.void_version

    def taken(self) -> None:
        """Take note that what was last seen is what a claim goes by."""
        self.baseline, self.baseline_version = self.stored, self.version

    def forget_incarnation(self, under_way: int | None) -> None:
        """Take note that the topic was created anew: what is done, stored or on its way is of a log that is gone.

        Also what was written after the creation: who has not noticed it yet goes on committing.
        """
        self.done = None
        if self.version is not None:
            self.earlier.add((self.version, self.stored))
        if under_way is not None:
            self.earlier.add((0 if self.version is None else self.version + 1, under_way))

    def is_of_earlier_incarnation(self, created_zxid: int) -> bool:
        """Whether the offset points into a log that is no more: that of the topic before it was created anew."""
        if self.version is None:
            return False
        return self.mzxid < created_zxid or (self.version, self.stored) in self.earlier

    def written(self, value: int, version: int) -> None:
        """Take note of what was written."""
        # What the log does not have is written over, not set back.
        self.lowered = self.stored is not None and value < self.stored and self.version != self.void_version
        self.stored, self.version, self.mzxid = value, version, 0
        self.baseline, self.baseline_version = value, version
        self.held_at = None

    def start_at(self, position: int) -> None:
        """Take note that the application said where to begin: neither what is stored nor what was done overrules it."""
        self.done = None
        self.lowered = False
        if self.stored is not None and position < self.stored:
            self.void_version = self.version

    def out_of_range(self) -> None:
        """Take note that the position this member was given by the node is outside the log."""
        if self.stored is not None and self.version == self.baseline_version:
            self.void_version = self.version


def start_position(record: OffsetRecord) -> tuple[int | None, bool]:
    """Where to go on after a claim, and whether a lowered offset was obeyed.

    Own done work counts although it was not committed, unless somebody else has set the node to less than this
    member last knew: then that was meant, and is obeyed.

    >>> start_position(OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3, done=17))
    (17, False)
    >>> start_position(OffsetRecord(stored=4, version=4, baseline=10, baseline_version=3, done=17))
    (4, True)
    """
    if record.done is None or record.lowered:
        return record.stored, False
    if record.stored is None or record.is_void:
        return record.done, False
    moved = record.version != record.baseline_version
    if moved and record.baseline is not None and record.stored < record.baseline:
        return record.stored, True
    return max(record.stored, record.done), False


class Verdict(enum.Enum):
    """What to do with a position."""

    SKIP = "stored already"
    WRITE = "set at the version last seen"
    CREATE = "create the node"
    HOLD = "a higher offset is stored; it is left until this member has passed it"


def verdict(record: OffsetRecord, value: int, may_lower: bool) -> Verdict:
    """Whether `value` may be written over what is stored.

    >>> verdict(OffsetRecord(stored=10, version=2), 7, may_lower=False)
    <Verdict.HOLD: 'a higher offset is stored; it is left until this member has passed it'>
    """
    if record.version is None:
        return Verdict.CREATE
    if record.stored is None or record.stored < value:
        return Verdict.WRITE
    if record.stored == value:
        return Verdict.SKIP
    return Verdict.WRITE if may_lower or record.is_void else Verdict.HOLD
