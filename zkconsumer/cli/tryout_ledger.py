"""What was produced and what was delivered, and what follows: lost, repeated.

Pure. A message is known by its number; a delivery by partition and offset, so that a message which a producer had to
send twice is not taken for one that was delivered twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

__all__ = ["Delivered", "Ledger"]


@dataclass(frozen=True)
class Delivered:
    """One message as a consumer printed it."""

    member: str
    topic: str
    partition: int
    offset: int
    number: int


class Ledger:
    """Counts numbered messages.

    Threads: one writer of `produced`, others of `delivered` one at a time.
    """

    def __init__(self) -> None:
        self._produced: set[int] = set()
        self._deliveries: Counter[tuple[str, int, int]] = Counter()
        self._numbers: set[int] = set()

    def produced(self, number: int) -> None:
        """A broker has acknowledged the message."""
        self._produced.add(number)

    def delivered(self, message: Delivered) -> bool:
        """A consumer printed the message; True when it had been printed before."""
        place = (message.topic, message.partition, message.offset)
        self._deliveries[place] += 1
        self._numbers.add(message.number)
        return self._deliveries[place] > 1

    @property
    def missing(self) -> list[int]:
        """The numbers that were produced and not delivered."""
        return sorted(self._produced - self._numbers)

    @property
    def repeated(self) -> int:
        """Deliveries beyond the first of each message."""
        return self._deliveries.total() - len(self._deliveries)

    @property
    def summary(self) -> str:
        """`produced=N delivered=N lost=N repeated=N`."""
        delivered = len(self._numbers & self._produced)
        return (f"produced={len(self._produced)} delivered={delivered} lost={len(self.missing)} "
                f"repeated={self.repeated}")
