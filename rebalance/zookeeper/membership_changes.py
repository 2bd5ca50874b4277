"""Counts how often members have joined and left the group within a recent time window.

Pure: it takes the group as it was read, and when; it returns a number. A member that has just joined did not see
earlier changes; it derives them from the age of the registrations, which ZooKeeper's clock gives to all members alike.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MembershipChanges"]


class MembershipChanges:
    """The recent joins and leaves of a group, as one member knows them.

    Args:
        window_s: how far back changes count.
        burst_s: changes no further apart than this count as one.
    """

    def __init__(self, window_s: float, burst_s: float) -> None:
        self._window_s = window_s
        self._burst_s = burst_s
        self._created_ms: Mapping[str, int] = {}
        self._moments: list[float] = []

    def update(self, created_ms: Mapping[str, int], now: float) -> None:
        """Take note of the members, and of their joins by ZooKeeper's clock: the youngest new one joined now."""
        new = [created for name, created in created_ms.items() if self._created_ms.get(name) != created]
        self._moments += [now - (max(new) - created) / 1000 for created in new]
        if self._created_ms.keys() - created_ms.keys():
            self._moments.append(now)
        self._created_ms = dict(created_ms)

    def bursts(self, now: float) -> int:
        """The number of changes in the window; those that came together count once."""
        self._moments = sorted(moment for moment in self._moments if now - moment < self._window_s)
        return sum(
            number == 0 or moment - self._moments[number - 1] > self._burst_s
            for number, moment in enumerate(self._moments)
        )
