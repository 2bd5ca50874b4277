"""How long to wait before the next attempt, and how often to report why attempts fail. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

REPORT_AGAIN_S: Final = 600.0
"""How long a reason is not reported again."""
_MOST_REASONS: Final = 100
_SHORTEST_S: Final = 0.02
_MOST_FAILURES: Final = 20  # a power with a larger exponent would overflow in the end


class Backoff(NamedTuple):
    """The waits between attempts.

    Attributes:
        first_s: Wait after the first failure.
        longest_s: Longest wait.
        factor: By how much each wait is longer than the one before.
    """

    first_s: float
    longest_s: float
    factor: float = 2.0

    @classmethod
    def of_ms(cls, first_ms: int, longest_s: float, factor: float = 2.0) -> Backoff:
        """Return the waits for a configured number of milliseconds, of which 0 stands for the shortest wait."""
        return cls(max(first_ms / 1000, _SHORTEST_S), longest_s, factor)

    def wait_s(self, failures: int) -> float:
        """Return how many seconds to wait after so many earlier failures in a row (0: this is the first one)."""
        return float(min(self.first_s * self.factor ** min(failures, _MOST_FAILURES), self.longest_s))


class Reports:
    """Which reasons were reported lately: an attempt that fails several times a second must not fill the log."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def is_due(self, reason: str, now: float) -> bool:
        """Return whether to report a reason now: it is new since the last success, or was reported long ago."""
        if now - self._at.get(reason, float("-inf")) < REPORT_AGAIN_S:
            return False
        if len(self._at) >= _MOST_REASONS:
            self._at.clear()
        self._at[reason] = now
        return True

    def succeeded(self) -> None:
        """Take note that an attempt did not fail."""
        self._at.clear()
