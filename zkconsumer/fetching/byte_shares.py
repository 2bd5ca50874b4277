"""How the byte budget of a connector is shared out among streams, and what a stream may ask for among its partitions.

Pure. Half of the budget is the streams' own, in equal shares; the other half is common. Of the common half a stream
takes at most as much as it leaves free: so one that stands still holds its own share and a quarter of the budget at
most, and never what belongs to the others. A single stream has the whole budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["SMALLEST_SHARE_BYTES", "Candidate", "Shares", "least_useful_bytes", "share_out"]

SMALLEST_SHARE_BYTES: Final = 16 * 1024
"""Least that a partition is asked for when many share the room; a larger message is asked for by itself."""
_SMALLEST_PROBE_BYTES: Final = 1024
"""Least that a partition is asked for whose log was read to its end."""


class Shares(NamedTuple):
    """A budget, divided.

    Attributes:
        own_bytes: What each stream has for itself.
        common_bytes: What is there for all.
    """

    own_bytes: int
    common_bytes: int

    @classmethod
    def of(cls, limit_bytes: int, streams: int) -> Shares:
        """Divide a budget among so many streams."""
        if streams < 2:
            return cls(limit_bytes, 0)
        own_bytes = limit_bytes // 2 // streams
        return cls(own_bytes, limit_bytes - streams * own_bytes)

    @property
    def most_bytes(self) -> int:
        """What one stream can hold when the others hold nothing."""
        return self.own_bytes + self.common_bytes // 2

    def beyond(self, held_bytes: int) -> int:
        """Return how much of what a stream holds is of the common half."""
        return max(0, held_bytes - self.own_bytes)

    def room(self, held_bytes: int, taken_bytes: int) -> int:
        """Return how much more a stream may hold.

        Args:
            held_bytes: What it holds.
            taken_bytes: What all streams hold of the common half, this one included.
        """
        free = self.common_bytes - taken_bytes
        return max(0, self.own_bytes - held_bytes) + max(0, (free - self.beyond(held_bytes)) // 2)


class Candidate(NamedTuple):
    """One partition that could be asked for now.

    Attributes:
        stream: Whose it is.
        size_bytes: What it would like to ask for.
        least_bytes: A smaller size is likely to be in vain: so large is the message ahead, or was the last one.
        is_at_end: Its log was read to its end, as the last answer told it.
    """

    stream: object
    size_bytes: int
    least_bytes: int = 0
    is_at_end: bool = False


def least_useful_bytes(candidate: Candidate) -> int:
    """Return the least that it makes sense to ask for of a partition."""
    return min(candidate.size_bytes, max(SMALLEST_SHARE_BYTES, candidate.least_bytes))


def share_out(candidates: Sequence[Candidate], room_bytes: int, own_bytes: int, cap_bytes: int) -> list[int]:
    """Return how many bytes to ask for of each partition of one stream, in their order; 0 leaves one out.

    What fits into the stream's own share is asked for whole. Otherwise partitions that were read to their end get
    little, as most of it would be set aside for nothing, and the others share the rest equally. Who does not fit ends
    the row: those behind must not take again and again what it waits for. The caller puts first who waited longest.

    Args:
        room_bytes: What the stream may take.
        own_bytes: What of that is its own.
        cap_bytes: What one request should not exceed, but for one large message.
    """
    left = min(room_bytes, max(cap_bytes, least_useful_bytes(candidates[0])))
    if sum(candidate.size_bytes for candidate in candidates) <= min(left, own_bytes):
        return [candidate.size_bytes for candidate in candidates]
    share, probe = _pieces(candidates, left)
    granted = [0] * len(candidates)
    for index, candidate in enumerate(candidates):
        piece = probe if candidate.is_at_end else max(share, candidate.least_bytes)
        wanted = min(candidate.size_bytes, piece)
        if wanted > left:
            break
        granted[index] = wanted
        left -= wanted
    return granted


def _pieces(candidates: Sequence[Candidate], available_bytes: int) -> tuple[int, int]:
    """Return the share of partitions that have more, and that of partitions that were read to their end."""
    sizes = [candidate.size_bytes for candidate in candidates if not candidate.is_at_end]
    at_end = len(candidates) - len(sizes)
    probe = available_bytes // 2 // max(at_end, 1)
    probe = min(max(probe, _SMALLEST_PROBE_BYTES), SMALLEST_SHARE_BYTES)
    rest = available_bytes - at_end * probe
    if not sizes or sum(sizes) <= rest:
        return available_bytes, probe
    return max(rest // len(sizes), SMALLEST_SHARE_BYTES), probe
