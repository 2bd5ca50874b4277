"""How often members have come and gone of late.

Pure: the group as it was read, and when, in; a number out. Who has just joined was not there to count, and knows from
the registrations, whose age ZooKeeper tells by one clock for all.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MembershipChanges"]


class MembershipChanges:
    """The changes of a group's members within the last moments, as one member knows them.

    Args:
        window_s: how far back changes count.
        burst_s: changes no further apart are one.
    """

    def __init__(self, window_s: float, burst_s: float) -> None:
        self._window_s = window_s
        self._burst_s = burst_s
        self._created_ms: Mapping[str, int] = {}
        self._moments: list[float] = []

    def seen(self, created_ms: Mapping[str, int], now: float) -> None:
        """Take note of who is in the group, and since when by ZooKeeper's clock: the youngest of the new came now."""
        new = [created for name, created in created_ms.items() if self._created_ms.get(name) != created]
        self._moments += [now - (max(new) - created) / 1000 for created in new]
        if self._created_ms.keys() - created_ms.keys():
            self._moments.append(now)
        self._created_ms = dict(created_ms)

    def bursts(self, now: float) -> int:
        """How many changes there have been, those that came together counted once."""
        self._moments = sorted(moment for moment in self._moments if now - moment < self._window_s)
        return sum(
            number == 0 or moment - self._moments[number - 1] > self._burst_s
            for number, moment in enumerate(self._moments)
        )
