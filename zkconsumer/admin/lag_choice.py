"""Which groups and topics a monitor of lag reads. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LagChoice"]


@dataclass(frozen=True)
class LagChoice:
    """Which groups and topics a monitor reads.

    Attributes:
        groups: These groups; all of the cluster when there are none.
        keeps_group: Which of all groups count.
        keeps_topic: Which topics count.
        deadline_s: Longest time for one round, in seconds.
    """

    groups: tuple[str, ...] = ()
    keeps_group: Callable[[str], bool] = lambda name: True
    keeps_topic: Callable[[str], bool] = lambda name: True
    deadline_s: float = 30.0
