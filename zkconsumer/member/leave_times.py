"""Computes until when each step of a leave may wait, so that it is over half a second after its time-out. Pure.

Messages in hand may take all of the time-out. The half second after it is divided among the later steps; a step that
needs less leaves more to the next one.

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
        in_hand_until: for the messages in hand of other threads.
        listener_until: for `on_partitions_revoked`.
        commit_until: for the answer to the last commit.
        close_until: for the coordinator to take no further part.
        over_at: for the end of the session, and for threads to end.
    """

    in_hand_until: float
    listener_until: float
    commit_until: float
    close_until: float
    over_at: float

    @staticmethod
    def of(now: float, wait_s: float) -> LeaveTimes:
        """A leave that starts now and has `wait_s` seconds."""
        end = now + min(wait_s, _LONGEST_S)
        return LeaveTimes(end, end + _LISTENER_S, end + _COMMIT_S, end + _CLOSE_S, end + _OVER_S)


def longest_wait_s(wait_s: float) -> float:
    """How long a caller with so much time waits for a leave, whatever becomes of it."""
    return min(wait_s, _LONGEST_S) + _RETURN_S
