"""One run of a load: plan it, write and count its rows, publish it atomically.

    finish the last run -> read the state of the cluster -> plan -> write the rows into the staging folder -> count them
    -> publish -> finish (move files to their places, or append the rows to the table) -> store the offsets of the group

A run has no effect before it is published. Whatever ends it earlier costs no more than its work.

Source: docs/SPARK_LOADING.md, "Each message once".

Loads in portions: several runs of limited size, one after the other, each published by itself.

Source: docs/SPARK_LOADING.md, "Several runs of limited size".
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.config.tables.producer_kinds import shown_brokers
from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.load import delta, iceberg
from zkconsumer.spark.load.cluster_state import ClusterStateReader
from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.delta import DeltaTable
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.heartbeat import Heartbeat
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.iceberg import IcebergTable
from zkconsumer.spark.load.manifest import LoadedPartition, LoadState, Manifest
from zkconsumer.spark.load.planning import ClusterState, RunPlan, plan_run
from zkconsumer.spark.load.run_writer import RunWriter
from zkconsumer.spark.load.session import Tell, watched_jobs
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.table import LakeTable
from zkconsumer.spark.load.writing import ICEBERG, NULL_TOPIC
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.cluster_offsets import ClusterOffsets
from zkconsumer.spark.settings_files import configured_connection, open_source
from zkconsumer.spark.streaming.group_offsets import GroupOffsets
from zkconsumer.spark.streaming.log_changes import Loss

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadReport:
    """The result of a run. Its fields are the keys of `zkconsumer load --json`.

    Attributes:
        run: its number, `None` when there was nothing to read.
        known: how many partitions the load covers.
        partitions: the loaded ranges, for each partition that had something.
        lost: offsets that were skipped because they are not in the logs any more.
        silent: partitions whose leaders did not answer, each with the reason. They are left to the next run.
        lag: messages that have arrived since and are left to the next run, by topic and partition; on Kafka 0.7 bytes.
        files: how many were moved to their places. Rows in a table are in none of these.
        stored: whether the offsets are stored for the group, too; `None` without a group.
        left: how many offsets were there at the start and are left to the next run, as the run was limited.
    """

    folder: str
    run: int | None
    known: int
    partitions: tuple[LoadedPartition, ...] = ()
    lost: tuple[Loss, ...] = ()
    silent: Mapping[TopicPartition, str] = field(default_factory=dict)
    lag: Mapping[tuple[str, int | str], int] = field(default_factory=dict)
    files: int = 0
    seconds: float = 0.0
    stored: bool | None = None
    left: int = 0


def run_load(spark: Any, settings: LoadSettings, tell: Tell = lambda what, done, total: None) -> LoadReport:
    """Load what is new, and return what that was.

    Args:
        spark: a session with a driver of its own.
        tell: called with the name of the step, how much of it is done, and of how much.

    Raises:
        LoadRefused: the folder holds something else, or the settings do not fit what it holds.
        OffsetsLost: messages that were not loaded yet are gone, and `allow_loss` is not set.
        AuditFailed: the written files differ from the plan.
        AppendFailed: a run is published and its rows are not in the table; the next load tries again.
        LoadOvertaken: another load has published meanwhile.
        SparkSourceError, RebalanceError: ZooKeeper or the brokers did not answer.
    """
    started_s = time.monotonic()
    storage = Storage(spark, settings.folder)
    table = _table(spark, storage, settings)
    history = _history(spark, storage, table, tell)
    last = _finish_earlier_runs(storage, table, history, settings, tell)
    options = settings.options()
    before = LoadState() if last is None else last.state
    cluster, plan = _plan(settings, options, history, before)
    if any(name.topic == NULL_TOPIC for name in cluster.logs.partitions):
        raise LoadRefused(
            f"a topic is named {NULL_TOPIC}, and readers treat a directory of this name as null",
            remedy="exclude it (--blacklist)",
        )
    known = len(cluster.logs.partitions)
    if not plan.asked and last is not None and plan.state.equals(before):
        stored = _store(options, last)
        return LoadReport(storage.folder, None, known, silent=cluster.silent, stored=stored,
                          seconds=time.monotonic() - started_s)  # fmt: skip
    if table is not None:
        table.create()
    empty = _empty_run(settings, last)
    with Heartbeat(storage, staging_folder(empty.run, empty.run_id)):
        manifest = RunWriter(spark, settings, storage, history, tell).write(empty, cluster, plan)
        history.publish(manifest)
    stored = _store(options, manifest)
    return LoadReport(
        storage.folder, manifest.run, known, manifest.partitions, manifest.lost, cluster.silent,
        _lag(options, manifest), sum(bool(file.final) for file in manifest.files), time.monotonic() - started_s, stored,
        plan.left,
    )  # fmt: skip


def _finish_earlier_runs(
    storage: Storage, table: LakeTable | None, history: History, settings: LoadSettings, tell: Tell
) -> Manifest | None:
    """Complete what earlier loads and compactions have published, and return the last run."""
    had_rows = table is not None and table.has_rows()
    last = history.last()
    if last is not None:
        _refuse_other_shape(last, settings, storage.folder)
    if table is not None:
        table.refuse_unfit(last, had_rows)
    if last is not None:
        history.finish(last)
        if table is None:
            compactions = CompactionHistory(storage, lambda done, total: tell("publishing", done, total))
            compactions.finish_last()
            compactions.replace_dead()
    return history.replace_dead(_empty_run(settings, last)) or last


def _table(spark: Any, storage: Storage, settings: LoadSettings) -> LakeTable | None:
    if not settings.shape.is_table:
        return None
    if settings.shape.format == ICEBERG:
        iceberg.check_session(spark)
        return IcebergTable(spark, storage, settings.shape)
    delta.check_session(spark)
    return DeltaTable(spark, storage, settings.shape)


def _history(spark: Any, storage: Storage, table: LakeTable | None, tell: Tell) -> History:
    def append(manifest: Manifest, is_done: Callable[[], bool]) -> None:
        assert table is not None
        with watched_jobs(spark, "appending", tell):
            table.append(manifest, is_done)

    return History(storage, lambda done, total: tell("publishing", done, total), None if table is None else append)


def _refuse_other_shape(last: Manifest, settings: LoadSettings, folder: str) -> None:
    had = (last.format, last.partition_by, last.text)
    wanted = settings.shape[:3]
    if had != wanted:
        words = [f"{kind} by {by}{' as text' if text else ''}" for kind, by, text in (had, wanted)]
        raise LoadRefused(f"{folder} has {words[0]}, but {words[1]} was requested", remedy="use another folder")
    if last.headers and not settings.shape.has_headers:
        raise LoadRefused(
            f"{folder} was started with headers, and the headers of the next messages would be lost",
            remedy="continue it with includeHeaders=true (--include-headers)",
        )
    if settings.shape.has_headers and not last.headers:
        raise LoadRefused(
            f"{folder} was started without headers, and its rows have no such column",
            remedy="continue it without includeHeaders, or load into another folder; with the `ends` "
            "in the last manifest as startingOffsets it starts where this folder ends",
        )


def _empty_run(settings: LoadSettings, last: Manifest | None) -> Manifest:
    """The next run, before it has read anything: it changes nothing."""
    shape, config = settings.shape, settings.options().config
    return Manifest(
        run=1 if last is None else last.run + 1,
        run_id=uuid.uuid4().hex[:12],
        began_at=datetime.now(UTC).isoformat(timespec="seconds"),
        zookeeper=config.zookeeper_connect or "",
        format=shape.format,
        partition_by=shape.partition_by,
        state=LoadState() if last is None else last.state,
        text=shape.text,
        history_id=_history_id(settings, last),
        bootstrap_servers="" if config.bootstrap_servers is None else shown_brokers(config.bootstrap_servers),
        headers=shape.has_headers,
    )


def _history_id(settings: LoadSettings, last: Manifest | None) -> str:
    """Chosen by the first run, so that the runs of a folder that was made again are not taken for the earlier ones."""
    if not settings.shape.is_table:
        return ""
    return last.history_id if last is not None else uuid.uuid4().hex


# -- the cluster -------------------------------------------------------------------------------------------------------


def _plan(
    settings: LoadSettings, options: SourceOptions, history: History, before: LoadState
) -> tuple[ClusterState, RunPlan]:
    """The state of the cluster, and what of it to read."""
    with open_source(options.config) as source:
        if not isinstance(source, MetadataReader) and options.has_group:
            GroupOffsets(source, options.config.group_id, options.commit_to_live_group).refuse_members()
        with ClusterStateReader(
            source, options, before, lambda: (each.state for each in history.earlier()), allow_gaps=settings.allow_gaps
        ) as reader:
            cluster = reader.read(at_latest=settings.starts_at_latest, may_be_silent=settings.allow_leaderless)
            return cluster, plan_run(
                before, cluster, allow_loss=settings.allow_loss, selects=reader.selects, most=settings.max_messages
            )


def _lag(options: SourceOptions, manifest: Manifest) -> dict[tuple[str, int | str], int]:
    """The messages that have arrived since; partitions that cannot be asked are left out, as the run is published."""
    names = [TopicPartition(each.topic, each.partition) for each in manifest.partitions]
    try:
        with open_source(options.config) as source:
            latest = ClusterOffsets(source, options.config, options.patience_ms / 1000).latest(names)
    except ZkConsumerError as error:
        log.warning("the lag is not known: %s", error)
        return {}
    ends = manifest.state.offsets.offsets
    return {(name.topic, name.partition): max(0, end - ends[name]) for name, end in latest.items()}


def _store(options: SourceOptions, manifest: Manifest) -> bool | None:
    """Store the offsets for the group, after the data. A failure is logged: the data is published."""
    if not options.has_group:
        return None
    offsets = manifest.state.offsets
    try:
        with configured_connection(options.config) as port:
            group = GroupOffsets(port, options.config.group_id, options.commit_to_live_group)
            group.commit(offsets.offsets, offsets.created_zxids)
    except ZkConsumerError as error:
        log.warning("the data is published, but the offsets of the group are left to the next run: %s", error)
        return False
    return True


PORTION: Final = 1_000_000
"""Messages of a run if the time is limited and `max_messages` is not set."""


def limited(settings: LoadSettings, time_s: float | None) -> LoadSettings:
    """Return the settings with a limit for the messages of a run, if the time is limited.

    Raises:
        LoadRefused: A run cannot be limited (Kafka 0.7).
    """
    if time_s is None or settings.max_messages is not None:
        return settings
    return replace(settings, max_messages=PORTION)


def run_portions(
    spark: Any,
    settings: LoadSettings,
    tell: Tell = lambda what, done, total: None,
    time_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LoadReport]:
    """Run until about as much is loaded as was there at the start, and yield the report of each run.

    Without `settings.max_messages` and `time_s` that is one run.

    Args:
        time_s: start no further run after this time; there is at least one run.
        clock: seconds.

    Raises:
        As `run_load`; runs yielded before are published.
    """
    settings = limited(settings, time_s)
    started_s = clock()
    wanted: int | None = None
    while True:
        report = run_load(spark, settings, tell)
        yield report
        loaded = sum(each.end - each.start for each in report.partitions)
        wanted = report.left if wanted is None else wanted - loaded
        is_late = time_s is not None and clock() - started_s >= time_s
        if not report.left or not loaded or wanted <= 0 or is_late:
            return
