"""What `zkconsumer consume` reads without a group, from its options; contradicting options are refused.

Rule: `--partition`, `--offset`, `--until-end`, and `--bootstrap-server` without `--group`, choose this mode. Nothing is
stored then, and options about a group or about stored offsets would have no effect, so they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from zkconsumer.cli.options.connection_options import connection_settings, named_places, no_zookeeper
from zkconsumer.config.connection_settings import canonical
from zkconsumer.topic_reader.start_at import StartAt, parse_start
from zkconsumer.topic_reader.topic_reader import TopicReader, read_topic

__all__ = ["STALL_TIMEOUT_S", "check_mode", "open_reader", "reads_without_group"]

STALL_TIMEOUT_S: Final = 60.0


def reads_without_group(options: Mapping[str, Any]) -> bool:
    """Return whether the options choose to read without a group."""
    return bool(
        options["partitions"] or options["start"] is not None or options["until_end"]
        or (options["brokers"] is not None and options["group"] is None)
    )


def check_mode(options: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: The text names both options.
    """
    if not reads_without_group(options):
        if options["stall_timeout"] is not None:
            raise click.UsageError(
                "--stall-timeout is for reading without a group: also give --partition, --offset or --until-end."
            )
        return
    mode = "--partition" if options["partitions"] else "--offset" if options["start"] is not None else "--until-end"
    if options["brokers"] is not None and mode == "--until-end" and not options["until_end"]:
        mode = "--bootstrap-server without --group"
    for name, is_given in (
        ("--group", options["group"] is not None),
        ("--property group.id", "group.id" in canonical(properties)),
        ("--whitelist", options["whitelist"] is not None),
        ("--blacklist", options["blacklist"] is not None),
        ("--delete-offsets", options["delete_offsets"]),
        ("--streams", options["streams"] != 1),
    ):
        if is_given:
            raise click.UsageError(
                f"{mode} reads without a group, and {name} is for reading in a group: leave one of them out."
            )
    if len(set(options["topics"])) > 1:
        raise click.UsageError(f"{mode} reads one topic; {len(set(options['topics']))} are given.")
    if options["start"] is not None and options["from_beginning"]:
        raise click.UsageError("--offset and --from-beginning both say where to start: leave one of them out.")


def _start(options: Mapping[str, Any]) -> StartAt:
    if options["from_beginning"]:
        return "earliest"
    if options["start"] is None:
        # From the end to the end there would be nothing to read.
        return "earliest" if options["until_end"] else "latest"
    try:
        return parse_start(options["start"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--offset") from None


def open_reader(options: Mapping[str, Any], properties: Mapping[str, str]) -> TopicReader:
    """Return the reader that the options ask for.

    Args:
        properties: The settings of `--property`.

    Raises:
        click.UsageError: No ZooKeeper or no start can be made of the options.
        What `read_topic` raises.
    """
    found = connection_settings()
    settings: dict[str, Any] = {**found.properties, **canonical(properties)}
    zookeeper, brokers = options["zookeeper"], options["brokers"]
    settings.pop("bootstrap.servers", None)
    if brokers is not None:
        zookeeper, settings["bootstrap.servers"] = None, brokers
    elif zookeeper is None:
        raise no_zookeeper(found, or_brokers=True)
    if options["timeout_ms"] is not None:
        settings["consumer.timeout.ms"] = options["timeout_ms"]
    if options["isolation_level"] is not None:
        settings["isolation.level"] = options["isolation_level"]
    with named_places():
        return read_topic(
            zookeeper,
            options["topics"][0],
            options["partitions"] or None,
            start=_start(options),
            until="end" if options["until_end"] else None,
            properties=settings,
            stall_timeout_s=options["stall_timeout"] or STALL_TIMEOUT_S,
            client_id="zkconsumer-consume",
        )
