"""`zkconsumer offsets export` and `import`: stored offsets as a file that Kafka's own tools read and write.

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

from zkconsumer.admin import BrokerAdmin
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.options.connection_options import bootstrap_option, zookeeper_option
from zkconsumer.cli.options.group_options import open_groups
from zkconsumer.cli.options.offset_options import (
    CHANGED_STORES,
    print_changes,
    print_warning,
    refuse_other_stores,
    store_option,
)
from zkconsumer_error import first_few

__all__ = ["export_offsets", "import_offsets"]

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
@click.option("--output-file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to FILE instead of stdout.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object instead of lines.")
def export_offsets(
    groups: Sequence[str], zookeeper: str | None, brokers: str | None, store: str | None, output_file: Path | None,
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
    """Write beside the file and rename, so that a full disk leaves the old one as it was."""
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
    zookeeper: str | None, brokers: str | None, input_file: str, store: str | None, dry_run: bool, force: bool,
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
