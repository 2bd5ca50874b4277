"""The interface of a group member: join, hold partitions, commit, pause, resume, leave, status.

An application's side of the consumer (streams today) talks to a member through this interface alone. How the group is
coordinated is the matter of the class behind it: `zkconsumer.member.membership` does it by ZooKeeper.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Protocol

from rebalance.assignment import Partition
from simpleconsumer.types import TopicPartition
from zkconsumer.member.asked_commit import AskedCommit
from zkconsumer.statistics import ConnectorStatistics
from zkconsumer.status import ConnectorStatus

__all__ = ["GroupMember"]


class GroupMember(Protocol):
    """One member of one group, from joining to leaving.

    Threads: any.
    """

    @property
    def error(self) -> Exception | None:
        """Why the member is out of its group for good, `None` while it is not."""

    def join(self) -> None:
        """Join the group, and wait until every assigned partition is positioned or blocked.

        Raises:
            ZkConsumerError: the group cannot be joined.
        """

    def held(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns, those included that it has not released yet."""

    # -- offsets and pauses ------------------------------------------------------------------------------------------

    def ask_commit(self, offsets: Mapping[TopicPartition, int] | None, reader: object) -> AskedCommit:
        """Ask for a commit: of `offsets`, or of all that is done and the message in hand of `reader`.

        It is stored behind all commits that were asked for before. `wait` of what is returned waits for the result, on
        any thread. It raises CommitFailed, which names each partition that was not stored, and why.

        Args:
            reader: a thread by `threading.get_ident`, or an asyncio task.

        Raises:
            ValueError: an offset that is no integer from 0 to 2^63-1.
        """

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing of `partitions` until `resume`.

        Raises:
            PauseFailed: names each partition that is not owned; then none is paused.
        """

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver `partitions` again.

        Raises:
            PauseFailed: names each partition that is not owned; then none is resumed.
        """

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""

    # -- state -------------------------------------------------------------------------------------------------------

    def status(self) -> ConnectorStatus:
        """What the member is doing."""

    def statistics(self, status: ConnectorStatus) -> ConnectorStatistics:
        """What the member has counted, beside its status."""

    def count_error(self, kind: str) -> None:
        """Count an error of a kind, for the statistics."""

    def is_on_listener(self, thread: threading.Thread) -> bool:
        """Whether the callbacks of the rebalance listener run on that thread."""

    @property
    def listener_thread(self) -> threading.Thread | None:
        """The thread of the callbacks of the rebalance listener; None without one."""

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(
        self, wait_s: float, *, reader: object, in_hand_is_done: bool, caller: threading.Thread | None
    ) -> bool:
        """Start to leave the group, on another thread; `False` if that was started before.

        Args:
            wait_s: for messages in hand, the listener and the last commit together.
            reader: who calls, a thread by `threading.get_ident` or an asyncio task; its message in hand is not waited
                for.
            in_hand_is_done: whether its message in hand counts as done.
            caller: a thread that may wait for the leave, and so is not waited for.
        """

    @property
    def has_left(self) -> bool:
        """Whether the leave is over."""

    def wait_left(self, wait_s: float) -> bool:
        """Wait for the end of the leave; whether it is over within `wait_s` and half a second."""

    def unstored(self) -> dict[TopicPartition, str]:
        """Partition -> why its position is not stored, as far as is known by now."""

    def on_fork(self) -> None:
        """This process is a fork of the one that joined: deliver nothing here. Takes no lock."""
