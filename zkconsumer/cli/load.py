"""The commands that need Spark: `zkconsumer load`, `compact-files` and `spark-zip`.

`zkconsumer load`: loads topics into files, each message once, by a Spark job that keeps the offsets with the data.

Source: docs/SPARK_LOADING.md, "Each message once"; what Camus did for Hadoop.

`zkconsumer compact-files`: merges the small files of a load; each message is still there exactly once.

Source: docs/SPARK_LOADING.md, "Compaction".

Options and progress of the commands that start Spark: sizes, settings, a progress bar, interruptions.

`zkconsumer spark-zip`: writes the archive for Spark executors on which this package is not installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import (
    bootstrap_option,
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    zookeeper_option,
)
from zkconsumer.cli.option_types import Seconds
from zkconsumer.cli.terminal import CliError, print_problem, print_table
from zkconsumer.config.properties import warn_of_shown_secrets
from zkconsumer.config.tables.keys import shown_pair
from zkconsumer.spark.archive import COMPILED, write_archive
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.options.option_table import parse_bytes

if TYPE_CHECKING:
    from zkconsumer.spark.load.compact import CompactionReport
    from zkconsumer.spark.load.job import LoadReport


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE: Final = _Size()
"""The type of options that take a number of bytes."""


def setting_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the names and values of an option that may be repeated.

    Raises:
        click.BadParameter: One is not of the form NAME=VALUE, or a name is given twice with different values.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{shown_pair(text)!r} is not of the form NAME=VALUE", param_hint=option)
        if pairs.setdefault(name, value) != value:
            raise click.BadParameter(f"{name} is given twice with different values", param_hint=option)
    return pairs


@contextmanager
def interrupted_with(sentence: str) -> Iterator[None]:
    """Print a sentence if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"zkconsumer: {sentence}", err=True)
        raise


@contextmanager
def job_progress(is_silent: bool) -> Iterator[Any]:
    """Yield a function that shows progress: a bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if is_silent or not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield tell


_SOME_SILENT = 3
"""The status when partitions were left out that have no leader."""
_SOME_BAD = 4
"""The status when messages could not be decoded, and nothing else was wrong."""
_EPILOG = """\
\b
Files are in topic=NAME/date=2014-03-01/ (and hour=00/). The time is that of --time-field, otherwise of the message,
otherwise of the run. `_zkconsumer/runs` records what each run has loaded and where the next run starts. If a run is
killed, either nothing has changed, or the next run completes it. Messages that cannot be decoded are in `_bad`, with
their places and the reason. With --format delta or iceberg the folder is one table, partitioned by topic and date
(and hour), and each run is one transaction in it.

\b
Status 3: everything is published except partitions without a leader, which the next run loads. Status 4: everything
is published, except that messages which cannot be decoded are in `_bad`.

\b
Examples:
  zkconsumer load --zookeeper zk1:2181/kafka --topic clicks --topic views --to /data/lake
  zkconsumer load --zookeeper zk1:2181 --whitelist 'web\\..*' --to hdfs://nn/lake --partition-by hour
  zkconsumer load --zookeeper zk1:2181 --topic clicks --to /data/json --format json --text --group lake
  zkconsumer load --zookeeper zk1:2181 --whitelist '.*' --to /data/table --format delta --compression zstd
  zkconsumer load --bootstrap-server b1:9092,b2:9092 --config tls.properties --topic clicks --to /data/lake
"""


@click.command(epilog=_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Topic to load; may be repeated.")
@click.option("--whitelist", metavar="REGEX", help="Load all topics that match, also later ones; commas mean 'or'.")
@click.option(
    "--blacklist",
    metavar="REGEX",
    help="Load all topics that do not match; with --whitelist, only topics that also match it.",
)
@click.option("--to", "folder", metavar="FOLDER", required=True, help="Folder to load into, such as hdfs://nn/lake.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "json", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format of the files; delta, iceberg: one table for all topics.",
)
@click.option(
    "--partition-by",
    type=click.Choice(["none", "date", "hour"]),
    default="date",
    show_default=True,
    help="Directories below that of the topic, by UTC time.",
)
@click.option(
    "--time-field",
    metavar="FIELD",
    help="Field of JSON values (ts, head.ts) with the time of the directories. [the time of the message]",
)
@click.option("--text", is_flag=True, help="Keys and values are UTF-8 text; a message with others cannot be decoded.")
@click.option(
    "--include-headers", is_flag=True, help="Add a column `headers`: from the first load into the folder on, or never."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed leaves out messages of aborted and open transactions. [read_uncommitted]",
)
@click.option("--compression", metavar="NAME", help="Compression of the files, such as zstd. [the format's default]")
@click.option(
    "--file-size",
    type=SIZE,
    metavar="SIZE",
    help="About how many bytes of a log one file may hold, such as 128MB. [512MB]",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest", "group"]),
    default="earliest",
    show_default=True,
    help="Where to start in partitions that FOLDER does not have yet; group: at the offsets of --group.",
)
@click.option("--group", metavar="GROUP", help="Also store the offsets in this group, so that tools can show its lag.")
@click.option(
    "--on-data-loss",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="How to handle logs that no longer have messages that were to be loaded.",
)
@click.option(
    "--on-missing-leader",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    show_default=True,
    help="How to handle a partition without a leader; skip: load the others, and end with status 3.",
)
@click.option(
    "--max-messages",
    type=click.IntRange(1),
    metavar="N",
    help="Most messages of a run; further runs follow until everything up to the log ends is loaded.",
)
@click.option(
    "--max-time",
    type=Seconds(min_open=True),
    metavar="SECONDS",
    help="Start no further run after SECONDS; without --max-messages, a run then has a million messages.",
)
@click.option(
    "--gaps",
    type=click.Choice(["compacted", "allow"]),
    default="compacted",
    show_default=True,
    help="Which topics may lack offsets: only compacted topics, or any topic.",
)
@click.option(
    "--option", "more", metavar="NAME=VALUE", multiple=True, help='Any option of format("zkconsumer"); may be repeated.'
)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Master of Spark.")
@click.option(
    "--conf", "spark_settings", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run.")
def load(
    zookeeper: str | None,
    brokers: str | None,
    topics: Sequence[str],
    whitelist: str | None,
    blacklist: str | None,
    folder: str,
    file_format: str,
    partition_by: str,
    time_field: str | None,
    text: bool,
    include_headers: bool,
    isolation_level: str | None,
    compression: str | None,
    file_size: int | None,
    start: str,
    group: str | None,
    on_data_loss: str,
    on_missing_leader: str,
    max_messages: int | None,
    max_time: float | None,
    gaps: str,
    more: Sequence[str],
    master: str,
    spark_settings: Sequence[str],
    as_json: bool,
) -> None:
    """Load topics into files with Spark, each message exactly once.

    Each run starts where the last run into the same folder ended.
    """
    from zkconsumer.spark.requirements import check_requirements

    check_requirements()
    from zkconsumer.spark.load.failures import failures_in_a_sentence
    from zkconsumer.spark.load.job import limited, run_portions
    from zkconsumer.spark.load.session import spark_session, table_settings
    from zkconsumer.spark.load.settings import LoadSettings, of_found_generation
    from zkconsumer.spark.load.writing import Shape
    from zkconsumer.spark.settings_files import open_source

    files = connection_settings()
    source = {**_cluster(zookeeper, brokers_instead(brokers)), "startingOffsets": start}
    chosen = {"subscribe": ",".join(topics) or None, "subscribePattern": whitelist, "blacklist": blacklist,
              "group.id": group, "config": files.config, "profile": files.profile,
              "includeHeaders": "true" if include_headers else None, "isolation.level": isolation_level}  # fmt: skip
    source |= {name: value for name, value in chosen.items() if value is not None}
    if not any((topics, whitelist, blacklist)):
        raise click.UsageError("give one of --topic, --whitelist and --blacklist")
    if start == "group" and group is None:
        raise click.UsageError("--start group needs --group")
    if group is not None and "zookeeper.connect" not in source:
        raise click.UsageError("--group stores offsets in ZooKeeper: give --zookeeper instead of --bootstrap-server")
    options = setting_pairs("--option", more)
    warn_of_shown_secrets(options, "--option")
    source |= options
    shape = Shape(file_format, partition_by, text, compression, time_field, file_size)
    settings = LoadSettings(
        source, folder, shape, on_data_loss == "skip", gaps == "allow", on_missing_leader == "skip", max_messages
    )
    # Missing options and faults of the connection are reported before Spark takes its seconds to start.
    spark_pairs = setting_pairs("--conf", spark_settings)
    table = shape.format if shape.is_table else None
    if table is not None:
        table_settings(table, spark_pairs)
    with named_places(), open_source(settings.options().config) as found:
        settings = limited(of_found_generation(settings, found), max_time)
    with (
        interrupted_with("interrupted; the next load continues after the last run that was published"),
        failures_in_a_sentence(),
        spark_session(master, spark_pairs, table) as spark,
        job_progress(as_json) as tell,
    ):
        reports = run_portions(spark, settings, tell, max_time)
        statuses = [_status(report, as_json, shape.is_table) for report in reports]
    if any(statuses):
        raise click.exceptions.Exit(min(filter(None, statuses)))


def _cluster(zookeeper: str | None, brokers: str | None) -> dict[str, str]:
    """Return where the cluster is found, as an option of the source."""
    if brokers is not None:
        return {"bootstrap.servers": brokers}
    if zookeeper is None:
        raise no_zookeeper(connection_settings(), or_brokers=True)
    return {"zookeeper.connect": zookeeper}


def _status(report: LoadReport, as_json: bool, is_table: bool) -> int:
    """Print the report of a run, and return the exit status for it."""
    if as_json:
        click.echo(json.dumps(_as_json(report), ensure_ascii=False))
    else:
        _print(report, is_table)
    if report.silent:
        return _SOME_SILENT
    return _SOME_BAD if any(each.bad for each in report.partitions) else 0


def _as_json(report: LoadReport) -> dict[str, Any]:
    fields = asdict(report)
    fields["partitions"] = [asdict(each) for each in report.partitions]
    fields["lost"] = [str(each) for each in report.lost]
    fields["silent"] = [[*name, reason] for name, reason in sorted(report.silent.items())]
    fields["lag"] = [[topic, partition, lag] for (topic, partition), lag in sorted(report.lag.items())]
    return fields


def _print(report: LoadReport, is_table: bool) -> None:
    for lost in report.lost:
        click.echo(f"! skipped {lost}", err=True)
    for name, reason in sorted(report.silent.items()):
        click.echo(f"! left to the next run {name.topic}-{name.partition}: {reason}", err=True)
    if report.run is None:
        click.echo(f"Nothing new in {count_of(report.known, 'partition')}.")
        return
    if not report.partitions:
        click.echo(f"Nothing new in {count_of(report.known, 'partition')}; run {report.run} records where they end.")
        return
    rows = [
        [each.topic, str(each.partition), str(each.start), str(each.end), f"{each.messages:,}", f"{each.bytes:,}",
         str(each.bad), str(each.missing), f"{report.lag.get((each.topic, each.partition), 0):,}"]
        for each in report.partitions
    ]  # fmt: skip
    is_of_bytes = any(isinstance(each.partition, str) for each in report.partitions)
    lag = "LAG (BYTES)" if is_of_bytes else "LAG"
    print_table(["TOPIC", "PARTITION", "FROM", "TO", "MESSAGES", "BYTES", "BAD", "MISSING", lag], rows,
                right=range(1, 9), marked=[n for n, each in enumerate(report.partitions) if each.bad])  # fmt: skip
    messages, size = sum(each.messages for each in report.partitions), sum(each.bytes for each in report.partitions)
    bad = sum(each.bad for each in report.partitions)
    click.echo()
    where = "in the table" if is_table else count_of(report.files, "file")
    click.echo(
        f"Run {report.run} published: {messages:,} messages, {size:,} bytes, {where} "
        f"in {report.seconds:.1f} s; every {'entry' if is_of_bytes else 'offset'} counted."
    )
    if bad:
        print_problem(f"{count_of(bad, 'message')} could not be decoded: see {report.folder}/_bad")


_COMPACT_EPILOG = """\
\b
The command merges the files of each directory into files of about --file-size. Files of at least three quarters of
that size stay as they are. Before it publishes the merged files, the command compares every message. If it is killed,
either nothing has changed, or the next compaction or the next load completes it. Loads may run at the same time.

\b
Example:
  zkconsumer compact-files --to /data/lake --file-size 256MB --compression zstd
"""


@click.command("compact-files", epilog=_COMPACT_EPILOG)
@click.option("--to", "folder", metavar="FOLDER", required=True, help="Folder of `zkconsumer load`, a path or URL.")
@click.option(
    "--file-size",
    type=SIZE,
    default="128MB",
    show_default=True,
    metavar="SIZE",
    help="Size of a merged file, computed from the sizes of the files that it replaces.",
)
@click.option("--compression", metavar="NAME", help="Compression of merged files, such as zstd. [the format's default]")
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Master of Spark.")
@click.option(
    "--conf", "spark_settings", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per compaction.")
def compact_files(
    folder: str, file_size: int, compression: str | None, master: str, spark_settings: Sequence[str], as_json: bool
) -> None:
    """Merge the small files that `zkconsumer load` has written into larger files."""
    from zkconsumer.spark.requirements import check_requirements

    check_requirements()
    from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
    from zkconsumer.spark.load.failures import failures_in_a_sentence
    from zkconsumer.spark.load.session import spark_session

    settings = CompactionSettings(folder, file_size, compression)
    with (
        interrupted_with("interrupted; files that were published before stay"),
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


_ZIP_EPILOG = f"""\
\b
An archive cannot carry compiled code, so executors need these packages: {", ".join(COMPILED)}.

\b
Example: a job whose executors do not have zkconsumer
  zkconsumer spark-zip zkconsumer.zip
  spark-submit --py-files zkconsumer.zip job.py

\b
job.py registers the source before it uses it:
  from zkconsumer.spark import ZkConsumerSource
  spark.dataSource.register(ZkConsumerSource)
"""


@click.command("spark-zip", epilog=_ZIP_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def spark_zip(file: Path) -> None:
    """Write FILE, an archive of zkconsumer for `spark-submit --py-files`."""
    try:
        size_bytes = write_archive(file)
    except ValueError as error:
        raise CliError(str(error), "give FILE such a name") from None
    except RequirementMissing as error:
        raise CliError(str(error)) from None
    click.echo(f"Wrote {file}, {size_bytes // 1024} KiB. Executors also need {', '.join(COMPILED)}.")
