"""Waits for the first session with ZooKeeper, and reports the obstacles at each server when none is opened in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.wakeup import Latch

if TYPE_CHECKING:
    from rebalance.zookeeper.port.kazoo_port import KazooPort
    from zkconsumer.config.zookeeper_tls import ZooKeeperTls

__all__ = ["wait_for_session"]

_SEARCHED: Final = 2 / 3
"""The share of the time-out, at its end, in which servers are asked what keeps them from opening a session."""


def wait_for_session(
    port: KazooPort, decided: Latch, hosts: str, timeout_s: float, tls: ZooKeeperTls | None
) -> None:
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
