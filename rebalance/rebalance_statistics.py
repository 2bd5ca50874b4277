"""How often and how long a member was rebalancing: from the first sign of a change until it is settled again.

Pure. A look at the group that moves no partition of the member is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["RebalanceStatistics", "RebalanceFigures"]


@dataclass(frozen=True, slots=True)
class RebalanceFigures:
    """The rebalances of one member, the first one included.

    Attributes:
        count: those that moved partitions to this member or away from it, and are over.
        last_s, longest_s, total_s: how long they took until each partition was delivered or blocked.
        taken, released, lost: partitions that were claimed, let go of in order, lost with a session or an owner node.
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
    """Keeps the figures.

    Threads: changed by the coordinator alone; `figures` is one frozen value that any thread may read.
    """

    def __init__(self) -> None:
        self.figures = RebalanceFigures()
        self._began: tuple[float, int] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a change was noticed that has not settled."""
        return self._began is not None

    def taken(self) -> None:
        """A partition was claimed."""
        self.figures = replace(self.figures, taken=self.figures.taken + 1)

    def released(self) -> None:
        """A partition was let go of."""
        self.figures = replace(self.figures, released=self.figures.released + 1)

    def lost(self) -> None:
        """A partition was lost."""
        self.figures = replace(self.figures, lost=self.figures.lost + 1)

    def began(self, now: float) -> None:
        """Something may have to move."""
        if self._began is None:
            self._began = now, self.figures.moves

    def ended(self, now: float) -> None:
        """Nothing has to move any more."""
        if self._began is None:
            return
        (began, moves), self._began = self._began, None
        figures = self.figures
        if figures.moves == moves:
            return
        took_s = now - began
        self.figures = replace(
            figures, count=figures.count + 1, last_s=took_s, longest_s=max(took_s, figures.longest_s),
            total_s=figures.total_s + took_s,
        )  # fmt: skip
