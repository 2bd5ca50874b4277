"""The file given by `--consumer-config`; commands that only look take the `zookeeper.*` settings of it."""

from __future__ import annotations

from typing import Any

import click

from zkconsumer.cli.failures import CliError
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.properties import read_properties
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.errors import ConfigError

__all__ = ["connection_option", "given_connection", "given_properties", "read_config"]

_FILE = "zkconsumer.consumer_config"
"""Where the click context keeps the path."""


def read_config(path: str) -> dict[str, str]:
    """The entries of the file.

    Raises:
        CliError, ConfigError: it cannot be read, or is no properties file.
    """
    try:
        return read_properties(path)
    except OSError as error:
        raise CliError(f"the consumer config {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(path, None, f"a properties file ({error})") from None


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[_FILE] = value


connection_option = click.option(
    "--consumer-config", metavar="FILE", callback=_keep, expose_value=False,
    help="Properties file with settings of the consumer: TLS, SASL and credentials for ZooKeeper.",
)
"""The option of a command that only needs the connection; `given_connection` has what it says."""


def given_properties() -> dict[str, str] | None:
    """Return the entries of the file that the running command was given, None without one.

    Raises:
        CliError, ConfigError: The file cannot be used.
    """
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(_FILE)
    return None if path is None else read_config(path)


def given_connection(hosts: str) -> dict[str, Any]:
    """Return the keyword arguments of `zookeeper_connection` from the file that the running command was given.

    Raises:
        CliError, ConfigError: The file, or a setting in it, cannot be used.
    """
    given = given_properties()
    if given is None:
        return {}
    entries = {"group.id": "none", **given}
    return zookeeper_options(ConsumerConfig.from_properties(entries, zookeeper_connect=hosts))
