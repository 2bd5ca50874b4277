"""The options `--zookeeper`, `--config` and `--profile` of every command that connects, and what they open.

A new command needs three lines for everything: the decorator `@zookeeper_option()`, a parameter `zookeeper: str`, and
`open_admin(zookeeper, ...)` or `open_zookeeper(zookeeper)`. Files, profiles, environment variables, credentials and TLS
come with them.

Opens the groups that a command is about: groups of a ZooKeeper, and groups that brokers coordinate.

A command that shows or changes groups has the decorators `@zookeeper_option(required=False)` and `@bootstrap_option()`,
and calls `open_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from rebalance.subscription import check_group
from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.admin.admin import Admin, connection_options
from zkconsumer.admin.broker_groups import BrokerAdmin, BrokerGroups
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.config.connection_settings import (
    SEARCH_ORDER,
    ConnectionSettings,
    find_connection_settings,
    profile_names,
)
from zkconsumer.config.tables.producer_kinds import BrokerList
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])
_GIVEN: Final = "zkconsumer.connection"
"""The key under which the click context keeps the values of the options, by name."""
_FOUND: Final = "zkconsumer.connection.found"
"""The key under which the click context keeps the `ConnectionSettings`."""


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta.setdefault(_GIVEN, {})[parameter.name] = value


def _complete_profile(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]


# Eager: they are processed before --zookeeper, whose callback reads the files.
_config_option: Final = click.option(
    "--config",
    "--consumer-config",
    "config",
    metavar="FILE",
    callback=_keep,
    expose_value=False,
    is_eager=True,
    help="Properties file of a consumer: zookeeper.connect, TLS, SASL and credentials for ZooKeeper.",
)
_profile_option: Final = click.option(
    "--profile",
    metavar="NAME",
    callback=_keep,
    expose_value=False,
    is_eager=True,
    shell_complete=_complete_profile,
    help="Use the properties file ~/.config/zkconsumer/NAME.properties.",
)


def zookeeper_option(required: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options `--zookeeper`, `--config` and `--profile`.

    The command's parameter `zookeeper` is what the first of `SEARCH_ORDER` names. `open_zookeeper` and `open_admin` use
    the settings of the files.

    Args:
        required: A call in which nothing names a ZooKeeper is refused; without it, `zookeeper` is None then.
    """

    def resolve(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            try:
                parse_zookeeper_address(value)
            except ValueError as error:
                raise click.BadParameter(f"{error}; it must look like zk1:2181,zk2:2181/chroot") from None
        given = context.meta.get(_GIVEN, {})
        found = find_connection_settings(value, given.get("config"), given.get("profile"))
        context.meta[_FOUND] = found
        if required and found.zookeeper is None:
            raise no_zookeeper(found)
        return found.zookeeper

    hosts = click.option(
        "--zookeeper",
        metavar="HOSTS",
        callback=resolve,
        help="ZooKeeper of the cluster: host:port,host:port/chroot. [from --config, --profile, "
        "$ZKCONSUMER_ZOOKEEPER, $ZKCONSUMER_CONFIG, $ZKCONSUMER_PROFILE]",
    )
    return lambda command: hosts(_config_option(_profile_option(command)))


def bootstrap_option(
    *names: str, meaning: str = "Some brokers, host:port,host:port, instead of ZooKeeper."
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the option `--bootstrap-server` as the parameter `brokers`.

    Args:
        names: Further names of the option.
        meaning: Its help.
    """
    return click.option(*names, "--bootstrap-server", "--bootstrap-servers", "brokers", metavar="LIST",
                        callback=_check_brokers, help=meaning)  # fmt: skip


def _check_brokers(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            BrokerList().convert(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def brokers_instead(given: str | None) -> str | None:
    """Return the brokers that stand for a ZooKeeper; None if there is one, or nothing names brokers.

    Args:
        given: Of `--bootstrap-server`; without it those of a file count, unless a ZooKeeper is named.

    Raises:
        click.UsageError: The option is given, and `--zookeeper`, too.
    """
    found = connection_settings()
    if given is not None and found.zookeeper_from == "--zookeeper":
        raise click.UsageError("--bootstrap-server and --zookeeper both name a cluster: give one of them.")
    if given is not None:
        return given
    return None if found.zookeeper is not None else found.properties.get("bootstrap.servers")


def no_zookeeper(found: ConnectionSettings, *, or_brokers: bool = False) -> click.UsageError:
    """Return the error for a call in which nothing names a ZooKeeper.

    Args:
        or_brokers: The command takes `--bootstrap-server` instead.
    """
    read = "".join(f" {path} was read and has no zookeeper.connect." for path in found.files)
    instead = " Or give --bootstrap-server HOST:PORT." if or_brokers else ""
    return click.UsageError(
        f"Missing option '--zookeeper': no ZooKeeper is given.{read} The first of these that is "
        f"given counts: {'; '.join(SEARCH_ORDER)}.{instead}"
    )


def connection_settings() -> ConnectionSettings:
    """Return what the options of the running command, its files and the environment give."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_FOUND)
    return found if isinstance(found, ConnectionSettings) else ConnectionSettings()


@contextmanager
def named_places() -> Iterator[None]:
    """Have errors about settings in the block name the file and the line, if a file of the command gives the value."""
    try:
        yield
    except ConfigError as error:
        connection_settings().name_place(error)
        raise


@contextmanager
def open_zookeeper(hosts: str) -> Iterator[ZooKeeperPort]:
    """Yield a connected port inside the chroot, closed at the end of the block.

    The settings are those of the files and profiles of the running command.

    Args:
        hosts: `host:port,host:port/chroot`.

    Raises:
        ConfigError: A file that these settings name cannot be used.
        ZooKeeperUnavailable: No session in time.
        ZooKeeperRefused: The credentials were refused.
        NamespaceMissing: The chroot does not exist.
    """
    with named_places():
        options, timeout_s = connection_options(hosts, connection_settings().properties)
    with zookeeper_connection(hosts, timeout_s, **options) as port:
        yield port


def open_admin(hosts: str, client_id: str, *groups: str) -> Admin:
    """Return administration with the settings of the files and profiles of the running command.

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
    with named_places():
        return Admin(hosts, properties=connection_settings().properties, client_id=client_id)


def open_topic_admin(zookeeper: str | None, brokers: str | None, client_id: str) -> Admin | BrokerAdmin:
    """Return administration of topics: through ZooKeeper, or through brokers where these are given instead.

    Args:
        zookeeper: `host:port,host:port/chroot`; None without one.
        brokers: Of `--bootstrap-server`; those of a file count where nothing names a ZooKeeper.
        client_id: The name under which brokers log and count the requests.

    Raises:
        click.UsageError: Neither is given, or both are.
        What `Admin` and `BrokerAdmin` raise.
    """
    given = brokers_instead(brokers)
    if given is None:
        if zookeeper is None:
            raise no_zookeeper(connection_settings(), or_brokers=True)
        return open_admin(zookeeper, client_id)
    with named_places():
        return BrokerAdmin(given, properties=connection_settings().properties, client_id=client_id)


OF_ZOOKEEPER: Final = "groups in ZooKeeper, but brokers coordinate this group"


def open_groups(zookeeper: str | None, brokers: str | None, client_id: str, *groups: str) -> Admin | BrokerAdmin:
    """Return administration of the cluster that the options of the command name: by its ZooKeeper, or by brokers.

    Args:
        zookeeper: The value of `--zookeeper`, or what stands for it.
        brokers: The value of `--bootstrap-server`.
        client_id: The name under which brokers log and count the requests.
        groups: Names from the command line, checked before a connection is opened. Brokers take any name.

    Raises:
        click.UsageError: Nothing names a cluster, or both options are given.
        What `Admin` raises.
        InvalidName: A name that Kafka does not allow in ZooKeeper.
    """
    given = brokers_instead(brokers)
    if given is not None:
        with named_places():
            return BrokerAdmin(given, properties=connection_settings().properties, client_id=client_id)
    if zookeeper is None:
        raise no_zookeeper(connection_settings(), or_brokers=True)
    return open_admin(zookeeper, client_id, *groups)


def groups_of(admin: Admin | BrokerAdmin, group: str) -> Admin | BrokerGroups:
    """Return what shows and changes a group: where a ZooKeeper is given, that depends on who coordinates it."""
    if isinstance(admin, BrokerAdmin):
        return admin
    return admin.broker_groups if admin.is_coordinated_by_brokers(group) else admin


def refuse_options(why: str, **given: object) -> None:
    """Raise if options are given that have no meaning here.

    Args:
        why: Whose options they are, a clause.
        given: Name of the option, with underscores -> its value; None and False for one that is not given.

    Raises:
        click.UsageError: Names the first one.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {why}.")
