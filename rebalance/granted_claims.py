"""Claims of partitions that an assignment grants: in a group of brokers nobody else holds what a member is assigned.

A member that has given a partition back says so by joining again, and the leader assigns it to another member in the
next generation. So each claim and each release succeeds at once, and nothing has to be watched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.loop import Loop
from rebalance.ports import OwnerChanged, Report

__all__ = ["GrantedClaims", "MembershipFence"]


@dataclass(frozen=True, slots=True)
class MembershipFence:
    """An uninterrupted membership in a group: from an assignment until the member is lost, or has left.

    What a member keeps from one generation to the next stays its own all the time, so decisions about it stay valid.

    Attributes:
        session_id: The number of the membership.
    """

    session_id: int


class GrantedClaims:
    """The claims of one member; see `rebalance.ports.Claims`.

    Args:
        loop: The queue.

    Attributes:
        fence: The membership that stands; None without one.

    Threads: The coordinator's alone.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.fence: MembershipFence | None = None

    def claim(self, partition: Partition, thread_id: str, report: Report, *, is_vacant: bool) -> None:
        """Report that the partition is claimed."""
        self._report(report, p.Claimed(thread_id))

    def await_end(
        self, partition: Partition, report: Report, changed: OwnerChanged, is_awaited: Callable[[], bool]
    ) -> None:
        """Report that nobody else has the partition."""
        self._report(report, p.OwnerGone())

    def inspect(self, partition: Partition, report: Report, changed: OwnerChanged, *, after_event: bool) -> None:
        """Report nothing: only an assignment, or the end of the membership, changes who owns the partition."""

    def find_out(self, partition: Partition, report: Report) -> None:
        """Report that nobody has the partition."""
        self._report(report, p.OwnerGone())

    def move_to_thread(self, partition: Partition, thread_id: str, version: int, report: Report) -> None:
        """Report that the partition is another thread's."""
        self._report(report, p.MovedToThread(thread_id, version + 1))

    def release(self, partition: Partition, report: Report) -> None:
        """Report that the partition is released."""
        self._report(report, p.Released())

    def _report(self, report: Report, event: p.Event) -> None:
        """Report at the end of the step, when what has asked is done."""
        self._loop.after_step(lambda: report(event))
