"""Counts what runs have reached: rows of the two transition tables, and kinds of faults.

While `counting()` is open, every row that a machine of this process looks up is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rebalance import partition
from rebalance.zookeeper import machine
from tests.simulator.faults import KINDS, OWN_PROFILE

__all__ = ["Coverage", "counting"]

_TABLES: Final[tuple[tuple[str, Any], ...]] = (("group", machine), ("partition", partition))


class _CountingTable(dict[Any, Callable[..., Any]]):
    """A transition table that counts what is looked up."""

    def __init__(self, table: dict[Any, Callable[..., Any]], counts: Counter[Any]) -> None:
        super().__init__(table)
        self._counts = counts

    def get(self, key: Any, default: Any = None) -> Any:
        self._counts[key] += 1
        return super().get(key, default)


class Coverage:
    """Counts of many runs.

    Attributes:
        rows: by table, state and event.
        kinds: of faults.
    """

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def add(self, other: Coverage) -> None:
        """Add the counts of another one."""
        self.rows.update(other.rows)
        self.kinds.update(other.kinds)

    def missing(self) -> list[str]:
        """Rows and kinds that nothing has reached, sorted; without kinds that only a profile of their own has."""
        rows = [_name(table, key) for table, module in _TABLES for key in module._TABLE]
        kinds = [f"fault: {kind}" for kind in KINDS if kind not in OWN_PROFILE]
        reached = {*self.rows, *(f"fault: {kind}" for kind in self.kinds)}
        return sorted(each for each in rows + kinds if each not in reached)


def _name(table: str, key: tuple[Any, type]) -> str:
    state, event = key
    return f"{table}: {event.__name__} while {state.value}"


@contextmanager
def counting(coverage: Coverage) -> Iterator[None]:
    """Count the rows that are looked up meanwhile; for one thread."""
    before = [module._TABLE for _, module in _TABLES]
    counters: list[Counter[Any]] = []
    for _, module in _TABLES:
        counters.append(Counter())
        module._TABLE = _CountingTable(module._TABLE, counters[-1])
    try:
        yield
    finally:
        for (table, module), original, counter in zip(_TABLES, before, counters, strict=True):
            module._TABLE = original
            coverage.rows.update({_name(table, key): count for key, count in counter.items()})
