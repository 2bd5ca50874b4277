"""`zkconsumer describe`: shows a group's members, owners, offsets and lag, Java members included.

Source: kafka.tools.ConsumerOffsetChecker, VerifyConsumerRebalance (0.8.2.2).

Prints groups that brokers coordinate: members, and partitions with their offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from simpleconsumer.types import CONSUMER_PROTOCOL
from zkconsumer.admin import (
    BrokerGroupReport,
    BrokerMemberRow,
    BrokerPartitionRow,
    GroupReport,
    MemberRow,
    PartitionRow,
)
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import bootstrap_option, groups_of, open_groups, zookeeper_option
from zkconsumer.cli.terminal import print_problem, print_table, shown_group
from zkconsumer_error import printable


def print_broker_group(found: BrokerGroupReport) -> None:
    """Print a report: the state by its coordinator, members, partitions, and problems."""
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
                      _broker_subscription(row)])  # fmt: skip
    headers = ["MEMBER", *instance, "CLIENT", "HOST", "ASSIGNOR", "PARTITIONS", "SUBSCRIPTION"]
    print_table(headers, cells, right=[4 + len(instance)])


def _broker_subscription(row: BrokerMemberRow) -> str:
    if row.subscribed is None:
        return "?"
    return ", ".join([*row.subscribed, *([] if row.regex is None else [f"/{row.regex}/"])]) or "-"


_HEADERS = ("TOPIC", "PARTITION", "OFFSET", "LOG END")
_STORES = ("IN ZOOKEEPER", "IN KAFKA")
_EPILOG = """\
\b
During a rebalance it is normal that partitions have no owner, or an owner that is not a registered thread. It is a
fault if it lasts: `zkconsumer verify` waits for the rebalance to end, and prints how to fix the rest. If the group
has offsets in Kafka, two columns show the offset in each store. If claims and offsets show which store the owners
use, a note says so, and OFFSET and LAG are from that store. If the stores differ and it is unknown which one the
owners use, OFFSET is the larger offset, and a problem says so. While the offsets in Kafka cannot be read, the lag is
known only for partitions whose owner has stored an offset in ZooKeeper. In Kafka 0.7 offsets are byte positions, and
the lag is in bytes. For a group that brokers coordinate (Kafka 0.9 and later), the command shows its state, its
coordinator and its members. --bootstrap-server looks for such groups only. With --zookeeper, a group that has no node
there is one of them.

\b
Examples:
  zkconsumer describe billing --zookeeper localhost:2181
  zkconsumer describe billing --bootstrap-server b1:9092,b2:9092
"""


@click.command(epilog=_EPILOG)
@click.argument("group")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--check", is_flag=True, help="End with status 1 if something is wrong with the group.")
def describe(group: str, zookeeper: str | None, brokers: str | None, as_json: bool, check: bool) -> None:
    """Show the members of GROUP, the owner of each partition, the offsets and the lag."""
    with open_groups(zookeeper, brokers, "zkconsumer-describe", group) as admin:
        found = groups_of(admin, group).describe(group)
    if as_json:
        click.echo(found.to_json())
    elif isinstance(found, BrokerGroupReport):
        print_broker_group(found)
    else:
        _print(found)
    if check and found.problems:
        raise click.exceptions.Exit(1)


def _print(found: GroupReport) -> None:
    topics = len({row.topic for row in found.partitions})
    members = count_of(None if found.members is None else len(found.members), "member")
    click.echo(
        f"Group {printable(found.group)}: {members}, "
        f"{count_of(len(found.partitions), 'partition')} of {count_of(topics, 'topic')}\n"
    )
    if found.members:
        print_table(["MEMBER", "SUBSCRIPTION"], [[row.consumer_id, _subscription(row)] for row in found.members])
        click.echo()
    if found.partitions:
        print_offsets(found.partitions, found.lag_unit)
        unknown = f", unknown for {count_of(found.lag_unknown, 'partition')}" if found.lag_unknown else ""
        unit = "" if found.lag is None or found.lag_unit == "messages" else f" {found.lag_unit}"
        click.echo(f"\nTotal lag: {'-' if found.lag is None else found.lag}{unit}{unknown}")
    for note in found.notes:
        click.echo(f"note: {printable(note)}")
    for problem in found.problems:
        print_problem(problem)
    if found.members and not found.problems:
        click.echo("Each partition of each subscribed topic is owned by a registered thread.")


def _subscription(row: MemberRow) -> str:
    if row.pattern is None:
        return "?"
    entries = ", ".join(f"{name} ({count_of(count, 'stream')})" for name, count in row.subscription.items())
    return f"{row.pattern} {entries}" if row.pattern != "static" else entries or "nothing"


def owner_cell(row: PartitionRow) -> str:
    """Return what a table shows as the owner of a partition; a question mark for one that may not be read."""
    return row.owner or ("?" if row.owner_is_hidden else "none")


def lag_header(unit: str) -> str:
    """Return the header of a column of lags: `LAG`, or `LAG (BYTES)` in Kafka 0.7."""
    return "LAG" if unit == "messages" else f"LAG ({unit.upper()})"


def print_offsets(rows: Sequence[PartitionRow], unit: str) -> None:
    """Print a table of partitions; with the offset in each store if one of them is, or may be, in Kafka.

    Args:
        rows: The partitions.
        unit: The unit of lags, `messages` or `bytes`.
    """
    has_stores = any(row.offset_in_kafka is not None or row.offset != row.offset_in_zookeeper for row in rows)
    stores = _STORES if has_stores else ()
    cells = []
    for row in rows:
        numbers = [row.offset, row.log_end, row.lag]
        if has_stores:
            numbers += [row.offset_in_zookeeper, row.offset_in_kafka]
        shown = ["-" if number is None else str(number) for number in numbers]
        cells.append([row.topic, str(row.partition), *shown, owner_cell(row) + (" !" if row.problems else "")])
    headers = [*_HEADERS, lag_header(unit), *stores, "OWNER"]
    marked = [number for number, row in enumerate(rows) if row.problems]
    print_table(headers, cells, right=list(range(1, len(headers) - 1)), marked=marked)
