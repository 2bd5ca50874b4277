"""Reports the commits of a consumer to its interceptors and callbacks, in order, on the thread that polls.

Each commit is reported when its result is known, which is in the order of the calls: those of the application, and
those that its member makes by itself (auto-commits, and those of a rebalance and of the end).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rebalance.lease import lease_clock
from simpleconsumer.types import TopicPartition
from zkconsumer.member.asked_commit import AskedCommit
from zkconsumer.polling.interceptors import ConsumerInterceptors
from zkconsumer.polling.records import OffsetAndMetadata

__all__ = ["CommitDone", "CommitReports", "Offsets"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitDone = Callable[[Offsets, Exception | None], object]
"""Gets what was to be committed, and why it was not, None if it was."""


@dataclass(eq=False, slots=True)
class _Asked:
    """A commit of the application; `commit` is None until it has been asked for."""

    offsets: Offsets
    done: CommitDone | None
    commit: AskedCommit | None = None


class CommitReports:
    """What is to be reported of the commits of one consumer.

    Args:
        interceptors: They see what was committed.
        wake: Called, on the coordinator's thread, when there is something to report.

    Threads: That of the application which polls; `stored` that of the coordinator.
    """

    def __init__(self, interceptors: ConsumerInterceptors, wake: Callable[[], None]) -> None:
        self._interceptors = interceptors
        self._wake = wake
        self._waiting: deque[_Asked] = deque()
        self._results: deque[_Asked | Offsets] = deque()

    def ask(
        self, offsets: Offsets, done: CommitDone | None, ask: Callable[[Callable[[], None]], AskedCommit]
    ) -> AskedCommit:
        """Ask for a commit, which is reported when its result is known.

        Args:
            offsets: What is committed.
            done: The callback of the application; None without one.
            ask: Asks for it; gets what is to be called when the result is known.
        """
        asked = _Asked(offsets, done)

        def answered() -> None:
            self._results.append(asked)
            self._wake()

        asked.commit = ask(answered)
        self._waiting.append(asked)
        return asked.commit

    def stored(self, offsets: Offsets) -> None:
        """Take note of what the member has committed by itself."""
        self._results.append(offsets)
        self._wake()

    def report(self) -> None:
        """Call interceptors and callbacks about all results that are known; what a callback raises is raised."""
        while (result := self._next_result()) is not None:
            if not isinstance(result, _Asked):
                self._interceptors.on_commit(result)
                continue
            if result not in self._waiting or result.commit is None:
                continue  # reported as abandoned
            self._waiting.remove(result)
            self._report(result, result.commit.failure(0.0))
        while self._waiting and (commit := self._waiting[0].commit) is not None and commit.is_abandoned:
            self._report(self._waiting.popleft(), commit.failure(0.0))

    def _next_result(self) -> _Asked | Offsets | None:
        try:
            return self._results.popleft()
        except IndexError:
            return None

    def _report(self, asked: _Asked, error: Exception | None) -> None:
        if error is None:
            self._interceptors.on_commit(asked.offsets)
        if asked.done is not None:
            asked.done(asked.offsets, error)

    def finish(self, timeout_s: float) -> None:
        """Wait until the results of all commits that were asked for are known."""
        until = lease_clock() + timeout_s
        for asked in tuple(self._waiting):
            if asked.commit is not None:
                asked.commit.failure(max(until - lease_clock(), 0.0))
