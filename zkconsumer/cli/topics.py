"""`zkconsumer topics`: shows partitions, leaders, replicas and offsets of topics.

Source: kafka.admin.TopicCommand, kafka.tools.GetOffsetShell (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from zkconsumer.admin import TopicPartitionRow, TopicReport
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.connection_options import open_admin, zookeeper_option
from zkconsumer.cli.terminal.tables import print_problem, print_table

__all__ = ["topics"]

_EPILOG = """\
\b
Leaders, replicas and in-sync replicas (ISR) are those in ZooKeeper, offsets those of the leaders: EARLIEST is the
oldest message that is kept, LATEST the offset that the next message will get.

\b
Example:
  zkconsumer topics --zookeeper localhost:2181 clicks
"""


@click.command(epilog=_EPILOG)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@zookeeper_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--check", is_flag=True, help="End with status 1 when something is wrong with a partition.")
def topics(names: Sequence[str], zookeeper: str, as_json: bool, check: bool) -> None:
    """Show topics, all of them when none is named; leaderless and under-replicated partitions are marked."""
    with open_admin(zookeeper, "zkconsumer-topics") as admin:
        found = admin.topics(*names)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found)
    if check and found.problems:
        raise click.exceptions.Exit(1)


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
    isr = "-"
    if row.isr is not None:
        isr = (",".join(map(str, row.isr)) or "none") + (" !" if set(row.replicas) - set(row.isr) else "")
    return [
        row.topic,
        str(row.partition),
        "none !" if row.leader is None else str(row.leader),
        ",".join(map(str, row.replicas)),
        isr,
        *("-" if offset is None else str(offset) for offset in (row.earliest, row.latest)),
    ]
