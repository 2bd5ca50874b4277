"""Phrases of messages: a number with its noun, and the names that were probably meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from zkconsumer_error import first_few

__all__ = ["count_of", "nearest"]

def count_of(number: int | None, noun: str) -> str:
    """Return a number with its noun.

    >>> count_of(1, "topic"), count_of(2, "topic"), count_of(None, "member")
    ('1 topic', '2 topics', 'an unknown number of members')
    """
    if number is None:
        return f"an unknown number of {noun}s"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nearest(name: str, known: Sequence[str], kind: str) -> str:
    """Return the remedy for a name that does not exist: the name that was probably meant, or those that exist.

    >>> nearest("clikcs", ["clicks", "views"], "topic")
    "did you mean 'clicks'?"
    """
    if not known:
        return f"no {kind} exists"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"existing {kind}s: {first_few(*known, most=10, rest=', ...')}"
