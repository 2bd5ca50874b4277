"""Deletes a group's nodes in ZooKeeper: its stored offsets, or all of them.

Rule: nodes are deleted one by one and never recursively, so no node is deleted that was not looked at; the nodes of a
group that has members are never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rebalance.errors import refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Delete, Fault, ZooKeeperPort
from zkconsumer.admin.errors import GroupHasMembers
from zkconsumer.admin.groups.group_nodes import members
from zkconsumer.admin.phrases import count_of
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, children

__all__ = ["delete_offsets", "remove_group", "stored_offsets"]

log = logging.getLogger(__name__)


def stored_offsets(port: ZooKeeperPort, group: str, matches: Callable[[str], bool]) -> list[str]:
    """Return the paths of the offset nodes of the topics that match."""
    topics = children(port, f"{znodes.group_path(group)}/offsets") or []
    return [
        f"{znodes.offsets_path(group, topic)}/{name}"
        for topic in topics
        if matches(topic)
        for name in children(port, znodes.offsets_path(group, topic)) or []
    ]


def delete_offsets(port: ZooKeeperPort, group: str, matches: Callable[[str], bool]) -> int:
    """Delete the offset nodes of the topics that match, and return how many there were.

    Raises:
        GroupHasMembers: The group has members, which would write them again.
    """
    live = members(port, group)
    if live:
        count, verb = count_of(len(live), "consumer"), "is" if len(live) == 1 else "are"
        sentence = f"the offsets of group {group!r} are not deleted: {count} {verb} in it ({', '.join(live[:3])})"
        raise GroupHasMembers(sentence, "stop them first")
    paths = stored_offsets(port, group, matches)
    for path in paths:
        _delete(port, path)
    return len(paths)


def remove_group(port: ZooKeeperPort, group: str) -> None:
    """Delete all nodes of a group without members."""
    if members(port, group):
        return
    root = znodes.group_path(group)
    for kind in ("offsets", "owners"):
        for topic in children(port, f"{root}/{kind}") or []:
            names = children(port, f"{root}/{kind}/{topic}") or []
            _delete_all(port, [f"{root}/{kind}/{topic}/{name}" for name in names if kind == "offsets"])
            _delete(port, f"{root}/{kind}/{topic}")
    _delete_all(port, [f"{root}/offsets", f"{root}/owners", f"{root}/ids", root])


def _delete_all(port: ZooKeeperPort, paths: Iterable[str]) -> None:
    for path in paths:
        _delete(port, path)


def _delete(port: ZooKeeperPort, path: str) -> None:
    reply = call(port, Delete(path), READ_TIMEOUT_S)
    if reply.fault not in (None, Fault.NO_NODE):
        log.warning("%s is not deleted: %s", path, refusal_of("delete", path, reply.fault, reply.reason))
