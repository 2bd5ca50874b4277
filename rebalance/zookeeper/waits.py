"""Computes how long a group member waits: before it claims, between two reads, before it tries again.

Pure: it takes and returns moments. `rebalance.zookeeper.machine` decides what is waited for.

Source: docs/REBALANCE.md, "Step by step".

Counts how often members have joined and left the group within a recent time window.

Pure: it takes the group as it was read, and when; it returns a number. A member that has just joined did not see
earlier changes; it derives them from the age of the registrations, which ZooKeeper's clock gives to all members alike.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

_MOST_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class RebalanceTimes:
    """Waits of the group machine, in seconds.

    Attributes:
        quiet_s: settle time before claims after a change, jittered from half of it to all of it.
        quiet_max_s: its cap, counted from the first change.
        retry_s: wait before a read that failed is tried again, doubled up to `retry_max_s`.
        gap_s: least time between two reads, so that a burst of changes costs one read.
        refused_s: wait before nodes that may not be read are asked for again, doubled up to `refused_max_s`, jittered.
        order_confirm_s: owner nodes of Java members show the order of roundrobin when they are unchanged for so long.
        order_wait_s: how long after a change of the group partitions are left to Java members that show no order.
        order_dissent_s: after how long unchanged owner nodes of a member of this client show that it assigns by another
            order: longer than it drains, and than all take to fall back to 0.8.
    """

    quiet_s: float = 0.1
    quiet_max_s: float = 1.5
    retry_s: float = 0.1
    retry_max_s: float = 2.0
    gap_s: float = 0.02
    refused_s: float = 0.5
    refused_max_s: float = 5.0
    order_confirm_s: float = 1.5
    order_wait_s: float = 16.0
    order_dissent_s: float = 40.0


class Waits:
    """The waits of one member.

    Args:
        times: how long.
        rng: source of jitter.

    Attributes:
        quiet_until: nothing is claimed before this moment.
    """

    def __init__(self, times: RebalanceTimes, rng: random.Random) -> None:
        self.quiet_until = float("-inf")
        self._times = times
        self._rng = rng
        self._away_since: float | None = None
        self._is_back = False
        self._first_change: float | None = None
        self._failures = 0
        self._read_at = float("-inf")

    # -- before claims -----------------------------------------------------------------------------------------------

    def disconnected(self, now: float) -> None:
        """The connection is lost."""
        self._away_since = now

    def session_lost(self, now: float) -> None:
        """The next session is a new one.

        A session that ends without a long disconnection was ended by somebody: ZooKeeper was reachable all the time,
        and the other members still have their sessions.
        """
        self._is_back |= self._away_since is not None and now - self._away_since > self._times.quiet_max_s

    def registered(self, now: float) -> None:
        """Claim late under a session that follows one that was lost during a long disconnection.

        When ZooKeeper was unreachable for long, every member has lost its session. The first to return must not claim
        for a moment the partitions that the others get as soon as they return.
        """
        if self._is_back:
            self._is_back = False
            self.quiet_until = now + self._times.quiet_max_s * self._rng.uniform(0.6, 1.0)

    def changed(self, now: float) -> None:
        """Count the cap from the first change after a settled state."""
        if self._first_change is None:
            self._first_change = now

    def calm(self) -> None:
        """No change is pending any more."""
        self._first_change = None

    def is_overdue(self, now: float) -> bool:
        """Whether changes have delayed the claims for longer than the cap."""
        return self._first_change is not None and now - self._first_change > self._times.quiet_max_s

    def be_quiet(self, now: float, changes: int = 1) -> None:
        """Start the quiet time again, up to its cap: the assignment of this member has changed.

        From the third of `changes` within a short time on, each doubles it: when members join one after the other, the
        claims after one join would be released after the next.
        """
        doublings = min(max(0, changes - 2), _MOST_DOUBLINGS)
        quiet_s = self._times.quiet_s * 2.0**doublings * self._rng.uniform(0.5, 1.0)
        cap = (self._first_change if self._first_change is not None else now) + self._times.quiet_max_s
        self.quiet_until = max(now, self.quiet_until, min(now + quiet_s, cap))

    # -- between reads -----------------------------------------------------------------------------------------------

    def reading(self, now: float) -> None:
        """A read starts."""
        self._read_at = now

    def next_read(self) -> float:
        """When the next read may start at the earliest."""
        return self._read_at + self._times.gap_s

    def read_done(self) -> None:
        """A read has succeeded."""
        self._failures = 0

    def read_failed(self, now: float) -> float:
        """When to try again, after growing waits."""
        wait_s = min(self._times.retry_s * 2.0**self._failures, self._times.retry_max_s)
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        return now + wait_s * self._rng.uniform(0.5, 1.0)

    def register_again(self, now: float) -> float:
        """When to register again if the result of the last try is not reported."""
        return now + self._times.retry_s * self._rng.uniform(1.0, 2.0)


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
        """The number of changes in the window; changes that came together count once."""
        self._moments = sorted(moment for moment in self._moments if now - moment < self._window_s)
        return sum(
            number == 0 or moment - self._moments[number - 1] > self._burst_s
            for number, moment in enumerate(self._moments)
        )
