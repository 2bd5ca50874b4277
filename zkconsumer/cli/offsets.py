"""`zkconsumer offsets`: the stored offsets of groups, looked at, set, written to a file and read from one.

Source: kafka.tools.ConsumerOffsetChecker, ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK (0.8.2.2).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import click

from rebalance import znodes
from rebalance.requests import GetData, ZooKeeperPort
from rebalance.subscription import check_group, check_topic
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.group_reader import read_group, read_log_ends
from zkconsumer.admin.group_report import GroupNodes, PartitionRow, report
from zkconsumer.admin.offset_changes import OffsetChange, plan_changes, refuse_live_groups, write_changes
from zkconsumer.admin.offset_target import OffsetTarget, parse_target
from zkconsumer.cli.failures import CliError, nearest
from zkconsumer.cli.offset_files import export_offsets, import_offsets, print_changes
from zkconsumer.cli.tables import print_problem, print_table
from zkconsumer.cli.zookeeper_access import BROKER_TIMEOUT_S, ask_all, children, open_zookeeper, zookeeper_option
from zkconsumer.cluster.cluster import Cluster

__all__ = ["offsets"]

_CLIENT_ID = "zkconsumer-offsets"
_SHOWN = 3

_GET_EPILOG = """\
\b
Offsets are the next ones to be read. They are those in ZooKeeper; members with offsets.storage=kafka keep theirs
elsewhere.

\b
Example:
  zkconsumer offsets get billing --zookeeper localhost:2181 --topic clicks
"""
_SET_EPILOG = """\
\b
A time is UTC unless it names a zone. Brokers know times by segment files, so the offset is the begin of the newest
file that was last written before then: nothing newer than the time is left out, and older messages may come, too.
All offsets of the call are checked before the first is written. A value that somebody else has changed since it was
read is not written over.

\b
Example: read a topic once more
  zkconsumer offsets set billing --zookeeper localhost:2181 --topic clicks --to earliest
"""


@click.group()
def offsets() -> None:
    """The stored offsets of groups: show, set, export, import."""


@offsets.command("get", epilog=_GET_EPILOG)
@click.argument("group")
@zookeeper_option()
@click.option("--topic", metavar="TOPIC", help="This topic only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def get_offsets(group: str, zookeeper: str, topic: str | None, as_json: bool) -> None:
    """Show the offsets that GROUP has stored, and how far behind they are."""
    check_group(group)
    with open_zookeeper(zookeeper) as port:
        nodes = read_group(port, zookeeper, group)
        if topic is not None:
            nodes = _only(nodes, topic)
        found = report(read_log_ends(port, zookeeper, nodes))
    rows = [row for row in found.partitions if topic in (None, row.topic)]
    if as_json:
        entries = [dataclasses.asdict(row) for row in rows]
        click.echo(json.dumps({"group": group, "partitions": entries}, ensure_ascii=False))
        return
    if not rows:
        click.echo(f"group {group} has no offsets in ZooKeeper", err=True)
        return
    headers = ["TOPIC", "PARTITION", "OFFSET", "LOG END", "LAG", "OWNER"]
    marked = [number for number, row in enumerate(rows) if row.problems]
    print_table(headers, [_cells(row) for row in rows], right=[1, 2, 3, 4], marked=marked)
    for row in rows:
        for problem in row.problems:
            print_problem(f"{row.topic}-{row.partition}: {problem}")


def _only(nodes: GroupNodes, topic: str) -> GroupNodes:
    """The nodes with one topic whose logs are worth asking about."""
    if topic not in nodes.topics:
        raise CliError(f"group {nodes.group!r} has no offsets of topic {topic!r} and does not subscribe to it",
                       nearest(topic, sorted(nodes.topics), "topic"))
    return dataclasses.replace(nodes, topics={topic: nodes.topics[topic]})


def _cells(row: PartitionRow) -> list[str]:
    numbers = ["-" if number is None else str(number) for number in (row.offset, row.log_end, row.lag)]
    return [row.topic, str(row.partition), *numbers, (row.owner or "none") + (" !" if row.problems else "")]


class _TargetType(click.ParamType[OffsetTarget]):
    name = "target"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> OffsetTarget:
        try:
            return value if isinstance(value, OffsetTarget) else parse_target(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@offsets.command("set", epilog=_SET_EPILOG)
@click.argument("group")
@zookeeper_option()
@click.option("--topic", metavar="TOPIC", required=True, help="Topic whose offsets are set.")
@click.option("--partition", "chosen", metavar="P", type=click.IntRange(min=0), multiple=True,
              help="This partition only; may be repeated.")
@click.option("--to", "target", metavar="WHERE", type=_TargetType(), required=True,
              help="earliest, latest, an offset, or a time like 2014-03-01T12:00:00Z.")
@click.option("--force", is_flag=True, help="Also while the group has members, and beyond the bounds of the log.")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def set_offsets(
    group: str, zookeeper: str, topic: str, chosen: Sequence[int], target: OffsetTarget, force: bool, dry_run: bool,
    as_json: bool,
) -> None:
    """Set the offsets of GROUP, which must have no members while that is done; print old -> new."""
    check_group(group)
    check_topic(topic)
    with open_zookeeper(zookeeper) as port:
        refuse_live_groups(port, [group], force or dry_run)
        names = _partitions(port, topic, chosen)
        changes = _changes(port, zookeeper, group, names, target, force)
        if children(port, znodes.group_path(group)) is None:
            click.echo(f"group {group} is new", err=True)
        if not dry_run:
            write_changes(port, changes)
    print_changes(changes, as_json, dry_run)


def _partitions(port: ZooKeeperPort, topic: str, chosen: Sequence[int]) -> list[TopicPartition]:
    node = ask_all(port, [GetData(znodes.topic_path(topic))])[0]
    if node is None:
        raise CliError(f"there is no topic {topic!r}", nearest(topic, children(port, znodes.TOPICS) or [], "topic"))
    known = znodes.parse_topic(topic, node[0])
    missing = sorted(set(chosen) - set(known))
    if missing:
        raise CliError(f"topic {topic!r} has no partition {', '.join(map(str, missing))}",
                       f"it has {', '.join(map(str, known))}")
    return [TopicPartition(topic, number) for number in sorted(set(chosen) or known)]


def _changes(
    port: ZooKeeperPort, zookeeper: str, group: str, names: Sequence[TopicPartition], target: OffsetTarget, force: bool
) -> list[OffsetChange]:
    """What has to be written.

    Raises:
        CliError: a log does not have it.
    """
    needs_logs = target.offset is None or not force
    logs = Cluster(port, _CLIENT_ID, BROKER_TIMEOUT_S).log_ends(names, target.times_ms) if needs_logs else {}
    wanted: list[tuple[tuple[str, str, str], int]] = []
    refused: list[str] = []
    for name in names:
        try:
            offset = target.resolve(logs.get(name, ""), force)
        except ValueError as error:
            refused.append(f"{name.topic}-{name.partition}: {error}")
        else:
            wanted.append(((group, name.topic, str(name.partition)), offset))
    if refused:
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise CliError(
            f"no offset was set: {target.text} cannot be set for {'; '.join(refused[:_SHOWN])}{more}",
            "give --force to set it all the same" if target.offset is not None else "try again once a broker leads it",
        )
    return plan_changes(port, wanted)


offsets.add_command(export_offsets)
offsets.add_command(import_offsets)
