"""`zkconsumer offsets`: shows, sets, deletes, exports and imports the stored offsets of groups.

Source: kafka.tools.ConsumerOffsetChecker, ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK (0.8.2.2).

`zkconsumer offsets export` and `import`: stored offsets as a file that Kafka's own tools read and write.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from rebalance.subscription import check_topic
from zkconsumer.admin import BrokerAdmin, BrokerGroups, BrokerOffsets
from zkconsumer.admin.offsets.offset_administration import GroupOffsets
from zkconsumer.admin.offsets.offset_plans import OffsetTarget, parse_target
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import bootstrap_option, groups_of, open_groups, zookeeper_option
from zkconsumer.cli.describe import print_broker_offsets, print_offsets
from zkconsumer.cli.option_types import (
    CHANGED_STORES,
    PartitionType,
    print_changes,
    print_warning,
    refuse_other_stores,
    store_option,
)
from zkconsumer.cli.terminal import CliError, print_problem, shown_group
from zkconsumer_error import first_few, printable

_CLIENT_ID = "zkconsumer-offsets"
MAX_FILE_BYTES = 256 * 1024 * 1024
_EXPORT_EPILOG = """\
\b
Prints a line for each partition, /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, as Kafka's ExportZkOffsets does.
The offset is from ZooKeeper if ZooKeeper has one, otherwise from Kafka. Comments at the end list the offsets in
Kafka; `offsets import` reads them, and Kafka's ImportZkOffsets does not. --store exports the offsets of one store
only, and a comment says so. The file is written whole or not at all. Offsets that cannot be read are reported and
left out; the status is 1 then. --bootstrap-server exports groups that brokers coordinate; `offsets import` accepts
these lines for groups of both kinds.

\b
Example:
  zkconsumer offsets export billing --zookeeper localhost:2181 --output-file offsets.txt
"""
_IMPORT_EPILOG = """\
\b
Reads the lines that `zkconsumer offsets export` and Kafka's ExportZkOffsets write. If a line cannot be used, nothing
is written. An offset that another process has changed since it was read is not overwritten. --store says in which
store the offsets are set. Without it, they are set in the stores that the file names, whichever store the group uses
now. If the file names none, they are set where the group has offsets, and in ZooKeeper if it has none. The command
refuses to set offsets if the stores of a group differ and neither --store nor the file names one. It refuses
partitions that do not exist, and offsets that the log does not have; --force sets these offsets nevertheless.
With --bootstrap-server, all offsets are set in Kafka, also offsets that were exported from ZooKeeper. The command
refuses that while one of the groups has members.

\b
Example: see what would change
  zkconsumer offsets import --zookeeper localhost:2181 --input-file offsets.txt --dry-run
"""


@click.command("export", epilog=_EXPORT_EPILOG)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@zookeeper_option(required=False)
@bootstrap_option()
@store_option(["zookeeper", "kafka"], "Only the offsets in this store.")
@click.option(
    "--output-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead of stdout.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object instead of lines.")
def export_offsets(
    groups: Sequence[str],
    zookeeper: str | None,
    brokers: str | None,
    store: str | None,
    output_file: Path | None,
    as_json: bool,
) -> None:
    """Print the stored offsets of GROUPs, or of all groups."""
    with open_groups(zookeeper, brokers, _CLIENT_ID) as admin:
        if isinstance(admin, BrokerAdmin):
            refuse_other_stores(store)
            found = admin.export_offsets(*groups)
        else:
            found = admin.export_offsets(*groups, store=store)
    text = f"{found.to_json()}\n" if as_json else found.to_text()
    if output_file is None:
        click.echo(text, nl=False)
    else:
        _write_whole(output_file, text)
    with_offsets = len({line.group for line in found.lines})
    exported = f"Exported {count_of(len(found.lines), 'offset')} of {count_of(with_offsets, 'group')}"
    counts = found.counts()
    if counts["kafka"]:
        exported += f": {counts['zookeeper']} from ZooKeeper, {counts['kafka']} from Kafka"
    click.echo(exported, err=True)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    for problem in found.problems:
        click.echo(f"left out: {problem}", err=True)
    if found.problems:
        raise click.exceptions.Exit(1)


def _write_whole(path: Path, text: str) -> None:
    """Write a second file next to it and rename that, so that a full disk leaves the old one as it was."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
    try:
        handle, work = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        error.filename = str(path)  # the user has named no other file
        raise
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(work).chmod(mode)
        Path(work).rename(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(work).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@click.command("import", epilog=_IMPORT_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--input-file", metavar="FILE", required=True, help="File to read; - is stdin.")
@store_option(["zookeeper", "kafka", "both"], CHANGED_STORES)
@click.option("--dry-run", is_flag=True, help="Check and print everything, and write nothing.")
@click.option("--force", is_flag=True, help="Also while groups have members, and offsets that the logs do not have.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_offsets(
    zookeeper: str | None,
    brokers: str | None,
    input_file: str,
    store: str | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Set the stored offsets that a file lists.

    Prints the old and the new offset of each partition.
    """
    text = _read(input_file)
    source = "standard input" if input_file == "-" else input_file
    with open_groups(zookeeper, brokers, _CLIENT_ID) as admin:
        if isinstance(admin, BrokerAdmin):
            refuse_other_stores(store)
            found = admin.import_offsets(text, source=source, force=force, dry_run=dry_run)
        else:
            found = admin.import_offsets(
                text, source=source, force=force, dry_run=dry_run, store=store, warn=print_warning
            )
    if found.new_groups:
        names = found.new_groups
        noun, verb = ("group", "is") if len(names) == 1 else ("groups", "are")
        click.echo(f"{noun} {first_few(*names)} {verb} new", err=True)
    print_changes(found, as_json)


def _read(path: str) -> str:
    if path == "-":
        if sys.stdin is None:
            raise CliError("standard input is closed")
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        name = "standard input" if path == "-" else path
        raise CliError(f"{name} is larger than {MAX_FILE_BYTES} bytes", "import it in parts")
    return data.decode("utf-8", "replace")


_GET_EPILOG = """\
\b
A stored offset is that of the next message to read. If the group has offsets in Kafka, two columns show the offset in
each store; OFFSET is from the store that the owner seems to use. If that is not known, OFFSET is the larger one, and
a note says so. While the offsets in Kafka cannot be read, OFFSET is known only for partitions whose owner has stored
one in ZooKeeper. Status 1: something could not be read, and a - may stand for a stored offset. In Kafka 0.7 offsets
are byte positions, and the lag is in bytes; positions at which no entry starts are listed below the table.
--bootstrap-server shows groups that brokers coordinate (Kafka 0.9 and later), whose offsets are in Kafka.

\b
Examples:
  zkconsumer offsets get billing --zookeeper localhost:2181 --topic clicks
  zkconsumer offsets get billing --bootstrap-server b1:9092,b2:9092
"""
_SET_EPILOG = """\
\b
A time is in UTC unless it has a time zone. It may also be @ and milliseconds since 1970. `beginning` and `end` mean
earliest and latest. With brokers of 0.10.1 and later and messages with timestamps, the offset is that of the first
message at or after the time. Otherwise brokers know only the times of segment files: the offset is then the start of
a segment, so that no newer message is left out but older messages may be read, too. A warning says so. If no message
is that recent, the offset is the log end.
All offsets are checked before the first one is written. An offset that another process has changed since it was read
is not overwritten (in Kafka: unless it changes in the moment of writing). A shift stops at the bounds of the log, and
a note says so. It moves the offset of each store; if the stores differ, --store must choose one.
In Kafka 0.7 offsets are byte positions, and --shift counts bytes. A position inside an entry is set to the start of
that entry, and a note says so; --force sets it unchanged.
Brokers accept no offsets for a group that they coordinate while it has members, even with --force: stop the members
first.

\b
Examples: read a topic again; read the last 1000 messages of each partition of all topics again
  zkconsumer offsets set billing --zookeeper localhost:2181 --topic clicks --to earliest
  zkconsumer offsets set billing --zookeeper localhost:2181 --all-topics --shift -1000
"""
_DELETE_EPILOG = """\
\b
Members that claim the partitions later start where auto.offset.reset says. The command refuses to delete while a
member subscribes to one of the topics. In ZooKeeper it deletes the nodes. In Kafka the offsets no longer count at
once, and the broker deletes them when it next looks for expired offsets (every 10 minutes by default). Brokers before
Kafka 0.10.2 keep offsets of topics that no longer exist, do not list them, and count them again if the topic is
created again; they expire after a day. Brokers that coordinate a group refuse to delete offsets of topics to which
its members subscribe.

\b
Example: delete the offsets of a topic that the group no longer reads
  zkconsumer offsets delete billing --zookeeper localhost:2181 --topic clicks
"""


@click.group()
def offsets() -> None:
    """Show, set, delete, export and import the stored offsets of groups."""


@offsets.command("get", epilog=_GET_EPILOG)
@click.argument("group")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def get_offsets(group: str, zookeeper: str | None, brokers: str | None, topic: str | None, as_json: bool) -> None:
    """Show the stored offsets of GROUP, and the lag."""
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
@click.option("--topic", metavar="TOPIC", help="Topic whose offsets to set.")
@click.option("--all-topics", is_flag=True, help="All topics that the group reads or has stored offsets for.")
@click.option(
    "--partition",
    "chosen",
    metavar="P",
    type=PartitionType(),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option(
    "--to",
    "target",
    metavar="WHERE",
    type=_TargetType(),
    help="earliest, latest, an offset, or a time such as 2014-03-01T12:00:00Z.",
)
@click.option(
    "--shift",
    metavar="N",
    type=int,
    help="Move the offsets by N messages (Kafka 0.7: bytes), backwards if N is negative.",
)
@store_option(["zookeeper", "kafka", "both"], CHANGED_STORES)
@click.option("--force", is_flag=True, help="Also while the group has members, and offsets that the log does not have.")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def set_offsets(
    group: str,
    zookeeper: str | None,
    brokers: str | None,
    topic: str | None,
    all_topics: bool,
    chosen: Sequence[int | str],
    target: OffsetTarget | None,
    shift: int | None,
    store: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the stored offsets of GROUP, which must have no members.

    Prints the old and the new offset of each partition.
    """
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
@click.option("--topic", metavar="TOPIC", help="Only offsets of this topic. [all topics]")
@click.option(
    "--partition",
    "chosen",
    metavar="P",
    type=PartitionType(),
    multiple=True,
    help="Only the offset of this partition; may be repeated.",
)
@store_option(["zookeeper", "kafka", "both"], "Delete offsets in this store. [where the group has offsets]")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def delete_offsets(
    group: str,
    zookeeper: str | None,
    brokers: str | None,
    topic: str | None,
    chosen: Sequence[int | str],
    store: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete stored offsets of GROUP.

    Only of topics to which no member of the group subscribes. Prints the deleted offsets.
    """
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
