"""Opens a connection to ZooKeeper for a block of code, with a deadline.

Threads: the caller's own; connecting and reading block it, each with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rebalance.errors import AccessRefused, NamespaceMissing
from rebalance.zookeeper.port.requests import Exists, SessionChange, ZooKeeperPort
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all
from zkconsumer.cluster.zookeeper_session import wait_for_session
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer.errors import ZooKeeperRefused
from zkconsumer.wakeup import Latch

__all__ = ["configured_connection", "zookeeper_connection"]

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
