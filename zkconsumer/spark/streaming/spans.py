"""Sets of offsets as spans: sorted pairs of a first offset and the one after the last, with gaps between the pairs.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from simpleconsumer.types import MAX_INT64

__all__ = ["ALL_OFFSETS", "BEHIND_ALL", "NO_OFFSETS", "Spans", "at_most", "common", "others", "spans_of"]

Spans = tuple[tuple[int, int], ...]

BEHIND_ALL: Final = MAX_INT64 + 1
"""As the end of a span: it has no end."""
ALL_OFFSETS: Final[Spans] = ((0, BEHIND_ALL),)
NO_OFFSETS: Final[Spans] = ()


def spans_of(pairs: Iterable[tuple[int, int]]) -> Spans:
    """Return the set of all offsets in any of the pairs, which may be empty, overlap, and come in any order.

    >>> spans_of([(7, 9), (3, 5), (5, 6), (4, 4)])
    ((3, 6), (7, 9))
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted((max(start, 0), min(end, BEHIND_ALL)) for start, end in pairs):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def common(left: Spans, right: Spans) -> Spans:
    """Return the offsets that are in both.

    >>> common(((0, 5), (8, 20)), ((3, 10),))
    ((3, 5), (8, 10))
    """
    found: list[tuple[int, int]] = []
    here = there = 0
    while here < len(left) and there < len(right):
        start, end = max(left[here][0], right[there][0]), min(left[here][1], right[there][1])
        if start < end:
            found.append((start, end))
        if left[here][1] < right[there][1]:
            here += 1
        else:
            there += 1
    return tuple(found)


def others(spans: Spans) -> Spans:
    """Return the offsets that are not in the set.

    >>> others(((0, 5), (8, 9)))
    ((5, 8), (9, 9223372036854775808))
    """
    edges = [0, *(edge for span in spans for edge in span), BEHIND_ALL]
    return tuple((start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end)


def at_most(spans: Spans, count: int) -> Spans:
    """Return a set of at most `count` spans that contains this one: the shortest gaps are filled.

    >>> at_most(((0, 5), (6, 7), (90, 95)), 2)
    ((0, 7), (90, 95))
    """
    gaps = sorted(range(1, len(spans)), key=lambda after: spans[after][0] - spans[after - 1][1])
    kept = sorted(gaps[len(gaps) - count + 1 :]) if len(spans) > count else range(1, len(spans))
    cuts = [0, *kept, len(spans)]
    return tuple((spans[first][0], spans[after - 1][1]) for first, after in pairwise(cuts) if after > first)
