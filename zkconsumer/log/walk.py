"""Walks over the entries of a segment, checks every checksum, and goes on behind what is damaged. Pure.

The caller passes a function that reads bytes of the file; at most `HELD_BYTES` of them are held, whatever a size field
says: an entry that is larger is checked piece by piece.

Behind a fault the walk goes on at the next place where an entry of the same segment may start and its checksum fits. If
the entry at the place where the damaged one says it ends continues its offsets, that one is the next. Otherwise all
places between are tried, because a wrong size may have passed over whole entries.

All this work is bounded by the size of the file, whatever is in it: `_affords` counts the bytes that are checked more
than once. No damage comes near that bound. Bytes that were made to look like entries do: behind them only the next
sound entry counts, and heads are no longer repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from simpleconsumer.types import MAX_INT64
from zkconsumer.log.heads import DiskLayout
from zkconsumer.log.values import DiskEntry, WalkedDamage

ZEROS: Final = "zeros"
"""Why nothing is read where a file ends in zeros."""
READ_BYTES: Final = 4 * 1024 * 1024
HELD_BYTES: Final = 128 * 1024 * 1024
"""The largest entry: brokers take 1 MB by default. A larger one is reported, and passed by."""
_WORTH_ZEROS: Final = 64
"""So many zeros at the end of a file are a write that never came."""
_OFFSETS_A_SEGMENT: Final = 2**31
"""A segment holds no more offsets: its index counts them in 31 bits."""
_FREE_BYTES: Final = 512 * 1024 * 1024
_REFILL: Final = 64
"""So many bytes of a file may be checked more than once, and so many for each byte that was passed."""
_STEP_BYTES: Final = 4096
"""A step from one head to the next counts as much."""
_CHAIN_BYTES: Final = 256 * 1024
"""So many bytes of entries that follow each other are in no compressed block."""
_MOST_STEPS: Final = 64
_MOST_FRAMED: Final = 10_000


class SegmentWalk:
    """The entries of one segment.

    Args:
        read: Returns bytes of the file: so many from a position on.
        size: Of the file.
        layout: How its entries are read.
        lowest: The first offset that the file may hold; None if its first sound entry says so.
        highest: No entry behind damage starts there or above; None for what a segment has at most.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], size: int, layout: DiskLayout, lowest: int | None = None,
        highest: int | None = None,
    ) -> None:  # fmt: skip
        self._read = read
        self._size = size
        self._layout = layout
        self._lowest = lowest
        self._highest = highest
        self._floors = (0, 0)
        self._start = 0
        self._view = memoryview(b"")
        self._end = 0
        self._next = 0
        self._is_within = False
        self._spent = 0
        self._scanned = memoryview(b"")
        self._scanned_at = 0
        self._zero = False

    def __iter__(self) -> Iterator[DiskEntry | WalkedDamage]:
        """Yield the entries, and the damaged bytes between them."""
        while self._next < self._size:
            position = self._next
            found = self.entry_at(position)
            if isinstance(found, DiskEntry):
                if found.head:
                    first, behind, reason = self._layout.doubtful
                    self._is_within = True
                    yield WalkedDamage(position + first, position + behind, reason, is_repaired=True)
                    self._is_within = False
                self._next = found.end
                yield self._sound(found)
                continue
            self._is_within = True
            for item in self._behind_fault(position, found):
                if isinstance(item, DiskEntry) or not item.is_repaired:
                    self._next = item.end
                    self._is_within = False
                yield item

    def run(self, expected: int, epoch: int) -> DiskEntry | None:
        """Take the plain entries that come next and are at hand, as one entry; None if the next one is not plain.

        Args:
            expected: The offset with which they must start.
            epoch: The leader epoch that they must have.
        """
        at = self._next - self._start
        if self._is_within or not 0 <= at < self._end - self._start:
            return None
        found = self._layout.run(self._view, at, expected, epoch)
        if found is None or not found.entries:
            return None
        start, self._next = self._next, self._start + found.end
        if self._lowest is None:
            self._lowest = expected
        self._floors = (found.last_first, found.next_offset)
        return DiskEntry(start, self._next, expected, found.next_offset - 1, found.next_offset - expected, found.magic,
                         found.attributes, found.first_ms, found.last_ms, epoch, entries=found.entries)  # fmt: skip

    def data(self, entry: DiskEntry) -> bytes | memoryview:
        """Return the bytes of an entry, with its head repaired."""
        self._hold(entry.start, entry.end)
        found = self._view[entry.start - self._start : entry.end - self._start]
        return b"".join((entry.head, found[len(entry.head) :])) if entry.head else found

    def entry_at(self, position: int) -> DiskEntry | str:
        """Return the entry that starts at a byte of the file, or why there is none."""
        layout, start = self._layout, self._start
        overhead = layout.overhead
        if position < start or position + 64 > self._end:
            if position + overhead + layout.smallest > self._size:
                return f"{self._size - position} bytes are too few for an entry"
            self._hold(position, min(position + 64, self._size))
            start = self._start
        size = layout.size_at(self._view, position - start)
        end = position + overhead + size
        if size < layout.smallest:
            return f"an entry has the size {size}"
        if end > self._size:
            return f"an entry has the size {size}, and the file ends {end - self._size} bytes before its end"
        if end > self._end:
            if end - position > HELD_BYTES:
                return f"an entry has the size {size}, and entries of more than {HELD_BYTES} bytes are not read"
            self._hold(position, end)
            start = self._start
        return layout.entry(self._view, position - start, end - start, position)

    def _sound(self, entry: DiskEntry) -> DiskEntry:
        if self._lowest is None:
            self._lowest = entry.first
        self._floors = (self._floors[1], entry.last + 1)
        return entry

    def _hold(self, start: int, end: int) -> None:
        """Have these bytes of the file in the view."""
        if self._start <= start and end <= self._end:
            return
        stop = min(max(end, start + READ_BYTES), self._size)
        if self._is_within:
            self._spent += stop - start
        self._view = memoryview(b"")
        self._view = memoryview(self._read(start, stop - start))
        self._start, self._end = start, stop

    # -- behind a fault ------------------------------------------------------------------------------------------------

    def _behind_fault(self, position: int, reason: str) -> Iterator[DiskEntry | WalkedDamage]:
        """Yield the damage at a position and the entry behind it; the entry itself if it can be repaired."""
        if self._is_zero(position):
            yield WalkedDamage(position, self._size, ZEROS, is_rest=True, is_torn=True)
            return
        stated = self._stated_end(position)
        if stated is not None and (fixed := self._repaired(position, stated)) is not None:
            yield from fixed
            return
        left = self._size - position
        if left <= READ_BYTES and (fixed := self._repaired(position, self._size)) is not None:
            yield from fixed  # the last entry of the file
            return
        framed = self._framed(position)
        if framed is not None:
            end: int | None = self._chain_to(position, framed) or framed
        else:
            end = self._next_sound(position)
        if (fixed := self._repaired(position, self._size if end is None else end)) is not None:
            yield from fixed
            return
        is_rest = end is None or end == self._size
        is_torn = is_rest and (self._ends_in_zeros(position) or (stated is None and self._is_cut(position)))
        yield WalkedDamage(position, self._size if end is None else end, reason, is_rest=is_rest, is_torn=is_torn)

    def _repaired(self, start: int, end: int) -> tuple[WalkedDamage, DiskEntry] | None:
        if end - start < self._layout.overhead + self._layout.smallest or end - start > HELD_BYTES:
            return None
        if not self._affords(start, end - start):
            return None
        self._hold(start, end)
        found = self._layout.repaired(self._view, start - self._start, end - self._start, start)
        if found is None:
            return None
        entry, first, behind, reason = found
        return WalkedDamage(first, behind, reason, is_repaired=True), self._sound(entry)

    def _affords(self, position: int, size: int) -> bool:
        """Return whether so many bytes behind a place may be checked although they are checked again later."""
        if self._spent > _FREE_BYTES + _REFILL * position:
            return False
        self._spent += size
        return True

    def _stated_end(self, position: int) -> int | None:
        """Return where an entry ends by its head; None if it cannot be there."""
        layout = self._layout
        if position + layout.overhead + layout.smallest > self._size:
            return None
        self._hold(position, position + layout.overhead + layout.smallest)
        size = layout.size_at(self._view, position - self._start)
        end = position + layout.overhead + size
        return end if size >= layout.smallest and end <= self._size and size <= HELD_BYTES else None

    def _framed(self, position: int) -> int | None:
        """Return where the next sound entry is, or the end of the file, if the sizes of damaged ones lead there."""
        behind: int | None = None
        for _ in range(_MOST_FRAMED):
            head = self._head_says(position)
            if head is not None and behind is not None and head <= behind:
                return None
            end, behind = self._stated_end(position), head if head is not None else behind
            if end is None or end == self._size:
                return end
            if not self._affords(position, _STEP_BYTES + end - position):
                return None
            found = self.entry_at(end)
            if isinstance(found, DiskEntry):
                return end if behind is None or found.first >= behind else None
            position = end
        return None

    def _head_says(self, position: int) -> int | None:
        """Return the offset behind an entry by its head; None if it has none."""
        if self._size - position <= self._layout.lookahead:
            return None
        self._hold(position, min(position + 64, self._size))
        return self._layout.next_by_head(self._view, position - self._start)

    def _is_compressed(self, position: int) -> bool:
        """Return whether the head of an entry names a codec."""
        if self._size - position <= self._layout.lookahead:
            return False
        self._hold(position, min(position + 64, self._size))
        return self._layout.is_compressed(self._view, position - self._start)

    def _chain_to(self, position: int, end: int) -> int | None:
        """Return where entries start that a wrong size has passed over: they follow each other up to the end."""
        behind, found = self._head_says(position), self.entry_at(end) if end < self._size else ""
        if isinstance(found, DiskEntry) and found.first == behind:
            return None
        if self._is_compressed(position):
            return None  # what is inside may look like entries
        visited: set[int] = set()
        for place in self._sound_places(position + 1, end):
            if place in visited:
                continue  # a part of a chain that did not lead there
            at = place
            while at < end and isinstance(entry := self.entry_at(at), DiskEntry):
                at = entry.end
                visited.add(at)
            if at == end:
                return place
        return None

    def _next_sound(self, position: int) -> int | None:
        """Return where the next entry starts behind a damaged one; None if there is none in the file.

        A compressed entry may hold parts that look like entries. So behind one, and where entries carry no offset or
        none is known, a place counts from which on all entries are sound up to the end of the file, or at least many.
        """
        is_compressed = self._is_compressed(position)
        if self._layout.has_offsets and self._lowest is not None and not is_compressed:
            return next(self._sound_places(position + 1, self._size), None)
        best, longest = None, 0
        visited: set[int] = set()
        for place in self._sound_places(position + 1, self._size):
            if place in visited:
                continue  # a part of a chain that was followed
            at, steps = place, 0
            while at - place < _CHAIN_BYTES and isinstance(entry := self.entry_at(at), DiskEntry):
                if is_compressed and steps < _MOST_STEPS and self._repaired(position, at) is not None:
                    return at  # only its size is wrong
                at, steps = entry.end, steps + 1
                visited.add(at)
            if at >= self._size or at - place >= _CHAIN_BYTES:
                return place
            if at - place > longest:
                best, longest = place, at - place
        return None if is_compressed else best

    def _sound_places(self, position: int, stop: int) -> Iterator[int]:
        """Yield where entries start whose checksums fit, and whose offsets are those of this segment."""
        layout, lowest = self._layout, self._lowest
        low = 0 if lowest is None else max(lowest, min(self._floors))
        high = 2**62 if lowest is None else lowest + _OFFSETS_A_SEGMENT
        if self._highest is not None:
            high = self._highest
        low, high = min(low, MAX_INT64), min(high, MAX_INT64)  # a name may say more than an offset can be
        while position < stop and position + layout.overhead + layout.smallest <= self._size:
            piece, start = self._piece_with(position), self._scanned_at
            if not piece:
                position = start + READ_BYTES  # nothing starts in zeros
                continue
            end, left = min(READ_BYTES, stop - start), self._size - start
            budget = _FREE_BYTES + _REFILL * position - self._spent
            at, rest = layout.entry_start(piece, position - start, end, left, low, high, budget, _REFILL)
            self._spent += budget - rest
            position = start + (READ_BYTES if at < 0 else at + 1)
            if at >= 0 and isinstance(self.entry_at(start + at), DiskEntry):
                yield start + at

    def _piece_with(self, position: int) -> memoryview:
        """Return a piece of the file in which a place is, and what an entry there needs; nothing if all is zeros."""
        at, length = position - self._scanned_at, READ_BYTES + self._layout.lookahead
        if not 0 <= at < READ_BYTES or not self._scanned_at + len(self._scanned) > position:
            piece = self._read(position, min(length, self._size - position))
            self._scanned = memoryview(piece)
            self._scanned_at = position
            self._zero = piece.count(0) == len(piece)
        return memoryview(b"") if self._zero else self._scanned

    def _is_cut(self, position: int) -> bool:
        """Return whether the rest of the file looks like the start of an entry."""
        layout, left = self._layout, self._size - position
        if left < layout.lookahead:
            return True
        self._hold(position, min(position + 64, self._size))
        at, lowest = position - self._start, self._lowest or 0
        if position + layout.overhead + layout.size_at(self._view, at) <= self._size:
            return False
        return layout.candidate.match(self._view, at) is not None and layout.is_plausible(
            self._view, at, lowest, lowest + _OFFSETS_A_SEGMENT
        )

    def _is_zero(self, position: int) -> bool:
        """Return whether the rest of the file is zeros."""
        length = _WORTH_ZEROS
        while position < self._size:
            piece = self._read(position, min(length, self._size - position))
            if piece.count(0) < len(piece):
                return False
            position += len(piece)
            length = min(4 * length, READ_BYTES)
        return True

    def _ends_in_zeros(self, position: int) -> bool:
        length = min(_WORTH_ZEROS, self._size - position)
        return not any(self._read(self._size - length, length))
