"""The settings of the producer of `zkconsumer produce`: of files, `--property` and options.

Of two values for a setting, the one that stands first counts: an option, `--property`, the file of `--config`, that of
`--profile`, what the command sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from zkconsumer.cli.options.connection_options import connection_settings, no_zookeeper
from zkconsumer.cli.options.option_types import refuse_zookeeper
from zkconsumer.config.connection_settings import canonical
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.keys import find_key
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS

__all__ = ["CLIENT_ID", "producer_config"]

CLIENT_ID: Final = "zkconsumer-produce"

_BROKERS: Final = "metadata.broker.list"
_ZOOKEEPER: Final = "zookeeper.connect"
_DEFAULTS: Final[Mapping[str, object]] = {
    "client.id": CLIENT_ID,
    # Half a minute of tries: a broker that was killed is replaced, or is back, within that time.
    "message.send.max.retries": 100,
    "retry.backoff.ms": 300,
}
_OF_THE_COMMAND: Final[Mapping[str, object]] = {
    "producer.type": "async",
    "queue.enqueue.timeout.ms": -1,
    "serializer.class": "kafka.serializer.DefaultEncoder",
    "key.serializer.class": "kafka.serializer.DefaultEncoder",
}
"""What no file changes: lines are bytes, and reading waits for room in the queue."""
_HANDLERS: Final = ("callback.handler", "callback.handler.props", "event.handler", "event.handler.props")
"""Settings of applications, which have no effect here."""


def producer_config(
    zookeeper: str | None, brokers: str | None, properties: Mapping[str, str], options: Mapping[str, object]
) -> ProducerConfig:
    """Return the settings.

    Args:
        zookeeper: Of `--zookeeper`, or what else names one.
        brokers: Of `--brokers`.
        properties: Of `--property`.
        options: Of other options, by the names of settings; None: not given.

    Raises:
        click.UsageError: Nothing names brokers or ZooKeeper, or both are given.
        UnknownSetting: There is no such setting.
        ConfigError: A value is not allowed, or contradicts another.
    """
    found = connection_settings()
    for name in properties:
        key = PRODUCER_SETTINGS.find(name)
        if key is None:
            raise PRODUCER_SETTINGS.unknown(name)
        if key.name == _ZOOKEEPER:
            raise refuse_zookeeper(name)
    of_files = canonical({name: each for name, each in found.properties.items() if _is_for_producers(name)},
                         PRODUCER_SETTINGS.find)
    given_properties = canonical(properties, PRODUCER_SETTINGS.find)
    settings: dict[str, Any] = {**_DEFAULTS, **of_files, **given_properties}
    settings |= {name: value for name, value in options.items() if value is not None}
    settings |= _OF_THE_COMMAND
    for name in _HANDLERS:
        settings.pop(name, None)
    given = given_properties.get(_BROKERS) if brokers is None else brokers
    if given is not None and found.zookeeper_from == "--zookeeper":
        raise click.UsageError("--brokers and --zookeeper both name a cluster: give one of them.")
    if found.zookeeper_from != "--zookeeper" and (given or settings.get(_BROKERS)):
        settings[_BROKERS] = given or settings[_BROKERS]
    elif zookeeper is not None:
        settings.pop(_BROKERS, None)
        settings[_ZOOKEEPER] = zookeeper
    else:
        raise click.UsageError(f"{no_zookeeper(found).message} Or give --brokers HOST:PORT.")
    return ProducerConfig.from_properties(settings)


def _is_for_producers(name: str) -> bool:
    """Return whether a setting of a file is to be read: one that consumers alone have is none of a mistake."""
    return PRODUCER_SETTINGS.find(name) is not None or find_key(name) is None
