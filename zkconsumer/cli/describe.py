"""`zkconsumer describe`: shows a group's members, owners, offsets and lag, Java members included.

Source: kafka.tools.ConsumerOffsetChecker, VerifyConsumerRebalance (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from zkconsumer.admin import BrokerGroupReport, GroupReport, MemberRow, PartitionRow
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.broker_group_tables import print_broker_group
from zkconsumer.cli.options.connection_options import bootstrap_option, zookeeper_option
from zkconsumer.cli.options.group_options import groups_of, open_groups
from zkconsumer.cli.terminal.tables import print_problem, print_table
from zkconsumer_error import printable

__all__ = ["describe", "lag_header", "owner_cell", "print_offsets"]

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
    click.echo(f"Group {printable(found.group)}: {members}, "
               f"{count_of(len(found.partitions), 'partition')} of {count_of(topics, 'topic')}\n")
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
        unit: What lags count, `messages` or `bytes`.
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
