"""`zkconsumer topics`: shows partitions, leaders, replicas and offsets of topics, and has commands that change them.

Source: kafka.admin.TopicCommand, kafka.tools.GetOffsetShell (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from zkconsumer.admin import NotFound, TopicPartitionRow, TopicReport
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.topics.topics_of_brokers import topics_of_brokers
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.options.connection_options import (
    bootstrap_option,
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    open_admin,
    zookeeper_option,
)
from zkconsumer.cli.options.listing_group import ListingGroup
from zkconsumer.cli.terminal.tables import print_problem, print_table
from zkconsumer.cli.topic_commands import create_topic, cut_topic, delete_topic, grow_topic, set_topic, show_producers

__all__ = ["topics"]

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
_LIST_EPILOG = _EPILOG[: _EPILOG.index("\b\nExample")] + """\
\b
Example:
  zkconsumer topics list clicks --zookeeper localhost:2181
"""

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
def list_topics(
    names: Sequence[str], zookeeper: str | None, brokers: str | None, as_json: bool, check: bool
) -> None:
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
