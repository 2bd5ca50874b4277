"""The settings of the producer of `zkconsumer produce`: of files, `--property` and options.

Of two values for a setting, the one that stands first counts: an option, `--property`, the file of `--config`, that of
`--profile`, what the command sets.

The properties of Kafka's own line reader, which `produce --property` accepts in addition to the settings of a producer.

Kafka's reader does not look at a separator of keys or headers that it is not told to parse, and sends whole lines as
values. Here that is refused.

Source: org.apache.kafka.tools.LineMessageReader (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

import click

from zkconsumer.cli.connection_options import connection_settings, no_zookeeper
from zkconsumer.cli.messages.message_lines import HeaderForm, LineForm
from zkconsumer.cli.option_types import refuse_zookeeper
from zkconsumer.config.connection_settings import canonical
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.keys import find_key
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS

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
"""Settings that no file changes: lines are bytes, and reading waits for room in the queue."""
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
    of_files = canonical(
        {name: each for name, each in found.properties.items() if _is_for_producers(name)}, PRODUCER_SETTINGS.find
    )
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


_PARSED: Final[Mapping[str, tuple[str, ...]]] = {
    "parse.key": ("key.separator",),
    "parse.headers": ("headers.delimiter", "headers.separator", "headers.key.separator"),
}
"""The parts that are parsed, and their separators."""
_READER_DEFAULTS: Final[Mapping[str, str]] = {
    "parse.key": "false", "key.separator": "\t", "parse.headers": "false", "headers.delimiter": "\t",
    "headers.separator": ",", "headers.key.separator": ":",
}  # fmt: skip
_NULL: Final = "null.marker"
READER_HELP: Final = ", ".join([*_READER_DEFAULTS, _NULL])


def take_line_form(properties: dict[str, str], key_separator: str | None, null: str | None, is_json: bool) -> LineForm:
    """Return the form of lines, and remove from the properties what says it.

    Args:
        properties: Those of `--property`.
        key_separator: That of `--key-separator`, which comes before the properties.
        null: That of `--null`, likewise.
        is_json: Lines are JSON, and have no such form.

    Raises:
        click.UsageError: A property has no value that it can have, contradicts another, or has no effect.
    """
    found = {name: properties.pop(name) for name in (*_READER_DEFAULTS, _NULL) if name in properties}
    if is_json and found:
        raise click.UsageError(
            f"{next(iter(found))} has no effect with --from-json, whose lines have that themselves: leave it out."
        )
    parses = {name: _flag(name, found) for name in _PARSED}
    parses["parse.key"] |= key_separator is not None
    for name, separators in _PARSED.items():
        lost = [each for each in separators if each in found]
        if lost and not parses[name] and name not in found:
            raise _refused(f"{lost[0]} has no effect without {name}=true, so whole lines would be values")
    texts = {**_READER_DEFAULTS, **found}
    if key_separator is not None:
        texts["key.separator"] = key_separator
    if null is not None:
        texts[_NULL] = null
    used = [each for name, separators in _PARSED.items() if parses[name] for each in separators]
    _check(texts, used, null)
    as_bytes = {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}
    return LineForm(
        as_bytes["key.separator"] if parses["parse.key"] else None,
        as_bytes.get(_NULL),
        HeaderForm(*(as_bytes[name] for name in _PARSED["parse.headers"])) if parses["parse.headers"] else None,
    )


def _flag(name: str, found: Mapping[str, str]) -> bool:
    said = found.get(name, _READER_DEFAULTS[name]).strip().lower()
    if said not in ("true", "false"):
        raise _refused(f"{name} is {found[name]!r}; it must be true or false")
    return said == "true"


def _check(texts: Mapping[str, str], used: list[str], null: str | None) -> None:
    """Refuse separators that cannot be told apart, as Kafka's reader does; the key's may be like any other one."""
    for name in used:
        if not texts[name]:
            raise _refused(f"{name} is empty")
        if texts[name] == texts.get(_NULL):
            raise _refused(f"{name} and {'--null' if null is not None else _NULL} are both {texts[name]!r}")
    for first, second in combinations(_PARSED["parse.headers"], 2):
        if second in used and texts[first] == texts[second]:
            raise _refused(f"{first} and {second} are both {texts[first]!r}")


def _refused(reason: str) -> click.UsageError:
    return click.BadParameter(reason, param_hint="--property")
