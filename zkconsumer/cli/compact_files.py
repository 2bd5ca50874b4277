"""`zkconsumer compact-files`: merges the small files of a load; each message is still there exactly once.

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.spark_jobs import SIZE, interrupted_with, job_progress, setting_pairs

if TYPE_CHECKING:
    from zkconsumer.spark.load.compaction.compact import CompactionReport

__all__ = ["compact_files"]

_EPILOG = """\
\b
The command merges the files of each directory into files of about --file-size. Files of at least three quarters of
that size stay as they are. Before it publishes the merged files, the command compares every message. If it is killed,
either nothing has changed, or the next compaction or the next load completes it. Loads may run at the same time.

\b
Example:
  zkconsumer compact-files --to /data/lake --file-size 256MB --compression zstd
"""


@click.command("compact-files", epilog=_EPILOG)
@click.option("--to", "folder", metavar="FOLDER", required=True, help="Folder of `zkconsumer load`, a path or URL.")
@click.option("--file-size", type=SIZE, default="128MB", show_default=True, metavar="SIZE",
              help="Size of a merged file, computed from the sizes of the files that it replaces.")
@click.option("--compression", metavar="NAME", help="Compression of merged files, such as zstd. [the format's default]")
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Master of Spark.")
@click.option("--conf", "spark_settings", metavar="NAME=VALUE", multiple=True,
              help="A setting of Spark; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per compaction.")
def compact_files(
    folder: str, file_size: int, compression: str | None, master: str, spark_settings: Sequence[str], as_json: bool
) -> None:
    """Merge the small files that `zkconsumer load` has written into larger files."""
    from zkconsumer.spark.requirements import check_requirements

    check_requirements()
    from zkconsumer.spark.load.compaction.compact import CompactionSettings, run_compactions
    from zkconsumer.spark.load.failures import failures_in_a_sentence
    from zkconsumer.spark.load.session import spark_session

    settings = CompactionSettings(folder, file_size, compression)
    with (
        interrupted_with("interrupted; what was published before stays"),
        failures_in_a_sentence(),
        spark_session(master, setting_pairs("--conf", spark_settings)) as spark,
        job_progress(as_json) as tell,
    ):
        for report in run_compactions(spark, settings, tell):
            click.echo(json.dumps(asdict(report), ensure_ascii=False) if as_json else _sentence(report))


def _sentence(report: CompactionReport) -> str:
    if report.compaction is None:
        return (f"Nothing to merge: {count_of(report.files_before, 'file')} of {report.bytes_before:,} bytes in "
                f"{report.folder}.")  # fmt: skip
    return (f"Compaction {report.compaction} published: {count_of(report.files_before, 'file')} of "
            f"{report.bytes_before:,} bytes replaced by {report.files_after:,} of {report.bytes_after:,} in "
            f"{report.seconds:.1f} s; {report.messages:,} messages, each compared.")  # fmt: skip
