"""Connections to ZooKeeper for a block of code: opening, waiting for the session, reading many nodes.

Opens a connection to ZooKeeper for a block of code, with a deadline.

Threads: the caller's own; connecting and reading block it, each with a deadline.

Waits for the first session with ZooKeeper, and reports the obstacles at each server when none is opened in time.

Reads many nodes of ZooKeeper at a time, with a deadline.

Reads are sent in pieces of 250, and two pieces are under way: the server always has the next one, and never more than
500 reads of one client before those of others. Reads whose answers are lost with the connection are sent again until
the deadline: a connection that breaks for a moment would make a consumer's start fail.

Threads: any; each call blocks its caller alone.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from rebalance.errors import AccessRefused, NamespaceMissing, RebalanceError, RefusedNode
from rebalance.zookeeper.port.requests import (
    Exists,
    Fault,
    GetChildren,
    GetData,
    Read,
    Reply,
    SessionChange,
    ZooKeeperPort,
)
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer.config.zookeeper_tls import zookeeper_options
from zkconsumer.errors import ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.wakeup import Latch

if TYPE_CHECKING:
    from rebalance.zookeeper.port.kazoo_port import KazooPort
    from zkconsumer.config.zookeeper_tls import ZooKeeperTls

READ_TIMEOUT_S: Final = 10.0
"""Longest wait for the answers to reads that are sent together."""
_PIECE: Final = 250
_PIECES_UNDER_WAY: Final = 2
_AGAIN_S: Final = 0.1


class ClusterSilent(RebalanceError):  # noqa: N818 - like its siblings, it says what happened
    """The servers that know the brokers and topics of the cluster did not answer in time."""


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
    """Return the same as `read_all`, with a `RefusedNode` for each node that may not be read.

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


_SEARCHED: Final = 2 / 3
"""The share of the time-out, at its end, in which servers are asked what keeps them from opening a session."""


def wait_for_session(port: KazooPort, decided: Latch, hosts: str, timeout_s: float, tls: ZooKeeperTls | None) -> None:
    """Return when `decided` is set.

    Args:
        port: A started port.
        hosts: The connection string.
        timeout_s: Longest wait, in seconds.
        tls: The settings, when TLS is spoken.

    Raises:
        ZooKeeperUnavailable: It was not set in time; names what was found at each server.
    """
    search_s = timeout_s * _SEARCHED
    if decided.wait(timeout_s - search_s):
        return
    from zkconsumer.cluster.zookeeper_obstacles import ObstacleSearch  # it loads the ssl module, which is large

    servers = parse_zookeeper_address(hosts).hosts
    # A server is asked twice at most; a third of the time is to spare.
    search = ObstacleSearch(servers, port.failed_attempts(), tls, search_s / 3)
    search.start()
    if decided.wait(search_s):
        return
    search.note(port.failed_attempts())
    raise ZooKeeperUnavailable(hosts, timeout_s, search.found())


_SESSION_S = 10.0
_CLOSE_S = 2.0


@contextmanager
def zookeeper_connection(
    hosts: str, timeout_s: float = 6.0, on_change: Callable[[SessionChange], None] | None = None, **options: Any
) -> Iterator[ZooKeeperPort]:
    """Yield a connected port inside the chroot, closed at the end of the block.

    Args:
        hosts: `host:port,host:port/chroot`.
        timeout_s: Longest wait for the connection, in seconds.
        on_change: Called with each change of the session, on the port's callback thread.
        options: As for `KazooPort`.

    Raises:
        ZooKeeperUnavailable: No session in time; says what was in the way.
        ZooKeeperRefused: The credentials were refused.
        AccessRefused: Credentials are demanded, and none were given.
        NamespaceMissing: The chroot does not exist.
    """
    from rebalance.zookeeper.port.kazoo_port import KazooPort  # kazoo is loaded when it is used

    address = parse_zookeeper_address(hosts)
    port = KazooPort(str(address), _SESSION_S, **options)
    decided = Latch()
    changes: list[SessionChange] = []

    def changed(change: SessionChange) -> None:
        if on_change is not None:
            on_change(change)
        if change.what in ("connected", "refused"):
            changes.append(change)
            decided.set()

    try:
        port.start(changed)
        wait_for_session(port, decided, str(address), timeout_s, options.get("tls"))
        if changes[0].what == "refused":
            refusal = AccessRefused.of_credentials(changes[0].reason)
            raise ZooKeeperRefused(str(address), str(refusal), refusal.remedy)
        if read_all(port, [Exists("/")], READ_TIMEOUT_S) == [None]:
            raise NamespaceMissing(address.chroot or "/")
        yield port
    finally:
        port.close(_CLOSE_S if decided.is_set() else 0.0)  # without a session there is nothing to end


def configured_connection(
    config: ConsumerConfig, on_change: Callable[[SessionChange], None] | None = None
) -> AbstractContextManager[ZooKeeperPort]:
    """A connected port as the settings of a consumer say; see `zookeeper_connection`."""
    timeout_s = config.zookeeper_connection_timeout_ms / 1000
    return zookeeper_connection(config.zookeeper, timeout_s, on_change, **zookeeper_options(config))
