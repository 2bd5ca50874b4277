"""The commands `zkconsumer lag` and `zkconsumer exporter`.

`zkconsumer lag`: shows the lag of groups, or of all groups of a cluster, once or repeatedly.

Source: kafka.tools.ConsumerOffsetChecker (0.8.2.2), which knows one group and ZooKeeper alone.

`zkconsumer exporter`: serves the lag of all groups to Prometheus, until it is ended.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from rebalance.errors import RebalanceError
from zkconsumer.admin import Admin, AdminError, BrokerAdmin, GroupLag, LagChoice, LagReader, LagReport, NotFound
from zkconsumer.admin.lag_report import known_sum
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import (
    bootstrap_option,
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    open_groups,
    zookeeper_option,
)
from zkconsumer.cli.describe import lag_header, owner_cell
from zkconsumer.cli.option_types import NameFilter, Seconds
from zkconsumer.cli.terminal import (
    CliError,
    Interrupted,
    LeaveSignals,
    cell,
    print_problem,
    print_table,
    sentence_of,
    shown_group,
)

if TYPE_CHECKING:
    from zkconsumer.lag_exporter import LagExporter
    from zkconsumer.prometheus import MetricsServer

_EPILOG = """\
\b
The command joins no group, and covers members of any client. Groups that brokers coordinate (Kafka 0.9 and later) are
shown with the groups in ZooKeeper, or alone with --bootstrap-server; their OWNER is a member id. OFFSET is the stored
offset, in ZooKeeper or in Kafka. If the two differ, a problem says so, and OFFSET is from the store that the owner
seems to use, or else the larger one. LAG is the log end minus OFFSET. UNKNOWN counts partitions whose lag is not
known: they have no offset, or an offset beyond the log end, or their broker does not answer, or the offsets in Kafka
cannot be read. LAG is - if no lag is known, and ? stands for what ZooKeeper does not let you read. With --watch,
CONSUMED/S and PRODUCED/S are rates of the last two minutes (Java members commit once a minute), and CATCH UP is the
time until the lag would be 0 at these rates. Rows with the largest lag come first. In Kafka 0.7 offsets are byte
positions, and lags and rates are in bytes.

\b
Examples:
  zkconsumer lag --zookeeper localhost:2181 --all
  zkconsumer lag --zookeeper localhost:2181 --all --watch
  zkconsumer lag billing --zookeeper localhost:2181 --by partition --json
  zkconsumer lag --bootstrap-server b1:9092,b2:9092 --all
"""
_SHOWN_PROBLEMS: Final = 10
_OTHER_LINES: Final = 6
"""Lines of a terminal that are not rows: the heading, the headers, the lines below, and the prompt."""
_CLEAR: Final = "\x1b[H\x1b[2J"


@click.command(epilog=_EPILOG)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--all", "is_all", is_flag=True, help="Show all groups of the cluster.")
@click.option("--topic-filter", type=NameFilter(), metavar="REGEX", help="Only topics whose whole name matches.")
@click.option(
    "--group-filter", type=NameFilter(), metavar="REGEX", help="With --all: only groups whose whole name matches."
)
@click.option(
    "--by",
    type=click.Choice(["group", "topic", "partition"]),
    default="topic",
    show_default=True,
    help="Print one row for each of these.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Most rows to show. [with --watch: as many as fit]")
@click.option("--watch", is_flag=True, help="Show the lag repeatedly, until Ctrl-C.")
@click.option(
    "--interval-s",
    type=Seconds(min=1, max=86_400),
    default=10.0,
    show_default=True,
    help="With --watch: seconds between two rounds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per round, each on one line.")
def lag(
    groups: Sequence[str],
    zookeeper: str | None,
    brokers: str | None,
    is_all: bool,
    topic_filter: Callable[[str], bool] | None,
    group_filter: Callable[[str], bool] | None,
    by: str,
    limit: int | None,
    watch: bool,
    interval_s: float,
    as_json: bool,
) -> None:
    """Show the lag of GROUPs, or of all groups, without joining any."""
    if is_all == bool(groups):
        raise click.UsageError("Give the names of groups, or --all.")
    if group_filter is not None and not is_all:
        raise click.UsageError("--group-filter needs --all.")
    choice = LagChoice(tuple(groups), group_filter or LagChoice.keeps_group, topic_filter or LagChoice.keeps_topic)

    def show(report: LagReport) -> None:
        if as_json:
            click.echo(report.to_json())
        else:
            _print(report, by, limit, watch)

    if not watch:
        with open_groups(zookeeper, brokers, "zkconsumer-lag", *groups) as admin:
            show(admin.lag_monitor(choice).read())
        return
    try:
        with LeaveSignals(), open_groups(zookeeper, brokers, "zkconsumer-lag", *groups) as admin:
            _watch(admin, choice, interval_s, show)
    except Interrupted:  # nothing was joined or written, so there is nothing to leave in order
        pass


def _watch(admin: Admin | BrokerAdmin, choice: LagChoice, interval_s: float, show: Callable[[LagReport], None]) -> None:
    monitor = admin.lag_monitor(choice)
    while True:
        started_at = time.monotonic()
        report = _read(monitor)
        if report is not None:
            show(report)
        time.sleep(max(0.0, interval_s - (time.monotonic() - started_at)))


def _read(monitor: LagReader) -> LagReport | None:
    try:
        return monitor.read()
    except NotFound:
        raise
    except (RebalanceError, AdminError) as error:  # who is silent or gone comes back, and the next round reads again
        click.echo(f"zkconsumer: {sentence_of(error)}; trying again", err=True)
        return None


# -- tables ----------------------------------------------------------------------------------------------------------


def _print(report: LagReport, by: str, limit: int | None, watch: bool) -> None:
    on_screen = watch and sys.stdout.isatty()
    if on_screen:
        click.echo(_CLEAR, nl=False)
        limit = limit or max(1, shutil.get_terminal_size().lines - _OTHER_LINES)
    rows = sum(len(group.partitions) for group in report.groups)
    unknown = sum(group.lag_unknown for group in report.groups)
    total = known_sum([group.lag for group in report.groups if group.partitions])
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(report.read_at))
    unit = "" if total is None or report.lag_unit == "messages" else f" {report.lag_unit}"
    click.echo(f"{moment}: {count_of(len(report.groups), 'group')}, {count_of(rows, 'partition')}, total lag "
               + ("-" if total is None else f"{total:,}") + unit
               + (f", unknown for {count_of(unknown, 'partition')}" if unknown else ""))  # fmt: skip
    headers, cells = _TABLES[by](report.groups, watch)
    headers = [_in_unit(header, report.lag_unit) for header in headers]
    if cells:
        click.echo()
        print_table(headers, cells[:limit], right=range(3 if by == "partition" else 2, len(headers)))
    if limit is not None and len(cells) > limit:
        click.echo(f"... and {len(cells) - limit} more with less lag")
    _print_problems(report, on_screen)
    if watch and not on_screen:
        click.echo()


def _print_problems(report: LagReport, on_screen: bool) -> None:
    problems = [*report.problems]
    problems += [f"{shown_group(group.group)}: {problem}" for group in report.groups for problem in group.problems]
    if on_screen and problems:
        print_problem(
            f"{count_of(len(problems), 'problem')}; `zkconsumer describe GROUP` lists the problems of a group"
        )
        return
    for problem in problems[:_SHOWN_PROBLEMS]:
        print_problem(problem)
    if len(problems) > _SHOWN_PROBLEMS:
        click.echo(f"... and {len(problems) - _SHOWN_PROBLEMS} more; --json lists all")


_Table = tuple[list[str], list[list[str]]]


def _in_unit(header: str, unit: str) -> str:
    """Return a header with what lags and rates count, where that is not messages."""
    if header == "LAG" or unit == "messages":
        return lag_header(unit) if header == "LAG" else header
    return f"{unit.upper()} {header}" if header.endswith("/S") else header


def _by_group(groups: Iterable[GroupLag], watch: bool) -> _Table:
    rows = sorted(groups, key=lambda row: (-(row.lag or 0), row.group))
    cells = [
        [
            shown_group(row.group),
            cell(row.member_count),
            cell(row.owned),
            cell(row.unowned),
            _sum(row.lag),
            str(row.lag_unknown),
        ]
        for row in rows
    ]
    return ["GROUP", "MEMBERS", "OWNED", "UNOWNED", "LAG", "UNKNOWN"], cells


def _by_topic(groups: Iterable[GroupLag], watch: bool) -> _Table:
    rows = sorted(
        ((shown_group(group.group), row) for group in groups for row in group.topics_lag),
        key=lambda at: (-(at[1].lag or 0), at[0], at[1].topic),
    )
    headers = ["GROUP", "TOPIC", "PARTITIONS", "UNOWNED", "LAG", "UNKNOWN"]
    cells = []
    for group, row in rows:
        numbers = [cell(row.unowned), _sum(row.lag), str(row.lag_unknown)]
        line = [group, row.topic, str(row.partition_count), *numbers]
        if watch:
            line += [_rate(row.consumed_per_s), _rate(row.produced_per_s), _duration(row.catch_up_s)]
        cells.append(line)
    return headers + (["CONSUMED/S", "PRODUCED/S", "CATCH UP"] if watch else []), cells


def _by_partition(groups: Iterable[GroupLag], watch: bool) -> _Table:
    rows = sorted(
        ((shown_group(group.group), row) for group in groups for row in group.partitions),
        key=lambda at: (-(at[1].lag or 0), at[0], at[1].topic, _place(at[1].partition)),
    )
    cells = []
    for group, row in rows:
        numbers = ["-" if each is None else str(each) for each in (row.offset, row.log_end, row.lag)]
        cells.append([group, row.topic, owner_cell(row), str(row.partition), *numbers])
    return ["GROUP", "TOPIC", "OWNER", "PARTITION", "OFFSET", "LOG END", "LAG"], cells


def _place(partition: int | str) -> str:
    """Return what partitions are sorted by: numbers as numbers, names of Kafka 0.7 as text, as there."""
    return f"{partition:010d}" if isinstance(partition, int) else partition


_TABLES: Final = {"group": _by_group, "topic": _by_topic, "partition": _by_partition}


def _sum(lag: int | None) -> str:
    return "-" if lag is None else str(lag)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    whole = math.ceil(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


_EXPORTER_EPILOG = """\
\b
The exporter joins no group, and covers members of any client. It reads the cluster every --interval-s seconds, and a
scrape gets the figures of the last round. Figures older than --stale-after-s are left out. docs/OPERATIONS.md lists
the metrics, with rules for alerts. The exporter needs the package prometheus_client: pip install
'zkconsumer[prometheus]'.

\b
Example:
  zkconsumer exporter --zookeeper localhost:2181 --port 9308 --host 0.0.0.0
  zkconsumer exporter --bootstrap-server b1:9092,b2:9092
"""


@click.command(epilog=_EXPORTER_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9308,
    show_default=True,
    help="Port to listen on; 0 chooses a free port and prints it.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all addresses.")
@click.option(
    "--interval-s",
    type=Seconds(min=1, max=86_400),
    default=30.0,
    show_default=True,
    help="Seconds between two rounds of reading.",
)
@click.option("--stale-after-s", type=Seconds(min=1), help="Leave out older figures. [three intervals, at least 90 s]")
@click.option("--group-filter", type=NameFilter(), metavar="REGEX", help="Only groups whose whole name matches.")
@click.option("--topic-filter", type=NameFilter(), metavar="REGEX", help="Only topics whose whole name matches.")
@click.option(
    "--max-partitions",
    type=click.IntRange(min=0),
    default=20_000,
    show_default=True,
    help="Export at most so many partitions; the sums by topic and group count all.",
)
@click.option("--with-owners", is_flag=True, help="Also export the owner of each partition, as a label.")
def exporter(
    zookeeper: str | None,
    brokers: str | None,
    port: int,
    host: str,
    interval_s: float,
    stale_after_s: float | None,
    group_filter: Callable[[str], bool] | None,
    topic_filter: Callable[[str], bool] | None,
    max_partitions: int,
    with_owners: bool,
) -> None:
    """Serve the lag of all groups to Prometheus."""
    try:
        from zkconsumer.lag_exporter import ExporterSettings, LagExporter
    except ImportError:
        raise CliError("the exporter needs the package prometheus_client, which is not installed",
                       "pip install 'zkconsumer[prometheus]'") from None  # fmt: skip
    choice = LagChoice((), group_filter or LagChoice.keeps_group, topic_filter or LagChoice.keeps_topic)
    settings = ExporterSettings(interval_s, stale_after_s, max_partitions, with_owners)
    given = brokers_instead(brokers)
    if given is None and zookeeper is None:
        raise no_zookeeper(connection_settings(), or_brokers=True)
    with named_places():
        running = LagExporter(
            zookeeper if given is None else None, brokers=given, properties=connection_settings().properties,
            choice=choice, settings=settings,
        )  # fmt: skip
    try:
        with LeaveSignals(), _served(running, port, host) as server, running:
            place = f"[{host}]" if ":" in host else host
            click.echo(f"the lag of all groups is served at http://{place}:{server.port}/metrics")
            threading.Event().wait()
    except Interrupted:  # nothing was joined or written, so there is nothing to leave in order
        pass


def _served(running: LagExporter, port: int, host: str) -> MetricsServer:
    try:
        return running.serve(port, host)
    except OSError as error:
        raise CliError(error.strerror or str(error), "choose another --port, or another --host") from None
