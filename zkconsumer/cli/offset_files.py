"""`zkconsumer offsets export` and `import`: stored offsets in a file that Kafka's own tools read and write.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from rebalance import znodes
from rebalance.errors import UnreadableNode
from rebalance.requests import ZooKeeperPort
from zkconsumer.admin.group_reader import read_offsets
from zkconsumer.admin.offset_changes import OffsetChange, plan_changes, refuse_live_groups, write_changes
from zkconsumer.admin.offset_lines import OffsetLine, format_line, parse_lines
from zkconsumer.cli.failures import CliError, nearest
from zkconsumer.cli.tables import count_of
from zkconsumer.cli.zookeeper_access import children, open_zookeeper, zookeeper_option

__all__ = ["export_offsets", "import_offsets", "print_changes"]

MAX_FILE_BYTES = 256 * 1024 * 1024
_SHOWN_LINES = 5

_EXPORT_EPILOG = """\
\b
A line for each partition: /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, as Kafka's ExportZkOffsets writes it. A
file is written whole or not at all. An offset that cannot be read is reported and left out; the status is 1 then.

\b
Example:
  zkconsumer offsets export billing --zookeeper localhost:2181 --output-file offsets.txt
"""
_IMPORT_EPILOG = """\
\b
Reads what `zkconsumer offsets export` and Kafka's ExportZkOffsets write. Nothing is written when a line cannot be
used. A value that somebody else has changed since it was read is not written over.

\b
Example: look what would change
  zkconsumer offsets import --zookeeper localhost:2181 --input-file offsets.txt --dry-run
"""


@click.command("export", epilog=_EXPORT_EPILOG)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@zookeeper_option()
@click.option("--output-file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to this file instead of stdout.")
def export_offsets(groups: Sequence[str], zookeeper: str, output_file: Path | None) -> None:
    """Print the stored offsets of groups, of all groups when none is named."""
    lines: list[OffsetLine] = []
    problems: list[str] = []
    with open_zookeeper(zookeeper) as port:
        chosen = _groups(port, zookeeper, groups)
        for group in chosen:
            _collect(port, group, lines, problems)
    text = "".join(f"{format_line(line)}\n" for line in lines)
    if output_file is None:
        click.echo(text, nl=False)
    else:
        _write_whole(output_file, text)
    with_offsets = len({line.group for line in lines})
    click.echo(f"Exported {count_of(len(lines), 'offset')} of {count_of(with_offsets, 'group')}", err=True)
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _groups(port: ZooKeeperPort, zookeeper: str, named: Sequence[str]) -> list[str]:
    known = children(port, znodes.CONSUMERS) or []
    for group in named:
        if group not in known:
            remedy = nearest(group, known, "group")
            raise CliError(f"group {group!r} does not exist in ZooKeeper at {zookeeper}", remedy)
    return list(dict.fromkeys(named)) or known


def _collect(port: ZooKeeperPort, group: str, lines: list[OffsetLine], problems: list[str]) -> None:
    found = read_offsets(port, group)
    for topic, name in sorted(found, key=lambda at: (at[0], not at[1].isdigit(), at[1].zfill(19))):
        try:
            offset = znodes.parse_offset(znodes.offset_path(group, topic, name), found[topic, name])
        except UnreadableNode as error:
            problems.append(str(error))
        else:
            lines.append(OffsetLine(group, topic, name, offset))


def _write_whole(path: Path, text: str) -> None:
    """Write beside the file and rename, so that a full disk leaves the old one as it was."""
    handle, work = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(work).chmod(0o666 & ~_umask())
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
@zookeeper_option()
@click.option("--input-file", metavar="FILE", required=True, help="File to read; - is stdin.")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and write nothing.")
@click.option("--force", is_flag=True, help="Also while groups have members.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_offsets(zookeeper: str, input_file: str, dry_run: bool, force: bool, as_json: bool) -> None:
    """Set the offsets that a file holds; print old -> new."""
    lines = _read_lines(input_file)
    with open_zookeeper(zookeeper) as port:
        refuse_live_groups(port, list(dict.fromkeys(line.group for line in lines)), force or dry_run)
        changes = plan_changes(port, [(line[:3], line.offset) for line in lines])
        if not dry_run:
            write_changes(port, changes)
    print_changes(changes, as_json, dry_run)


def _read_lines(path: str) -> list[OffsetLine]:
    if path == "-":
        if sys.stdin is None:
            raise CliError("standard input is closed")
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    name = "stdin" if path == "-" else path
    if len(data) > MAX_FILE_BYTES:
        raise CliError(f"{name} is larger than {MAX_FILE_BYTES} bytes", "import it in parts")
    lines, problems = parse_lines(data.decode("utf-8", "replace"))
    if problems:
        shown = "; ".join(problems[:_SHOWN_LINES])
        more = f"; and {len(problems) - _SHOWN_LINES} more" if len(problems) > _SHOWN_LINES else ""
        raise CliError(
            f"no offset was set: {name} has {count_of(len(problems), 'line')} that cannot be used: {shown}{more}",
            "each must be /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, once",
        )
    if not lines:
        raise CliError(f"{'standard input' if path == '-' else path} holds no offsets")
    return lines


def print_changes(changes: Sequence[OffsetChange], as_json: bool, dry_run: bool) -> None:
    """Print a line for each change, under the name of its group, or one JSON object."""
    if as_json:
        entries = [
            {"group": each.group, "topic": each.topic, "partition": each.partition, "old": each.old, "new": each.new}
            for each in changes
        ]
        click.echo(json.dumps({"changes": entries, "written": not dry_run}, ensure_ascii=False))
        return
    for change in changes:
        click.echo(f"{change.group} {change}")
    needed = sum(change.is_needed for change in changes)
    done = "would be set" if dry_run else "set"
    click.echo(f"{count_of(needed, 'offset')} {done}, {len(changes) - needed} as before", err=True)
