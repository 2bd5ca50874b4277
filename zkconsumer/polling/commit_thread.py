"""Carries out asynchronous commits, one by one, on a thread of its own; the polling thread takes the results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.records import OffsetAndMetadata
from zkconsumer.wakeup import Latch

__all__ = ["CommitDone", "CommitThread"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitDone = Callable[[Offsets, Exception | None], object]
"""Gets what was to be committed, and why it was not, None if it was."""


@dataclass(frozen=True, slots=True)
class _Result:
    offsets: Offsets
    error: Exception | None
    done: CommitDone | None


class CommitThread:
    """The asynchronous commits of one consumer.

    Args:
        wake: Called, on the thread, when there is a result.

    Threads: `ask`, `results` and `close` that of the application which polls.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._asked: queue.SimpleQueue[tuple[Callable[[], None], Offsets, CommitDone | None] | None]
        self._asked = queue.SimpleQueue()
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, commit: Callable[[], None], offsets: Offsets, done: CommitDone | None) -> None:
        """Commit behind all earlier ones.

        Args:
            commit: Commits, and waits for the result.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="zkconsumer-commits", daemon=True)
            self._thread.start()
        self._asked.put((commit, offsets, done))

    def results(self) -> list[tuple[Offsets, Exception | None, CommitDone | None]]:
        """Return the results that were not taken yet, in order."""
        found: list[tuple[Offsets, Exception | None, CommitDone | None]] = []
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                return found
            found.append((result.offsets, result.error, result.done))

    def finish(self, timeout_s: float) -> bool:
        """Wait until all commits that were asked for have their results; return whether they have."""
        if self._thread is None:
            return True
        done = Latch()
        self._asked.put((done.set, {}, _NOBODY))
        return done.wait(timeout_s)

    def close(self, timeout_s: float) -> None:
        """End the thread, behind all commits."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(max(timeout_s, 0.0))

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            commit, offsets, done = asked
            error: Exception | None = None
            try:
                commit()
            except Exception as failure:  # noqa: BLE001 - its callback gets it, and later commits go on
                error = failure
            if done is not _NOBODY:
                self._results.put(_Result(offsets, error, done))
                self._wake()


def _nobody(offsets: Offsets, error: Exception | None) -> None:
    """Stand for who waits until the commits before are done."""


_NOBODY: CommitDone = _nobody
