"""ZooKeeper for one command: connected with a deadline, looked at, closed.

Threads: the command's own; every read blocks it, with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from rebalance.requests import Exists, GetChildren, GetData, SessionChange, ZooKeeperPort
from zkconsumer.cli.consumer_config import connection_option, given_connection
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all
from zkconsumer.config.zookeeper_address import parse_zookeeper_address

__all__ = ["BROKER_TIMEOUT_S", "READ_TIMEOUT_S", "ask_all", "children", "open_zookeeper", "zookeeper_option"]

BROKER_TIMEOUT_S = 5.0
"""Longest wait for one answer of a broker."""

Command = TypeVar("Command", bound=Callable[..., Any])


def _checked_address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_zookeeper_address(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}; it looks like zk1:2181,zk2:2181/chroot") from None
    return value


def zookeeper_option(required: bool = True, only_looks: bool = True) -> Callable[[Command], Command]:
    """The option `--zookeeper` of every command that needs one.

    With `only_looks` also `--consumer-config`, whose `zookeeper.*` settings `open_zookeeper` takes.
    """
    hosts = click.option(
        "--zookeeper", metavar="HOSTS", required=required, callback=_checked_address,
        help="ZooKeeper of the cluster: host:port,host:port/chroot.",
    )
    return (lambda command: hosts(connection_option(command))) if only_looks else hosts


@contextmanager
def open_zookeeper(
    hosts: str, timeout_s: float = 6.0, heard: Callable[[SessionChange], None] | None = None, **options: Any
) -> Iterator[ZooKeeperPort]:
    """A connected port inside the chroot, closed at the end of the block.

    Args:
        hosts: `host:port,host:port/chroot`.
        timeout_s: longest wait for the connection.
        heard: called with what becomes of the session, on the port's callback thread.
        options: as for `KazooPort`; without any, those that `--consumer-config` gave to the running command.

    Raises:
        ConfigError: a file that these settings name cannot be used.
        ZooKeeperUnavailable: no session in time.
        ZooKeeperRefused: the credentials were refused.
        NamespaceMissing: the chroot does not exist.
    """
    with zookeeper_connection(hosts, timeout_s, heard, **(options or given_connection(hosts))) as port:
        yield port


def children(port: ZooKeeperPort, path: str) -> list[str] | None:
    """The sorted names below a node, `None` without that node.

    Raises:
        ZooKeeperSilent: no answer in time.
        AccessRefused: it may not be read.
    """
    [value] = ask_all(port, [GetChildren(path)])
    return None if value is None else sorted(value[0])


def ask_all(port: ZooKeeperPort, requests: Sequence[Exists | GetChildren | GetData]) -> list[Any]:
    """The values of many reads, in their order, `None` for nodes that are not there.

    Raises:
        ZooKeeperSilent: no answer in time.
        AccessRefused: one of them may not be read.
    """
    return read_all(port, requests, READ_TIMEOUT_S)
