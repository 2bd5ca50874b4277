"""Translates the filters of a query into partitions and offsets, and into the filters that Spark still has to evaluate.

Pure. Filters are recognized by the names of their classes, because Spark 4.0 has no such classes. Rules, and which
failure each prevents:
- Spark does not evaluate a filter only if exactly what passes it is read: otherwise rows would remain that the query
  excludes.
- Everything that passes all filters is read: a filter that is not understood excludes nothing.
- Topic, partition and offset of a row are never null, so that each filter on them is either true or false.

Source: pyspark.sql.datasource (4.3), and the conditions after its optimizer: docs of `Filter` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any, Final, NamedTuple, TypeVar

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.options.offsets_json import column_value
from zkconsumer.spark.streaming.stream_offsets import (
    ALL_OFFSETS,
    BEHIND_ALL,
    NO_OFFSETS,
    Spans,
    at_most,
    common,
    others,
    spans_of,
)

MAX_SPANS: Final = 32
"""Most ranges of one partition after filters; each costs a task."""
_TYPES: Final = {"topic": str, "partition": int, "offset": int}
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": eq, "EqualNullSafe": eq, "GreaterThan": gt, "GreaterThanOrEqual": ge, "LessThan": lt,
    "LessThanOrEqual": le,
}  # fmt: skip
_SEARCHED: Final[dict[str, Callable[[str, str], bool]]] = {
    "StringStartsWith": str.startswith, "StringEndsWith": str.endswith, "StringContains": str.__contains__,
}  # fmt: skip
_PAIRS: Final[dict[str, Callable[[int], tuple[int, int]]]] = {
    "EqualTo": lambda offset: (offset, offset + 1),
    "EqualNullSafe": lambda offset: (offset, offset + 1),
    "GreaterThan": lambda offset: (offset + 1, BEHIND_ALL),
    "GreaterThanOrEqual": lambda offset: (offset, BEHIND_ALL),
    "LessThan": lambda offset: (0, offset),
    "LessThanOrEqual": lambda offset: (0, offset + 1),
}
F = TypeVar("F")


class _Condition(NamedTuple):
    """A filter that is understood: a comparison of a column, perhaps negated."""

    column: str
    kind: str
    value: Any
    is_negated: bool

    def accepts(self, found: str | int) -> bool:
        """Return whether a topic or a partition passes."""
        return self._holds(found) != self.is_negated

    def offsets(self) -> Spans:
        """Return the offsets that pass."""
        match self.kind:
            case "IsNull" | "IsNotNull":
                spans = NO_OFFSETS if self.kind == "IsNull" else ALL_OFFSETS
            case "In":
                spans = spans_of((offset, offset + 1) for offset in self.value)
            case _:
                spans = spans_of([_PAIRS[self.kind](self.value)])
        return others(spans) if self.is_negated else spans

    def _holds(self, found: Any) -> bool:
        match self.kind:
            case "IsNull" | "IsNotNull":
                return self.kind == "IsNotNull"
            case "In":
                return found in self.value
            case _:
                return (_COMPARED.get(self.kind) or _SEARCHED[self.kind])(found, self.value)


@dataclass(frozen=True)
class PushedFilters:
    """The partitions and offsets that the filters of a query accept.

    Attributes:
        offsets: The offsets of every partition that pass, and perhaps some more, whose rows Spark removes.
    """

    conditions: tuple[_Condition, ...] = ()
    offsets: Spans = ALL_OFFSETS

    def accepts(self, name: TopicPartition) -> bool:
        """Return whether messages of a partition may pass."""
        return bool(self.offsets) and all(
            each.accepts(name.topic if each.column == "topic" else column_value(name.partition))
            for each in self.conditions
        )


NO_FILTERS: Final = PushedFilters()


def push_filters(filters: Iterable[F], *, offsets_are_exact: bool = True) -> tuple[PushedFilters, list[F]]:
    """Return what passes the filters, and the filters that Spark still has to evaluate.

    Args:
        filters: Of `pyspark.sql.datasource`; all of them have to be true.
        offsets_are_exact: All rows of a range have offsets within it. Otherwise a partition gets one range, and Spark
            evaluates the filters on offsets.
    """
    conditions: list[_Condition] = []
    of_offsets: list[F] = []
    rest: list[F] = []
    spans = ALL_OFFSETS
    for each in filters:
        condition = _understood(each, is_negated=False)
        if condition is None:
            rest.append(each)
        elif condition.column == "offset":
            of_offsets.append(each)
            spans = common(spans, condition.offsets())
        else:
            conditions.append(condition)
    few = at_most(spans, MAX_SPANS if offsets_are_exact else 1)
    if few != spans or not offsets_are_exact:
        rest += of_offsets
    return PushedFilters(tuple(conditions), few), rest


def _understood(condition: Any, *, is_negated: bool) -> _Condition | None:
    """Return a filter as a condition; None for another column, another kind, or a value of another type."""
    kind = type(condition).__name__
    if kind == "Not":
        return _understood(condition.child, is_negated=not is_negated)
    column, value = _column(condition), getattr(condition, "value", None)
    if column is None:
        return None
    wanted = _TYPES[column]
    if kind in ("IsNull", "IsNotNull"):
        return _Condition(column, kind, None, is_negated)
    if kind == "In" and isinstance(value, (list, tuple)) and all(type(each) is wanted for each in value):
        return _Condition(column, kind, frozenset(value), is_negated)
    # A null makes a comparison neither true nor false; the type is exact, as a bool is an int.
    if type(value) is wanted and (kind in _COMPARED or (kind in _SEARCHED and wanted is str)):
        return _Condition(column, kind, value, is_negated)
    return None


def _column(condition: Any) -> str | None:
    """Return the column of a filter, if it is one of `_TYPES`; fields within columns have longer paths."""
    path = tuple(getattr(condition, "attribute", ()))
    return path[0] if len(path) == 1 and path[0] in _TYPES else None
