"""The bytes that are fetched and not read, of all streams of a connector, against `queued.max.bytes`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from simpleconsumer.types import MAX_INT64
from zkconsumer.fetching.byte_shares import Candidate, Shares, least_useful_bytes, share_out

__all__ = ["ByteBudget", "Charge"]

_WORTHWHILE: Final = 8
"""A stream that has something to read is fetched for again when that part of what it may hold is free."""


class Charge:
    """What a chunk takes of the budget; 0 once that was given back.

    Threads: changed by the budget alone, under its lock.
    """

    __slots__ = ("size_bytes", "stream")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.stream: object = None


class _Asker:
    """What one fetcher has to do with the budget: what it waits for, and what it has asked for."""

    __slots__ = ("exceeds", "refused", "reserved", "wake")

    def __init__(self) -> None:
        self.wake: Callable[[], None] = _nobody
        self.reserved: dict[object, int] = {}
        # The streams that got a chunk beyond their room, and those of which something was left out: how much it needs.
        self.exceeds: set[object] = set()
        self.refused: dict[object, int] = {}


class ByteBudget:
    """How many bytes of chunks are on their way to each stream, and how many more may be asked for.

    Each stream has a share of its own (`zkconsumer.fetching.byte_shares`), and one for which no chunk is queued may get
    one chunk more than there is room for: neither a stream that stands still nor a large message ever stops the others.

    Whoever was refused is woken when a chunk of that stream is read, and when a request for it is answered. The reader
    gives back first and then looks who was refused; who asks has the refusal noted first and then looks whether
    anything was given back meanwhile: so one of both sees the other, without a lock for the reader.

    Args:
        streams: How many streams there are, however many have partitions now.

    Threads: `release` from any thread, without a lock; everything else from the fetchers, under a lock of its own.
    """

    def __init__(self, limit_bytes: int, streams: int = 1) -> None:
        self._shares = Shares.of(limit_bytes, streams)
        self._lock = threading.Lock()
        # Of each stream: what is queued, and what is queued or asked for; and what of that is common, of all streams.
        self._charged: dict[object, int] = {}
        self._held: dict[object, int] = {}
        self._taken_bytes = 0
        self._askers: dict[object, _Asker] = {}
        # What `release` calls; each tuple is replaced and never changed.
        self._wakes: dict[object, tuple[Callable[[], None], ...]] = {}
        # Charges and not chunks: their data must not wait here for the next one who asks.
        self._released: deque[Charge] = deque()

    def release(self, charge: Charge) -> None:
        """Give back what a chunk was charged; a second time changes nothing."""
        self._released.append(charge)
        for wake in self._wakes.get(charge.stream, ()):
            wake()

    def charged_bytes(self) -> int:
        """Return what all chunks take now."""
        with self._lock:
            self._settle()
            return sum(self._charged.values())

    def charge(self, charge: Charge, size_bytes: int, stream: object) -> None:
        """Charge a chunk that is about to be queued."""
        with self._lock:
            charge.size_bytes = size_bytes
            charge.stream = stream
            self._charged[stream] = self._charged.get(stream, 0) + size_bytes
            self._hold(stream, size_bytes)

    def ask(
        self,
        asker: object,
        candidates: Sequence[Candidate],
        askers: int = 1,
        most_bytes: int = MAX_INT64,
        wake: Callable[[], None] | None = None,
    ) -> list[int]:
        """Return how many bytes to ask for of each candidate, in their order, and set as much aside; 0 leaves one out.

        It is set aside until `answered`.

        Args:
            asker: One of the fetchers.
            candidates: Its partitions; who has waited longest comes first.
            askers: How many fetchers there are; each should ask for its part of a stream's room.
            most_bytes: What the request may ask for in all.
            wake: Called, on any thread, when there may be room for what was left out.
        """
        with self._lock:
            mine = self._askers.setdefault(asker, _Asker())
            mine.wake = wake or _nobody
            while True:
                self._give_back(mine)
                self._settle()
                granted = self._grant(mine, candidates, askers, most_bytes)
                # The refusal is noted before this check: what is released from now on wakes us.
                if not mine.refused or not self._released:
                    return granted

    def answered(self, asker: object) -> None:
        """Set nothing aside any more: the answer has been charged, or will not come."""
        wakes: list[Callable[[], None]] = []
        with self._lock:
            mine = self._askers.get(asker)
            if mine is not None:
                for stream in mine.reserved:
                    wakes += self._wakes.get(stream, ())
                self._give_back(mine)
        for wake in wakes:
            wake()

    def leave(self, asker: object) -> None:
        """Forget a fetcher that has ended."""
        self.answered(asker)
        with self._lock:
            mine = self._askers.get(asker)
            if mine is not None:
                self._refuse(mine, {})
                del self._askers[asker]

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _grant(self, mine: _Asker, candidates: Sequence[Candidate], askers: int, most_bytes: int) -> list[int]:
        """Share out, set aside what is asked for, and note what is refused."""
        by_stream: dict[object, list[int]] = {}
        for index, candidate in enumerate(candidates):
            by_stream.setdefault(candidate.stream, []).append(index)
        granted = [0] * len(candidates)
        refused: dict[object, int] = {}
        for stream, places in by_stream.items():
            wanted = [candidates[place] for place in places]
            sizes = self._share(mine, stream, wanted, askers, most_bytes)
            for place, size, candidate in zip(places, sizes, wanted, strict=True):
                granted[place] = size
                if not size:
                    refused.setdefault(stream, least_useful_bytes(candidate))
            total = sum(sizes)
            if total:
                most_bytes -= total
                mine.reserved[stream] = total
                self._hold(stream, total)
        self._refuse(mine, refused)
        return granted

    def _share(
        self, mine: _Asker, stream: object, candidates: list[Candidate], askers: int, most_bytes: int
    ) -> list[int]:
        """Return how many bytes to ask for of each partition of a stream."""
        held, charged = self._held.get(stream, 0), self._charged.get(stream, 0)
        room = self._shares.room(held, self._taken_bytes)
        others_need = max((one.refused.get(stream, 0) for one in self._askers.values() if one is not mine), default=0)
        worthwhile = others_need
        if sum(candidate.size_bytes for candidate in candidates) > room:
            worthwhile = max(worthwhile, (held + room) // _WORTHWHILE)
        if charged and room < worthwhile:
            # Not in crumbs: each request would bring one small chunk, and room for a large message would never come.
            return [0] * len(candidates)
        cap = self._shares.most_bytes // max(askers, 1)
        own = max(0, self._shares.own_bytes - held)
        sizes = share_out(candidates, min(room, most_bytes), own, min(cap, most_bytes))
        if not charged and not any(sizes) and not any(stream in one.exceeds for one in self._askers.values()):
            index = next((at for at, one in enumerate(candidates) if not one.is_at_end), 0)
            least = least_useful_bytes(candidates[index])
            if least <= most_bytes:
                sizes[index] = least
                mine.exceeds.add(stream)
        return sizes

    def _refuse(self, mine: _Asker, refused: dict[object, int]) -> None:
        """Note of which streams a fetcher waits for room, and no others."""
        changed = mine.refused.keys() ^ refused.keys()
        mine.refused = refused
        for stream in changed:
            wakes = tuple(one.wake for one in self._askers.values() if stream in one.refused)
            if wakes:
                self._wakes[stream] = wakes
            else:
                self._wakes.pop(stream, None)

    def _give_back(self, mine: _Asker) -> None:
        for stream, size in mine.reserved.items():
            self._hold(stream, -size)
        mine.reserved = {}
        mine.exceeds = set()

    def _settle(self) -> None:
        while self._released:
            charge = self._released.popleft()
            if charge.size_bytes:
                self._charged[charge.stream] -= charge.size_bytes
                self._hold(charge.stream, -charge.size_bytes)
                charge.size_bytes = 0

    def _hold(self, stream: object, change_bytes: int) -> None:
        before = self._held.get(stream, 0)
        self._held[stream] = before + change_bytes
        self._taken_bytes += self._shares.beyond(before + change_bytes) - self._shares.beyond(before)


def _nobody() -> None:
    """Wake nobody."""
