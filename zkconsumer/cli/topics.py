"""`zkconsumer topics`: shows partitions, leaders, replicas and offsets of topics, and has commands that change them.

Source: kafka.admin.TopicCommand, kafka.tools.GetOffsetShell (0.8.2.2).

`zkconsumer topics create|grow|delete|set|cut`: changes topics, by requests to the brokers or by nodes in ZooKeeper.

Source: kafka.admin.TopicCommand --create, --alter, --delete (0.8.1 to 3.9).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from zkconsumer.admin import NotFound, TopicChange, TopicPartitionRow, TopicReport
from zkconsumer.admin.offsets.offset_plans import parse_target
from zkconsumer.admin.topics.topic_nodes import topics_of_brokers
from zkconsumer.admin.topics.topic_plans import parse_assignment
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import (
    bootstrap_option,
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    open_admin,
    open_topic_admin,
    zookeeper_option,
)
from zkconsumer.cli.option_types import ListingGroup, Seconds
from zkconsumer.cli.terminal import CliError, print_problem, print_table
from zkconsumer_error import printable

Command = TypeVar("Command", bound=Callable[..., Any])
_CLIENT = "zkconsumer-topics"
_CREATE_EPILOG = """\
\b
Replicas are assigned as Kafka's own tools do: the first replicas go round the brokers, from a random broker on. If
all brokers have a rack (broker.rack), the replicas of a partition are spread over racks.

\b
Examples:
  zkconsumer topics create clicks --bootstrap-server b1:9092 --partitions 8 --replication-factor 2
  zkconsumer topics create clicks --zookeeper localhost:2181 --replica-assignment 0:1,1:2 \\
    --topic-config retention.ms=3600000
"""
_GROW_EPILOG = """\
\b
Afterwards, messages with keys go to other partitions. Members of groups claim the new partitions by themselves.

\b
Example:
  zkconsumer topics grow clicks --zookeeper localhost:2181 --partitions 16
"""
_DELETE_EPILOG = """\
\b
All messages of the topic are lost. Offsets that groups have stored for it stay. If the topic is created again under
the same name, it starts at offset 0. Brokers can delete topics from 0.8.1 on; before 1.0 they need
delete.topic.enable=true.

\b
Example:
  zkconsumer topics delete clicks --zookeeper localhost:2181 --dry-run
"""
_SET_EPILOG = """\
\b
Other settings do not change. Brokers of 0.8.0 do not support settings of topics.

\b
Example:
  zkconsumer topics set clicks --bootstrap-server b1:9092 --topic-config retention.ms=3600000 --unset segment.bytes
"""
_CUT_EPILOG = """\
\b
The messages are lost, and the log of each partition then starts at that offset. Brokers support it from Kafka 0.11 on.
A group whose stored offset is lower continues where auto.offset.reset says.

\b
Example:
  zkconsumer topics cut clicks --bootstrap-server b1:9092 --before 2026-03-01T00:00:00Z --dry-run
"""
_PRODUCERS_EPILOG = """\
\b
SEQUENCE is that of the last record, OPEN SINCE the first offset of an open transaction. Only producers with an id are
listed; a leader forgets them a day after their last record (producer.id.expiration.ms).

\b
Example:
  zkconsumer topics producers clicks --bootstrap-server b1:9092 --partition 3
"""


class _AssignmentType(click.ParamType[dict[int, tuple[int, ...]]]):
    name = "assignment"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[int, tuple[int, ...]]:
        try:
            return value if isinstance(value, dict) else parse_assignment(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _settings(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{value!r} is not name=value, such as retention.ms=3600000")
        if name.strip() in found:
            raise click.BadParameter(f"{name.strip()} is given twice")
        found[name.strip()] = text.strip()
    return found


_assignment_option = click.option(
    "--replica-assignment",
    "assignment",
    metavar="LIST",
    type=_AssignmentType(),
    help="Broker ids of each partition, the leader first: 0:1,1:2 means two partitions.",
)
_config_option = click.option(
    "--topic-config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_settings,
    help="Setting of the topic, such as retention.ms=3600000; may be repeated. `--config NAME=VALUE` also works.",
)
_rack_option = click.option("--disable-rack-aware", is_flag=True, help="Assign replicas as if no broker had a rack.")


def _plain_options(command: Command) -> Command:
    """Add the options that all commands have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--dry-run", is_flag=True, help="Check and print everything, and change nothing."),
    ):
        command = option(command)
    return command


def _change_options(command: Command) -> Command:
    """Add the options of the commands that wait."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--wait-s",
            type=Seconds(min=0, max=86_400),
            default=30.0,
            show_default=True,
            help="How long to wait for the brokers, in seconds; 0 does not wait.",
        ),
        click.option("--dry-run", is_flag=True, help="Check and print everything, and write nothing."),
    ):
        command = option(command)
    return command


class _ConfigCommand(click.Command):
    """Takes `--config name=value` for a setting of the topic, as Kafka's own tool does, and also `--config FILE`."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args
        parser.parse_args = lambda args: parse(_with_topic_config(args))  # type: ignore[method-assign]
        return parser


def _with_topic_config(args: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word, following in itertools.zip_longest(args, args[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == "--config" and _is_setting(value if equals else following):
            found.append(f"--topic-config{equals}{value}")
        else:
            found.append(word)
    return found


def _is_setting(text: str) -> bool:
    return "=" in text and not os.path.exists(text)


@click.command("create", cls=_ConfigCommand, epilog=_CREATE_EPILOG)
@click.argument("topic", metavar="NAME")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--partitions", type=int, default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--replication-factor", "replication", type=int, default=1, show_default=True, help="Replicas of each partition."
)
@_assignment_option
@_config_option
@_rack_option
@_change_options
@click.pass_context
def create_topic(
    context: click.Context,
    topic: str,
    zookeeper: str | None,
    brokers: str | None,
    partitions: int,
    replication: int,
    assignment: dict[int, tuple[int, ...]] | None,
    settings: dict[str, str],
    disable_rack_aware: bool,
    dry_run: bool,
    wait_s: float,
    as_json: bool,
) -> None:
    """Create topic NAME, and wait until each of its partitions has a leader."""
    given = click.core.ParameterSource.COMMANDLINE
    if assignment is not None and given in map(context.get_parameter_source, ("partitions", "replication")):
        raise click.UsageError("Give --replica-assignment, or --partitions and --replication-factor.")
    with open_topic_admin(zookeeper, brokers, _CLIENT) as admin:
        change = admin.create_topic(
            topic, partitions, replication, assignment=assignment, config=settings, rack_aware=not disable_rack_aware,
            dry_run=dry_run, wait_s=wait_s, on_progress=_print_progress,
        )  # fmt: skip
    _print_change(change, as_json, "created")


@click.command("grow", epilog=_GROW_EPILOG)
@click.argument("topic", metavar="NAME")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--partitions", type=int, required=True, help="New number of partitions of the topic.")
@_assignment_option
@_rack_option
@_change_options
def grow_topic(
    topic: str,
    zookeeper: str | None,
    brokers: str | None,
    partitions: int,
    assignment: dict[int, tuple[int, ...]] | None,
    disable_rack_aware: bool,
    dry_run: bool,
    wait_s: float,
    as_json: bool,
) -> None:
    """Add partitions to topic NAME, and wait until each of them has a leader."""
    with open_topic_admin(zookeeper, brokers, _CLIENT) as admin:
        change = admin.grow_topic(
            topic, partitions, assignment=assignment, rack_aware=not disable_rack_aware, dry_run=dry_run, wait_s=wait_s,
            on_progress=_print_progress,
        )  # fmt: skip
    _print_change(change, as_json, "grown")


@click.command("delete", epilog=_DELETE_EPILOG)
@click.argument("topic", metavar="NAME")
@zookeeper_option(required=False)
@bootstrap_option()
@_change_options
def delete_topic(
    topic: str, zookeeper: str | None, brokers: str | None, dry_run: bool, wait_s: float, as_json: bool
) -> None:
    """Delete topic NAME with all its messages, and wait until it no longer exists."""
    with open_topic_admin(zookeeper, brokers, _CLIENT) as admin:
        change = admin.delete_topic(topic, dry_run=dry_run, wait_s=wait_s, on_progress=_print_progress)
    _print_change(change, as_json, "deleted")


@click.command("set", cls=_ConfigCommand, epilog=_SET_EPILOG)
@click.argument("topic", metavar="NAME")
@zookeeper_option(required=False)
@bootstrap_option()
@_config_option
@click.option("--unset", metavar="NAME", multiple=True, help="Remove this setting from the topic; may be repeated.")
@_plain_options
def set_topic(
    topic: str,
    zookeeper: str | None,
    brokers: str | None,
    settings: dict[str, str],
    unset: Sequence[str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change settings of topic NAME, and print their old and new values."""
    if not settings and not unset:
        raise click.UsageError("Give --topic-config NAME=VALUE, or --unset NAME.")
    with open_topic_admin(zookeeper, brokers, _CLIENT) as admin:
        found = admin.set_topic(topic, settings, unset=unset, dry_run=dry_run)
    if as_json:
        click.echo(found.to_json())
        return
    state = "is set" if found.written else "would be set"
    click.echo(f"topic {found.topic} {state}: {count_of(len(found.changes), 'change')}")
    for each in found.changes:
        values = each.old_value, each.new_value
        old, new = ("(of the brokers)" if value is None else printable(value) for value in values)
        click.echo(f"  {printable(each.name)}: {old} -> {new}")


class _BeforeType(click.ParamType[str]):
    name = "target"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return parse_target(str(value)).text
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("cut", epilog=_CUT_EPILOG)
@click.argument("topic", metavar="NAME")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option(
    "--before",
    metavar="WHERE",
    type=_BeforeType(),
    required=True,
    help="First message that stays: an offset, latest, or a time like 2014-03-01T12:00:00Z.",
)
@click.option(
    "--partition",
    "chosen",
    metavar="P",
    type=click.IntRange(min=0),
    multiple=True,
    help="This partition only; may be repeated.",
)
@_plain_options
def cut_topic(
    topic: str,
    zookeeper: str | None,
    brokers: str | None,
    before: str,
    chosen: Sequence[int],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete the messages of topic NAME below an offset of each partition."""
    with open_topic_admin(zookeeper, brokers, _CLIENT) as admin:
        found = admin.cut_topic(topic, before, partitions=chosen, dry_run=dry_run)
    if as_json:
        click.echo(found.to_json())
        return
    deleted = sum(row.new_earliest - row.earliest for row in found.partitions)
    state = "is cut" if found.written else "would be cut"
    partitions = count_of(len(found.partitions), "partition")
    click.echo(f"topic {found.topic} {state}: {count_of(deleted, 'offset')} of {partitions}")
    cells = [[str(each) for each in (row.partition, row.earliest, row.new_earliest, row.latest)]
             for row in found.partitions]  # fmt: skip
    print_table(["PARTITION", "EARLIEST", "NEW", "LATEST"], cells, right=[0, 1, 2, 3])


@click.command("producers", epilog=_PRODUCERS_EPILOG)
@click.argument("topic", metavar="NAME")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option(
    "--partition",
    "chosen",
    metavar="P",
    type=click.IntRange(min=0),
    multiple=True,
    help="This partition only; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_producers(
    topic: str, zookeeper: str | None, brokers: str | None, chosen: Sequence[int], as_json: bool
) -> None:
    """Show which producers with an id have written to topic NAME, and when last (Kafka 2.8 and later)."""
    with open_topic_admin(zookeeper, brokers, _CLIENT) as admin:
        found = admin.topic_producers(topic, partitions=chosen)
    if as_json:
        click.echo(found.to_json())
        return
    click.echo(f"{count_of(len(found.producers), 'producer')}\n")
    cells = [
        ["-" if cell is None else str(cell) for cell in (
            row.partition, row.producer_id, row.epoch, row.last_sequence, row.last_timestamp_ms,
            row.transaction_start,
        )] for row in found.producers
    ]  # fmt: skip
    if cells:
        headers = ["PARTITION", "PRODUCER", "EPOCH", "SEQUENCE", "LAST TIME MS", "OPEN SINCE"]
        print_table(headers, cells, right=[0, 1, 2, 3, 4, 5])
    for problem in found.problems:
        print_problem(problem)


def _print_progress(clause: str) -> None:
    click.echo(f"zkconsumer: {printable(clause)}", err=True)


def _print_change(change: TopicChange, as_json: bool, done: str) -> None:
    for sentence in change.warnings:
        click.echo(f"zkconsumer: {printable(sentence)}", err=True)
    if as_json:
        click.echo(change.to_json())
        return
    if not change.written:
        state = f"would be {done}"
    elif change.done:
        state = f"is {done}"
    else:
        state = f"will be {done}: the change is written, and the controller acts on it"
    click.echo(f"topic {change.topic} {state}: {count_of(len(change.partitions), 'partition')}")
    if done != "deleted":
        cells = [
            [str(each.partition), "-" if each.leader is None else str(each.leader),
             ",".join(map(str, each.replicas)) or "-"]
            for each in change.partitions
        ]  # fmt: skip
        print_table(["PARTITION", "LEADER", "REPLICAS"], cells, right=[0, 1])


_EPILOG = """\
\b
Leaders, replicas and in-sync replicas (ISR) come from ZooKeeper, or from the brokers of --bootstrap-server. Offsets
come from the leaders: EARLIEST is the oldest offset in the log, LATEST the offset that the next message will get. ?
stands for what ZooKeeper does not let you read. In Kafka 0.7 partitions are named broker-partition and led by that
broker, there are no replicas, and offsets are byte positions.

\b
Examples:
  zkconsumer topics --zookeeper localhost:2181 clicks
  zkconsumer topics --bootstrap-server b1:9092,b2:9092
  zkconsumer topics create clicks --bootstrap-server b1:9092 --partitions 8
"""
_LIST_EPILOG = (
    _EPILOG[: _EPILOG.index("\b\nExample")]
    + """\
\b
Example:
  zkconsumer topics list clicks --zookeeper localhost:2181
"""
)
_CLIENT_ID = "zkconsumer-topics"


class _TopicsGroup(ListingGroup):
    takes_names = True


@click.group(cls=_TopicsGroup, no_args_is_help=False, epilog=_EPILOG)
def topics() -> None:
    """Show topics, or create, grow, delete, set and cut one.

    Without a command, the command lists the named topics, or all topics. It marks partitions that are under-replicated
    or have no leader. `topics list NAME` lists a topic that has the name of a command.
    """


@topics.command("list", epilog=_LIST_EPILOG)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--check", is_flag=True, help="End with status 1 if something is wrong with a partition.")
def list_topics(names: Sequence[str], zookeeper: str | None, brokers: str | None, as_json: bool, check: bool) -> None:
    """List the named topics, or all topics.

    Marks partitions that are under-replicated or have no leader.
    """
    try:
        found = _report(names, zookeeper, brokers_instead(brokers))
    except NotFound as error:
        if set(names) & _CHANGES.keys():
            [word, *_] = [name for name in names if name in _CHANGES]
            raise CliError(error.sentence, f"write the command `{word}` first: zkconsumer topics {word} ...") from None
        raise
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found)
    if check and found.problems:
        raise click.exceptions.Exit(1)


_CHANGES = {
    "create": create_topic, "grow": grow_topic, "delete": delete_topic, "set": set_topic, "cut": cut_topic,
    "producers": show_producers,
}  # fmt: skip
for _command in _CHANGES.values():
    topics.add_command(_command)


def _report(names: Sequence[str], zookeeper: str | None, brokers: str | None) -> TopicReport:
    if brokers is not None:
        with named_places():
            return topics_of_brokers(brokers, names, connection_settings().properties, _CLIENT_ID)
    if zookeeper is None:
        raise no_zookeeper(connection_settings(), or_brokers=True)
    with open_admin(zookeeper, _CLIENT_ID) as admin:
        return admin.topics(*names)


def _print(found: TopicReport) -> None:
    rows = found.partitions
    click.echo(f"{count_of(len({row.topic for row in rows}), 'topic')}, {count_of(len(rows), 'partition')}\n")
    if rows:
        headers = ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST", "LATEST"]
        marked = [number for number, row in enumerate(rows) if row.problems]
        print_table(headers, [_cells(row) for row in rows], right=[1, 2, 5, 6], marked=marked)
    if found.problems:
        click.echo()
    for problem in found.problems:
        print_problem(problem)


def _cells(row: TopicPartitionRow) -> list[str]:
    isr = "?" if row.leader_is_hidden else "-"
    if row.isr is not None:
        isr = (",".join(map(str, row.isr)) or "none") + (" !" if set(row.replicas) - set(row.isr) else "")
    return [
        row.topic,
        str(row.partition),
        str(row.leader) if row.leader is not None else "? !" if row.leader_is_hidden else "none !",
        ",".join(map(str, row.replicas)) or "-",
        isr,
        *("-" if offset is None else str(offset) for offset in (row.earliest, row.latest)),
    ]
