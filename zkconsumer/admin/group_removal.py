"""A group's nodes in ZooKeeper, found and deleted for the command line.

Rule: nodes are deleted one by one and never with what stands below them, so nothing goes that was not looked at, and
never the nodes of a group that has members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rebalance import znodes
from rebalance.errors import refusal_of
from rebalance.requests import Delete, Fault, ZooKeeperPort
from rebalance.zookeeper import call
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.zookeeper_access import READ_TIMEOUT_S, children

__all__ = ["delete_offsets", "members", "remove_group", "stored_offsets"]

log = logging.getLogger(__name__)


def members(port: ZooKeeperPort, group: str) -> list[str]:
    """The consumer ids that are registered."""
    return children(port, znodes.ids_path(group)) or []


def stored_offsets(port: ZooKeeperPort, group: str, matches: Callable[[str], bool]) -> list[str]:
    """The paths of the offset nodes of the topics that match."""
    topics = children(port, f"{znodes.group_path(group)}/offsets") or []
    return [
        f"{znodes.offsets_path(group, topic)}/{name}"
        for topic in topics
        if matches(topic)
        for name in children(port, znodes.offsets_path(group, topic)) or []
    ]


def delete_offsets(port: ZooKeeperPort, group: str, matches: Callable[[str], bool]) -> int:
    """Delete the offset nodes of the topics that match; return how many there were.

    Raises:
        CliError: the group has members, who would write them again.
    """
    live = members(port, group)
    if live:
        raise CliError(
            f"the offsets of group {group!r} are not deleted: {len(live)} consumers are in it ({', '.join(live[:3])})",
            "stop them first",
        )
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
