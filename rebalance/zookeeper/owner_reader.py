"""Reads all owner nodes of a group's topics once, together with the versions of the registrations of Java members.

`rebalance.zookeeper.roundrobin_order` learns from them by which order Java members assign. Without watches: the nodes
are read again when somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rebalance.assignment import Partition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, GetData, Reply
from rebalance.zookeeper.snapshot import GroupSnapshot, OwnerNode

__all__ = ["JAVA_VERSION", "OwnerReading", "OwnersDone"]

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
