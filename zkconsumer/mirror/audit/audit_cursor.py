"""Goes through the log of one side by the offsets of the source, and checks parts of leaves on the way. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from simpleconsumer.types import MAX_INT64, Message
from zkconsumer.mirror.audit.audit_findings import RangeList
from zkconsumer.mirror.lane_leaves import DECODED, LeafPart, OrderedHash, batch_digest
from zkconsumer.mirror.lane_runs import Stretch
from zkconsumer.mirror.pieces import LogSpan

_MOST_PENDING: Final = 100


class OffsetPlaces:
    """The offsets of the target, as offsets of the source. The target is read in order.

    Args:
        stretches: The runs that have records, in order.
    """

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = joined(stretches)
        self._index = 0

    def source_at(self, target_offset: int, records: int = 1) -> int | None:
        """Return where a record was read, or all of several in a row; None if no run has it."""
        stretches = self._stretches
        while self._index < len(stretches) and target_offset >= stretches[self._index].target_end:
            self._index += 1
        if self._index == len(stretches):
            return None
        stretch = stretches[self._index]
        is_within = stretch.run.target_first <= target_offset and target_offset + records <= stretch.target_end
        return stretch.run.source_at(target_offset) if is_within else None


def joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return stretches of which those are one between which neither side has a hole."""
    found: list[Stretch] = []
    for each in stretches:
        if found and found[-1].target_end == each.run.target_first and found[-1].source_end == each.run.source_first:
            found[-1] = Stretch(found[-1].run, each.target_end)
        else:
            found.append(each)
    return found


class SpanCursor:
    """Goes through one log by the offsets of the source.

    Args:
        spans: Of the log, in order.
        place: Returns the offset of the source of a record, or of several in a row; None for those to leave out.

    Attributes:
        at: The offset of the next record in the source; None at the end.
        own_offset: Its offset in this log.
        whole: The batch that starts there, if it can be compared as it is stored.
        message: The record that is there, if there is no such batch.
        is_checked: Whether the batch was compared with the leaves.
    """

    def __init__(self, spans: Iterator[LogSpan], place: Callable[[int, int], int | None]) -> None:
        self._spans = spans
        self._place = place
        self._messages: Iterator[Message] = iter(())
        self._digest: bytes | None = None
        self.at: int | None = -1
        self.own_offset = -1
        self.whole: LogSpan | None = None
        self.message: Message | None = None
        self.is_checked = False
        self.advance()

    @property
    def digest(self) -> bytes:
        """The hash of the batch as it is stored."""
        if self._digest is None:
            assert self.whole is not None
            self._digest = batch_digest(self.whole.section)
        return self._digest

    @property
    def whole_end(self) -> int:
        """The offset of the source after the batch."""
        assert self.whole is not None
        assert self.at is not None
        return self.at + self.whole.records

    def open(self) -> None:
        """Have the batch decoded."""
        if self.whole is not None:
            self._messages = self.whole.messages()
            self.whole = None
            self.advance()

    def advance(self) -> None:
        """Go to the next record, or to the next batch if one is not opened."""
        while True:
            self.whole = None
            for message in self._messages:
                at = self._place(message.offset, 1)
                if at is not None:
                    self.message, self.at, self.own_offset = message, at, message.offset
                    return
            span = next(self._spans, None)
            if span is None:
                self.message = self.at = None
                return
            if self._is_kept_whole(span):
                return
            self._messages = span.messages()

    def _is_kept_whole(self, span: LogSpan) -> bool:
        first = self._place(span.first_offset, span.records) if span.codecs else None
        if first is None:
            return False
        self.message, self._digest, self.is_checked = None, None, False
        self.whole, self.at, self.own_offset = span, first, span.first_offset
        return True


# -- leaves ------------------------------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    """What the target says of a part."""

    EQUAL = 1
    DIFFERENT = 2
    MISSING = 3
    OTHER_BATCHES = 4


@dataclass
class PartCheck:
    """A part, and what was found of it so far.

    Attributes:
        part: The part.
        target_first: The first offset in the target.
        records: How many of its records the target has.
        pending: Those of them that the source does not have: the part proves them, or not.
        differences: The places of its records in `LaneAudit.differences`.
        lacks: How many of its records the source has, and the target not.
        differs: How many of its records differ.
        reached, codecs, is_broken, hash: What the batches of the target have of it.
    """

    part: LeafPart
    target_first: int
    records: int = 0
    reached: int = 0
    codecs: int = 0
    is_broken: bool = False
    hash: OrderedHash = field(default_factory=OrderedHash)
    pending: RangeList = field(default_factory=lambda: RangeList(_MOST_PENDING))
    pending_records: int = 0
    differences: list[int] = field(default_factory=list)
    lacks: int = 0
    differs: int = 0

    def __post_init__(self) -> None:
        self.reached = self.part.first

    def verdict(self) -> Verdict:
        """Return whether the target has what the part says."""
        part = self.part
        if self.records < part.records:
            return Verdict.MISSING
        if part.codecs != DECODED and (self.is_broken or self.reached != part.end or self.codecs != part.codecs):
            return Verdict.OTHER_BATCHES
        return Verdict.EQUAL if self.hash.hexdigest() == part.digest else Verdict.DIFFERENT


class LeafChecks:
    """Compares the target with parts of leaves.

    Args:
        parts: They do not overlap, and are in order. Each with the offset of its first record in the target.
        finished: Called with each part after its last record.
    """

    def __init__(
        self, parts: Sequence[tuple[LeafPart, int]], finished: Callable[[PartCheck], None]
    ) -> None:  # fmt: skip
        self._checks = [PartCheck(*each) for each in parts]
        self._index = 0
        self._finished = finished
        self._now: PartCheck | None = None
        self._until = -1  # before this offset, the part is the same

    def at(self, offset: int) -> PartCheck | None:
        """Return the part to which an offset of the source belongs; the offsets rise."""
        if offset < self._until:
            return self._now
        checks = self._checks
        while self._index < len(checks) and checks[self._index].part.end <= offset:
            self._index += 1
            self._finished(checks[self._index - 1])
        if self._index == len(checks):
            self._now, self._until = None, MAX_INT64
        elif checks[self._index].part.first > offset:
            self._now, self._until = None, checks[self._index].part.first
        else:
            self._now, self._until = checks[self._index], checks[self._index].part.end
        return self._now

    def end(self) -> None:
        """The log is at its end."""
        while self._index < len(self._checks):
            self._index += 1
            self._finished(self._checks[self._index - 1])

    def must_open(self, cursor: SpanCursor) -> bool:
        """Take a batch of the target; return whether its records are needed one by one."""
        if cursor.whole is None or cursor.is_checked:
            return False
        cursor.is_checked = True
        assert cursor.at is not None
        first = cursor.at
        check, end = self.at(first), first + cursor.whole.records
        following = self._checks[self._index] if self._index < len(self._checks) else None
        if check is None:
            if following is None or following.part.first >= end:
                return False
            following.is_broken = True
            return True
        if check.part.codecs == DECODED:
            return True
        if end > check.part.end or first != check.reached:
            check.is_broken = True
            return True
        check.reached = end
        check.codecs |= cursor.whole.codecs
        check.hash.add(cursor.digest)
        return False
