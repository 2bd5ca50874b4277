"""Until when each step of a leave may wait, so that all of it is over half a second after its time-out. Pure.

Messages in hand may take all of the time-out. The half second behind it is shared out among what has to come after
them; whoever needs less leaves more to the next one.

Source: docs/SEMANTICS.md, "The end".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SPARE_S", "LeaveTimes", "longest_wait_s"]

SPARE_S: Final = 0.5
"""What a shutdown may take beyond its time-out."""
_LISTENER_S: Final = 0.15
_COMMIT_S: Final = 0.3
_CLOSE_S: Final = 0.35
_OVER_S: Final = 0.4
_RETURN_S: Final = 0.47
_LONGEST_S: Final = 1e7
"""Longer than any program runs, and shorter than what a lock can be waited for."""


@dataclass(frozen=True, slots=True)
class LeaveTimes:
    """The moments of one leave.

    Attributes:
        hands_until: for the messages in hand of other threads.
        listener_until: for `on_partitions_revoked`.
        commit_until: for the answer to the last commit.
        close_until: for the coordinator to take no further part.
        over_at: for ZooKeeper's goodbye, and for threads to end.
    """

    hands_until: float
    listener_until: float
    commit_until: float
    close_until: float
    over_at: float

    @staticmethod
    def of(now: float, wait_s: float) -> LeaveTimes:
        """A leave that begins now and has `wait_s` seconds."""
        end = now + min(wait_s, _LONGEST_S)
        return LeaveTimes(end, end + _LISTENER_S, end + _COMMIT_S, end + _CLOSE_S, end + _OVER_S)


def longest_wait_s(wait_s: float) -> float:
    """How long a caller with so much time waits for a leave, whatever has become of it."""
    return min(wait_s, _LONGEST_S) + _RETURN_S
