"""The offsets of a consumer that keeps none: it has no group, or one whose offsets it may not write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rebalance.assignment import Partition
from rebalance.fence import Fence
from rebalance.loop import Loop
from zkconsumer.offsets.known_offsets import OnCommit

__all__ = ["NoOffsets"]


class NoOffsets:
    """Has no offset of any partition, and refuses to store one; see `zkconsumer.offsets.member_offsets.MemberOffsets`.

    Args:
        loop: The coordinator's.
        reason: Why nothing can be stored, a clause.
    """

    failures = 0
    answering = "nobody"
    commit_wait_s = 0.0
    release_tries = 0
    on_commit: OnCommit | None = None

    def __init__(self, loop: Loop, reason: str) -> None:
        self._loop = loop
        self._reason = reason
        self.refused: dict[Partition, str] = {}
        self.warnings: set[str] = set()

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        """Return True for what nobody asked to be stored."""
        return not explicit

    def load(self, fence: Fence | None, partition: Partition, done: Callable[[int | None], None]) -> None:
        """Say that there is none."""
        self._loop.post(done, None)

    def commit(
        self,
        fence: Fence | None,
        positions: Mapping[Partition, int],
        done: Callable[[Mapping[Partition, str]], None],
        explicit: bool = False,
    ) -> None:
        """Refuse to store positions."""
        self._loop.post(done, dict.fromkeys(positions, self._reason))

    def commit_start(
        self,
        fence: Fence | None,
        partition: Partition,
        offset: int,
        done: Callable[[Mapping[Partition, str]], None],
    ) -> None:
        """Store nothing: the start is where it is."""
        self._loop.post(done, {})

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str] = ()) -> None:
        """Do nothing."""

    def remember(self, partition: Partition, position: int) -> None:
        """Do nothing."""

    def start_at(self, partition: Partition, position: int) -> None:
        """Do nothing."""

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None:
        """Do nothing."""

    def released(self, partition: Partition) -> None:
        """Do nothing."""

    def session_opened(self, fence: Fence) -> None:
        """Do nothing."""

    def session_over(self) -> None:
        """Do nothing."""

    def committed(self) -> dict[Partition, int]:
        """Return nothing."""
        return {}

    def behind(self) -> dict[Partition, int]:
        """Return nothing."""
        return {}

    def close(self, timeout_s: float) -> None:
        """Do nothing."""
