"""The byte budget of a connector: all streams' fetched bytes that were not read yet, within `queued.max.bytes`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from simpleconsumer.types import MAX_INT64
from zkconsumer.fetching.byte_shares import Candidate, Shares, least_useful_bytes, share_out

_WORTHWHILE: Final = 8
"""A stream with queued chunks is fetched for again when one part in so many of what it may hold is free."""


class Charge:
    """The bytes of the budget that a chunk takes; 0 once they were given back.

    Threads: Changed by the budget only, under its lock.
    """

    __slots__ = ("size_bytes", "stream")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.stream: object = None


class _Asker:
    """One fetcher's part of the budget: its requests, and the room that it waits for."""

    __slots__ = ("exceeds", "last", "refused", "reserved", "wake")

    def __init__(self) -> None:
        self.wake: Callable[[], None] = _nobody
        self.last: _Granted | None = None
        self.reserved: dict[object, int] = {}
        # Streams that got a chunk beyond their room; and the bytes that left out partitions of a stream need.
        self.exceeds: set[object] = set()
        self.refused: dict[object, int] = {}


class _Granted(NamedTuple):
    """A grant in full to a fetcher, and the values on which it depended."""

    candidates: Sequence[Candidate]
    limits: tuple[int, int]
    situation: list[tuple[object, int, int]]
    taken_bytes: int
    sizes: list[int]
    reserved: dict[object, int]


class ByteBudget:
    """Counts the bytes of chunks that each stream has queued, and shares out what may be asked for.

    Each stream has a share of its own (`zkconsumer.fetching.byte_shares`), and one without queued chunks may get one
    chunk more than there is room for: neither a stream that nobody reads nor a large message ever stops the others.

    A fetcher that was refused bytes for a stream is woken when a chunk of that stream is read, and when a request for
    it is answered. The reader first gives back and then checks which fetchers were refused; a fetcher first has its
    refusal noted and then checks whether anything was given back. So one of the two always sees the other, and the
    reader needs no lock.

    Args:
        streams: Number of streams, with and without partitions.

    Threads: `release` from any thread, without a lock; all other methods from the fetchers, under a lock.
    """

    def __init__(self, limit_bytes: int, streams: int = 1) -> None:
        self._shares = Shares.of(limit_bytes, streams)
        self._lock = threading.Lock()
        # For each stream: bytes queued, and bytes queued or asked for. And the common bytes of all streams.
        self._charged: dict[object, int] = {}
        self._held: dict[object, int] = {}
        self._taken_bytes = 0
        self._askers: dict[object, _Asker] = {}
        # The functions that `release` calls. Each tuple is replaced, never changed.
        self._wakes: dict[object, tuple[Callable[[], None], ...]] = {}
        # Charges and not chunks, whose data would stay in memory until the next request.
        self._released: deque[Charge] = deque()

    def release(self, charge: Charge) -> None:
        """Give back what a chunk was charged; a second call changes nothing."""
        self._released.append(charge)
        for wake in self._wakes.get(charge.stream, ()):
            wake()

    def charged_bytes(self) -> int:
        """Return the bytes of all chunks."""
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
        """Return how many bytes to ask for of each candidate, in their order; 0 leaves a candidate out.

        They are reserved until `answered`.

        Args:
            asker: One of the fetchers.
            candidates: Its partitions; the one that has waited longest comes first.
            askers: Number of fetchers; each should ask for its part of a stream's room only.
            most_bytes: Most bytes of the whole request.
            wake: Called, on any thread, when there may be room for candidates that were left out.
        """
        with self._lock:
            mine = self._askers.setdefault(asker, _Asker())
            mine.wake = wake or _nobody
            while True:
                self._give_back(mine)
                self._settle()
                granted = self._grant_again(mine, candidates, askers, most_bytes)
                if granted is None:
                    granted = self._grant(mine, candidates, askers, most_bytes)
                # The refusal is noted before this check: a release from now on wakes us.
                if not mine.refused or not self._released:
                    return granted

    def answered(self, asker: object) -> None:
        """Reserve nothing any more: the answer has been charged, or will not come."""
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

    def _grant_again(
        self, mine: _Asker, candidates: Sequence[Candidate], askers: int, most_bytes: int
    ) -> list[int] | None:
        """Grant what was granted last, if the same list of candidates asks again and nothing has changed for it.

        Sharing out among thousands of partitions takes most of the time of a fetch to which nothing comes.
        """
        last = mine.last
        if (
            last is None or last.candidates is not candidates or last.limits != (askers, most_bytes)
            or last.taken_bytes != self._taken_bytes or last.situation != self._situation(last.reserved)
            or any(one.refused for one in self._askers.values())
        ):  # fmt: skip
            return None
        for stream, size_bytes in last.reserved.items():
            mine.reserved[stream] = size_bytes
            self._hold(stream, size_bytes)
        return last.sizes

    def _situation(self, streams: Iterable[object]) -> list[tuple[object, int, int]]:
        return [(stream, self._held.get(stream, 0), self._charged.get(stream, 0)) for stream in streams]

    def _grant(self, mine: _Asker, candidates: Sequence[Candidate], askers: int, most_bytes: int) -> list[int]:
        """Share out the room, reserve what is asked for, and note what is refused."""
        limits, taken_bytes = (askers, most_bytes), self._taken_bytes
        mine.last = None
        by_stream: dict[object, list[int]] = {}
        for index, candidate in enumerate(candidates):
            by_stream.setdefault(candidate.stream, []).append(index)
        situation = self._situation(by_stream)
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
        if not mine.exceeds and not any(one.refused for one in self._askers.values()):
            mine.last = _Granted(candidates, limits, situation, taken_bytes, granted, dict(mine.reserved))
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
            # Wait for more room: else each request would fetch one small chunk, and a large message would never fit.
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
        """Note for which streams a fetcher waits for room; it waits for no others."""
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
    """Do nothing."""
