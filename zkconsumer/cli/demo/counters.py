"""Counts what producer and members write down, event by event, for those who watch. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from zkconsumer.testing.history import Event

__all__ = ["Counters"]

NS = 1_000_000_000


class Counters:
    """What a history comes to so far.

    Args:
        start_ns: the moment from which seconds are counted.

    Attributes:
        produced: messages that a broker has acknowledged.
        repeated: deliveries beyond the first of each message.
        delivered_by: member -> its deliveries.
    """

    def __init__(self, start_ns: int) -> None:
        self.produced = 0
        self.repeated = 0
        self.delivered_by: Counter[str] = Counter()
        self._start_ns = start_ns
        self._acked: Counter[int] = Counter()
        self._seen: defaultdict[int, set[int]] = defaultdict(set)
        self._each_second: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def take(self, events: Iterable[Event]) -> None:
        """Count more events; those that are no message, sent or delivered, count nothing."""
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
        """How many different messages were delivered."""
        return sum(map(len, self._seen.values()))

    def lag(self, partition: int) -> int:
        """Messages of a partition that were acknowledged and not delivered yet."""
        # A delivery can be known before its acknowledgement is.
        return max(0, self._acked[partition] - len(self._seen[partition]))

    def rates(self, member: str, now_s: float, seconds: int) -> tuple[int, ...]:
        """Deliveries of a member in each of the last whole seconds, the newest last."""
        now = int(now_s)
        return tuple(self._each_second[member][second] for second in range(now - seconds, now))
