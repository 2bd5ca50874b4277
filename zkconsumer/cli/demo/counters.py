"""Counts the messages of a demonstration, from the events that producer and members record. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from zkconsumer.testing.history import Event

__all__ = ["Counters"]

NS = 1_000_000_000


class Counters:
    """Counts of a history so far.

    Args:
        start_ns: The moment from which seconds are counted.

    Attributes:
        produced: Messages that a broker has acknowledged.
        repeated: Deliveries beyond the first one of each message.
        delivered_by: Member -> number of its deliveries.
    """

    def __init__(self, start_ns: int) -> None:
        self.produced = 0
        self.repeated = 0
        self.delivered_by: Counter[str] = Counter()
        self._start_ns = start_ns
        self._acked: Counter[int | str] = Counter()
        self._seen: defaultdict[int | str, set[int]] = defaultdict(set)
        self._each_second: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def take(self, events: Iterable[Event]) -> None:
        """Count more events; only acknowledged and delivered messages count."""
        for event in events:
            if event.kind == "acked":
                self.produced += 1
                self._acked[event.partition] += 1
            elif event.kind == "deliver":
                self._deliver(event)

    def _deliver(self, event: Event) -> None:
        seen = self._seen[event.partition]
        if event.offset in seen:
            self.repeated += 1
        seen.add(event.offset)
        self.delivered_by[event.member] += 1
        self._each_second[event.member][(event.time_ns - self._start_ns) // NS] += 1

    @property
    def delivered(self) -> int:
        """Number of different messages that were delivered."""
        return sum(map(len, self._seen.values()))

    def lag(self, partition: int | str) -> int:
        """Return the number of messages of a partition that were acknowledged and not delivered yet."""
        # A delivery can be known before its acknowledgement is.
        return max(0, self._acked[partition] - len(self._seen[partition]))

    def rates(self, member: str, now_s: float, seconds: int) -> tuple[int, ...]:
        """Return the deliveries of a member in each of the last whole seconds, the newest last."""
        now = int(now_s)
        return tuple(self._each_second[member][second] for second in range(now - seconds, now))
