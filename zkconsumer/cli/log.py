"""`zkconsumer log`: reads the log folders of brokers, without a broker.

Source: kafka.tools.DumpLogSegments (0.8.2.2, 3.9), which this goes beyond.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from simpleconsumer.types import Message
from zkconsumer.admin.values import count_of, typed
from zkconsumer.cli.messages.message_lines import FIELDS_HELP, LineShape, json_line, line_formatter, message_format
from zkconsumer.cli.terminal import CliError, print_table
from zkconsumer.log.checking import CheckedPartition, Finding, check_partition
from zkconsumer.log.groups import GroupPositions, StoredPosition
from zkconsumer.log.log_folder import DiskLog, open_log, partition_of
from zkconsumer.log.outline import PartitionOutline, outline_of
from zkconsumer.log.partition_log import DiskPartition
from zkconsumer.log.reading import LogReading
from zkconsumer.log.values import Damage, Gap, LogTail
from zkconsumer.log.zookeeper_folder import is_zookeeper_folder, read_positions
from zkconsumer_error import first_few

_OFFSETS: Final = "__consumer_offsets"
_BLOCK_BYTES: Final = 64 * 1024
_LIST_EPILOG = """\
\b
The command reads only names, checkpoints and the headers of entries. `log check` finds damage inside of entries.

\b
Example:
  zkconsumer log list /var/kafka-logs
"""
_CHECK_EPILOG = """\
\b
The command prints one JSON object per line: `damage` and `gap` with file, bytes and offsets; `tail` and `note` for
findings that are no fault; `partition` with its counts; `summary` at the end. The gaps below_log_start, compacted and
transaction are normal. The gaps segment_missing, damaged and unexplained are faults.

\b
Status: 0 clean; 1 offsets are missing (segment_missing, unexplained); 2 something is damaged, or wrong usage.

\b
Example:
  zkconsumer log check /var/kafka-logs --topic clicks
"""
_DUMP_EPILOG = f"""\
\b
--json prints the lines of `consume --json`, which `produce --from-json` sends. --raw prints each value and a line feed.
-f prints what FORMAT says:
  {FIELDS_HELP}

\b
The command reports damage and missing offsets on stderr, and continues after them. Status: 0 done; 1 a message could
not be read, or may be missing.

\b
To send these messages to a cluster, pipe the lines of --json to `zkconsumer produce --from-json`.

\b
Example: the committed messages of one partition
  zkconsumer log dump /var/kafka-logs --topic clicks --partition 3 --isolation-level read_committed --json
"""
_GROUPS_EPILOG = """\
\b
__consumer_offsets has the offsets of groups that store them in Kafka. Other groups have them in ZooKeeper: give its
dataDir, with the folder version-2. The command reads its newest sound snapshot and the transaction logs. It needs no
ZooKeeper server, and no Java.

\b
Status: 0 done; 1 something is damaged or missing, so that an offset may be older than the last commit.

\b
Examples:
  zkconsumer log groups /var/kafka-logs --group billing
  zkconsumer log groups --zookeeper-data /var/zookeeper --json
"""

_folders = click.argument("folders", nargs=-1, required=True, metavar="FOLDER...",
                          type=click.Path(path_type=Path))  # fmt: skip
_partitions = click.option("--partition", "partitions", metavar="P", multiple=True, type=click.IntRange(min=0),
                           help="Only this partition; may be repeated.")  # fmt: skip


@click.group("log")
def log() -> None:
    """Read the log folders of brokers, without a broker.

    FOLDER is a folder of log.dirs, or a copy of one, of any Kafka from 0.7 to 4.3; or the folder of one partition. The
    commands only read files.
    """


@log.command("list", epilog=_LIST_EPILOG)
@_folders
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_logs(folders: tuple[Path, ...], topic: str | None, as_json: bool) -> None:
    """List topics and partitions: offsets, times, sizes, formats."""
    found = [each for each in open_log(*folders).partitions if topic in (None, each.topic)]
    rows = [outline_of(each) for each in found]
    if as_json:
        click.echo(json.dumps({"partitions": [asdict(row) for row in rows]}))
        return
    print_table(
        ["TOPIC", "PARTITION", "FIRST", "NEXT", "FROM", "TO", "BYTES", "FILES", "FORMATS", "PROBLEMS"],
        [_row(row) for row in rows], right=[1, 2, 3, 6, 7],
        marked=[number for number, row in enumerate(rows) if row.problems],
    )  # fmt: skip
    for row in rows:
        for problem in row.problems:
            click.echo(f"{row.topic}-{row.partition}: {problem}", err=True)


def _row(row: PartitionOutline) -> list[str]:
    return [
        row.topic, f"{row.partition}{f' ({row.state})' if row.state else ''}", str(row.first_offset),
        str(row.next_offset), _time(row.first_ms), _time(row.last_ms), str(row.size_bytes), str(row.segments),
        ", ".join(row.formats), str(len(row.problems) or ""),
    ]  # fmt: skip


def _time(time_ms: int) -> str:
    if time_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


@log.command("check", epilog=_CHECK_EPILOG)
@_folders
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@_partitions
@click.option("--records", is_flag=True, help="Decode every record, too; checksums alone are faster.")
def check(folders: tuple[Path, ...], topic: str | None, partitions: tuple[int, ...], records: bool) -> None:
    """Check every checksum, the order of offsets, and that none is missing."""
    chosen = _chosen(open_log(*folders), topic, partitions)
    totals = {"partitions": 0, "bytes": 0, "messages": 0, "damaged": 0, "gaps": 0}
    for found in chosen:
        for finding in check_partition(found, records=records):
            click.echo(json.dumps(_object(found, finding), ensure_ascii=False))
            if isinstance(finding, CheckedPartition):
                for name, count in zip(totals, (1, finding.size_bytes, finding.messages, finding.damaged, finding.gaps),
                                       strict=True):  # fmt: skip
                    totals[name] += count
    status = 2 if totals["damaged"] else 1 if totals["gaps"] else 0
    click.echo(json.dumps({"type": "summary", **totals, "status": ("clean", "gaps", "damage")[status]}))
    raise click.exceptions.Exit(status)


def _chosen(found: DiskLog, topic: str | None, partitions: tuple[int, ...]) -> list[DiskPartition]:
    if partitions and topic is None:
        raise click.UsageError("--partition needs --topic.")
    return found.select(topic, partitions)


def _object(found: DiskPartition, finding: Finding) -> dict[str, Any]:
    """Return a finding as the object of a line."""
    if isinstance(finding, CheckedPartition):
        return {"type": "partition", **asdict(finding)}
    kind = {Damage: "damage", Gap: "gap", LogTail: "tail"}.get(type(finding), "note")
    return {"type": kind, "topic": found.topic, "partition": found.partition, **finding._asdict()}


@log.command("dump", epilog=_DUMP_EPILOG)
@_folders
@click.option("--topic", metavar="TOPIC", required=True, help="The topic to print.")
@_partitions
@click.option("--from", "start", metavar="OFFSET", type=click.IntRange(min=0), help="Start at this offset.")
@click.option("--to", "end", metavar="OFFSET", type=click.IntRange(min=0), help="End before this offset.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line. [default]")
@click.option("--raw", "as_raw", is_flag=True, help="Print the bytes of each value, and a line feed.")
@click.option("-f", "--format", "format_string", metavar="FORMAT", help="Print with a format string, see below.")
@click.option("--null", "null_text", metavar="TEXT", help="Print this for a null key or value. [null; with -f nothing]")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether to print messages of transactions that were aborted or never ended.",
)
@click.option(
    "--max-messages", "--count", "count", metavar="N", type=click.IntRange(min=1), help="End after N messages."
)
@click.option(
    "--broker-id",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Kafka 0.7: the broker whose folder it is; partitions are named after it.",
)
def dump(folders: tuple[Path, ...], topic: str, partitions: tuple[int, ...], **options: Any) -> None:
    """Print the messages of a topic, one partition after the other."""
    form = _form(options)
    printed = problems = 0
    for found in open_log(*folders).select(topic, partitions):
        left = None if options["count"] is None else options["count"] - printed
        if left == 0:
            break
        reading = LogReading(
            found, partition_of(found, options["broker_id"]), start=options["start"], end=options["end"],
            read_committed=options["isolation_level"] == "read_committed",
        )  # fmt: skip
        counts = _print(reading, form, left, found)
        printed, problems = printed + counts[0], problems + counts[1]
        if reading.left_out:
            click.echo(f"zkconsumer: {found.topic}-{found.partition}: left out batches of transactions that never "
                       f"ended: {reading.left_out}", err=True)  # fmt: skip
    click.echo(f"Printed {count_of(printed, 'message')}", err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _form(options: dict[str, Any]) -> Callable[[Message], bytes]:
    text, null = options["format_string"], options["null_text"]
    if [options["as_json"], options["as_raw"], text is not None].count(True) > 1:
        raise click.UsageError("Give one of --json, --raw and --format.")
    as_null = None if null is None else null.encode("utf-8", "surrogateescape")
    if text is not None:
        try:
            return message_format(text, as_null or b"")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--format") from None
    if options["as_raw"]:
        return line_formatter(LineShape(null=b"null" if as_null is None else as_null))
    if null is not None:
        raise click.UsageError("--null has no effect with --json, where null is null: leave one of them out.")
    return json_line


def _print(
    reading: LogReading, form: Callable[[Message], bytes], most: int | None, found: DiskPartition
) -> tuple[int, int]:
    """Print a partition; return how many messages were printed, and how many faults there were."""
    printed = problems = size = 0
    lines: list[bytes] = []
    out = sys.stdout.buffer
    for event in reading.events():
        if isinstance(event, Message):
            line = form(event)
            lines.append(line)
            size += len(line)
            printed += 1
            if size >= _BLOCK_BYTES:
                out.write(b"".join(lines))
                lines, size = [], 0
            if printed == most:
                break
            continue
        for sentence in _sentences(event):
            problems += 1
            out.write(b"".join(lines))
            out.flush()
            lines, size = [], 0
            click.echo(f"zkconsumer: {found.topic}-{found.partition}: {sentence}", err=True)
    out.write(b"".join(lines))
    out.flush()
    return printed, problems


def _sentences(event: Damage | Gap | LogTail) -> Iterator[str]:
    """Yield what has to be said of an event: of damage, and of gaps that are no damage and may be a loss."""
    if isinstance(event, Damage) and not event.is_repaired:
        lost = "" if event.first_offset is None else f"; offsets {event.first_offset} to "
        if lost:
            lost += "the end of it are lost" if event.last_offset is None else f"{event.last_offset} are lost"
        yield f"{event.file}, bytes {event.start_byte} to {event.end_byte}: {event.reason}{lost}"
    elif isinstance(event, Gap) and event.kind.is_loss and event.kind != "damaged":
        where = f" before {event.file}" if event.file else ""
        why = f": {event.reason}" if event.reason else ""
        yield f"offsets {event.first_offset} to {event.last_offset}{where} are missing ({event.kind}){why}"


@log.command("groups", epilog=_GROUPS_EPILOG)
@click.argument("folders", nargs=-1, metavar="[FOLDER...]", type=click.Path(path_type=Path))
@click.option("--zookeeper-data", "data", metavar="FOLDER", multiple=True, type=click.Path(path_type=Path),
              help="A data folder of ZooKeeper; twice for dataDir and dataLogDir of a server.")  # fmt: skip
@click.option("--zookeeper-path", "root", metavar="PATH",
              help="The cluster's path in ZooKeeper, such as /kafka. [the only one with offsets]")  # fmt: skip
@click.option("--group", "names", metavar="GROUP", multiple=True, help="Only this group; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def groups(
    folders: tuple[Path, ...], data: tuple[Path, ...], root: str | None, names: tuple[str, ...], as_json: bool
) -> None:
    """Print the committed offsets of groups, from __consumer_offsets and from data folders of ZooKeeper."""
    in_zookeeper = [*data, *(folder for folder in folders if is_zookeeper_folder(folder))]
    in_kafka = [folder for folder in folders if folder not in in_zookeeper]
    if not in_zookeeper and not in_kafka:
        raise click.UsageError("Give a log folder of a broker, or a data folder of ZooKeeper.")
    if root is not None and not in_zookeeper:
        raise click.UsageError("--zookeeper-path needs --zookeeper-data.")
    stores = [
        *([_of_kafka(in_kafka)] if in_kafka else []),
        *([_of_zookeeper(in_zookeeper, root)] if in_zookeeper else []),
    ]
    for store in stores:
        for sentence in (*store.notes, *store.problems):
            click.echo(f"zkconsumer: {sentence}", err=True)
    lacking = [store.lack for store in stores if store.lack is not None]
    has_none = len(lacking) == len(stores)
    for lack in lacking[has_none:]:
        click.echo(f"zkconsumer: {lack}", err=True)
    if has_none:
        raise lacking[0]
    _print_positions([row for store in stores for row in store.rows if not names or row.group in names], as_json)
    if any(store.problems or store.is_refused for store in stores):
        raise click.exceptions.Exit(1)


class _Store(NamedTuple):
    """What one store has.

    Attributes:
        rows: The positions.
        problems: What is damaged or missing, so that the status is 1.
        notes: What is no problem.
        lack: Why there are no positions; None if there are some.
        is_refused: There may be positions, and the options do not choose them.
    """

    rows: list[StoredPosition]
    problems: list[str]
    notes: list[str]
    lack: CliError | None = None
    is_refused: bool = False


def _print_positions(rows: list[StoredPosition], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(typed({"offsets": [row._asdict() for row in rows]})))
        return
    print_table(
        ["GROUP", "TOPIC", "PARTITION", "OFFSET", "COMMITTED", "STORE", "METADATA"],
        [[row.group, row.topic, str(row.partition), str(row.offset), _time(row.commit_ms), row.store, row.metadata]
         for row in rows], right=[2, 3],
    )  # fmt: skip


def _of_kafka(folders: list[Path]) -> _Store:
    """Return the positions in __consumer_offsets."""
    positions, problems = GroupPositions(), []
    disk = open_log(*folders)
    if _OFFSETS not in disk.topics:
        lack = CliError(f"the folders have no log of {_OFFSETS}",
                        "offsets may be in ZooKeeper (--zookeeper-data), or at other brokers")  # fmt: skip
        return _Store([], [], [], lack)
    for found in disk.select(_OFFSETS):
        for event in LogReading(found, found.partition, read_committed=True).events():
            if isinstance(event, Message):
                positions.take(event.key, event.value)
                continue
            problems += [f"{found.topic}-{found.partition}: {sentence}" for sentence in _sentences(event)]
    if positions.unreadable:
        problems.append(f"{count_of(positions.unreadable, 'record')} of {_OFFSETS} cannot be read")
    return _Store(positions.rows(), problems, [])


def _of_zookeeper(folders: list[Path], root: str | None) -> _Store:
    """Return the positions in data folders of a ZooKeeper server."""
    found = read_positions(folders)
    roots = sorted(found.positions)
    if root is None and len(roots) > 1:
        lack = CliError(f"several paths have offsets of groups: {_paths(roots)}", "choose one with --zookeeper-path")
        return _Store([], found.faults, found.notes, lack, is_refused=True)
    chosen = root.rstrip("/") if root is not None else roots[0] if roots else None
    wrong = [path for name, paths in found.unreadable.items() if chosen in (None, name) for path in paths]
    problems = [*found.faults, *(f"{path} is no offset" for path in wrong)]
    if chosen is None or chosen not in found.positions:
        lack = CliError(f"{folders[0]} has no offsets of groups under {chosen or '/'}",
                        f"paths with offsets: {_paths(roots) or 'none'}")  # fmt: skip
        return _Store([], problems, found.notes, lack, is_refused=root is not None)
    return _Store(found.positions[chosen], problems, found.notes)


def _paths(roots: list[str]) -> str:
    return first_few(*(root or "/" for root in roots))
