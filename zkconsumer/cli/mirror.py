"""`zkconsumer mirror`: copies topics to another cluster, says how far that is, and compares both sides."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from zkconsumer.admin.values import count_of
from zkconsumer.cli.option_types import ListingGroup, Seconds, named_values
from zkconsumer.cli.terminal import CliError, LeaveSignals, cell, print_problem, print_table, say, warn
from zkconsumer.config.connection_settings import find_connection_settings
from zkconsumer_error import printable

if TYPE_CHECKING:
    from zkconsumer.mirror.audit.audit_findings import LaneAudit
    from zkconsumer.mirror.lane_runs import Lane
    from zkconsumer.mirror.mirror_process import Mirror
    from zkconsumer.mirror.reports import LaneProgress
    from zkconsumer.mirror.sides import MirrorSettings
    from zkconsumer.prometheus import MetricsServer

Command = TypeVar("Command", bound=Callable[..., Any])
_JOIN_S: Final = 60.0
_MOST_GAPS: Final = 20
_RUN_EPILOG = """\
\b
Each record is copied once and in order, for every reader, as long as nobody else writes to the topics of the target.
What is killed goes on by itself: the position is computed from the end of the target's log. Start the same command on
several machines to share the work.

\b
The target has brokers of Kafka 0.11 or later. Targets of Kafka 0.8.1 to 0.10 are named by --to-zookeeper; they have no
sequence numbers, so one request can be there twice after a broker was frozen: the mirror finds it, and stops there.

\b
Topics are made with the partitions and settings of the source, and grow as the source does; nothing is ever deleted.
Ctrl-C and SIGTERM end the copying in order.

\b
Examples:
  zkconsumer mirror run --from-zookeeper zk1:2181 --to-brokers b1:9092 --whitelist 'clicks|views'
  zkconsumer mirror run --from old --to new --until-end     # profiles, see `zkconsumer --help`
"""
_PLAN_EPILOG = """\
\b
Nothing is changed. The exit status is 4 if something speaks against the mirror: it would refuse to start.

\b
Example:
  zkconsumer mirror plan --from-zookeeper zk1:2181 --to-brokers b1:9092 --whitelist 'clicks|views'
"""
_STATUS_EPILOG = """\
\b
This reads the two clusters, and no process of the mirror has to run. The exit status is 0 when nothing is left to be
copied, 1 when something is, or is not known.

\b
Example:
  zkconsumer mirror status --from-zookeeper zk1:2181 --to-brokers b1:9092
"""
_AUDIT_EPILOG = """\
\b
This reads both logs from their start to their end, and compares key, value and headers of each record with those of the
record from which it was copied. Batches that both sides store in the same way are compared as they are stored.

\b
A mirror writes leaves while it copies: hashes of what it has read from the source. They prove records that the source
has deleted since. With --target-only nothing else is compared, and the source is not needed any more.

\b
The exit status is 0 if nothing differs, 1 if something does. With --target-only it is 4 if nothing differs, and not all
records are proved. --json has a hash for each 65,536 offsets of the source, and which ranges are proved how.

\b
Examples:
  zkconsumer mirror audit --from-zookeeper zk1:2181 --to-brokers b1:9092
  zkconsumer mirror audit --target-only --to-brokers b1:9092
"""


@click.group(cls=ListingGroup)
def mirror() -> None:
    """Copy topics to another cluster, each record once, and compare both sides."""


def _sides(command: Command) -> Command:
    """Give a command the options that name the two clusters and the mirror."""
    for side, meaning in (("to", "The target"), ("from", "The source")):
        for option, metavar, text in (
            ("config", "FILE", "properties of a consumer, with TLS and SASL if it needs them"),
            ("brokers", "LIST", "some brokers, host:port,host:port"),
        ):
            command = click.option(f"--{side}-{option}", metavar=metavar, help=f"{meaning}: {text}.")(command)
        command = click.option(f"--{side}", metavar="PROFILE", help=f"{meaning}: a profile.")(command)
    for side, text in (("to", "The target, of Kafka 0.8 to 0.10"), ("from", "The source")):
        command = click.option(f"--{side}-zookeeper", metavar="HOSTS", help=f"{text}: host:port,host:port/chroot.")(
            command
        )
    return click.option("--name", default="mirror", metavar="NAME", help="Name of the mirror. [mirror]")(command)


def _chosen(command: Command) -> Command:
    """Give a command the options that say which topics are copied, and how they are made."""
    options = (
        click.option("--whitelist", default=".*", metavar="REGEX", help="Topics to copy: names or a pattern. [all]"),
        click.option("--prefix", default="", metavar="TEXT", help="Comes before each name on the target."),
        click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="Another name on the target."),
        click.option("--replication-factor", type=click.IntRange(1, 32767), metavar="N",
                     help="Replicas on the target. [as at the source, as far as there are brokers]"),
        click.option("--topic-config", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A setting of the topics that are made."),
        click.option("--timestamps", type=click.Choice(["source", "target"]), default="source",
                     help="Whose times the records get. [source]"),
        click.option("--preserve-offsets", "preserves_offsets", is_flag=True,
                     help="Records get the offsets that they have in the source."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@mirror.command("run", epilog=_RUN_EPILOG)
@_sides
@_chosen
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none",
              help="For records of sources before Kafka 0.11; others keep theirs. [none]")  # fmt: skip
@click.option("--on-data-loss", type=click.Choice(["fail", "skip"]), default="fail",
              help="What to do when the source has lost what was not copied. [fail]")  # fmt: skip
@click.option("--rate", "rate_bytes", type=click.IntRange(1), metavar="BYTES", help="Most bytes a second.")
@click.option("--pin-producers", "pins_producers", is_flag=True,
              help="Write in transactions, so that brokers never forget a producer: for old records.")  # fmt: skip
@click.option("--slots", type=click.IntRange(1, 1000), default=16, metavar="N",
              help="At the first start: how many processes may share the work. [16]")  # fmt: skip
@click.option("--until-end", is_flag=True, help="End when all is copied that is there.")
@click.option("--progress", "progress_s", type=Seconds(0.1), default=10.0, metavar="SECONDS",
              help="Time between two lines on standard error. [10]")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535),
              help="Serve metrics to Prometheus at this port; 0 chooses a free one and prints it.")  # fmt: skip
@click.option("--host", default="127.0.0.1", metavar="ADDRESS",
              help="With --port: the address to listen on; 0.0.0.0 for all. [127.0.0.1]")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Do what `mirror plan` does, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as JSON.")
def run_mirror(
    progress_s: float, as_json: bool, until_end: bool, port: int | None, host: str, dry_run: bool, **options: Any
) -> None:  # fmt: skip
    """Copy until Ctrl-C, or with --until-end until everything is copied."""
    from zkconsumer.mirror.mirror_process import Mirror

    settings = _settings(until_end=until_end, **options)
    if dry_run:
        _print_plan(settings, as_json)
        return
    running = Mirror(settings)
    with ExitStack() as stack:
        if port is not None:
            stack.enter_context(_served(running, port, host))
        _run(running, progress_s, as_json, until_end)


def _run(running: Mirror, progress_s: float, as_json: bool, until_end: bool) -> None:
    """Copy on a thread of its own, and print how far it is, until a signal comes or the copying ends."""
    failure: list[Exception] = []

    def run() -> None:
        try:
            running.run()
        except Exception as error:  # noqa: BLE001 - raised again below, on the main thread
            failure.append(error)

    with LeaveSignals() as signals:
        signals.wait_quietly()
        thread = threading.Thread(target=run, name="mirror", daemon=True)
        thread.start()
        while thread.is_alive() and not signals.came:
            select.select([signals.fd], [], [], min(progress_s, 0.5) if until_end else progress_s)
            signals.drain()
            if not until_end:
                _print_figures(running, as_json)
        running.stop()
        thread.join(_JOIN_S)
    _print_figures(running, as_json)
    if failure:
        raise failure[0]
    if thread.is_alive():
        raise CliError(f"the mirror did not end within {_JOIN_S:g} s", "run it again: it goes on by itself")
    if signals.came and until_end:
        raise click.exceptions.Exit(130)
    failed = [found for found in running.ended().values() if found.failure is not None]
    if failed:
        raise CliError(f"{count_of(len(failed), 'partition')} stopped: {failed[0].failure}", "see docs/MIRROR.md")


@mirror.command("plan", epilog=_PLAN_EPILOG)
@_sides
@_chosen
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan_mirror(as_json: bool, **options: Any) -> None:
    """Print what would be made on the target, and what speaks against it."""
    _print_plan(_settings(**options), as_json)


def _print_plan(settings: MirrorSettings, as_json: bool) -> None:
    from zkconsumer.mirror.mirror_process import plan

    plans = plan(settings)
    if as_json:
        click.echo(json.dumps({"topics": [each.as_json() for each in plans]}))
    else:
        rows = [[each.source, each.target, str(each.partitions), each.action, each.way.text,
                 _settings_text(each.settings)] for each in plans]  # fmt: skip
        print_table(["TOPIC", "ON THE TARGET", "PARTITIONS", "ACTION", "COPIED AS", "SETTINGS"], rows, right=(2,),
                    marked=[index for index, each in enumerate(plans) if each.findings])  # fmt: skip
        for each in plans:
            for finding in each.findings:
                print_problem(finding)
            for note in each.notes:
                click.echo(f"note: {printable(note)}")
        _say_what_old_targets_promise(settings)
    if any(each.findings for each in plans):
        raise click.exceptions.Exit(4)


@mirror.command("status", epilog=_STATUS_EPILOG)
@_sides
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_of_mirror(as_json: bool, **options: Any) -> None:
    """Print how far each partition is."""
    from zkconsumer.mirror.reports import mirror_status

    settings = _settings(**options)
    states = mirror_status(settings)
    if as_json:
        click.echo(json.dumps({"partitions": [_state_json(state) for state in states]}))
    else:
        rows = [[*_lane_cells(state.lane), cell(state.position), cell(state.source_end), cell(state.lag),
                 _age(state.lag_ms), _guard_text(state.is_guarded), str(state.runs), str(len(state.holes))]
                for state in states]  # fmt: skip
        headers = ["SOURCE", "TARGET", "POSITION", "END", "LAG", "BEHIND", "GUARDED", "RUNS", "HOLES"]
        unknown = [index for index, each in enumerate(states) if each.lag is None]
        print_table(headers, rows, right=(2, 3, 4, 5, 7, 8), marked=unknown)
        _say_what_old_targets_promise(settings)
    if any(state.lag != 0 for state in states):
        raise click.exceptions.Exit(1)


@mirror.command("audit", epilog=_AUDIT_EPILOG)
@_sides
@click.option("--target-only", is_flag=True, help="Compare the target with the leaves alone; no source is needed.")
@click.option("--hours", is_flag=True, help="Count the records by the hours of their times, too; that is slow.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit_mirror(as_json: bool, target_only: bool, hours: bool, **options: Any) -> None:
    """Compare each record of the target with the one from which it was copied."""
    from zkconsumer.mirror.audit.lane_audit import audit

    settings = _settings(needs_source=not target_only, **options)
    found = list(audit(settings, target_only=target_only, hours=hours))
    unproved = sum(each.only_target for each in found) if target_only else 0
    if as_json:
        click.echo(json.dumps({"partitions": [_audit_json(each) for each in found]}))
    else:
        _print_audit(found, unproved, target_only)
    if not all(each.is_equal for each in found):
        raise click.exceptions.Exit(1)
    if unproved:
        raise click.exceptions.Exit(4)


# -- settings ----------------------------------------------------------------------------------------------------------


def _settings(
    name: str,
    renames: Sequence[str] = (),
    settings: Sequence[str] = (),
    prefix: str = "",
    replication_factor: int | None = None,
    on_data_loss: str = "fail",
    timestamps: str = "source",
    from_zookeeper: str | None = None,
    to_zookeeper: str | None = None,
    needs_source: bool = True,
    **options: Any,
) -> MirrorSettings:
    from zkconsumer.mirror.sides import MirrorSettings, TopicRules

    zookeeper, source = _side("from", from_zookeeper, options)
    target_zookeeper, target = _side("to", to_zookeeper, options)
    if "bootstrap.servers" in target:  # a profile may name both
        target_zookeeper = to_zookeeper
    if needs_source and zookeeper is None and "bootstrap.servers" not in source:
        raise click.UsageError(
            "Nothing names the source: give --from, --from-zookeeper, --from-brokers or --from-config."
        )
    if target_zookeeper is None and "bootstrap.servers" not in target:
        raise click.UsageError("Nothing names the target: give --to-brokers, for Kafka 0.8 to 0.10 --to-zookeeper, or "
                               "--to or --to-config.")  # fmt: skip
    rules = TopicRules(prefix, named_values(renames), replication_factor, named_values(settings))
    return MirrorSettings(
        name, target, source, zookeeper, target_zookeeper, rules=rules, skips_losses=on_data_loss == "skip",
        sets_times=timestamps == "target", **options,
    )  # fmt: skip


def _side(side: str, zookeeper: str | None, options: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return ZooKeeper and properties of one side, and take its options out of the others."""
    profile, config, brokers = (options.pop(name) for name in (side, f"{side}_config", f"{side}_brokers"))
    found = find_connection_settings(zookeeper, config, profile, {}, f"--{side}-zookeeper")
    properties: dict[str, Any] = dict(found.properties)
    if brokers is not None:
        properties["bootstrap.servers"] = brokers
    return (None if brokers is not None else found.zookeeper), properties


def _served(running: Mirror, port: int, host: str) -> MetricsServer:
    try:
        from zkconsumer.mirror.mirror_metrics import MirrorCollector
        from zkconsumer.prometheus import serve_collectors
    except ImportError:
        raise CliError("--port needs the package prometheus_client, which is not installed",
                       "pip install 'zkconsumer[prometheus]'") from None  # fmt: skip
    try:
        server = serve_collectors([MirrorCollector(running)], port, host)
    except OSError as error:
        raise CliError(error.strerror or str(error), "choose another --port, or another --host") from None
    place = f"[{host}]" if ":" in host else host
    warn(f"mirror: metrics are served at http://{place}:{server.port}/metrics")
    return server


# -- output ------------------------------------------------------------------------------------------------------------


def _print_figures(running: Mirror, as_json: bool) -> None:
    figures = running.figures() or running.ended()
    lags = [found.lag for found in figures.values()]
    known = sum(lag for lag in lags if lag is not None)
    ages = [found.lag_ms for found in figures.values()]
    oldest_ms = None if None in ages else max(ages, key=lambda age: age or 0, default=None)
    records = sum(found.records for found in figures.values())
    size_bytes = sum(found.size_bytes for found in figures.values())
    troubles = sorted({found.trouble for found in figures.values() if found.trouble})
    failures = [(lane, found.failure) for lane, found in figures.items() if found.failure is not None]
    if as_json:
        say(json.dumps({
            "partition_count": len(figures), "messages": records, "bytes": size_bytes, "lag": known,
            "lag_ms": oldest_ms, "lag_unknown": lags.count(None),
            "failed": [f"{lane.place}: {failure}" for lane, failure in failures],
            "problems": troubles,
        }))  # fmt: skip
        return
    unknown = f", {lags.count(None)} unknown" if None in lags else ""
    behind = f", {_age(oldest_ms)} behind" if oldest_ms else ""
    copied = f"{count_of(records, 'record')} copied, {count_of(size_bytes, 'byte')}"
    warn(f"mirror: {count_of(len(figures), 'partition')}, {copied}, lag {known}{unknown}{behind}")
    for lane, failure in failures:
        warn(f"mirror: {lane.place} is stopped: {failure}")
    for trouble in troubles[:3]:
        warn(f"mirror: {trouble}")


def _say_what_old_targets_promise(settings: MirrorSettings) -> None:
    if settings.target_zookeeper is not None:
        click.echo("the target has no sequence numbers (Kafka before 0.11): a broker that was frozen can store one "
                   "request twice; the mirror finds it and stops the partition, see docs/MIRROR.md")  # fmt: skip


def _lane_cells(lane: Lane) -> list[str]:
    return [f"{lane.source.topic}/{lane.source.partition}", f"{lane.target.topic}/{lane.target.partition}"]


def _age(age_ms: int | None) -> str:
    """Return how old a record is, as text; `-` if that is not known."""
    if age_ms is None:
        return "-"
    seconds = -(-age_ms // 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _settings_text(settings: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))


def _state_json(state: LaneProgress) -> dict[str, Any]:
    return {
        **_lane_json(state.lane), "offset": state.position, "earliest": state.source_start,
        "latest": state.source_end, "target_latest": state.target_end, "lag": state.lag,
        "lag_ms": state.lag_ms, "guarded": state.is_guarded, "run_count": state.runs,
        "holes": [{"start": first, "end": end, "cause": cause} for first, end, cause in state.holes],
    }  # fmt: skip


def _print_audit(found: Sequence[LaneAudit], unproved: int, target_only: bool) -> None:
    rows = [[*_lane_cells(each.lane), str(each.records), str(each.by_leaves), str(each.different),
             str(each.only_target), str(each.only_source), str(each.not_copied)] for each in found]  # fmt: skip
    headers = ["SOURCE", "TARGET", "EQUAL", "EQUAL BY LEAVES", "DIFFERENT", "NOT PROVED", "DELETED ON TARGET",
               "TO BE COPIED"]  # fmt: skip
    print_table(headers, rows, right=range(2, 8), marked=[i for i, each in enumerate(found) if each.different])
    if any(each.hours for each in found):
        rows = [[*_lane_cells(each.lane), _hour_text(hour.start_ms), str(hour.source), str(hour.target)]
                for each in found for hour in each.hours]  # fmt: skip
        print_table(["SOURCE", "TARGET", "HOUR", "AT SOURCE", "ON TARGET"], rows, right=range(3, 5))
    for each in found:
        for difference in each.differences:
            print_problem(f"{each.lane.place}: offset {difference.source_offset}: {difference.what}")
        for gap in [one for one in each.ranges if one.state.value == "not_proved"][:_MOST_GAPS] if target_only else ():
            print_problem(f"{each.lane.place}: offsets {gap.first} to {gap.end - 1} of the source, from offset "
                          f"{gap.target_first} of the target: no leaf has these records")  # fmt: skip
    unguarded = sum(each.is_guarded is False for each in found)
    if unguarded:
        click.echo(f"{count_of(unguarded, 'partition')} unguarded: brokers do not know who wrote the last records")
    if all(each.is_equal for each in found):
        if unproved:
            click.echo(f"nothing differs; {count_of(unproved, 'record')} cannot be proved without the source")
        else:
            click.echo("the target has what was copied" if target_only else "both sides are equal")


def _hour_text(start_ms: int | None) -> str:
    if start_ms is None:
        return "no time"
    try:
        return datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%Y-%m-%dT%H:00Z")
    except (OverflowError, ValueError, OSError):
        return str(start_ms)


def _guard_text(is_guarded: bool | None) -> str:
    return cell(None) if is_guarded is None else "yes" if is_guarded else "no"


def _audit_json(found: LaneAudit) -> dict[str, Any]:
    return {
        **_lane_json(found.lane), "equal": found.records, "equal_by_leaf": found.by_leaves,
        "different": found.different, "not_proved": found.only_target,
        "deleted_at_source": found.by_leaves + found.only_target, "deleted_on_target": found.only_source,
        "to_be_copied": found.not_copied, "guarded": found.is_guarded,
        "differences": [
            {"offset": each.source_offset, "target_offset": each.target_offset, "reason": each.what}
            for each in found.differences
        ],
        "leaves": [
            {"start": leaf.first, "messages": leaf.records, "bytes": leaf.size_bytes, "hash": leaf.source_hash,
             "target_hash": leaf.target_hash} for leaf in found.leaves
        ],
        "ranges": [
            {"start": each.first, "end": each.end, "target_offset": each.target_first, "messages": each.records,
             "state": each.state.value} for each in found.ranges
        ],
        "hours": [
            {"start_ms": each.start_ms, "messages": each.source, "target_messages": each.target}
            for each in found.hours
        ],
    }  # fmt: skip


def _lane_json(lane: Lane) -> dict[str, Any]:
    return {
        "topic": lane.source.topic, "partition": lane.source.partition, "target_topic": lane.target.topic,
        "target_partition": lane.target.partition, "cluster_id": lane.cluster,
    }  # fmt: skip
