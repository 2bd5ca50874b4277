"""The option `--zookeeper` of the commands, and the connection or the administration that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from rebalance.requests import SessionChange, ZooKeeperPort
from rebalance.subscription import check_group
from zkconsumer.admin import Admin
from zkconsumer.cli.consumer_config import connection_option, given_connection, given_properties
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.config.zookeeper_address import parse_zookeeper_address

__all__ = ["open_admin", "open_zookeeper", "zookeeper_option"]

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


def open_admin(hosts: str, client_id: str, *groups: str) -> Admin:
    """Return administration with the settings that `--consumer-config` gave to the running command.

    Args:
        hosts: `host:port,host:port/chroot`.
        client_id: The name under which brokers log and count the requests.
        groups: Names from the command line, checked before a connection is opened.

    Raises:
        What `Admin` raises.
        InvalidName: A name that Kafka does not allow.
    """
    for group in groups:
        check_group(group)
    return Admin(hosts, properties=given_properties(), client_id=client_id)
