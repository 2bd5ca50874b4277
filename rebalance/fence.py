"""The fence of a decision: what is decided under one membership is never carried out under a later one. Pure."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Fence", "is_same_session"]


class Fence(Protocol):
    """What a commit, load or claim was decided under; equal ones are the same."""

    @property
    def session_id(self) -> int:
        """What it is part of: a session with ZooKeeper, or an uninterrupted membership in a group of brokers."""

    def __hash__(self) -> int: ...


def is_same_session(one: Fence | None, other: Fence | None) -> bool:
    """Whether two fences are of one session, or there is neither."""
    return (one.session_id if one is not None else None) == (other.session_id if other is not None else None)
