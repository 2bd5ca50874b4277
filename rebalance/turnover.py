"""How often members have come and gone of late.

Pure: the group as it was read, and when, in; a number out. Who has just joined was not there to count, and knows from
the registrations, whose age ZooKeeper tells by one clock for all.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Turnover"]


class Turnover:
    """The changes of a group's members within the last moments, as one member knows them.

    Args:
        window_s: how far back changes count.
        burst_s: changes no further apart are one.
    """

    def __init__(self, window_s: float, burst_s: float) -> None:
        self._window_s = window_s
        self._burst_s = burst_s
        self._born_ms: Mapping[str, int] = {}
        self._moments: list[float] = []

    def seen(self, born_ms: Mapping[str, int], now: float) -> None:
        """Take note of who is in the group, and since when by ZooKeeper's clock: the youngest of the new came now."""
        new = [born for name, born in born_ms.items() if self._born_ms.get(name) != born]
        self._moments += [now - (max(new) - born) / 1000 for born in new]
        if self._born_ms.keys() - born_ms.keys():
            self._moments.append(now)
        self._born_ms = dict(born_ms)

    def bursts(self, now: float) -> int:
        """How many changes there have been, those that came together counted once."""
        self._moments = sorted(moment for moment in self._moments if now - moment < self._window_s)
        return sum(
            number == 0 or moment - self._moments[number - 1] > self._burst_s
            for number, moment in enumerate(self._moments)
        )
