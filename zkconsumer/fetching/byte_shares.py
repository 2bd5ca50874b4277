"""How the byte budget of a connector is shared out among streams, and what a stream may ask for among its partitions.

Pure. One half of the budget is divided into equal shares, one for each stream; the other half is common. A stream takes
at most as much of the common half as it leaves free: so a stream that nobody reads holds at most its own share and a
quarter of the budget, and never the share of another one. A single stream has the whole budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SMALLEST_SHARE_BYTES: Final = 16 * 1024
"""Least bytes to ask for of a partition when many share the room; a larger message is asked for separately."""
_SMALLEST_PROBE_BYTES: Final = 1024
"""Least bytes to ask for of a partition whose log was read to its end."""


class Shares(NamedTuple):
    """A budget that is divided among streams.

    Attributes:
        own_bytes: Share of each stream.
        common_bytes: The share that all streams have in common.
    """

    own_bytes: int
    common_bytes: int

    @classmethod
    def of(cls, limit_bytes: int, streams: int) -> Shares:
        """Divide a budget among a number of streams."""
        if streams < 2:
            return cls(limit_bytes, 0)
        own_bytes = limit_bytes // 2 // streams
        return cls(own_bytes, limit_bytes - streams * own_bytes)

    @property
    def most_bytes(self) -> int:
        """Bytes that one stream can hold when the others hold nothing."""
        return self.own_bytes + self.common_bytes // 2

    def beyond(self, held_bytes: int) -> int:
        """Return how many of the bytes that a stream holds are of the common half."""
        return max(0, held_bytes - self.own_bytes)

    def room(self, held_bytes: int, taken_bytes: int) -> int:
        """Return how many more bytes a stream may hold.

        Args:
            held_bytes: The bytes that it holds now.
            taken_bytes: The bytes of the common half that all streams hold, including this one.
        """
        free = self.common_bytes - taken_bytes
        return max(0, self.own_bytes - held_bytes) + max(0, (free - self.beyond(held_bytes)) // 2)


class Candidate(NamedTuple):
    """One partition that could be asked for now.

    Attributes:
        stream: The stream that reads it.
        size_bytes: How many bytes to ask for if there is room.
        least_bytes: Size of the next message, or of the last one: a smaller fetch would probably bring nothing.
        is_at_end: According to the last answer its log was read to its end.
    """

    stream: object
    size_bytes: int
    least_bytes: int = 0
    is_at_end: bool = False


def least_useful_bytes(candidate: Candidate) -> int:
    """Return the smallest useful size to ask for of a partition."""
    return min(candidate.size_bytes, max(SMALLEST_SHARE_BYTES, candidate.least_bytes))


def share_out(candidates: Sequence[Candidate], room_bytes: int, own_bytes: int, cap_bytes: int) -> list[int]:
    """Return how many bytes to ask for of each partition of one stream, in their order; 0 leaves one out.

    If all sizes fit into the stream's own share, they are asked for in full. Otherwise partitions that were read to
    their end get little, as most of it would be reserved in vain, and the others share the rest equally. The first one
    that does not fit ends the list: later ones must not take again and again the room that it waits for. The
    caller puts the partition first that has waited longest.

    Args:
        room_bytes: Most bytes that the stream may take.
        own_bytes: The part of it that is of its own share.
        cap_bytes: Most bytes of one request, except for one large message.
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
