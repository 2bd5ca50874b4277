"""`zkconsumer describe`: shows a group's members, owners, offsets and lag, Java members included.

Source: kafka.tools.ConsumerOffsetChecker, VerifyConsumerRebalance (0.8.2.2).
"""

from __future__ import annotations

import click

from zkconsumer.admin import GroupReport, MemberRow, PartitionRow
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.connection_options import open_admin, zookeeper_option
from zkconsumer.cli.terminal.tables import print_problem, print_table

__all__ = ["OFFSET_HEADERS", "describe", "offset_cells"]

OFFSET_HEADERS = ("TOPIC", "PARTITION", "OFFSET", "LOG END", "LAG", "OWNER")
_EPILOG = """\
\b
Partitions without an owner, and owners that are no registered thread, are normal while a rebalance is under way and a
fault when they stay; `zkconsumer verify` waits for that, and says what would mend it. Offsets are those in ZooKeeper;
members with offsets.storage=kafka keep theirs elsewhere.

\b
Example:
  zkconsumer describe billing --zookeeper localhost:2181
"""


@click.command(epilog=_EPILOG)
@click.argument("group")
@zookeeper_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--check", is_flag=True, help="End with status 1 when something is wrong with the group.")
def describe(group: str, zookeeper: str, as_json: bool, check: bool) -> None:
    """Show the members of GROUP, who owns which partition, and how far behind it is."""
    with open_admin(zookeeper, "zkconsumer-describe", group) as admin:
        found = admin.describe(group)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found)
    if check and found.problems:
        raise click.exceptions.Exit(1)


def _print(found: GroupReport) -> None:
    topics = len({row.topic for row in found.partitions})
    click.echo(f"Group {found.group}: {count_of(len(found.members), 'member')}, "
               f"{count_of(len(found.partitions), 'partition')} of {count_of(topics, 'topic')}\n")
    if found.members:
        print_table(["MEMBER", "SUBSCRIPTION"], [[row.consumer_id, _subscription(row)] for row in found.members])
        click.echo()
    if found.partitions:
        marked = [number for number, row in enumerate(found.partitions) if row.problems]
        print_table(OFFSET_HEADERS, [offset_cells(row) for row in found.partitions], right=[1, 2, 3, 4], marked=marked)
        unknown = f", unknown for {count_of(found.lag_unknown, 'partition')}" if found.lag_unknown else ""
        click.echo(f"\nTotal lag: {found.lag}{unknown}")
    for problem in found.problems:
        print_problem(problem)
    if found.members and not found.problems:
        click.echo("Each partition of each subscribed topic is owned by a registered thread.")


def _subscription(row: MemberRow) -> str:
    if row.pattern is None:
        return "?"
    entries = ", ".join(f"{name} ({count_of(count, 'stream')})" for name, count in row.subscription.items())
    return f"{row.pattern} {entries}" if row.pattern != "static" else entries or "nothing"


def offset_cells(row: PartitionRow) -> list[str]:
    """Return the cells of a partition under `OFFSET_HEADERS`."""
    numbers = ["-" if number is None else str(number) for number in (row.offset, row.log_end, row.lag)]
    return [row.topic, str(row.partition), *numbers, (row.owner or "none") + (" !" if row.problems else "")]
