"""Reads all owner nodes of a group's topics once, together with the versions of the registrations of Java members.

`rebalance.roundrobin_order` learns from them by which order Java members assign. Without watches: the nodes are read
again when somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rebalance import znodes
from rebalance.assignment import Partition
from rebalance.claims import Ask
from rebalance.requests import Exists, Fault, GetChildren, GetData, Reply
from rebalance.snapshot import GroupSnapshot, OwnerNode

__all__ = ["JAVA_VERSION", "OwnersDone", "read_owners"]

JAVA_VERSION: Final = 0
"""The version of a registration that was written once. A registration of this client is written at least twice."""

OwnersDone = Callable[[dict[Partition, OwnerNode] | None, frozenset[str]], None]
"""`done(owners, java_members)`; no owners if one of the nodes may not be read."""


def read_owners(
    ask: Ask, group: str, snapshot: GroupSnapshot, done: OwnersDone, failed: Callable[[str, Reply], None]
) -> None:
    """Read the owner nodes of the partitions in `snapshot`; `failed(path, reply)` if an answer is lost, perhaps twice.

    A registration at version 0 is read again: on ZooKeeper 3.3 one of this client is created and written in two steps.
    """
    owners: dict[Partition, OwnerNode] = {}
    java = set(snapshot.java_members)
    unanswered = 1
    is_readable = True

    def closed() -> None:
        nonlocal unanswered
        unanswered -= 1
        if not unanswered:
            done(owners if is_readable else None, frozenset(java))

    def question(request: Exists | GetChildren | GetData, handle: Callable[[Reply], None]) -> None:
        nonlocal unanswered
        unanswered += 1

        def answered(reply: Reply) -> None:
            nonlocal is_readable
            if reply.fault is not None and reply.fault.is_lost:
                failed(request.path, reply)
                return
            if reply.fault is None:
                handle(reply)
            elif reply.fault is not Fault.NO_NODE:
                is_readable = False
            closed()

        ask(request, answered)

    def read_topic(topic: str, partitions: frozenset[int]) -> None:
        def listed(reply: Reply) -> None:
            for name in reply.value[0]:
                if name.isascii() and name.isdigit() and str(int(name)) == name and int(name) in partitions:
                    read_owner(topic, int(name))

        question(GetChildren(znodes.owners_path(group, topic)), listed)

    def read_owner(topic: str, partition: int) -> None:
        def read(reply: Reply) -> None:
            data, stat = reply.value
            owners[topic, partition] = OwnerNode(znodes.parse_owner(data), stat.czxid)

        question(GetData(znodes.owner_path(group, topic, partition)), read)

    def read_version(name: str) -> None:
        def read(reply: Reply) -> None:
            if reply.value is None or reply.value.version != JAVA_VERSION:
                java.discard(name)

        question(Exists(znodes.registration_path(group, name)), read)

    for topic, node in snapshot.topics.items():
        read_topic(topic, frozenset(node.partitions))
    for name in snapshot.java_members:
        read_version(name)
    closed()
