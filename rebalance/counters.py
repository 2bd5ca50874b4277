"""Counts events by name and kind, for the statistics; no decision depends on them."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Counters"]


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
