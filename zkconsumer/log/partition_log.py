"""Reads the log of one partition from its folder: its entries in order, what is damaged, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from zkconsumer.log.checkpoints import Checkpoint, SegmentName, index_end
from zkconsumer.log.heads import KAFKA_FILE, LOG_FILE, DiskLayout
from zkconsumer.log.order import Limit, OffsetOrder, first_offset_of
from zkconsumer.log.segment_file import ReadOnlyFile, read_hint
from zkconsumer.log.values import Damage, DiskEntry, Gap, GapKind, LogTail, WalkedDamage
from zkconsumer.log.walk import ZEROS, SegmentWalk

_COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state")
_ALL_OFFSETS = 2**62
_OFFSETS_A_SEGMENT = 2**31


class DiskSegment(NamedTuple):
    """A file with entries.

    Attributes:
        name: What its name says.
        path: Where it is.
        size: Its bytes.
    """

    name: SegmentName
    path: Path
    size: int


class Placed(NamedTuple):
    """An entry, and what gives its bytes."""

    entry: DiskEntry
    segment: DiskSegment
    walk: SegmentWalk


ScanEvent = Placed | Damage | Gap | LogTail


class DiskPartition:
    """The log of a partition in one folder.

    Attributes:
        topic: Its topic.
        partition: Its number; in Kafka 0.7 the number on its broker.
        folder: Where it is.
        state: Empty, or `delete`, `future` or `stray` for a folder that is no longer, or not yet, the partition's.
        is_07: Whether it is a log of Kafka 0.7, whose offsets are bytes.
        segments: The files with entries, by name.
        replaced: Files that the broker had replaced, or was making.
        orphans: The offsets of indexes whose segment is not there.
        foreign: Files that no broker has written.
        checkpoint: What the checkpoints of the folder above say.
        epochs: First offset by epoch of leaders.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        folder: Path,
        *,
        state: str = "",
        segments: Sequence[DiskSegment] = (),
        replaced: Sequence[Path] = (),
        orphans: Sequence[int] = (),
        foreign: Sequence[Path] = (),
        checkpoint: Checkpoint | None = None,
        epochs: dict[int, int] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.folder = folder
        self.state = state
        self.segments = tuple(segments)
        self.replaced = tuple(replaced)
        self.orphans = tuple(orphans)
        self.foreign = tuple(foreign)
        self.checkpoint = checkpoint or Checkpoint()
        self.epochs = epochs or {}
        self.is_07 = any(segment.name.kind == "kafka" for segment in segments)

    @property
    def size_bytes(self) -> int:
        """How many bytes its segments have."""
        return sum(segment.size for segment in self.segments)

    @property
    def start(self) -> int:
        """The first offset that was not deleted, as far as names and checkpoints say."""
        bases = [segment.name.base for segment in self.segments]
        orphans = [base for base in self.orphans if not bases or base < min(bases)]
        return max(min(bases + orphans, default=0), self.checkpoint.log_start or 0)

    def scan(self, *, in_runs: bool = False) -> Iterator[ScanEvent]:
        """Yield the entries in the order of their offsets, and all damage and gaps; each checksum is compared.

        Args:
            in_runs: Whether plain entries that follow each other may be yielded as one, which is faster.

        Raises:
            LogFailed: A file cannot be read, or changes meanwhile.
        """
        placed, misnamed = self._in_order()
        start = self.start
        if start > 0:
            yield Gap(GapKind.BELOW_LOG_START, 0, start - 1, start)
        yield from misnamed
        cleaned = _ALL_OFFSETS if self.topic in _COMPACTED_TOPICS else max(self.checkpoint.cleaned or 0, 0)
        order = OffsetOrder(
            min([start, *(each.first for each in placed)]), cleaned, self.epochs, self.orphans, counts_bytes=self.is_07
        )
        for event in self._scan(placed, order, in_runs=in_runs):
            if isinstance(event, Gap) and event.first_offset < start:
                # Below the start messages are deleted already, whether they are there or not.
                if event.last_offset >= start and event.missing == event.last_offset - event.first_offset + 1:
                    yield event._replace(first_offset=start, missing=event.last_offset - start + 1)
                continue
            yield event

    def _scan(self, placed: list[_Place], order: OffsetOrder, *, in_runs: bool) -> Iterator[ScanEvent]:
        tail: LogTail | None = None
        cut: tuple[str, int] | None = None
        for number, (first, segment, _) in enumerate(placed):
            is_last = number == len(placed) - 1
            limit = self._limit(first, placed[number + 1 :])
            base, name = segment.name.base, segment.path.name
            with ReadOnlyFile(segment.path) as file:
                size = file.size
                if self.is_07 and limit.offset is not None:
                    size = max(0, min(size, limit.offset - base))
                walk = SegmentWalk(file.read, size, self._layout(segment), min(first, base))
                items = _Noted(walk, file)
                runs = walk.run if in_runs else None
                for event in order.segment(name, items, limit, cut, base, runs):
                    yield Placed(event, segment, walk) if isinstance(event, DiskEntry) else event
                if size < file.size:
                    yield Damage(name, size, file.size, None, None, "the next segment starts before these bytes")
                rest = items.rest
                if is_last and rest is not None and rest.is_torn and not self._is_below_end(order.next):
                    order.forget_held()
                    tail = LogTail(rest.start, rest.end, "zeros" if rest.reason == ZEROS else "torn")
                is_short = items.has_damage if self.is_07 else self._is_cut(segment, file.size)
                cut = (name, file.size) if is_short else None
                file.check()
        for left in order.finish(self._log_end(), cut):
            if not isinstance(left, DiskEntry):
                yield left
        if tail is not None:
            yield tail

    def _layout(self, segment: DiskSegment) -> DiskLayout:
        return KAFKA_FILE(segment.name.base) if segment.name.kind == "kafka" else LOG_FILE

    def _log_end(self) -> int | None:
        """Return the offset at which the log ends at least; None if nothing says so."""
        if self.is_07:
            return None
        known = [self.checkpoint.high_watermark or 0]
        if self.segments and self.segments[-1].size == 0:
            known.append(self.segments[-1].name.base)
        return max(known) or None

    def _is_below_end(self, offset: int) -> bool:
        end = self._log_end()
        return end is not None and end > offset

    def _is_cut(self, segment: DiskSegment, size: int) -> bool:
        """Return whether the index of a segment names bytes behind its end."""
        index = read_hint(segment.path.with_suffix(".index"))
        relative, position = index_end(index)
        return position >= size > 0 and relative > 0

    def _limit(self, first: int, behind: list[_Place]) -> Limit:
        """Return where the log goes on behind a segment that starts with an offset."""
        for place in behind:
            if place.is_sure and place.first > first:
                return Limit(place.first, True)
        return Limit(self._log_end(), False)

    def _in_order(self) -> tuple[list[_Place], list[Damage]]:
        """Return the segments in the order of their offsets, and which of them have a wrong name."""
        filled = [segment for segment in self.segments if segment.size]
        if self.is_07:
            return [_Place(segment.name.base, segment, True) for segment in filled], []
        bases = [segment.name.base for segment in filled]
        bounds = (min(bases, default=0), max(bases, default=0) + _OFFSETS_A_SEGMENT)
        firsts = [self._first_offset(each, following, bounds)
                  for each, following in zip(filled, [*bases[1:], None], strict=True)]  # fmt: skip
        # The name of a copy, or of a file without anything sound, says nothing about the files before it.
        named: dict[int, int] = {}
        for base, first in zip(bases, firsts, strict=True):
            if first is not None and (base <= first or first not in named):
                named[first] = base
        sure = sorted(named.values())
        found: list[_Place] = []
        damaged: list[Damage] = []
        for segment, first in zip(filled, firsts, strict=True):
            base = segment.name.base
            following = next((each for each in sure if each > base), None)
            is_wrong = first is not None and (first < base or (following is not None and first >= following))
            if first is not None and is_wrong:
                reason = f"its name says offset {base}, but it starts at offset {first}; it is read from there"
                damaged.append(Damage(segment.path.name, 0, segment.size, None, None, reason, True))
            place = first if first is not None and is_wrong else base
            found.append(_Place(place, segment, first is not None and not is_wrong))
        found.sort(key=lambda each: (each.first, not each.is_sure, each.segment.name.base))
        return found, damaged

    def _first_offset(self, segment: DiskSegment, following: int | None, bounds: tuple[int, int]) -> int | None:
        """Return the offset with which a segment starts; None if nothing in it is sound."""
        with ReadOnlyFile(segment.path) as file:
            walk = SegmentWalk(file.read, file.size, LOG_FILE, *bounds)
            entries = list(islice((item for item in walk if isinstance(item, DiskEntry)), 3))
        return first_offset_of(entries, segment.name.base, following) if entries else None


class _Place(NamedTuple):
    """A segment at its place in the log.

    Attributes:
        first: The offset from which on it is read: that of its name, or that of its first entry if the name is wrong.
        is_sure: Whether name and contents agree.
    """

    first: int
    segment: DiskSegment
    is_sure: bool


class _Noted:
    """The items of a walk; keeps the damage behind which nothing came, and says which pages the disk cannot read."""

    def __init__(self, walk: SegmentWalk, file: ReadOnlyFile) -> None:
        self.has_damage = False
        self._items = iter(walk)
        self._file = file
        self.rest: WalkedDamage | None = None

    def __iter__(self) -> _Noted:
        return self

    def __next__(self) -> DiskEntry | WalkedDamage:
        item = next(self._items)
        if isinstance(item, WalkedDamage):
            self.has_damage = self.has_damage or not item.is_repaired
            if item.is_rest:
                self.rest = item
            if self._file.is_unreadable(item.start, item.end):
                return item._replace(reason=f"the disk cannot read it; {item.reason}")
        return item
