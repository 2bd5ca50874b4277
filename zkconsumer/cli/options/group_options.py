"""Opens the groups that a command is about: those of a ZooKeeper, and those that brokers coordinate.

A command that shows or changes groups has the decorators `@zookeeper_option(required=False)` and `@bootstrap_option()`,
and calls `open_groups`.
"""

from __future__ import annotations

from typing import Final

import click

from zkconsumer.admin.admin import Admin
from zkconsumer.admin.broker_groups import BrokerAdmin, BrokerGroups
from zkconsumer.cli.options.connection_options import (
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    open_admin,
)

__all__ = ["OF_ZOOKEEPER", "groups_of", "open_groups", "refuse_options"]

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
        why: What they are of, a clause.
        given: Name of the option, with underscores -> its value; None and False for one that is not given.

    Raises:
        click.UsageError: Names the first one.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {why}.")
