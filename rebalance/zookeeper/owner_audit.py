"""Audits a member's own partitions periodically, for changes that no watch and no answer has reported.

It finds an owner node that an operator deleted while the watch was lost, a claim that was refused, a blocked claim
whose holder is gone, and a partition that is owned but not delivered. It corrects nothing itself: it has the node read,
or the group, and the machines do the rest. Rule: reads only, few at a time, jittered.

Source: docs/SEMANTICS.md, "Self-audit".

Reads all owner nodes of a group's topics once, together with the versions of the registrations of Java members.

`rebalance.zookeeper.roundrobin_order` learns from them by which order Java members assign. Without watches: the nodes
are read again when somebody wants to know.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from rebalance import partition as steps
from rebalance.loop import Loop
from rebalance.member_partitions import MemberPartitions
from rebalance.ports import Listener
from rebalance.subscription import Partition
from rebalance.takeover import MemberPartition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, GetData, Reply
from rebalance.zookeeper.snapshot import GroupSnapshot, OwnerNode

log = logging.getLogger(__name__)
MOST_LOOKS = 100
"""Owner nodes that one round reads; the next round continues with the nodes that were read longest ago."""
_SHORTEST_WAIT_S = 0.5


class Audit:
    """Runs the audit of one member.

    Args:
        member: its waits.
        loop: for the timers.
        partitions: the partitions that are audited.
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
        """Check that held partitions are owned and delivered, and claim partitions that should be held."""
        if self._closed:
            return
        self._later(self._member.audit_s, self._own)
        states = (steps.PartitionState.OWNED, steps.PartitionState.UNKNOWN)
        held = [item for item in self._partitions.all.items() if item[1].machine.state in states]
        held.sort(key=lambda item: item[1].looked_at)
        for partition, entry in held[:MOST_LOOKS]:
            self._warn_if_idle(partition, entry)
            self._partitions.read_owner(partition)
        # The list of members may have changed while a watch was lost; this also claims free partitions of this member.
        self._recheck("audit")

    def _warn_if_idle(self, partition: Partition, entry: MemberPartition) -> None:
        waited_s = self._loop.clock() - entry.since
        if entry.machine.state is steps.PartitionState.OWNED and not entry.started and waited_s > self._member.audit_s:
            log.warning("%s-%s has been owned for %.0f s without being delivered", *partition, waited_s)

    def _blocked(self) -> None:
        """Read foreign owner nodes whose watch may be lost, and notify the listener of claims that wait for long."""
        if self._closed:
            return
        self._later(min(self._member.blocked_audit_s, self._member.blocked_after_s), self._blocked)
        overdue: list[Partition] = []
        for partition, entry in list(self._partitions.all.items()):
            if entry.machine.state is not steps.PartitionState.BLOCKED:
                continue
            waited_s = self._loop.clock() - entry.since
            if waited_s > self._member.blocked_after_s and not entry.is_blocked_reported:
                entry.is_blocked_reported = True
                overdue.append(partition)
                log.warning(
                    "%s-%s has been held by %s for %.0f s; waiting",
                    *partition,
                    entry.machine.holder[0] if entry.machine.holder else "another member",
                    waited_s,
                )
            self._partitions.read_owner(partition)
        if overdue:
            self._listener.blocked(overdue)


JAVA_VERSION: Final = 0
"""The version of a registration that was written once. A registration of this client is written at least twice."""
OwnersDone = Callable[[dict[Partition, OwnerNode] | None, frozenset[str]], None]
"""`done(owners, java_members)`; no owners if one of the nodes may not be read."""


class OwnerReading:
    """One reading of the owner nodes of the partitions in a snapshot.

    A registration at version 0 is read again: on ZooKeeper 3.3 one of this client is created and written in two steps.

    Args:
        ask: Sends a request.
        snapshot: The topics, and the members that looked like Java's.
        done: Called once, when all answers are there.
        failed: `failed(path, reply)` for each answer that is lost; `done` is not called then.
    """

    def __init__(
        self, ask: Ask, group: str, snapshot: GroupSnapshot, done: OwnersDone, failed: Callable[[str, Reply], None]
    ) -> None:
        self._ask = ask
        self._group = group
        self._snapshot = snapshot
        self._done = done
        self._failed = failed
        self._owners: dict[Partition, OwnerNode] = {}
        self._java = set(snapshot.java_members)
        self._unanswered = 0
        self._is_readable = True

    def start(self) -> None:
        """Send the requests."""
        self._unanswered += 1  # `done` waits until all of them are sent
        for topic, node in self._snapshot.topics.items():
            self._read_topic(topic, frozenset(node.partitions))
        for name in self._snapshot.java_members:
            self._read_version(name)
        self._answer_read()

    def _request(self, request: Exists | GetChildren | GetData, handle: Callable[[Reply], None]) -> None:
        self._unanswered += 1

        def answered(reply: Reply) -> None:
            if reply.fault is not None and reply.fault.is_lost:
                self._failed(request.path, reply)
                return
            if reply.fault is None:
                handle(reply)
            elif reply.fault is not Fault.NO_NODE:
                self._is_readable = False
            self._answer_read()

        self._ask(request, answered)

    def _answer_read(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._done(self._owners if self._is_readable else None, frozenset(self._java))

    def _read_topic(self, topic: str, partitions: frozenset[int | str]) -> None:
        by_name = {str(partition): partition for partition in partitions}

        def listed(reply: Reply) -> None:
            for name in reply.value[0]:
                if name in by_name:
                    self._read_owner(topic, by_name[name])

        self._request(GetChildren(znodes.owners_path(self._group, topic)), listed)

    def _read_owner(self, topic: str, partition: int | str) -> None:
        def read(reply: Reply) -> None:
            data, stat = reply.value
            self._owners[topic, partition] = OwnerNode(znodes.parse_owner(data), stat.czxid)

        self._request(GetData(znodes.owner_path(self._group, topic, partition)), read)

    def _read_version(self, name: str) -> None:
        def read(reply: Reply) -> None:
            if reply.value is None or reply.value.version != JAVA_VERSION:
                self._java.discard(name)

        self._request(Exists(znodes.registration_path(self._group, name)), read)
