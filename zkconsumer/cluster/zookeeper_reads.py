"""Reads many nodes of ZooKeeper at a time, with a deadline.

Reads are sent in pieces of 250, and two pieces are under way: the server always has the next one, and never more than
500 reads of one client before those of others. Reads whose answers are lost with the connection are sent again until
the deadline: a connection that breaks for a moment would make a consumer's start fail.

Threads: any; each call blocks its caller alone.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from typing import Any, Final

from rebalance.errors import AccessRefused, RebalanceError, RefusedNode
from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, GetData, Read, Reply, ZooKeeperPort

__all__ = ["READ_TIMEOUT_S", "ClusterSilent", "ZooKeeperSilent", "children", "error_of", "read_all", "read_each"]

READ_TIMEOUT_S: Final = 10.0
"""Longest wait for the answers to reads that are sent together."""
_PIECE: Final = 250
_PIECES_UNDER_WAY: Final = 2
_AGAIN_S: Final = 0.1


class ClusterSilent(RebalanceError):  # noqa: N818 - like its siblings, it says what happened
    """Who could say what there is in the cluster did not answer in time."""


class ZooKeeperSilent(ClusterSilent):
    """ZooKeeper did not answer a read in time."""

    remedy = "check that its servers run and have a quorum, and try again"


def children(port: ZooKeeperPort, path: str) -> list[str] | None:
    """Return the sorted names below a node, None if there is no such node.

    Raises:
        ZooKeeperSilent: No answer in time.
        AccessRefused: The node may not be read.
    """
    [value] = read_all(port, [GetChildren(path)])
    return None if value is None else sorted(value[0])


def read_all(port: ZooKeeperPort, requests: Sequence[Read], timeout_s: float = READ_TIMEOUT_S) -> list[Any]:
    """Return the values of many reads, in their order; None for nodes that do not exist.

    Args:
        timeout_s: For each 250 reads.

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
    port: ZooKeeperPort, requests: Sequence[Read], timeout_s: float = READ_TIMEOUT_S, deadline: float | None = None
) -> list[Any]:
    """Return the same as `read_all`, with a `RefusedNode` in place of each node that may not be read.

    Args:
        timeout_s: For each 250 reads.
        deadline: For all of them, on the clock `time.monotonic`.

    Raises:
        ZooKeeperSilent: No answer in time.
    """
    pieces = [requests[first : first + _PIECE] for first in range(0, len(requests), _PIECE)]
    answered: queue.SimpleQueue[tuple[int, list[Reply]]] = queue.SimpleQueue()
    found: dict[int, list[Any]] = {}

    def send(number: int) -> None:
        if number < len(pieces):
            port.read(pieces[number], lambda replies: answered.put((number, replies)))

    for number in range(_PIECES_UNDER_WAY):
        send(number)
    since = time.monotonic()
    while len(found) < len(pieces):
        wait_s = since + timeout_s - time.monotonic()
        is_deadline_first = deadline is not None and deadline < since + timeout_s
        if deadline is not None and is_deadline_first:
            wait_s = deadline - time.monotonic()
        try:
            number, replies = answered.get(timeout=max(0.0, wait_s))
        except queue.Empty:
            done = sum(map(len, found.values()))
            raise ZooKeeperSilent(
                f"{len(requests) - done} of {len(requests)} reads were not answered "
                + ("before the deadline" if is_deadline_first else f"within {timeout_s:g} s")
                + f", {requests[0].path} among the {len(requests)}"
            ) from None
        if wait_s > _AGAIN_S and _is_worth_repeating(replies):
            time.sleep(_AGAIN_S)
            send(number)
        elif number not in found:
            since = time.monotonic()
            found[number] = [_value(*each) for each in zip(pieces[number], replies, strict=True)]
            send(len(found) + _PIECES_UNDER_WAY - 1)
    return [value for number in range(len(pieces)) for value in found[number]]


def _is_worth_repeating(replies: Sequence[Reply]) -> bool:
    return any(reply.fault is not None and reply.fault.is_lost and not reply.is_closed for reply in replies)


def _value(request: Exists | GetChildren | GetData, reply: Reply) -> Any:
    if reply.fault is not None and reply.fault.is_lost:
        raise ZooKeeperSilent(f"{request.path} cannot be read: {reply.reason or reply.fault.value}")
    return reply.value if reply.fault in (None, Fault.NO_NODE) else RefusedNode.of(request.path, reply)


def error_of(refused: RefusedNode) -> RebalanceError:
    """Return the error for callers that cannot go on without the node."""
    if refused.fault is Fault.NO_AUTH:
        return AccessRefused.of_node("read", refused.path, refused.reason)
    return ZooKeeperSilent(str(refused))
