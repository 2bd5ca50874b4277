"""Audits a member's own partitions periodically, for changes that no watch and no answer has reported.

It finds an owner node that an operator deleted while the watch was lost, a claim that was refused, a blocked claim
whose holder is gone, and a partition that is owned but not delivered. It corrects nothing itself: it has the node read,
or the group, and the machines do the rest. Rule: reads only, few at a time, jittered.

Source: docs/SEMANTICS.md, "Self-audit".
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.loop import Loop
from rebalance.member_partition import MemberPartition
from rebalance.member_partitions import MemberPartitions
from rebalance.ports import Listener
from rebalance.zookeeper.registered_member import RegisteredMember

__all__ = ["MOST_LOOKS", "Audit"]

log = logging.getLogger(__name__)

MOST_LOOKS = 100
"""Owner nodes that one round reads; the next round continues with those that were read longest ago."""

_SHORTEST_WAIT_S = 0.5


class Audit:
    """Runs the audit of one member.

    Args:
        member: its waits.
        loop: for the timers.
        partitions: what is audited.
        listener: is notified of claims that have waited for long.
        rng: source of jitter.
        recheck: called with a reason to have the group read.

    Threads: the coordinator's alone.
    """

    def __init__(
        self,
        member: RegisteredMember,
        loop: Loop,
        partitions: MemberPartitions,
        listener: Listener,
        rng: random.Random,
        recheck: Callable[[str], None],
    ) -> None:
        self._member = member
        self._loop = loop
        self._partitions = partitions
        self._listener = listener
        self._rng = rng
        self._recheck = recheck
        self._closed = False

    def start(self) -> None:
        """Make rounds until `close`."""
        self._later(self._member.audit_s, self._own)
        self._later(min(self._member.blocked_audit_s, self._member.blocked_after_s), self._blocked)

    def close(self) -> None:
        """Make no further round."""
        self._closed = True

    def _later(self, longest_s: float, call: Callable[[], None]) -> None:
        self._loop.call_later(max(_SHORTEST_WAIT_S, longest_s) * self._rng.uniform(0.5, 1.0), call)

    def _own(self) -> None:
        """Check that held partitions are owned and delivered, and claim those that should be."""
        if self._closed:
            return
        self._later(self._member.audit_s, self._own)
        states = (p.PartitionState.OWNED, p.PartitionState.UNKNOWN)
        held = [item for item in self._partitions.all.items() if item[1].machine.state in states]
        held.sort(key=lambda item: item[1].looked_at)
        for partition, entry in held[:MOST_LOOKS]:
            self._warn_if_idle(partition, entry)
            self._partitions.read_owner(partition)
        # The list of members may have changed while a watch was lost; this also claims free partitions of this member.
        self._recheck("audit")

    def _warn_if_idle(self, partition: Partition, entry: MemberPartition) -> None:
        waited_s = self._loop.clock() - entry.since
        if entry.machine.state is p.PartitionState.OWNED and not entry.started and waited_s > self._member.audit_s:
            log.warning("%s-%s has been owned for %.0f s without being delivered", *partition, waited_s)

    def _blocked(self) -> None:
        """Read foreign owner nodes whose watch may be lost, and notify the listener of claims that wait for long."""
        if self._closed:
            return
        self._later(min(self._member.blocked_audit_s, self._member.blocked_after_s), self._blocked)
        overdue: list[Partition] = []
        for partition, entry in list(self._partitions.all.items()):
            if entry.machine.state is not p.PartitionState.BLOCKED:
                continue
            waited_s = self._loop.clock() - entry.since
            if waited_s > self._member.blocked_after_s and not entry.is_blocked_reported:
                entry.is_blocked_reported = True
                overdue.append(partition)
                log.warning("%s-%s has been held by %s for %.0f s; waiting", *partition,
                            entry.machine.holder[0] if entry.machine.holder else "another member", waited_s)
            self._partitions.read_owner(partition)
        if overdue:
            self._listener.blocked(overdue)
