"""The settings of a query that stand in files: properties files for the driver, TLS files for every process.

A password that is an option is part of the query, and Spark may show a query in plans and in its UI. So options name
files: `config` a properties file, `profile` one by its name. They are read where the query is planned, and their
settings reach the executors inside the pickled reader alone.

A TLS file is opened where it is used. A relative name that is not in the working directory is looked up among the files
that Spark distributes (`spark.files`, `--files`, `SparkContext.addFile`), on the driver and on each executor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from rebalance.zookeeper.port.requests import SessionChange, ZooKeeperPort
from simpleconsumer.security.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.connection_settings import find_connection_settings
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.spark.options.option_table import own_name, setting_options

if TYPE_CHECKING:
    from zkconsumer.cluster.metadata_reader import MetadataReader

Settings = TypeVar("Settings", ConsumerConfig, ProducerConfig)

_FILES: Final = (
    "zookeeper.ssl.cafile", "zookeeper.ssl.certfile", "zookeeper.ssl.keyfile",
    "ssl.truststore.location", "ssl.keystore.location", "ssl.key.location",
)  # fmt: skip
_CONFIG, _PROFILE, _CONNECT, _BROKERS = "config", "profile", "zookeeper.connect", "bootstrap.servers"


def with_settings_files(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the settings of the files that `config` and `profile` name; other options come first.

    Raises:
        SettingsNotUsable: A file cannot be read, or there is no such profile.
    """
    by_name = {own_name(name) for name in options}
    given = {name: value for name, value in options.items() if name.lower() not in (_CONFIG, _PROFILE)}
    of_files = settings_of_files(options, setting_options)
    if by_name & {_CONNECT, _BROKERS}:
        of_files = {name: value for name, value in of_files.items() if name not in (_CONNECT, _BROKERS)}
    return {**{name: value for name, value in of_files.items() if name not in by_name}, **given}


def settings_of_files(
    options: Mapping[str, str], chosen: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> dict[str, str]:
    """Return the settings of the files that the options `config` and `profile` name, and where ZooKeeper is.

    Args:
        options: All options of a query, their names in any case.
        chosen: Returns those settings of the files that are wanted.

    Raises:
        SettingsNotUsable: A file cannot be read, or there is no such profile.
    """
    by_name = {own_name(name): value for name, value in options.items()}
    config, profile = by_name.get(_CONFIG) or None, by_name.get(_PROFILE) or None
    if config is None and profile is None:
        return {}
    # The variables of the environment name a ZooKeeper and files for the command line; XDG_CONFIG_HOME is the folder.
    folder = {name: os.environ[name] for name in ("XDG_CONFIG_HOME",) if name in os.environ}
    # With the option, so that credentials of a file that are used for other servers are warned of.
    found = find_connection_settings(
        by_name.get(_CONNECT) or None, None if config is None else _located(config), profile, folder,
        f"the option {_CONNECT}",
    )  # fmt: skip
    settings = dict(chosen(found.properties))
    if by_name.get(_BROKERS):
        return settings  # they stand for a ZooKeeper that a file names
    if found.zookeeper is not None:
        settings[_CONNECT] = found.zookeeper
        settings.pop(_BROKERS, None)
    return settings


@contextmanager
def open_source(
    config: ConsumerConfig, on_change: Callable[[SessionChange], None] | None = None
) -> Iterator[ZooKeeperPort | MetadataReader]:
    """Yield what tells of brokers and topics: ZooKeeper, or the brokers of `bootstrap.servers`.

    Args:
        on_change: Called with each change of the session with ZooKeeper, if there is one.
    """
    from zkconsumer.cluster.cluster import metadata_reader  # as below

    here = with_files_here(config)
    reader = metadata_reader(here, here.socket_timeout_ms / 1000)
    if reader is not None:
        yield reader
        return
    with configured_connection(config, on_change) as port:
        yield port


def configured_connection(
    config: ConsumerConfig, on_change: Callable[[SessionChange], None] | None = None
) -> AbstractContextManager[ZooKeeperPort]:
    """Return a connected port as the settings say, with the TLS files of this process."""
    from zkconsumer.cluster import zookeeper_connection  # a driver process that only checks options needs no kazoo

    return zookeeper_connection.configured_connection(with_files_here(config), on_change)


def with_files_here(config: Settings) -> Settings:
    """Return the settings with the TLS files of this process."""
    properties = config.to_properties()
    here: dict[str, str] = {name: _located(properties[name]) for name in _FILES if name in properties}
    if any(properties[name] != path for name, path in here.items()):
        return type(config).from_properties(dict(properties) | dict(here))
    return config


def security_here(config: Settings) -> Security:
    """Return how brokers are spoken to, with the TLS files of this process."""
    return with_files_here(config).security


def _located(path: str) -> str:
    """Return the path, or that of the file of this name that Spark has brought to this process."""
    if os.path.isabs(path) or os.path.exists(path):
        return path
    there = (os.path.join(folder, path) for folder in _distributed())
    return next(filter(os.path.exists, there), path)


def _distributed() -> tuple[str, ...]:
    """Return the folders of the files that Spark distributes, none outside Spark."""
    from pyspark import SparkContext, SparkFiles

    if not SparkFiles._is_running_on_worker and SparkContext._active_spark_context is None:
        return ()
    folder = SparkFiles.getRootDirectory()
    # The process of a stream on the driver is given the folder of its session, inside the folder of the application.
    return folder, os.path.dirname(folder)
