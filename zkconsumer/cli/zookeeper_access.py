"""ZooKeeper for one command: connected with a deadline, looked at, closed.

Threads: the command's own; every read blocks it, with a deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from rebalance.errors import NamespaceMissing
from rebalance.requests import Exists, GetChildren, GetData, SessionChange, ZooKeeperPort
from rebalance.zookeeper import KazooPort
from zkconsumer.cli.failures import CliError
from zkconsumer.cluster import read_all
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.zookeeper_address import parse_zookeeper_address

__all__ = ["READ_TIMEOUT_S", "ask_all", "children", "open_zookeeper", "zookeeper_option"]

READ_TIMEOUT_S = 10.0
Command = TypeVar("Command", bound=Callable[..., Any])

_SESSION_S = 10.0
_CLOSE_S = 2.0


def _checked_address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_zookeeper_address(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}; it looks like zk1:2181,zk2:2181/chroot") from None
    return value


def zookeeper_option(required: bool = True) -> Callable[[Command], Command]:
    """The option `--zookeeper` of every command that needs one."""
    return click.option(
        "--zookeeper", metavar="HOSTS", required=required, callback=_checked_address,
        help="ZooKeeper of the cluster: host:port,host:port/chroot.",
    )


@contextmanager
def open_zookeeper(
    hosts: str, timeout_s: float = 6.0, heard: Callable[[SessionChange], None] | None = None, **options: Any
) -> Iterator[ZooKeeperPort]:
    """A connected port inside the chroot, closed at the end of the block.

    Args:
        hosts: `host:port,host:port/chroot`.
        timeout_s: longest wait for the connection.
        heard: called with what becomes of the session, on the port's callback thread.
        options: as for `KazooPort`.

    Raises:
        ZooKeeperUnavailable: no server in time.
        NamespaceMissing: the chroot does not exist.
        CliError: the credentials were refused.
    """
    address = parse_zookeeper_address(hosts)
    port = KazooPort(str(address), _SESSION_S, **options)
    decided = threading.Event()
    changes: list[SessionChange] = []

    def changed(change: SessionChange) -> None:
        if heard is not None:
            heard(change)
        if change.what in ("connected", "refused"):
            changes.append(change)
            decided.set()

    try:
        port.start(changed)
        if not decided.wait(timeout_s):
            raise ZooKeeperUnavailable(str(address), timeout_s)
        if changes[0].what == "refused":
            raise CliError(f"{changes[0].reason} ({address})", "check the zookeeper.* settings")
        if ask_all(port, [Exists("/")]) == [None]:
            raise NamespaceMissing(address.chroot or "/")
        yield port
    finally:
        port.close(_CLOSE_S)


def children(port: ZooKeeperPort, path: str) -> list[str] | None:
    """The sorted names below a node, `None` without that node.

    Raises:
        ZooKeeperSilent: no answer in time, or not allowed.
    """
    [value] = ask_all(port, [GetChildren(path)])
    return None if value is None else sorted(value[0])


def ask_all(port: ZooKeeperPort, requests: Sequence[Exists | GetChildren | GetData]) -> list[Any]:
    """The values of many reads, in their order, `None` for nodes that are not there.

    Raises:
        ZooKeeperSilent: no answer in time, or not allowed.
    """
    return read_all(port, requests, READ_TIMEOUT_S)
