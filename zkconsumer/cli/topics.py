"""`zkconsumer topics`: partitions, leaders, replicas and offsets of topics.

Source: kafka.admin.TopicCommand, kafka.tools.GetOffsetShell (0.8.2.2).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import click

from rebalance import znodes
from rebalance.requests import GetData, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.admin.topic_report import TopicNodes, TopicPartitionRow, TopicReport, topic_report
from zkconsumer.cli.failures import CliError, nearest
from zkconsumer.cli.tables import count_of, print_problem, print_table
from zkconsumer.cli.zookeeper_access import BROKER_TIMEOUT_S, ask_all, children, open_zookeeper, zookeeper_option
from zkconsumer.cluster.cluster import Cluster

__all__ = ["topics"]

_CLIENT_ID = "zkconsumer-topics"

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
    with open_zookeeper(zookeeper) as port:
        nodes = _read(port, zookeeper, names)
        wanted = nodes.partitions()
        log_offsets = Cluster(port, _CLIENT_ID, BROKER_TIMEOUT_S).log_ends(wanted, [EARLIEST, LATEST])
    found = topic_report(dataclasses.replace(nodes, log_offsets=log_offsets))
    if as_json:
        click.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _print(found)
    if check and found.problems:
        raise click.exceptions.Exit(1)


def _read(port: ZooKeeperPort, zookeeper: str, names: Sequence[str]) -> TopicNodes:
    known = children(port, znodes.TOPICS) or []
    for name in names:
        if name not in known:
            raise CliError(f"there is no topic {name!r} in ZooKeeper at {zookeeper}", nearest(name, known, "topic"))
    chosen = list(dict.fromkeys(names)) or known
    values = ask_all(port, [GetData(znodes.topic_path(topic)) for topic in chosen])
    # One that was deleted between the listing and the read is no topic any more.
    data = {topic: value[0] for topic, value in zip(chosen, values, strict=True) if value is not None}
    brokers = {int(name) for name in children(port, znodes.BROKERS) or [] if name.isdigit()}
    nodes = TopicNodes(brokers, data)
    wanted = nodes.partitions()
    states = ask_all(port, [GetData(znodes.partition_state_path(at.topic, int(at.partition))) for at in wanted])
    return dataclasses.replace(
        nodes, states={at: None if value is None else value[0] for at, value in zip(wanted, states, strict=True)}
    )


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
