"""Walks over the entries of a segment, checks every checksum, and goes on behind what is damaged. Pure.

The caller passes a function that reads bytes of the file; at most `HELD_BYTES` of them are held, whatever a size field
says: an entry that is larger is checked piece by piece.

Behind a fault the walk goes on at the next place where an entry of the same segment may start and its checksum fits. If
the entry at the place where the damaged one says it ends continues its offsets, that one is the next. Otherwise all
places between are tried, because a wrong size may have passed over whole entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from zkconsumer.log.heads import DiskLayout, candidates
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
_TRIED_BYTES: Final = 64 * 1024 * 1024
"""So many bytes are checked behind one fault before large entries are believed only if few look like it."""
_CHAIN_BYTES: Final = 256 * 1024
"""So many bytes of entries that follow each other are in no compressed block."""
_MOST_STEPS: Final = 64
_MOST_FRAMED: Final = 10_000
_TRIED_A_PLACE: Final = 1024
_SMALL_ENTRY: Final = 1024


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

    def __iter__(self) -> Iterator[DiskEntry | WalkedDamage]:
        return self.walk(0)

    def walk(self, position: int) -> Iterator[DiskEntry | WalkedDamage]:
        """Yield the entries from the start of one of them on, and the damaged bytes between them."""
        size = self._size
        while position < size:
            found = self.entry_at(position)
            if isinstance(found, DiskEntry):
                if found.head:
                    first, behind, reason = self._layout.doubtful
                    yield WalkedDamage(position + first, position + behind, reason, is_repaired=True)
                yield self._sound(found)
                position = found.end
                continue
            for item in self._behind_fault(position, found):
                yield item
                position = item.end if isinstance(item, DiskEntry) or not item.is_repaired else position

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
        self._hold(start, end)
        found = self._layout.repaired(self._view, start - self._start, end - self._start, start)
        if found is None:
            return None
        entry, first, behind, reason = found
        return WalkedDamage(first, behind, reason, is_repaired=True), self._sound(entry)

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
        for place in self._sound_places(position + 1, end):
            at = place
            while at < end and isinstance(entry := self.entry_at(at), DiskEntry):
                at = entry.end
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
        tried = scanned = 0
        low = 0 if lowest is None else max(lowest, min(self._floors))
        high = 2**62 if lowest is None else lowest + _OFFSETS_A_SEGMENT
        if self._highest is not None:
            high = self._highest
        while position < stop and position + layout.overhead + layout.smallest <= self._size:
            piece = self._read(position, min(READ_BYTES + layout.lookahead, self._size - position))
            view = memoryview(piece)
            if piece.count(0) == len(piece):
                piece = b""  # nothing starts in zeros
            for at in candidates(layout, piece):
                if at >= READ_BYTES or position + at >= stop:
                    break
                size = layout.size_at(view, at)
                end = position + at + layout.overhead + size
                if size < layout.smallest or end > self._size or not layout.is_plausible(view, at, low, high):
                    continue
                scanned += 1
                if size > _SMALL_ENTRY and tried > _TRIED_BYTES + _TRIED_A_PLACE * scanned:
                    continue
                tried += size
                if isinstance(self.entry_at(position + at), DiskEntry):
                    yield position + at
            position += READ_BYTES

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
        piece = self._read(position, min(64, self._size - position))
        while piece.count(0) == len(piece):
            position += len(piece)
            if position >= self._size:
                return True
            piece = self._read(position, min(READ_BYTES, self._size - position))
        return False

    def _ends_in_zeros(self, position: int) -> bool:
        length = min(_WORTH_ZEROS, self._size - position)
        return not any(self._read(self._size - length, length))
