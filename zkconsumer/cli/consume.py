"""`zkconsumer consume`: prints the messages of topics as lines.

Source: kafka.tools.ConsoleConsumer (0.8.2.2).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rebalance.subscription import Subscription, check_topic
from simpleconsumer.types import Message
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import (
    bootstrap_option,
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    zookeeper_option,
)
from zkconsumer.cli.messages.consumption import (
    Consumption,
    Outcome,
    TopicPrinting,
    WantedGroup,
    check_mode,
    open_reader,
    prepare,
    reads_without_group,
    remove_generated,
)
from zkconsumer.cli.messages.line_output import LineOutput
from zkconsumer.cli.messages.message_lines import LineShape, line_formatter, message_format
from zkconsumer.cli.option_types import ConsumeCommand, PartitionType, Seconds, named_values, refuse_zookeeper
from zkconsumer.cli.terminal import Interrupted, LeaveSignals
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.checks import warning_about_07
from zkconsumer.config.connection_settings import ConnectionSettings, canonical
from zkconsumer.config.tables.keys import find_key, unknown_setting
from zkconsumer.connector import ConsumerConnector
from zkconsumer.filters import Blacklist, TopicFilter, Whitelist
from zkconsumer.streams.stream import KafkaStream

_FORMAT_KEYS = ("print.key", "key.separator", "line.separator")
"""Properties of Kafka's own formatter, which `--property` accepts in addition to the settings of a consumer."""

_EPILOG = """\
\b
Without --partition P, --offset AT and --until-end, the command joins a group: a group in ZooKeeper, or with
--bootstrap-server and --group a group that the brokers coordinate. With --bootstrap-server alone it joins no group.
Ctrl-C and SIGTERM commit the printed messages, leave the group at once and end with status 0. A message counts as
consumed when its line has been written. --from-beginning is refused if the group has stored offsets.

\b
With --partition P, --offset AT or --until-end, the command joins no group, stores nothing, and reads the partitions
that the topic has at the start. AT is earliest, latest, an offset, -N (N offsets before the end of each partition),
or a time: @2014-03-01T12:00:00Z or @milliseconds. A time is exact to the message with brokers of 0.10.1 and later and
messages with timestamps. Otherwise it is exact to a segment of the log: reading starts earlier, never later. If a
partition has no leader for --stall-timeout seconds, or its log no longer has the next offset, the command reports
that on stderr and stops reading the partition.
In Kafka 0.7 partitions are named broker-partition, such as 0-3, offsets are byte positions, and -N is N bytes before
the end. The messages of a compressed set share a position; entry_index of --json numbers them.

\b
--format prints its text and nothing else:
  %t topic, %p partition, %o offset, %T timestamp in ms (-1: none), %k key, %v or %s value, %K and %S their lengths
  (-1: null), %R length of the value as 4 bytes, %h headers (name=value,name=NULL), %%, and \\n \\r \\t \\\\ \\0
  \\xHH. A null prints nothing, or the text of --null.

\b
Status: 0 done (also after Ctrl-C, SIGTERM, or when the reader of a pipe has gone); 1 if a message or a partition
could not be read, or nothing could be read (the last line says why); 2 wrong usage.

\b
Example: the last five messages of each partition, with partition and offset
  zkconsumer consume --zookeeper localhost:2181 --topic clicks --offset -5 --until-end \\
      --print-partition --print-offset
"""


@dataclass(frozen=True)
class Wanted:
    """The request on the command line.

    Attributes:
        config: The settings, without auto-commit.
        auto_commit: Commit the printed messages periodically.
        topics: Those of `--topic`, each once; empty with a filter.
        streams: How many streams read, of each topic.
        format_line: Message -> line.
        generated_group: The group was generated for this run and is removed at its end.
    """

    config: ConsumerConfig
    auto_commit: bool
    topics: tuple[str, ...]
    topic_filter: TopicFilter | None
    streams: int
    format_line: Callable[[Message], bytes]
    generated_group: bool

    @property
    def subscription(self) -> Subscription:
        if self.topic_filter is not None:
            return self.topic_filter.subscription(self.streams)
        return Subscription.static(dict.fromkeys(self.topics, self.streams))

    @property
    def group(self) -> WantedGroup:
        """The values to check before the group is joined."""
        return WantedGroup(self.config, self.topics, self.topic_filter is not None, self.subscription,
                           self.generated_group)  # fmt: skip

    def subscribe(self, connector: ConsumerConnector) -> Sequence[KafkaStream]:
        """Create the streams."""
        if self.topic_filter is not None:
            return connector.create_message_streams_by_filter(self.topic_filter, self.streams)
        created = connector.create_message_streams(dict.fromkeys(self.topics, self.streams))
        return [stream for topic in self.topics for stream in created[topic]]


@click.command(cls=ConsumeCommand, epilog=_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option(meaning="Some brokers, host:port,host:port, instead of ZooKeeper; they coordinate the --group.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Topic to read; may be repeated.")
@click.option("--whitelist", metavar="REGEX", help="Read all topics that match, also later ones; commas mean 'or'.")
@click.option("--blacklist", metavar="REGEX", help="Read all topics that do not match, also later ones.")
@click.option("--group", metavar="GROUP", help="Group to join. [a temporary group, removed at the end]")
@click.option("--from-beginning", is_flag=True, help="Start at the oldest message instead of at new messages.")
@click.option("--delete-offsets", is_flag=True, help="First delete the group's stored offsets of these topics.")
@click.option(
    "--partition",
    "partitions",
    metavar="P",
    multiple=True,
    type=PartitionType(),
    help="Without a group: read this partition; may be repeated. If no value follows: --print-partition.",
)
@click.option(
    "--offset",
    "start",
    metavar="AT",
    help="Without a group: start at AT, see below. [latest; with --until-end earliest] "
    "If no value follows: --print-offset.",
)
@click.option("--until-end", is_flag=True, help="Without a group: stop where the logs ended at the start.")
@click.option(
    "--stall-timeout",
    metavar="SECONDS",
    type=Seconds(min_open=True),
    help="Without a group: stop reading a partition after SECONDS in which it was unreadable. [60]",
)
@click.option(
    "--max-messages", "--count", "max_messages", metavar="N", type=click.IntRange(min=1), help="End after N messages."
)
@click.option("--timeout-ms", metavar="N", type=click.IntRange(min=0), help="End when no message has arrived for N ms.")
@click.option(
    "--property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of the consumer, or print.key, key.separator, line.separator; may be repeated.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed leaves out messages of aborted and open transactions. [read_uncommitted]",
)
@click.option(
    "--streams", metavar="N", type=click.IntRange(1, 1000), default=1, help="Number of streams for each topic. [1]"
)
@click.option("--print-partition", "with_partition", is_flag=True, help="Print the partition.")
@click.option("--print-offset", "with_offset", is_flag=True, help="Print the offset.")
@click.option(
    "--timestamp",
    "--print-timestamp",
    "with_timestamp",
    is_flag=True,
    help="Print the timestamp in ms (null before Kafka 0.10).",
)
@click.option("--key", "--print-key", "with_key", is_flag=True, help="Print the key.")
@click.option("--key-separator", metavar="TEXT", help="Text between the fields. [a tab]")
@click.option("-f", "--format", "format_string", metavar="FORMAT", help="Print by a format string, see below.")
@click.option("--null", "null_text", metavar="TEXT", help="Text for a null key or value. [null; with -f nothing]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def consume(**options: Any) -> None:
    """Print the messages of topics on stdout, one per line.

    Fields are printed in the order partition, offset, timestamp, key, value. Bytes are printed unchanged, and null as
    'null'. With --json, keys and values are text, or base64 if key_encoding or value_encoding says so.
    """
    options["brokers"] = brokers_instead(options["brokers"])
    if reads_without_group(options):
        _consume_without_group(options)
        return
    wanted = _wanted(options)
    with LeaveSignals() as signals, named_places():
        try:
            prepare(wanted.group, from_beginning=options["from_beginning"], delete_first=options["delete_offsets"])
            try:
                outcome = _run(wanted, options["max_messages"], signals)
            finally:
                if wanted.generated_group:
                    remove_generated(wanted.config)
        except Interrupted:
            click.echo("Consumed 0 messages", err=True)
            raise click.exceptions.Exit(0) from None
    _report(outcome)


def _consume_without_group(options: Mapping[str, Any]) -> None:
    _check_topics(options)
    properties, formatting = _given_properties(options)
    format_line = _formatter(options, formatting)
    check_mode(options, properties)
    with LeaveSignals() as signals:
        try:
            reader = open_reader(options, properties)
        except Interrupted:
            click.echo("Consumed 0 messages", err=True)
            raise click.exceptions.Exit(0) from None
        fd = sys.stdout.fileno()
        output = LineOutput(fd, format_line, options["max_messages"], signals.wake)
        outcome = TopicPrinting(reader, signals, output, fd).run()
    _report(outcome)


def _run(wanted: Wanted, max_messages: int | None, signals: LeaveSignals) -> Outcome:
    fd = sys.stdout.fileno()
    output = LineOutput(fd, wanted.format_line, max_messages, signals.wake)
    interval_s = wanted.config.auto_commit_interval_ms / 1000 if wanted.auto_commit else None
    return Consumption(wanted.config, interval_s, wanted.subscribe, signals, output, fd).run()


def _report(outcome: Outcome) -> None:
    bad = f", {outcome.unreadable} unreadable" if outcome.unreadable else ""
    click.echo(f"Consumed {count_of(outcome.printed, 'message')}{bad}", err=True)
    if outcome.problem is not None:
        raise outcome.problem
    if outcome.unreadable:
        raise click.exceptions.Exit(1)


# -- what the command line says ----------------------------------------------------------------------------------------


def _wanted(options: Mapping[str, Any]) -> Wanted:
    topics = _check_topics(options)
    topic_filter: TopicFilter | None = None
    if options["whitelist"] is not None:
        topic_filter = Whitelist(options["whitelist"])
    elif options["blacklist"] is not None:
        topic_filter = Blacklist(options["blacklist"])
    properties, formatting = _given_properties(options)
    format_line = _formatter(options, formatting)
    check_mode(options, properties)
    with named_places():
        config, auto_commit, generated = _config(connection_settings(), options, properties)
    ConsumerConnector(config)  # refuses what this release does not serve, before any server is asked
    return Wanted(config, auto_commit, topics, topic_filter, options["streams"], format_line, generated)


def _check_topics(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the topics that are named, each once."""
    topics = tuple(dict.fromkeys(options["topics"]))
    if [bool(topics), options["whitelist"] is not None, options["blacklist"] is not None].count(True) != 1:
        raise click.UsageError("Give exactly one of --topic, --whitelist and --blacklist.")
    for topic in topics:
        check_topic(topic)
    return topics


def _given_properties(options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of `--property`, and those of the formatter."""
    properties = named_values(options["properties"])
    formatting = {name: properties.pop(name) for name in _FORMAT_KEYS if name in properties}
    for name in properties:
        key = find_key(name)
        if key is None:
            raise unknown_setting(name)
        if key.name == "zookeeper.connect":
            raise refuse_zookeeper(name)
        if key.name == "bootstrap.servers":
            raise click.BadParameter(f"{name} names brokers: give --bootstrap-server LIST instead",
                                     param_hint="--property")  # fmt: skip
    return properties, formatting


def _formatter(options: Mapping[str, Any], formatting: Mapping[str, str]) -> Callable[[Message], bytes]:
    """Return the function that formats a message, as the options say.

    Raises:
        click.UsageError: Options contradict each other, or the format string has a mistake.
    """
    null, text = options["null_text"], options["format_string"]
    if options["as_json"] and null is not None:
        raise click.UsageError("--null has no effect with --json, which prints null as null: leave one of them out.")
    if text is None:
        return line_formatter(_shape(options, formatting))
    fields = {
        "--json": options["as_json"],
        "--print-partition": options["with_partition"],
        "--print-offset": options["with_offset"],
        "--timestamp": options["with_timestamp"],
        "--key": options["with_key"],
        "--key-separator": options["key_separator"] is not None,
    }
    for name, is_given in fields.items():
        if is_given:
            raise click.UsageError(f"--format decides what is printed, so {name} has no effect: leave one of them out.")
    try:
        return message_format(text, b"" if null is None else null.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None


def _shape(options: Mapping[str, Any], formatting: Mapping[str, str]) -> LineShape:
    separator = options["key_separator"]
    if separator is None:
        separator = formatting.get("key.separator", "\t")
    return LineShape(
        partition=options["with_partition"],
        offset=options["with_offset"],
        timestamp=options["with_timestamp"],
        key=options["with_key"] or formatting.get("print.key", "").strip().lower() == "true",
        as_json=options["as_json"],
        separator=separator.encode(),
        terminator=formatting.get("line.separator", "\n").encode(),
        null=b"null" if options["null_text"] is None else options["null_text"].encode("utf-8", "surrogateescape"),
    )


def _config(
    found: ConnectionSettings, options: Mapping[str, Any], properties: Mapping[str, str]
) -> tuple[ConsumerConfig, bool, bool]:
    """Return the settings, whether to commit, and whether the group was generated."""
    chosen = {
        "zookeeper.connect": options["zookeeper"] if found.zookeeper_from == "--zookeeper" else None,
        "group.id": options["group"],
        "consumer.timeout.ms": options["timeout_ms"],
        "auto.offset.reset": "smallest" if options["from_beginning"] else None,
        "isolation.level": options.get("isolation_level"),
    }
    settings: dict[str, Any] = {"zookeeper.connect": options["zookeeper"], **found.properties, **canonical(properties)}
    settings.pop("bootstrap.servers", None)
    settings.update({name: value for name, value in chosen.items() if value is not None})
    if options.get("brokers") is not None:
        settings["zookeeper.connect"], settings["bootstrap.servers"] = None, options["brokers"]
    elif settings["zookeeper.connect"] is None:
        raise no_zookeeper(found, or_brokers=True)
    if warning := warning_about_07(found.names_of_07, settings):
        click.echo(f"warning: {warning}", err=True)
    generated = "group.id" not in settings
    if generated:
        settings["group.id"] = f"console-consumer-{random.randrange(100_000)}"
    auto_commit = _take_auto_commit(settings)
    return ConsumerConfig.from_properties(settings), auto_commit, generated


def _take_auto_commit(settings: dict[str, Any]) -> bool:
    """Turn the auto-commit of the connector off: here a message counts when it was printed."""
    key = find_key("auto.commit.enable")
    try:
        wanted = key is None or bool(key.kind.convert(settings.get("auto.commit.enable", "true")))
    except ValueError:
        return True  # ConsumerConfig reports what is wrong with it
    settings["auto.commit.enable"] = "false"
    return wanted
