"""Puts the entries of a log in the order of their offsets, and says why offsets are missing. Pure.

No checksum covers the offset of an entry, nor the epoch of its leader: neighbours decide what they can be.

- An entry whose offset contradicts its neighbours is moved to where it fits exactly, or it is damaged.
- Entries whose offsets were there already are passed by: a segment may be there twice.
- Missing offsets that have damaged bytes between them are damaged. Others are compacted where the cleaner has been; at
  the start of a file, a segment before it is missing; anywhere else they are unexplained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from zkconsumer.log.heads import BATCH, moved
from zkconsumer.log.values import NO_MARKER, Damage, DiskEntry, Gap, GapKind, WalkedDamage

_LOOKED_AT: Final = 2
Event = DiskEntry | Damage | Gap


class Limit(NamedTuple):
    """Where the log goes on behind a segment.

    Attributes:
        offset: None if it is not known.
        is_exact: Another segment starts there. Otherwise the log has had this end, and may have grown since.
    """

    offset: int | None
    is_exact: bool


class OffsetOrder:
    """Where reading is in a log, across its segments.

    Args:
        start: The first offset that is expected.
        cleaned_to: The cleaner has been below this offset.
        epochs: First offset by epoch of the leaders that the partition had; empty if they are not known.
        orphans: The offsets after which segments were named that are not there, and of which something is left.
        counts_bytes: Whether offsets are bytes, as in Kafka 0.7.

    Attributes:
        next: The offset that is expected next.
    """

    def __init__(
        self,
        start: int,
        cleaned_to: int = 0,
        epochs: Mapping[int, int] | None = None,
        orphans: Collection[int] = (),
        *,
        counts_bytes: bool = False,
    ) -> None:
        self.next = start
        self._cleaned_to = cleaned_to
        self._epochs = epochs or {}
        self._orphans = orphans
        self._counts_bytes = counts_bytes
        self._epoch = -1
        self._held: list[Damage] = []
        self._hurt = -1
        self._again: list[int] = []
        self._sums: dict[GapKind, list[int]] = {}
        self._file = ""
        self._named = -1
        self._limit = Limit(None, False)
        self._ahead: deque[DiskEntry | WalkedDamage] = deque()
        self._items: Iterator[DiskEntry | WalkedDamage] = iter(())

    def segment(
        self, file: str, items: Iterable[DiskEntry | WalkedDamage], limit: Limit, cut: tuple[str, int] | None = None,
        named: int = -1, runs: Callable[[int, int], DiskEntry | None] | None = None,
    ) -> Iterator[Event]:  # fmt: skip
        """Yield the entries of the next segment in order, and the damage and the gaps between them.

        Args:
            file: Its name.
            items: What is in it.
            limit: Where the log goes on behind it.
            cut: Name and size of the segment before it if that one is shorter than its index says.
            named: The offset after which it is named.
            runs: Takes the next plain entries of a leader epoch from `items`, from an offset on, and returns them as
                one; None if the next one is not plain. It is asked only where nothing of them has to be judged.
        """
        self._file, self._items, is_first = file, iter(items), True
        self._named, self._limit = named, limit
        ahead = self._ahead
        while True:
            if runs is not None and not ahead and not self._unsettled():
                run = runs(self.next, self._epoch)
                if run is not None:
                    self.next, is_first = run.last + 1, False
                    yield run
            item = ahead.popleft() if ahead else next(self._items, None)
            if item is None:
                break
            if isinstance(item, WalkedDamage):
                yield from self._take_damage(item)
                continue
            if item.first != self.next or item.leader_epoch != self._epoch or self._unsettled():
                kept, events = self._judged(item, is_first, cut)
                yield from events
                is_first = False
                if kept is None:
                    continue
                item = kept
            is_first = False
            self.next = item.last + 1
            if item.last - item.first >= item.messages or item.faults:
                yield from self._inside(item)
            yield item
        yield from self._end_again()
        yield from self._end_sums()

    def finish(self, log_end: int | None, cut: tuple[str, int] | None = None) -> Iterator[Event]:
        """Yield what is missing at the end of the log, and damage behind which nothing came.

        Args:
            log_end: The offset at which the log ends at least, as its checkpoints say; None if nothing says so.
            cut: Name and size of the last segment if it is shorter than its index says.
        """
        if log_end is not None and log_end > self.next:
            yield from self._hole(log_end, is_first=True, cut=cut)
            yield from self._end_sums()
            return
        for damage in self._held:
            yield damage._replace(first_offset=self.next)
        self._held = []

    def forget_held(self) -> None:
        """Take back the last damage: it is the tail of the log."""
        self._held.pop()

    def _unsettled(self) -> bool:
        return bool(self._again or self._held or self._hurt >= 0)

    # -- damage --------------------------------------------------------------------------------------------------------

    def _take_damage(self, item: WalkedDamage) -> Iterator[Event]:
        yield from self._end_again()
        damage = Damage(self._file, item.start, item.end, None, None, item.reason, item.is_repaired)
        if item.is_repaired:
            yield damage
        else:
            self._held.append(damage)

    def _repaired(self, start: int, end: int, reason: str) -> Damage:
        return Damage(self._file, start, end, None, None, reason, True)

    def _inside(self, entry: DiskEntry) -> Iterator[Event]:
        """Yield the messages inside an entry that cannot be read, and count offsets inside that have no message."""
        for offset, reason in entry.faults:
            yield Damage(self._file, entry.start, entry.end, offset, offset, reason)
            yield Gap(GapKind.DAMAGED, offset, offset, 1, self._file, reason)
        missing = 0 if self._counts_bytes else entry.last - entry.first + 1 - entry.messages - len(entry.faults)
        if missing > 0:
            kind = GapKind.COMPACTED if entry.marker == NO_MARKER else GapKind.TRANSACTION
            self._count(kind, entry.first, entry.last, missing)

    def _count(self, kind: GapKind, first: int, last: int, missing: int) -> None:
        found = self._sums.setdefault(kind, [first, last, 0])
        found[1] = last
        found[2] += missing

    def _end_sums(self) -> Iterator[Event]:
        """Yield one gap for all offsets of the segment that were compacted, and one for those of markers."""
        for kind, (first, last, missing) in self._sums.items():
            yield Gap(kind, first, last, missing, self._file)
        self._sums = {}

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _following(self) -> list[DiskEntry]:
        """Return the next sound entries of the segment."""
        found = [each for each in self._ahead if isinstance(each, DiskEntry)]
        while len(found) < _LOOKED_AT:
            item = next(self._items, None)
            if item is None:
                break
            self._ahead.append(item)
            if isinstance(item, DiskEntry):
                found.append(item)
        return found

    def _judged(
        self, entry: DiskEntry, is_first: bool, cut: tuple[str, int] | None
    ) -> tuple[DiskEntry | None, list[Event]]:
        """Return an entry as it is delivered, None if it is not; and what is to be said before it."""
        events: list[Event] = []
        behind = self._following() if entry.first != self.next or entry.leader_epoch != self._epoch else []
        if entry.first != self.next:
            verdict = self._verdict(entry, behind, is_first)
            if verdict == "again":
                self._take_again(entry)
                return None, events
            if verdict == "lost":
                events += self._end_again()
                reason = f"offset {entry.first} does not fit the offsets around it"
                self._held.append(Damage(self._file, entry.start, entry.end, None, None, reason))
                return None, events
            if verdict == "moved":
                said = f"offset {entry.first} does not fit the offsets around it; it must be {self.next}"
                events.append(self._repaired(entry.start, entry.start + 8, said))
                entry = moved(entry, self.next, entry.head or bytes(8))
            elif entry.first < self.next:
                said = f"offsets {entry.first} to {self.next - 1} appear again"
                events.append(self._repaired(entry.start, entry.end, said))
        events += self._end_again()
        if entry.first > self.next:
            events += self._hole(entry.first, is_first=is_first, cut=cut)
        elif self._held:
            events += self._held
            self._held = []
        self._hurt = -1
        if entry.leader_epoch != self._epoch:
            events += self._check_epoch(entry, behind)
        return entry, events

    def _verdict(self, entry: DiskEntry, behind: list[DiskEntry], is_first: bool) -> str:
        """Return what is right: the offset (""), none (lost), another one (moved), or that it was there (again)."""
        expected, span = self.next, entry.last - entry.first + 1
        if is_first and entry.first == self._named > expected:
            return ""  # the name of the file agrees
        if self._again and entry.first == self._again[3] + 1 and entry.last < expected:
            return "again"
        after = behind[0].first if behind else self._limit.offset
        if after == expected + span:
            is_sure = not is_first if behind or self._limit.is_exact else False
            if is_sure or _is_flipped(entry, expected):
                return "moved"
        if entry.first > expected:
            if behind and expected <= behind[0].first <= entry.last:
                return "" if len(behind) > 1 and behind[1].first > entry.last else "lost"
            is_above = after is not None and not behind and self._limit.is_exact and entry.last >= after
            return "lost" if is_above else ""
        if entry.first < 0:
            return "lost"
        if entry.last >= expected:
            return ""
        return "lost" if behind and behind[0].first > expected and not is_first and not self._again else "again"

    def _take_again(self, entry: DiskEntry) -> None:
        if self._again and self._again[1] == entry.start:
            self._again[1], self._again[3] = entry.end, entry.last
        else:
            self._again = [entry.start, entry.end, entry.first, entry.last]

    def _end_again(self) -> Iterator[Event]:
        if self._again:
            start, end, first, last = self._again
            self._again, self._hurt = [], self._named
            yield self._repaired(start, end, f"offsets {first} to {last} appear again, and are skipped")

    def _hole(self, end: int, *, is_first: bool, cut: tuple[str, int] | None) -> Iterator[Event]:
        """Yield why the offsets from the expected one up to another one are missing."""
        first, last = self.next, end - 1
        count = end - first
        if self._held:
            for number, damage in enumerate(self._held):
                yield damage if number else damage._replace(first_offset=first, last_offset=last)
            yield Gap(GapKind.DAMAGED, first, last, count, self._held[0].file, self._held[0].reason)
            self._held = []
        elif first <= self._hurt <= last:
            yield Gap(GapKind.DAMAGED, first, last, count, self._file, "other offsets are in their place")
        elif is_first and any(first <= orphan <= last for orphan in self._orphans):
            yield Gap(GapKind.SEGMENT_MISSING, first, last, count, self._file, "only the index of a segment is left")
        elif first < self._cleaned_to:
            self._count(GapKind.COMPACTED, first, last, count)
        elif is_first and cut is not None:
            reason = "the segment is shorter than it was"
            yield Damage(cut[0], cut[1], cut[1], first, last, reason)
            yield Gap(GapKind.DAMAGED, first, last, count, cut[0], reason)
        elif is_first:
            yield Gap(GapKind.SEGMENT_MISSING, first, last, count, self._file)
        else:
            yield Gap(GapKind.UNEXPLAINED, first, last, count, self._file, "there is no damage between its neighbours")

    def _check_epoch(self, entry: DiskEntry, behind: list[DiskEntry]) -> Iterator[Event]:
        """Yield that the epoch of an entry is wrong, or take it for the epoch of now: epochs never go down."""
        epoch, reason = entry.leader_epoch, ""
        if epoch < -1:
            reason = f"the leader epoch is {epoch}"
        elif epoch == -1:
            pass
        elif epoch < self._epoch:
            reason = f"leader epoch {epoch} is below {self._epoch}, the epoch of the previous entry"
        elif (not behind or self._epoch < 0) and self._is_unknown(entry):
            reason = f"leader epoch {epoch} is not in the partition's list of epochs"
        elif behind and 0 <= behind[0].leader_epoch < epoch and behind[-1].leader_epoch < epoch:
            reason = f"leader epoch {epoch} is above {behind[0].leader_epoch}, the epoch of the next entry"
        if reason:
            yield self._repaired(entry.start + 12, entry.start + 16, reason)
        elif epoch >= 0:
            self._epoch = epoch

    def _is_unknown(self, entry: DiskEntry) -> bool:
        """Return whether the partition never had the epoch of an entry, of those whose epochs are known."""
        known = self._epochs
        return bool(known) and entry.leader_epoch not in known and entry.first >= min(known.values())


def _is_flipped(entry: DiskEntry, expected: int) -> bool:
    """Return whether the offset of an entry differs by one bit from what it must be to start at another one."""
    behind = 0 if entry.magic == BATCH else entry.last - entry.first
    return ((entry.first + behind) ^ (expected + behind)).bit_count() == 1


def first_offset_of(entries: list[DiskEntry], name: int, next_name: int | None) -> int:
    """Return the first offset of a segment by its first entries, of which the offset of one may be wrong.

    Args:
        entries: The first three sound ones, or fewer.
        name: The offset after which the file is named.
        next_name: That of the next file.
    """
    first = entries[0]
    span = first.last - first.first + 1
    if len(entries) == 1:
        return name if name + span == next_name else first.first
    second = entries[1].first
    if second - span == name:
        return name
    if first.first > second and not (len(entries) > 2 and entries[2].first > first.last):
        return second - span
    return first.first
