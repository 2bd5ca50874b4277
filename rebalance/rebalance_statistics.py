"""Measures how often and how long a member rebalances: from the first sign of a change until it is settled again. A
read of the group after which no partition of the member moves is not counted.

Counts events by name and kind, for the statistics; no decision depends on them.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RebalanceFigures:
    """The rebalances of one member, the first one included.

    Attributes:
        count: finished rebalances that moved partitions to this member or away from it.
        last_s, longest_s, total_s: how long they took until each partition was delivered or blocked.
        taken, released, lost: partitions that were claimed, released in order, lost with a session or an owner node.
    """

    count: int = 0
    last_s: float = 0.0
    longest_s: float = 0.0
    total_s: float = 0.0
    taken: int = 0
    released: int = 0
    lost: int = 0

    @property
    def moves(self) -> int:
        """Partitions that moved."""
        return self.taken + self.released + self.lost


class RebalanceStatistics:
    """Collects the figures of one member.

    Threads: changed by the coordinator alone; `figures` is one frozen value that any thread may read.
    """

    def __init__(self) -> None:
        self.figures = RebalanceFigures()
        self._started: tuple[float, int] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a change was noticed that has not settled."""
        return self._started is not None

    def taken(self) -> None:
        """A partition was claimed."""
        self.figures = replace(self.figures, taken=self.figures.taken + 1)

    def released(self) -> None:
        """A partition was released."""
        self.figures = replace(self.figures, released=self.figures.released + 1)

    def lost(self) -> None:
        """A partition was lost."""
        self.figures = replace(self.figures, lost=self.figures.lost + 1)

    def started(self, now: float) -> None:
        """Something may have to move."""
        if self._started is None:
            self._started = now, self.figures.moves

    def ended(self, now: float) -> None:
        """Nothing has to move any more."""
        if self._started is None:
            return
        (started, moves), self._started = self._started, None
        figures = self.figures
        if figures.moves == moves:
            return
        took_s = now - started
        self.figures = replace(
            figures, count=figures.count + 1, last_s=took_s, longest_s=max(took_s, figures.longest_s),
            total_s=figures.total_s + took_s,
        )  # fmt: skip


class Counters:
    """Counts from any thread. Each count takes a lock, so nothing that happens for each message is counted here."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may shut down on a thread that is inside.
        self._lock = threading.RLock()
        self._counts: dict[str, Counter[str]] = {}

    def add(self, what: str, kind: str, count: int = 1) -> None:
        """Count `count` more of a kind."""
        if count:
            with self._lock:
                self._counts.setdefault(what, Counter())[kind] += count

    def counts(self, what: str) -> dict[str, int]:
        """Kind -> number, in the order of the kinds' names."""
        with self._lock:
            return dict(sorted(self._counts.get(what, {}).items()))
