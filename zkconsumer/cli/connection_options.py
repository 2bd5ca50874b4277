"""The options `--zookeeper` and `--consumer-config`, and the connection or `Admin` that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from rebalance.requests import ZooKeeperPort
from rebalance.subscription import check_group
from zkconsumer.admin.admin import Admin, connection_options
from zkconsumer.cli.failures import CliError
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.config.properties import read_properties
from zkconsumer.config.zookeeper_address import parse_zookeeper_address
from zkconsumer.errors import ConfigError

__all__ = ["open_admin", "open_zookeeper", "read_config", "zookeeper_option"]

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = "zkconsumer.consumer_config"
"""The key under which the click context keeps the path."""


def read_config(path: str) -> dict[str, str]:
    """Return the entries of a properties file.

    Raises:
        CliError, ConfigError: It cannot be read, or is not a properties file.
    """
    try:
        return read_properties(path)
    except OSError as error:
        raise CliError(f"the consumer config {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(path, None, f"a properties file ({error})") from None


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[_FILE] = value


_connection_option = click.option(
    "--consumer-config", metavar="FILE", callback=_keep, expose_value=False,
    help="Properties file with settings of the consumer: TLS, SASL and credentials for ZooKeeper.",
)
"""The option of commands that need the connection alone; `_given_properties` returns its entries."""


def _given_properties() -> dict[str, str] | None:
    """Return the entries of the file that the running command was given, None without one.

    Raises:
        CliError, ConfigError: The file cannot be used.
    """
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(_FILE)
    return None if path is None else read_config(path)


def _checked_address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_zookeeper_address(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}; it looks like zk1:2181,zk2:2181/chroot") from None
    return value


def zookeeper_option(required: bool = True, only_looks: bool = True) -> Callable[[Command], Command]:
    """Return the option `--zookeeper`.

    With `only_looks` also the option `--consumer-config`, whose `zookeeper.*` settings `open_zookeeper` uses.
    """
    hosts = click.option(
        "--zookeeper", metavar="HOSTS", required=required, callback=_checked_address,
        help="ZooKeeper of the cluster: host:port,host:port/chroot.",
    )
    return (lambda command: hosts(_connection_option(command))) if only_looks else hosts


@contextmanager
def open_zookeeper(hosts: str, timeout_s: float = 6.0, **options: Any) -> Iterator[ZooKeeperPort]:
    """Yield a connected port inside the chroot, closed at the end of the block.

    Args:
        hosts: `host:port,host:port/chroot`.
        timeout_s: Longest wait for the connection, in seconds.
        options: As for `KazooPort`; without any, those that `--consumer-config` gave to the running command.

    Raises:
        ConfigError: A file that these settings name cannot be used.
        ZooKeeperUnavailable: No session in time.
        ZooKeeperRefused: The credentials were refused.
        NamespaceMissing: The chroot does not exist.
    """
    chosen = options or connection_options(hosts, _given_properties())
    with zookeeper_connection(hosts, timeout_s, **chosen) as port:
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
    return Admin(hosts, properties=_given_properties(), client_id=client_id)
