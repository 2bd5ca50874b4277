"""`zkconsumer offsets export` and `import`: stored offsets as a file that Kafka's own tools read and write.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from zkconsumer.admin import OffsetChanges
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.connection_options import open_admin, zookeeper_option
from zkconsumer.cli.failures import CliError

__all__ = ["export_offsets", "import_offsets", "print_changes", "print_warning"]

MAX_FILE_BYTES = 256 * 1024 * 1024

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
used. An offset that somebody else has changed since it was read is not overwritten.

\b
Example: see what would change
  zkconsumer offsets import --zookeeper localhost:2181 --input-file offsets.txt --dry-run
"""


@click.command("export", epilog=_EXPORT_EPILOG)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@zookeeper_option()
@click.option("--output-file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to this file instead of stdout.")
def export_offsets(groups: Sequence[str], zookeeper: str, output_file: Path | None) -> None:
    """Print the stored offsets of groups, of all groups when none is named."""
    with open_admin(zookeeper, "zkconsumer-offsets") as admin:
        found = admin.export_offsets(*groups)
    text = found.to_text()
    if output_file is None:
        click.echo(text, nl=False)
    else:
        _write_whole(output_file, text)
    with_offsets = len({line.group for line in found.lines})
    click.echo(f"Exported {count_of(len(found.lines), 'offset')} of {count_of(with_offsets, 'group')}", err=True)
    for problem in found.problems:
        click.echo(f"left out: {problem}", err=True)
    if found.problems:
        raise click.exceptions.Exit(1)


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
    text = _read(input_file)
    source = "standard input" if input_file == "-" else input_file
    with open_admin(zookeeper, "zkconsumer-offsets") as admin:
        found = admin.import_offsets(text, source=source, force=force, dry_run=dry_run, warn=print_warning)
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


def print_warning(sentence: str) -> None:
    """Print a warning to standard error."""
    click.echo(f"warning: {sentence}", err=True)


def print_changes(found: OffsetChanges, as_json: bool) -> None:
    """Print a line for each change, under the name of its group, or one JSON object."""
    if as_json:
        click.echo(found.to_json())
        return
    for change in found.changes:
        click.echo(f"{change.group} {change}")
    needed = sum(change.is_needed for change in found.changes)
    done = "set" if found.written else "would be set"
    click.echo(f"{count_of(needed, 'offset')} {done}, {len(found.changes) - needed} as before", err=True)
