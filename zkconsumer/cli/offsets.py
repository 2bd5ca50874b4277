"""`zkconsumer offsets`: shows, sets, deletes, exports and imports the stored offsets of groups.

Source: kafka.tools.ConsumerOffsetChecker, ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from rebalance.subscription import check_topic
from zkconsumer.admin import BrokerGroups, BrokerOffsets
from zkconsumer.admin.offsets.offset_administration import GroupOffsets
from zkconsumer.admin.offsets.offset_plans import OffsetTarget, parse_target
from zkconsumer.cli.broker_group_tables import print_broker_offsets
from zkconsumer.cli.describe import print_offsets
from zkconsumer.cli.offset_files import export_offsets, import_offsets
from zkconsumer.cli.options.connection_options import bootstrap_option, zookeeper_option
from zkconsumer.cli.options.group_options import groups_of, open_groups
from zkconsumer.cli.options.offset_options import (
    CHANGED_STORES,
    print_changes,
    print_warning,
    refuse_other_stores,
    store_option,
)
from zkconsumer.cli.options.option_types import PartitionType
from zkconsumer.cli.terminal.tables import print_problem, shown_group
from zkconsumer_error import printable

__all__ = ["offsets"]

_CLIENT_ID = "zkconsumer-offsets"

_GET_EPILOG = """\
\b
An offset is the next one to be read. When a group has offsets in Kafka, two columns show the offset in each store;
OFFSET is that of the store in which the owner seems to work. If that is not known, it is the larger one, and a note
says so. While the offsets in Kafka cannot be read, it is known only where the owner has written one in ZooKeeper.
Status 1: something could not be read, and a - may stand for an offset that is stored. In Kafka 0.7 offsets are byte
positions, and the lag is in bytes; a position at which no entry starts is named below the table.
--bootstrap-server shows groups that brokers coordinate (Kafka 0.9 and later), whose offsets are in Kafka.

\b
Examples:
  zkconsumer offsets get billing --zookeeper localhost:2181 --topic clicks
  zkconsumer offsets get billing --bootstrap-server b1:9092,b2:9092
"""
_SET_EPILOG = """\
\b
A time is UTC unless it names a zone; it may be @ and milliseconds since 1970. beginning and end are earliest and
latest. With brokers of 0.10.1 and later and messages with timestamps, the offset is that of the first message at or
after the time. Otherwise brokers know times by segment files, and a warning says so: the offset is the start of a
segment, nothing newer than the time is left out, and older messages may come as well. If no message is that recent, the
offset is the end of the log.
All offsets of the call are checked before the first one is written. An offset that somebody else has changed since it
was read is not overwritten (in Kafka: unless that happens in the moment of writing). A shift ends at the bounds of the
log, which a note says. It moves each store from its own offset; where the stores differ, --store must say which.
In Kafka 0.7 offsets are byte positions, and --shift counts bytes. A position within an entry is set to the start of
that entry, which a note says; with --force it is set as it is.
The brokers take no offsets for a group of theirs while it has members, with --force neither: stop them first.

\b
Examples: read a topic once more; read the last 1000 messages of each partition of all topics once more
  zkconsumer offsets set billing --zookeeper localhost:2181 --topic clicks --to earliest
  zkconsumer offsets set billing --zookeeper localhost:2181 --all-topics --shift -1000
"""
_DELETE_EPILOG = """\
\b
Members that claim the partitions next start where auto.offset.reset says. Refused while a member subscribes to one of
the topics. In ZooKeeper the nodes are deleted. In Kafka the offsets count as none at once, and the broker deletes them
when it looks for expired offsets next (10 minutes, if not set otherwise). Brokers before Kafka 0.10.2 keep offsets of
topics that do not exist any more, do not list them, and count them again if such a topic is created: those stay until
they expire (a day). Brokers that coordinate a group refuse offsets of topics that its members subscribe to.

\b
Example: forget a topic that the group does not read any more
  zkconsumer offsets delete billing --zookeeper localhost:2181 --topic clicks
"""


@click.group()
def offsets() -> None:
    """The stored offsets of groups: show, set, delete, export, import."""


@offsets.command("get", epilog=_GET_EPILOG)
@click.argument("group")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--topic", metavar="TOPIC", help="This topic only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def get_offsets(
    group: str, zookeeper: str | None, brokers: str | None, topic: str | None, as_json: bool
) -> None:
    """Show the offsets that GROUP has stored, and how far behind they are."""
    with open_groups(zookeeper, brokers, _CLIENT_ID, group) as admin:
        found = groups_of(admin, group).offsets(group, topic)
    if isinstance(found, BrokerOffsets):
        _show_broker_offsets(found, as_json)
        return
    for sentence in found.unread:
        click.echo(f"zkconsumer: {printable(sentence)}", err=True)
    if as_json:
        click.echo(found.to_json())
    elif found.partitions:
        _print(found)
    elif not found.unread:
        click.echo(f"group {shown_group(group)} has no offsets", err=True)
    if found.unread:
        raise click.exceptions.Exit(1)


def _show_broker_offsets(found: BrokerOffsets, as_json: bool) -> None:
    if as_json:
        click.echo(found.to_json())
    elif found.partitions:
        print_broker_offsets(found.partitions)
        for row in found.partitions:
            for problem in row.problems:
                print_problem(f"{row.topic}-{row.partition}: {problem}")
    else:
        click.echo(f"group {shown_group(found.group)} has no offsets", err=True)


def _print(found: GroupOffsets) -> None:
    print_offsets(found.partitions, found.lag_unit)
    for note in found.notes:
        click.echo(f"note: {printable(note)}")
    for row in found.partitions:
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
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--topic", metavar="TOPIC", help="Topic whose offsets are set.")
@click.option("--all-topics", is_flag=True, help="All topics that the group reads or has offsets of.")
@click.option("--partition", "chosen", metavar="P", type=PartitionType(), multiple=True,
              help="This partition only; may be repeated.")
@click.option("--to", "target", metavar="WHERE", type=_TargetType(),
              help="earliest, latest, an offset, or a time like 2014-03-01T12:00:00Z.")
@click.option("--shift", metavar="N", type=int,
              help="Move the offsets by N messages (Kafka 0.7: bytes), back if negative.")
@store_option(["zookeeper", "kafka", "both"], CHANGED_STORES)
@click.option("--force", is_flag=True, help="Also while the group has members, and beyond the bounds of the log.")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def set_offsets(
    group: str, zookeeper: str | None, brokers: str | None, topic: str | None, all_topics: bool,
    chosen: Sequence[int | str], target: OffsetTarget | None, shift: int | None, store: str | None, force: bool,
    dry_run: bool, as_json: bool,
) -> None:
    """Set the offsets of GROUP, which must have no members while that is done; print old -> new."""
    if (topic is None) != all_topics:
        raise click.UsageError("Give exactly one of --topic and --all-topics.")
    if (target is None) == (shift is None):
        raise click.UsageError("Give exactly one of --to and --shift.")
    if all_topics and chosen:
        raise click.UsageError("--partition needs --topic.")
    if topic is not None:
        check_topic(topic)
    with open_groups(zookeeper, brokers, _CLIENT_ID, group) as admin:
        groups = groups_of(admin, group)
        if isinstance(groups, BrokerGroups):
            refuse_other_stores(store)
            if target is None:
                found = groups.shift_offsets(group, topic, shift or 0, chosen, dry_run=dry_run)
            else:
                found = groups.set_offsets(
                    group, topic, target, chosen, force=force, dry_run=dry_run, on_new_group=_say_new
                )
        elif target is None:
            found = groups.shift_offsets(
                group, topic, shift or 0, chosen, force=force, dry_run=dry_run, store=store, warn=print_warning
            )
        else:
            found = groups.set_offsets(
                group, topic, target, chosen, force=force, dry_run=dry_run, store=store, warn=print_warning,
                on_new_group=_say_new,
            )  # fmt: skip
    print_changes(found, as_json)


def _say_new(name: str) -> None:
    click.echo(f"group {name} is new", err=True)


@offsets.command("delete", epilog=_DELETE_EPILOG)
@click.argument("group")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--topic", metavar="TOPIC", help="Offsets of this topic only; of all topics without it.")
@click.option("--partition", "chosen", metavar="P", type=PartitionType(), multiple=True,
              help="Of this partition only; may be repeated.")
@store_option(["zookeeper", "kafka", "both"], "Where they are deleted; without it where the group has offsets.")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def delete_offsets(
    group: str, zookeeper: str | None, brokers: str | None, topic: str | None, chosen: Sequence[int | str],
    store: str | None, dry_run: bool, as_json: bool,
) -> None:
    """Delete offsets of GROUP, of topics that no member of it subscribes to; print what they were."""
    if chosen and topic is None:
        raise click.UsageError("--partition needs --topic.")
    if topic is not None:
        check_topic(topic)
    with open_groups(zookeeper, brokers, _CLIENT_ID, group) as admin:
        groups = groups_of(admin, group)
        if isinstance(groups, BrokerGroups):
            refuse_other_stores(store)
            found = groups.delete_offsets(group, topic, chosen, dry_run=dry_run)
        else:
            found = groups.delete_offsets(group, topic, chosen, dry_run=dry_run, store=store)
    print_changes(found, as_json, "deleted")


offsets.add_command(export_offsets)
offsets.add_command(import_offsets)
