"""Reads many nodes of ZooKeeper at a time, with a deadline.

Threads: any; each call blocks its caller alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from rebalance.errors import AccessRefused, RebalanceError, RefusedNode
from rebalance.requests import Exists, Fault, GetChildren, GetData, Reply, ZooKeeperPort

__all__ = ["READ_TIMEOUT_S", "ZooKeeperSilent", "children", "error_of", "read_all", "read_each"]

READ_TIMEOUT_S: Final = 10.0
"""Longest wait for the answers to reads that are under way together."""
_PIPELINED: Final = 500
"""Most reads that are under way together: enough to hide the round trips, and bounded."""


class ZooKeeperSilent(RebalanceError):  # noqa: N818 - like its siblings, it says what happened
    """ZooKeeper did not answer a read in time."""

    remedy = "look whether its servers run and have a quorum, and try again"


def children(port: ZooKeeperPort, path: str) -> list[str] | None:
    """Return the sorted names below a node, None if there is no such node.

    Raises:
        ZooKeeperSilent: No answer in time.
        AccessRefused: The node may not be read.
    """
    [value] = read_all(port, [GetChildren(path)])
    return None if value is None else sorted(value[0])


def read_all(
    port: ZooKeeperPort, requests: Sequence[Exists | GetChildren | GetData], timeout_s: float = READ_TIMEOUT_S
) -> list[Any]:
    """Return the values of many reads, in their order; None for nodes that do not exist.

    Args:
        timeout_s: For each five hundred reads, which are under way together.

    Raises:
        ZooKeeperSilent: No answer in time.
        AccessRefused: One of the nodes may not be read.
    """
    values = read_each(port, requests, timeout_s)
    for value in values:
        if isinstance(value, RefusedNode):
            raise error_of(value)
    return values


def read_each(
    port: ZooKeeperPort, requests: Sequence[Exists | GetChildren | GetData], timeout_s: float = READ_TIMEOUT_S
) -> list[Any]:
    """Return the same as `read_all`, with a `RefusedNode` in place of each node that may not be read.

    Raises:
        ZooKeeperSilent: No answer in time.
    """
    values: list[Any] = []
    for first in range(0, len(requests), _PIPELINED):
        values.extend(_read_some(port, requests[first : first + _PIPELINED], timeout_s))
    return values


def _read_some(
    port: ZooKeeperPort, requests: Sequence[Exists | GetChildren | GetData], timeout_s: float
) -> list[Any]:
    replies: dict[int, Reply] = {}
    complete = threading.Event()

    def take(number: int, reply: Reply) -> None:
        replies[number] = reply
        if len(replies) == len(requests):
            complete.set()

    for number, request in enumerate(requests):
        port.send(request, lambda reply, number=number: take(number, reply))  # type: ignore[misc]
    if not complete.wait(timeout_s):
        raise ZooKeeperSilent(f"{len(requests) - len(replies)} of {len(requests)} reads were not answered within "
                              f"{timeout_s:g} s, {requests[0].path} among the {len(requests)}")
    return [_value(request, replies[number]) for number, request in enumerate(requests)]


def _value(request: Exists | GetChildren | GetData, reply: Reply) -> Any:
    if reply.fault is not None and reply.fault.is_lost:
        raise ZooKeeperSilent(f"{request.path} cannot be read: {reply.reason or reply.fault.value}")
    return reply.value if reply.fault in (None, Fault.NO_NODE) else RefusedNode.of(request.path, reply)


def error_of(refused: RefusedNode) -> RebalanceError:
    """Return the error for callers that cannot go on without the node."""
    if refused.fault is Fault.NO_AUTH:
        return AccessRefused.of_node("read", refused.path, refused.reason)
    return ZooKeeperSilent(str(refused))
