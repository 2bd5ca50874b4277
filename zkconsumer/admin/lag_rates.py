"""Rates of consuming and producing, from what was read before. Pure.

Java members commit once a minute by default, so offsets move in steps: a rate between two rounds would be 0 and then
far too high. So rates are those of a window of two minutes. Only a few rounds of the window are kept, which bounds the
memory, and a partition whose offset or log has gone back (an operator, a topic that was created again) starts anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from zkconsumer.admin.group_report import PartitionRow
from zkconsumer.admin.lag_report import Rates

__all__ = ["RateWindow"]

WINDOW_S: Final = 120.0
_KEPT: Final = 8

_Key = tuple[str, str, int | str]
"""Group, topic, partition."""


class _Round(NamedTuple):
    """What was read at one time: (group, topic, partition) -> stored offset and end of the log."""

    at: float
    numbers: Mapping[_Key, tuple[int, int]]


class RateWindow:
    """The rounds of the last two minutes, and the rates that follow from them.

    Threads: One at a time.
    """

    def __init__(self) -> None:
        self._rounds: deque[_Round] = deque()

    def add(self, at: float, rows: Iterable[tuple[str, PartitionRow]]) -> dict[tuple[str, str], Rates]:
        """Add a round; return (group, topic) -> rates since the oldest round of the window.

        Args:
            at: When it was read, in seconds on any clock that only moves forward.
            rows: The group and each of its partitions.
        """
        numbers = {
            (group, row.topic, row.partition): (row.offset, row.log_end)
            for group, row in rows
            if row.offset is not None and row.log_end is not None
        }
        while len(self._rounds) > 1 and at - self._rounds[1].at >= WINDOW_S:
            self._rounds.popleft()
        rates = self._rates(at, numbers)
        if not self._rounds or at - self._rounds[-1].at >= WINDOW_S / _KEPT:
            self._rounds.append(_Round(at, numbers))
        return rates

    def _rates(self, at: float, numbers: Mapping[_Key, tuple[int, int]]) -> dict[tuple[str, str], Rates]:
        if not self._rounds or at <= self._rounds[0].at:
            return {}
        passed_s = at - self._rounds[0].at
        sums: dict[tuple[str, str], list[int]] = {}
        for key, (offset, end) in numbers.items():
            before = self._rounds[0].numbers.get(key)
            if before is not None and offset >= before[0] and end >= before[1]:
                total = sums.setdefault(key[:2], [0, 0])
                total[0] += offset - before[0]
                total[1] += end - before[1]
        return {at_: Rates(consumed / passed_s, produced / passed_s) for at_, (consumed, produced) in sums.items()}
