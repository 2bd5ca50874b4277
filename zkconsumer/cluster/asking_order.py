"""The order in which brokers are asked a question that any of them can answer.

First come those with the fewest requests of this process under way, of fetches and producers too, in random order among
equals; last those that did not answer the last time. One slow broker delays few callers, and a dead one none twice.

Source: org.apache.kafka.clients.NetworkClient.leastLoadedNode (2.8); KAFKA-714.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable

from simpleconsumer.under_way import UNDER_WAY, Address, RequestsUnderWay

__all__ = ["AskingOrder"]


class AskingOrder:
    """Remembers which brokers did not answer.

    Args:
        rng: Chooses among equals.
        under_way: Counts the requests; None for those of this process.

    Threads: any.
    """

    def __init__(self, rng: random.Random | None = None, under_way: RequestsUnderWay | None = None) -> None:
        self._rng = rng or random.Random()
        self._under_way = under_way or UNDER_WAY
        self._lock = threading.Lock()
        self._silent: set[Address] = set()

    def of(self, addresses: Iterable[Address]) -> list[Address]:
        """Return the addresses in the order in which they are to be asked, each once."""
        with self._lock:
            return sorted(dict.fromkeys(addresses), key=self._rank)

    def failed(self, address: Address) -> bool:
        """Take over that a broker did not answer; return whether that is new."""
        with self._lock:
            is_news = address not in self._silent
            self._silent.add(address)
            return is_news

    def answered(self, address: Address) -> None:
        """Take over that a broker answered."""
        with self._lock:
            self._silent.discard(address)

    def keep(self, addresses: Iterable[Address]) -> None:
        """Forget all but these: another broker may come to an address."""
        with self._lock:
            self._silent.intersection_update(addresses)

    def _rank(self, address: Address) -> tuple[bool, int, float]:
        return address in self._silent, self._under_way.at(address), self._rng.random()
