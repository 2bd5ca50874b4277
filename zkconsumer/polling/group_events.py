"""The reports of the coordination about the partitions of a polled consumer, on the thread that polls.

Partitions come and go inside of `poll`: there the subscription state is changed, and the application's listener called.

Source: ConsumerCoordinator.onJoinComplete, onJoinPrepare (Kafka 3.9).

Reports the commits of a consumer to its interceptors and callbacks, in order, on the thread that polls.

Each commit is reported when its result is known, which is in the order of the calls: those of the application, and
the commits that its member makes by itself (auto-commits, and commits of a rebalance and of the end).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from rebalance.lease import lease_clock
from rebalance.ports import NO_START
from simpleconsumer.types import TopicPartition
from zkconsumer.member.asked_commit import AskedCommit
from zkconsumer.polling.records import ConsumerInterceptors, OffsetAndMetadata
from zkconsumer.polling.subscription_state import SubscriptionState


class RebalanceCallbacks:
    """A base class for callbacks at a rebalance, called inside `poll`, `close` and `unsubscribe`.

    Threads: The one that polls. It may call the consumer: commit in `on_partitions_revoked`, seek in
        `on_partitions_assigned`.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called before partitions are revoked; they can still be committed."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called when partitions are assigned; positions are known, or `seek` sets them (`auto.offset.reset=none`)."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called after partitions were lost; they cannot be committed. By default it calls `on_partitions_revoked`."""
        self.on_partitions_revoked(partitions)


class GroupEvents:
    """The listener of a member, for `zkconsumer.member.listening.ListenerThread`.

    Args:
        state: The subscription state.
        is_held: Returns whether a partition is still this member's, so that it can be committed.

    Attributes:
        callbacks: Those of the application; None without any.
        unreported: Partitions that came, and that the application's listener has not been called about.
        error: The first error that they have raised; None if there was none.

    Threads: The one that polls.
    """

    def __init__(self, state: SubscriptionState, is_held: Callable[[TopicPartition], bool]) -> None:
        self._state = state
        self._is_held = is_held
        self.callbacks: object | None = None
        self.error: Exception | None = None
        self.unreported: tuple[TopicPartition, ...] = ()
        self._lost: tuple[TopicPartition, ...] = ()

    def on_partitions_assigned(self, positions: Mapping[TopicPartition, int]) -> None:
        """Add partitions to the assignment, with their positions; `NO_START` stands for none."""
        assigned = self._state.assigned
        if not self._state.is_of_group:
            return  # it was unsubscribed meanwhile
        self.report_lost()
        self._state.assigned_from_group([*assigned, *positions], cooperative=True)
        assigned.take_committed({name: at for name, at in positions.items() if at != NO_START})
        self.unreported += tuple(positions)

    def report_assigned(self) -> None:
        """Call the application's listener about all partitions that came: once for one assignment."""
        found, self.unreported = self.unreported, ()
        if found:
            self.report_lost()
            self._call("on_partitions_assigned", found)

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions out of the assignment; those whose time was over are lost."""
        known = self._reported(partitions)
        held = tuple(name for name in known if self._is_held(name))
        lost = tuple(name for name in known if name not in held)
        try:
            if held:
                self._call("on_partitions_revoked", held)
        finally:  # an interrupt, too, leaves nothing assigned that is others' from now on
            self._remove(held)
            if lost:
                self.on_partitions_lost(lost)

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions out of the assignment that are others' by now, perhaps."""
        self._lost += self._reported(partitions)

    def _reported(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Return the partitions that the application knows of; the others came and went between two polls."""
        gone = tuple(partitions)
        unknown = tuple(name for name in gone if name in self.unreported)
        self.unreported = tuple(name for name in self.unreported if name not in unknown)
        self._remove(unknown)
        return tuple(name for name in gone if name not in unknown)

    def report_lost(self) -> None:
        """Call the application's listener about all partitions that were lost: once for one membership."""
        found, self._lost = self._lost, ()
        if found:
            has_own = getattr(self.callbacks, "on_partitions_lost", None) is not None
            try:
                self._call("on_partitions_lost" if has_own else "on_partitions_revoked", found)
            finally:
                self._remove(found)

    def _remove(self, partitions: Collection[TopicPartition]) -> None:
        if self._state.is_of_group:
            rest = [name for name in self._state.assigned if name not in partitions]
            self._state.assigned_from_group(rest, cooperative=True)

    def _call(self, name: str, partitions: Collection[TopicPartition]) -> None:
        method = getattr(self.callbacks, name, None)
        if method is None:
            return
        try:
            method(partitions)
        except Exception as error:  # noqa: BLE001 - poll raises it, when the rebalance has gone on
            self.error = self.error or error


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
    """The reports about the commits of one consumer.

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
            offsets: The committed offsets.
            done: The callback of the application; None without one.
            ask: Asks for it; gets the function to call when the result is known.
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
