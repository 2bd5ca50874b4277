"""Waits until a fetch has enough, and puts its answer together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer.testing.waiting import Deadline

MAX_WAIT_S: Final = 600.0


class Fetched(Protocol):
    """The result of a fetch for one partition."""

    @property
    def code(self) -> int:
        """Error code."""

    @property
    def data(self) -> LogSlice:
        """The entries."""


Found = TypeVar("Found", bound=Fetched)


class FetchWait:
    """One fetch: answered at once if there is enough, an error, or no wish to wait; else when one of these comes true.

    Source: kafka.server.DelayedFetch (0.8.2.2, 2.8).
    """

    def __init__(self, max_wait_ms: int, min_bytes: int, stopping: threading.Event) -> None:
        """Begin to wait.

        Args:
            stopping: set when the broker ends.
        """
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._stopping = stopping

    def answer(
        self, read: Callable[[Callable[[PartitionLog], None]], dict[TopicPartition, Found]]
    ) -> dict[TopicPartition, Found]:
        """Return what the last look at the logs found; the slices in it are to be closed.

        Args:
            read: looks at the logs, and calls what it is given with each of them.
        """
        deadline = Deadline(min(max(self._max_wait_ms, 0) / 1000, MAX_WAIT_S))
        waiter = threading.Event()
        watched: set[PartitionLog] = set()

        def watch(log: PartitionLog) -> None:
            if log not in watched and self._max_wait_ms > 0:
                log.add_waiter(waiter)
                watched.add(log)

        try:
            while True:
                waiter.clear()
                results = read(watch)
                readable = sum(found.data.length for found in results.values())
                failed = any(found.code for found in results.values())
                done = readable >= self._min_bytes or failed or not results or deadline.expired
                if done or self._stopping.is_set():
                    return results
                close_all(results)
                waiter.wait(deadline.remaining_s)
        finally:
            for log in watched:
                log.remove_waiter(waiter)


def close_all(results: Mapping[TopicPartition, Fetched]) -> None:
    """Close the slices in what was read."""
    for found in results.values():
        found.data.close()


def interleaved(heads: Sequence[bytes], slices: Sequence[Part]) -> list[Part]:
    """Return heads of partitions, each followed by its entries, and the heads that are left."""
    parts: list[Part] = []
    for number, head in enumerate(heads):
        parts.append(head)
        if number < len(slices):
            parts.append(slices[number])
    return parts
