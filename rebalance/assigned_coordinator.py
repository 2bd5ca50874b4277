"""Runs a member that is in no group: the application assigns its partitions, and nobody else knows of them.

It has the face of the coordinators of groups, so that delivery, commits and pauses work the same. Rule: nothing here
blocks.

Claims of partitions that an assignment grants: in a broker group nobody else holds the partitions of a member.

A member that has given a partition back says so by joining again, and the leader assigns it to another member in the
next generation. So each claim and each release succeeds at once, and nothing has to be watched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from rebalance import partition as steps
from rebalance.known_topics import SeenTopic
from rebalance.lease import Lease
from rebalance.loop import Loop
from rebalance.member_partitions import MemberPartitions
from rebalance.ports import Member, MemberParts, OwnerChanged, Report
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.subscription import Assignment, Partition
from rebalance.takeover import MemberPartition


@dataclass(frozen=True, slots=True)
class MembershipFence:
    """An uninterrupted membership in a group: from an assignment until the member is lost, or has left.

    Partitions that a member keeps from one generation to the next stay its own, so decisions about them stay valid.

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
        self._report(report, steps.Claimed(thread_id))

    def await_end(
        self, partition: Partition, report: Report, changed: OwnerChanged, is_awaited: Callable[[], bool]
    ) -> None:
        """Report that nobody else has the partition."""
        self._report(report, steps.OwnerGone())

    def inspect(self, partition: Partition, report: Report, changed: OwnerChanged, *, after_event: bool) -> None:
        """Report nothing: only an assignment, or the end of the membership, changes who owns the partition."""

    def find_out(self, partition: Partition, report: Report) -> None:
        """Report that nobody has the partition."""
        self._report(report, steps.OwnerGone())

    def move_to_thread(self, partition: Partition, thread_id: str, version: int, report: Report) -> None:
        """Report that the partition is another thread's."""
        self._report(report, steps.MovedToThread(thread_id, version + 1))

    def release(self, partition: Partition, report: Report) -> None:
        """Report that the partition is released."""
        self._report(report, steps.Released())

    def _report(self, report: Report, event: steps.Event) -> None:
        """Report at the end of the step, when the code that asked is done."""
        self._loop.after_step(lambda: report(event))


class _NoTopics(NamedTuple):
    """No topics: nothing is read about them (`rebalance.known_topics.TopicsSeen`)."""

    topics: dict[str, SeenTopic]
    refused_topics: tuple[str, ...] = ()
    refused_topics_list: object | None = None


class AssignedCoordinator:
    """Runs one member without a group.

    Args:
        member: Its settings; its subscription is not looked at.
        loop: The caller runs it on one thread.
        parts: Delivery, offsets and listener.
        lease: Written here, read by the reader: it never ends by itself.

    Attributes:
        error: Why nothing is delivered any more; None while it is.

    Threads: All methods belong to the loop's thread.
    """

    session_timeout_s = 0.0

    def __init__(self, member: Member, loop: Loop, parts: MemberParts, lease: Lease) -> None:
        self.member = member
        self.lease = lease
        self.error: Exception | None = None
        self.state = "assigned"
        self.since = loop.clock()
        self.rebalance_statistics = RebalanceStatistics()
        self._loop = loop
        self._offsets = parts.offsets
        self._delivery = parts.delivery
        self._claims = GrantedClaims(loop)
        self._partitions = MemberPartitions(member, loop, self._claims, parts, self.rebalance_statistics, self)
        self._settled_calls: list[Callable[[], None]] = []
        self._waiting: tuple[Collection[Partition], str] | None = None

    def start(self) -> None:
        """Deliver the assigned partitions."""
        self._claims.fence = MembershipFence(1)
        self._offsets.session_opened(self._claims.fence)
        self.lease.prove(self._loop.clock(), math.inf)
        if self._waiting is not None:
            self.assign(*self._waiting)
            self._waiting = None

    def assign(self, partitions: Collection[Partition], thread_id: str) -> None:
        """Deliver these partitions, and no others; as soon as the member has started."""
        if self._claims.fence is None:
            self._waiting = partitions, thread_id
            return
        wanted = dict.fromkeys(partitions, thread_id)
        self._partitions.set_assignment(Assignment(wanted, wanted), _NoTopics({}))
        self._partitions.handle_all(steps.ClaimsAllowed())

    def fail(self, error: Exception) -> None:
        """Deliver nothing any more."""
        self.error = error
        self.lease.end()
        self._partitions.handle_all(steps.SessionOver())
        self._delivery.fail(error)
        self._offsets.session_over()

    @property
    def fence(self) -> MembershipFence | None:
        """Always the same, from the start on. Threads: any."""
        return self._claims.fence

    @property
    def partitions(self) -> dict[Partition, MemberPartition]:
        """The partitions that are delivered, or given up."""
        return self._partitions.all

    @property
    def settled(self) -> bool:
        """Whether each partition is being delivered; true as well when the member has failed."""
        return self.error is not None or self._partitions.settled

    @property
    def warnings(self) -> frozenset[str]:
        """Nothing: there is no group."""
        return frozenset()

    def when_settled(self, call: Callable[[], None]) -> None:
        """Run `call` as soon as `settled` is true."""
        self._settled_calls.append(call)
        self.partitions_moved()

    def close(self) -> None:
        """Take no further part."""
        self._partitions.close()

    # -- for the partitions --------------------------------------------------------------------------------------------

    def recheck(self, cause: str) -> None:
        """Deliver partitions that are wanted again."""
        self._loop.post(self._partitions.handle_all, steps.ClaimsAllowed())

    def fenced(self) -> None:
        """Do nothing: claims that are granted are not refused."""

    def partitions_moved(self) -> None:
        """See whether all partitions are delivered by now."""
        if self._settled_calls and self.settled:
            calls, self._settled_calls = self._settled_calls, []
            for call in calls:
                call()
