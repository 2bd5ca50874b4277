"""`zkconsumer produce`: sends the lines of standard input as messages.

Source: kafka.tools.ConsoleProducer, kafka.producer.DefaultPartitioner (0.8.2.2).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from rebalance.subscription import check_topic
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import bootstrap_option, named_places, open_zookeeper, zookeeper_option
from zkconsumer.cli.messages.message_lines import LineForm, json_parser, line_parser
from zkconsumer.cli.messages.produce_settings import CLIENT_ID, READER_HELP, producer_config, take_line_form
from zkconsumer.cli.messages.production import LineTarget, Produced, Production, is_about_unstored_times
from zkconsumer.cli.messages.target_topic import (
    ListedTopic,
    ListedTopic07,
    RegisteredTopic,
    RegisteredTopic07,
    Target,
    check_settings_07,
)
from zkconsumer.cli.option_types import PartitionType, named_values
from zkconsumer.cli.terminal import CliError, Interrupted, LeaveSignals
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.placing import DefaultEncoder
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.produce_codes import TIMES_SINCE
from zkconsumer.producer.sending.sending import FoundCluster, find_cluster, registered_cluster

_ANSWER_S: Final = 10.0
_SHOWN_FAILURES: Final = 10
_DEFAULT_LIMIT_07: Final = 1_000_000
"""`max.message.size` of brokers of Kafka 0.7, if it is not set otherwise."""

_EPILOG = """\
\b
A message with a key goes to the partition of the key (abs(Arrays.hashCode(key)) % partitions, as in Kafka 0.8.2;
--property partitioner.class=NAME chooses another way). Messages without a key go to one partition after the other. A
batch is sent when it is full or when the input pauses. It is sent again if the leader changes or the broker dies, for
half a minute by default (--retries 100 --property retry.backoff.ms=300). After a lost connection a message may be
stored twice.

\b
A line ends with LF; a CR is part of the message. An empty line is an empty message. Bytes are sent unchanged. A line
that cannot be sent (larger than message.max.bytes, no separator, no leader in time) fails alone, and is listed at the
end. After 1000 failures in a row the command stops reading; also after a line with a time (--from-json) that brokers
before Kafka 0.10 do not store.

\b
Brokers of Kafka 0.7 acknowledge nothing. There a batch counts as sent when its broker has answered another request
that followed on the same connection. The broker silently drops messages that are larger than its max.message.size. It
stores no keys, and creates a topic with its first message. Partitions are named broker-partition, such as 0-3.

\b
At Ctrl-C and SIGTERM the command sends what it has read, for ten seconds at most, and counts it.
Status: 0 all lines were sent (also after Ctrl-C or SIGTERM, unless the rest of a file is left); 1 some lines were not
sent, or nothing could be sent; 2 wrong usage; 130 interrupted before the first line was read.

\b
Examples: three messages, two of them with the same key; the output of `consume --json`, with nulls and any bytes
  printf 'ann:1\\nbob:2\\nann:3\\n' | zkconsumer produce --zookeeper localhost:2181 --topic clicks --key-separator :
  zkconsumer produce --brokers b1:9092,b2:9092 --topic clicks --from-json --acks -1 < clicks.json
"""


@click.command(epilog=_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option("--brokers")
@click.option("--topic", metavar="TOPIC", required=True, help="Topic to write to.")
@click.option("--partition", metavar="P", type=PartitionType(), help="Send all messages to this partition.")
@click.option("--key-separator", metavar="TEXT", help="Each line is a key, this text, and a value.")
@click.option("--null", "null_text", metavar="TEXT", help="A key or a value that equals this text is null.")
@click.option(
    "--from-json",
    "from_json",
    is_flag=True,
    help="Lines are those of `consume --json`; key, value, headers and time are sent.",
)
@click.option(
    "--times",
    type=click.Choice(["keep", "now"]),
    help="With --from-json: send the times of the lines (Kafka 0.10 and later), or the current time. [keep]",
)
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="Add a header to every message (Kafka 0.11 and later); may be repeated.",
)
@click.option("--codec", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="Compression. [none]")
@click.option("--batch-size", metavar="N", type=click.IntRange(min=1), help="Most messages in a batch. [200]")
@click.option(
    "--acks",
    type=click.Choice(["1", "-1", "0"]),
    help="Wait for the leader (1), for all in-sync replicas (-1), or for no answer (0). [1]",
)
@click.option("--retries", metavar="N", type=click.IntRange(min=0), help="How often to retry a batch. [100]")
@click.option(
    "--property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help=f"A setting of the producer, or {READER_HELP}; may be repeated.",
)
@click.option("--no-create", is_flag=True, help="Do not let the brokers create the topic: fail if it does not exist.")
def produce(**options: Any) -> None:
    """Send each line of stdin as a message.

    The command finds the brokers in ZooKeeper, or asks those of --brokers. If the topic does not exist, brokers with
    auto.create.topics.enable create it, which stderr says before anything is sent; see --no-create.
    """
    check_topic(options["topic"])
    if sys.stdin is None:
        raise CliError("standard input is closed")
    properties = named_values(options["properties"])
    _check_options(options)
    options["form"] = take_line_form(properties, options["key_separator"], options["null_text"], options["from_json"])
    with LeaveSignals() as signals, named_places():
        config = _config(options, properties)
        try:
            with _opened(config, options) as (target, cluster):
                _produce(config, options, target, cluster, signals)
        except Interrupted:
            click.echo("Produced 0 messages", err=True)
            raise click.exceptions.Exit(130) from None


def _check_options(options: dict[str, Any]) -> None:
    if options["times"] is not None and not options["from_json"]:
        raise click.UsageError("--times has no effect without --from-json: other lines have no times.")
    if options["key_separator"] == "":
        raise click.BadParameter("is empty", param_hint="--key-separator")
    for name, shown in (("key_separator", "--key-separator"), ("null_text", "--null")):
        if options["from_json"] and options[name] is not None:
            raise click.UsageError(
                f"{shown} has no effect with --from-json, whose lines have that themselves: leave one of them out."
            )


def _config(options: dict[str, Any], properties: dict[str, str]) -> ProducerConfig:
    chosen = {
        "compression.codec": options["codec"], "batch.num.messages": options["batch_size"],
        "request.required.acks": options["acks"], "message.send.max.retries": options["retries"],
    }  # fmt: skip
    return producer_config(options["zookeeper"], options["brokers"], properties, chosen)


@contextmanager
def _opened(config: ProducerConfig, options: dict[str, Any]) -> Iterator[tuple[Target, FoundCluster]]:
    """Yield the topic and its cluster."""
    topic, may_create = options["topic"], not options["no_create"]
    form: LineForm = options["form"]
    brokers = config.metadata_broker_list
    if brokers is not None:
        is_07 = brokers[0].id is not None or config.kafka_generation == "0.7"
        if is_07:
            check_settings_07(config, form, options["headers"])
        target = ListedTopic07(topic, may_create) if is_07 else ListedTopic(
            brokers, topic, may_create, CLIENT_ID, config.security
        )  # fmt: skip
        yield target, find_cluster(config)
        return
    assert config.zookeeper_connect is not None
    with open_zookeeper(config.zookeeper_connect) as port:
        forced = config.kafka_generation
        cluster = Cluster(port, CLIENT_ID, _ANSWER_S, forced_generation=forced, security=config.security)
        cluster.refuse_other_generation()
        is_07 = cluster.generation().has_broker_nodes
        if is_07:
            check_settings_07(config, form, options["headers"])
        kind = RegisteredTopic07 if is_07 else RegisteredTopic
        yield kind(cluster, config.zookeeper_connect, topic, may_create, CLIENT_ID), registered_cluster(port, config)


def _produce(
    config: ProducerConfig, options: dict[str, Any], target: Target, cluster: FoundCluster, signals: LeaveSignals
) -> None:
    target.open()
    if (creation := target.about_creation()) is not None:
        click.echo(creation, err=True)
    partition = options["partition"]
    if partition is not None and partition not in target.partitions:
        raise target.no_partition(partition)
    with Producer(config, key_encoder=DefaultEncoder(), value_encoder=DefaultEncoder(), cluster=cluster) as producer:
        if not cluster.has_keys and config.message_max_bytes > _DEFAULT_LIMIT_07:
            click.echo("warning: brokers of Kafka 0.7 silently drop messages above their max.message.size, by "
                       f"default {_DEFAULT_LIMIT_07} bytes", err=True)  # fmt: skip
        lines = _line_target(config, options, cluster.has_keys)
        fd = sys.stdin.fileno()
        report = _report_line if sys.stdin.isatty() else None
        done = Production(producer, lines, fd, signals, report).run()
        acks = None if cluster.has_keys else config.request_required_acks
        click.echo(_about_sent(done.sent, producer.repeated, acks), err=True)
    _end(done, report is not None)


def _line_target(config: ProducerConfig, options: dict[str, Any], has_keys: bool) -> LineTarget:
    most = config.message_max_bytes
    form: LineForm = options["form"]
    parse = None
    longest = most + len(form.key_separator or b"")
    if options["from_json"]:
        parse = json_parser(has_keys, options["times"] != "now")
        longest = 6 * most + 64 * 1024  # a character may be written as \u0000; and there is more in an object
    elif form != LineForm():
        parse = line_parser(form)
        longest += 64 * 1024 if form.headers is not None else 0  # the text between headers may be long
    headers = tuple(map(_header, options["headers"]))
    return LineTarget(options["topic"], options["partition"], parse, most, longest, headers)


def _header(text: str) -> tuple[str, bytes]:
    """Return name and value of a header."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode("utf-8", "surrogateescape")


def _about_sent(sent: int, repeated: int, acks_07: int | None) -> str:
    """Return the last line; `acks_07` is None for brokers that acknowledge messages."""
    said = f"Produced {count_of(sent, 'message')}"
    if repeated:
        said += f"; {repeated} were sent again after a lost connection and may be stored twice"
    if acks_07 is not None:
        known = "the brokers have received these" if acks_07 else "it is not known whether the brokers have these"
        said += f"; Kafka 0.7 acknowledges no messages: {known}"
    return said


def _report_line(number: int, error: Exception) -> None:
    click.echo(f"zkconsumer: line {number} was not sent: {error}", err=True)


def _end(done: Produced, is_reported: bool) -> None:
    """Name what was not sent, and end with status 1 if there is something."""
    if done.ended:
        more = "" if done.is_whole else "; later lines were not sent"
        click.echo(f"zkconsumer: {done.ended}; the last line that was read is {done.lines}{more}", err=True)
    if done.failed == 1 and not is_reported:
        _report_line(*done.failures[0])
    elif done.failed:
        click.echo(f"zkconsumer: {done.failed} of {done.lines} lines were not sent", err=True)
        for number, error in () if is_reported else done.failures[:_SHOWN_FAILURES]:
            click.echo(f"  line {number}: {error}", err=True)
    if TIMES_SINCE in done.ended or any(is_about_unstored_times(error) for _, error in done.failures):
        click.echo("zkconsumer: --times now sends the lines without their times", err=True)
    if done.failed or not done.is_whole:
        raise click.exceptions.Exit(1)
