"""Prints groups that brokers coordinate: members, and partitions with their offsets."""

from __future__ import annotations

from collections.abc import Sequence

import click

from simpleconsumer.group_types import CONSUMER_PROTOCOL
from zkconsumer.admin import BrokerGroupReport, BrokerMemberRow, BrokerPartitionRow
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.terminal.tables import print_problem, print_table, shown_group
from zkconsumer_error import printable

__all__ = ["print_broker_group", "print_broker_offsets"]


def print_broker_group(found: BrokerGroupReport) -> None:
    """Print a report: what its coordinator says, members, partitions, and what is wrong."""
    topics = len({row.topic for row in found.partitions})
    click.echo(f"Group {shown_group(found.group)}: {count_of(len(found.members), 'member')}, "
               f"{count_of(len(found.partitions), 'partition')} of {count_of(topics, 'topic')}")  # fmt: skip
    kind = f"{printable(found.group_type)} protocol" if found.protocol_type else "stored offsets alone"
    assigned = f", assigned by {printable(found.assignor)}" if found.assignor else ""
    click.echo(f"State {printable(found.state)}, {kind}{assigned}; coordinated by broker {found.coordinator} "
               f"({printable(found.coordinator_address)})\n")  # fmt: skip
    if found.members:
        _print_members(found)
        click.echo()
    if found.partitions:
        print_broker_offsets(found.partitions)
        unknown = f", unknown for {count_of(found.lag_unknown, 'partition')}" if found.lag_unknown else ""
        click.echo(f"\nTotal lag: {'-' if found.lag is None else found.lag}{unknown}")
    for problem in found.problems:
        print_problem(problem)
    if found.members and not found.problems and found.protocol_type == CONSUMER_PROTOCOL:
        click.echo("Each partition of each subscribed topic is assigned to a member.")


def print_broker_offsets(rows: Sequence[BrokerPartitionRow]) -> None:
    """Print a table of partitions."""
    cells = []
    for row in rows:
        shown = ["-" if number is None else str(number) for number in (row.offset, row.log_end, row.lag)]
        owner = row.owner or "none"
        cells.append([row.topic, str(row.partition), *shown, owner + (" !" if row.problems else ""), row.host or "-"])
    headers = ["TOPIC", "PARTITION", "OFFSET", "LOG END", "LAG", "OWNER", "HOST"]
    marked = [number for number, row in enumerate(rows) if row.problems]
    print_table(headers, cells, right=[1, 2, 3, 4], marked=marked)


def _print_members(found: BrokerGroupReport) -> None:
    has_instances = any(row.instance_id is not None for row in found.members)
    instance = ["INSTANCE"] if has_instances else []
    cells = []
    for row in found.members:
        mine = [row.instance_id or "-"] if has_instances else []
        cells.append([row.member_id, *mine, row.client_id, row.host, row.assignor or "-", str(len(row.assigned)),
                      _subscription(row)])  # fmt: skip
    headers = ["MEMBER", *instance, "CLIENT", "HOST", "ASSIGNOR", "PARTITIONS", "SUBSCRIPTION"]
    print_table(headers, cells, right=[4 + len(instance)])


def _subscription(row: BrokerMemberRow) -> str:
    if row.subscribed is None:
        return "?"
    return ", ".join([*row.subscribed, *([] if row.regex is None else [f"/{row.regex}/"])]) or "-"
