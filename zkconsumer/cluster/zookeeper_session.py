"""Waiting for the first session with ZooKeeper, and saying what was in the way when none came."""

from __future__ import annotations

from typing import Final

from rebalance.zookeeper import KazooPort
from zkconsumer.cluster.zookeeper_obstacles import ObstacleSearch
from zkconsumer.config.zookeeper_address import parse_zookeeper_address
from zkconsumer.config.zookeeper_tls import ZooKeeperTls
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.wakeup import Latch

__all__ = ["wait_for_session"]

_SEARCHED: Final = 2 / 3
"""The last part of the time-out, in which servers that do not tell are asked what they are: the time-out holds."""


def wait_for_session(
    port: KazooPort, decided: Latch, hosts: str, timeout_s: float, tls: ZooKeeperTls | None
) -> None:
    """Return when `decided` is set.

    Args:
        port: a started one.
        hosts: the connection string.
        timeout_s: longest wait.
        tls: the settings when TLS is spoken.

    Raises:
        ZooKeeperUnavailable: it was not set in time; names what was found at each server.
    """
    search_s = timeout_s * _SEARCHED
    if decided.wait(timeout_s - search_s):
        return
    servers = parse_zookeeper_address(hosts).hosts
    # Two questions to a server, and time to spare.
    search = ObstacleSearch(servers, port.failed_attempts(), tls, search_s / 3)
    search.begin()
    if decided.wait(search_s):
        return
    search.note(port.failed_attempts())
    raise ZooKeeperUnavailable(hosts, timeout_s, search.found())
