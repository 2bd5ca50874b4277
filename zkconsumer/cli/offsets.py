"""`zkconsumer offsets`: shows, sets, exports and imports the stored offsets of groups.

Source: kafka.tools.ConsumerOffsetChecker, ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from rebalance.subscription import check_topic
from zkconsumer.admin.offset_target import OffsetTarget, parse_target
from zkconsumer.cli.connection_options import open_admin, zookeeper_option
from zkconsumer.cli.describe import print_offsets
from zkconsumer.cli.offset_files import export_offsets, import_offsets, print_changes, print_warning
from zkconsumer.cli.terminal.tables import print_problem

__all__ = ["offsets"]

_GET_EPILOG = """\
\b
An offset is the next one to be read. When a group has offsets in Kafka, two columns show the offset in each store;
OFFSET is the larger one.

\b
Example:
  zkconsumer offsets get billing --zookeeper localhost:2181 --topic clicks
"""
_SET_EPILOG = """\
\b
A time is UTC unless it names a zone. Brokers know times by segment files, so the offset is the start of the newest
segment that was last written before then: nothing newer than the time is left out, and older messages may come as well.
All offsets of the call are checked before the first one is written. An offset that somebody else has changed since it
was read is not overwritten.

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
    with open_admin(zookeeper, "zkconsumer-offsets", group) as admin:
        found = admin.offsets(group, topic)
    if as_json:
        click.echo(found.to_json())
        return
    rows = found.partitions
    if not rows:
        click.echo(f"group {group} has no offsets", err=True)
        return
    print_offsets(rows)
    for row in rows:
        for problem in row.problems:
            print_problem(f"{row.topic}-{row.partition}: {problem}")


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
    check_topic(topic)
    with open_admin(zookeeper, "zkconsumer-offsets", group) as admin:
        found = admin.set_offsets(group, topic, target, chosen, force=force, dry_run=dry_run, warn=print_warning)
    for name in found.new_groups:
        click.echo(f"group {name} is new", err=True)
    print_changes(found, as_json)


offsets.add_command(export_offsets)
offsets.add_command(import_offsets)
