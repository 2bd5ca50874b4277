"""The connection string of ZooKeeper. Pure.

It is `host:port,host:port/chroot`.

Source: org.apache.zookeeper.client.ConnectStringParser (3.4.14).
"""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_PORT = 2181

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.-]+)?\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


class ZooKeeperAddress(NamedTuple):
    """The address of an ensemble: (host, port) of each server, and the chroot, empty or `/...`.

    An IPv6 host stands without brackets.
    """

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    def __str__(self) -> str:
        hosts = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return ",".join(hosts) + self.chroot


def parse_zookeeper_address(text: str) -> ZooKeeperAddress:
    """Return the parts of a connection string; a host without port has port 2181.

    The chroot is given once, after the last host, and applies to all of them. A lone `/` is no chroot.

    Raises:
        ValueError: No host, a port outside 1 to 65535, a chroot in the middle, or one that is no path.
    """
    servers, slash, rest = text.strip().partition("/")
    if "," in rest:
        raise ValueError("the chroot is given once, after the last host")
    hosts = tuple(_parse_host(server.strip()) for server in servers.split(","))
    components = rest.split("/") if rest else []
    for component in components:
        if component in ("", ".", "..") or not component.isprintable():
            raise ValueError(f"the chroot {slash + rest!r} is not a path")
    return ZooKeeperAddress(hosts, slash + rest if rest else "")


def _parse_host(server: str) -> tuple[str, int]:
    found = _HOST.fullmatch(server)
    if not found:
        raise ValueError(f"{server!r} is not host:port" if server else "a host is missing")
    port = int(found[2]) if found[2] else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ValueError(f"port {port} of {found[1]} is not from 1 to 65535")
    return found[1].strip("[]"), port
