"""One run of a load: what there is to read, reading it, counting it, and publishing it atomically.

    finish the last run -> ask the cluster -> plan -> write aside -> count what was written -> publish -> finish
    (put files in their places, or append their rows to the table) -> store offsets

Until it is published, nothing of a run counts, and whatever ends it costs its work alone.

Source: docs/SPARK_LOADING.md, "Each message once".
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rebalance.requests import ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.cluster_offsets import ClusterOffsets
from zkconsumer.spark.group_offsets import GroupOffsets
from zkconsumer.spark.load import delta_session, iceberg_session
from zkconsumer.spark.load.audit import PartitionCounts, audit, incomplete
from zkconsumer.spark.load.cluster_state import ClusterStateReader, refuse_recreated_topics
from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.delta import DeltaTable
from zkconsumer.spark.load.errors import LoadOvertaken, LoadRefused
from zkconsumer.spark.load.heartbeat import Heartbeat
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.iceberg import IcebergTable
from zkconsumer.spark.load.job_progress import Tell, watched_jobs
from zkconsumer.spark.load.load_state import LoadState
from zkconsumer.spark.load.manifest import LoadedPartition, Manifest
from zkconsumer.spark.load.planning import ClusterState, RunPlan, plan_run
from zkconsumer.spark.load.row_counts import count_from, count_rows
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.table import LakeTable
from zkconsumer.spark.load.writing import ICEBERG, UNDECODED_FOLDER, write_bad, write_rows
from zkconsumer.spark.log_changes import Loss
from zkconsumer.spark.offset_spec import TIME_OPTIONS
from zkconsumer.spark.offsets_json import nested_offsets
from zkconsumer.spark.options import SourceOptions

__all__ = ["LoadReport", "run_load"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadReport:
    """What a run came to.

    Attributes:
        run: its number, `None` when there was nothing to read.
        known: partitions that were looked at.
        partitions: what was brought of those that had something.
        lost: what was passed over.
        silent: partitions whose leaders did not answer, each with the reason; they are left to the next run.
        lag: what has come in meanwhile and is left for the next run, by topic and partition.
        files: how many were put in their places; rows in a table are in none of these.
        stored: whether the offsets stand in the group, too; `None` without a group.
        left: how many offsets were there at the begin and are left to the next run, as there were too many.
    """

    folder: str
    run: int | None
    known: int
    partitions: tuple[LoadedPartition, ...] = ()
    lost: tuple[Loss, ...] = ()
    silent: Mapping[TopicPartition, str] = field(default_factory=dict)
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)
    files: int = 0
    seconds: float = 0.0
    stored: bool | None = None
    left: int = 0


def run_load(spark: Any, settings: LoadSettings, tell: Tell = lambda what, done, total: None) -> LoadReport:
    """Load what is new, and return what that was.

    Args:
        spark: a session with a driver of its own.
        tell: called with a word for the step, and how much of it is done of how much.

    Raises:
        LoadRefused: the folder holds something else, or the settings do not fit what it holds.
        OffsetsLost: what was left to be read is gone, and `allow_loss` is not set.
        AuditFailed: what was written is not what was asked for.
        AppendFailed: a run is published and its rows are not in the table; the next load tries again.
        LoadOvertaken: another load has published meanwhile.
        SparkSourceError, RebalanceError: the cluster cannot be asked.
    """
    began_s = time.monotonic()
    storage = Storage(spark, settings.folder)
    table = _table(spark, storage, settings)
    history = _history(spark, storage, table, tell)
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
    last = history.replace_dead(_unread(settings, last)) or last
    options = settings.options()
    before = LoadState() if last is None else last.state
    cluster, plan = _look(settings, options, history, before)
    known = len(cluster.logs.partitions)
    if not plan.asked and last is not None and plan.state.equals(before):
        stored = _store(options, last)
        return LoadReport(storage.folder, None, known, silent=cluster.silent, stored=stored,
                          seconds=time.monotonic() - began_s)  # fmt: skip
    if table is not None:
        table.create()
    unread = _unread(settings, last)
    with Heartbeat(storage, staging_folder(unread.run, unread.run_id)):
        manifest = _written(spark, settings, storage, history, cluster, plan, unread, tell)
        history.publish(manifest)
    stored = _store(options, manifest)
    return LoadReport(
        storage.folder, manifest.run, known, manifest.partitions, manifest.lost, cluster.silent,
        _lag(options, manifest), sum(bool(file.final) for file in manifest.files), time.monotonic() - began_s, stored,
        plan.left,
    )  # fmt: skip


def _table(spark: Any, storage: Storage, settings: LoadSettings) -> LakeTable | None:
    if not settings.shape.is_table:
        return None
    if settings.shape.format == ICEBERG:
        iceberg_session.check_session(spark)
        return IcebergTable(spark, storage, settings.shape)
    delta_session.check_session(spark)
    return DeltaTable(spark, storage, settings.shape)


def _history(spark: Any, storage: Storage, table: LakeTable | None, tell: Tell) -> History:
    def append(manifest: Manifest, is_done: Callable[[], bool]) -> None:
        assert table is not None
        with watched_jobs(spark, "appending", tell):
            table.append(manifest, is_done)

    return History(
        storage, lambda done, total: tell("publishing", done, total), None if table is None else append
    )


def _refuse_other_shape(last: Manifest, settings: LoadSettings, folder: str) -> None:
    had = (last.format, last.partition_by, last.text)
    wanted = settings.shape[:3]
    if had != wanted:
        words = [f"{kind} by {by}{' as text' if text else ''}" for kind, by, text in (had, wanted)]
        raise LoadRefused(f"{folder} holds {words[0]}; what was asked for is {words[1]}: take another folder")


# -- the cluster ---------------------------------------------------------------------------------------------------


@contextmanager
def _visit(options: SourceOptions) -> Iterator[ZooKeeperPort]:
    config = options.config
    timeout_s = config.zookeeper_connection_timeout_ms / 1000
    with zookeeper_connection(config.zookeeper_connect, timeout_s, **zookeeper_options(config)) as port:
        yield port


def _look(
    settings: LoadSettings, options: SourceOptions, history: History, before: LoadState
) -> tuple[ClusterState, RunPlan]:
    """What there is, and what of it to read."""
    with _visit(options) as port:
        if options.has_group:
            GroupOffsets(port, options.config.group_id, options.commit_to_live_group).refuse_members()
        with ClusterStateReader(
            port, options, before, lambda: (each.state for each in history.earlier()), allow_gaps=settings.allow_gaps
        ) as look:
            cluster = look.look(at_latest=settings.starts_at_latest, may_be_silent=settings.allow_leaderless)
            return cluster, plan_run(
                before, cluster, allow_loss=settings.allow_loss, reads=look.reads, most=settings.max_messages
            )


def _lag(options: SourceOptions, manifest: Manifest) -> dict[tuple[str, int], int]:
    """What has come in since; nothing of partitions that cannot be asked now, which is no reason to fail."""
    names = [TopicPartition(each.topic, each.partition) for each in manifest.partitions]
    try:
        with _visit(options) as port:
            latest = ClusterOffsets(port, options.config, options.patience_ms / 1000).latest(names)
    except ZkConsumerError as error:
        log.warning("how much is left to be read is not known: %s", error)
        return {}
    ends = manifest.state.offsets.offsets
    return {(name.topic, int(name.partition)): max(0, end - ends[name]) for name, end in latest.items()}


def _store(options: SourceOptions, manifest: Manifest) -> bool | None:
    """Store the offsets in the group: behind the data, and never a reason to lose it."""
    if not options.has_group:
        return None
    offsets = manifest.state.offsets
    try:
        with _visit(options) as port:
            group = GroupOffsets(port, options.config.group_id, options.commit_to_live_group)
            group.commit(offsets.offsets, offsets.created_zxids)
    except ZkConsumerError as error:
        log.warning("the data is published, the offsets of the group are left to the next run: %s", error)
        return False
    return True


# -- the data ------------------------------------------------------------------------------------------------------


def _unread(settings: LoadSettings, last: Manifest | None) -> Manifest:
    """The next run, which has read nothing yet and changes nothing."""
    shape = settings.shape
    run = 1 if last is None else last.run + 1
    return Manifest(
        run, uuid.uuid4().hex[:12], datetime.now(UTC).isoformat(timespec="seconds"),
        settings.options().config.zookeeper_connect, shape.format, shape.partition_by,
        LoadState() if last is None else last.state, (), (), shape.text, _history_id(settings, last),
    )  # fmt: skip


def _written(
    spark: Any, settings: LoadSettings, storage: Storage, history: History, cluster: ClusterState, plan: RunPlan,
    unread: Manifest, tell: Callable[[str, int, int], None],
) -> Manifest:
    """Write a run aside, and return its manifest once the counts agree."""
    folder = staging_folder(unread.run, unread.run_id)
    began = datetime.fromisoformat(unread.began_at)
    try:
        found: Mapping[TopicPartition, PartitionCounts] = {}
        # Without anything to read a run still notes where partitions begin that it has seen for the first time.
        if plan.asked:
            with watched_jobs(spark, "loading", tell):
                write_rows(spark, _frame(spark, settings, plan), storage.url(folder), settings.shape, began)
                if storage.exists(f"{folder}/{UNDECODED_FOLDER}"):
                    write_bad(spark, storage.url(folder), settings.shape)
            with watched_jobs(spark, "counting", tell):
                found = count_rows(spark, storage.url(folder), settings.shape, plan.asked)
        may_miss = cluster.compacted
        deleted: dict[TopicPartition, int] = {}
        if settings.allow_loss:
            deleted = _deleted(spark, settings, storage.url(folder), plan, incomplete(plan.asked, found, may_miss))
        partitions = audit(plan.asked, found, may_miss, deleted)
        if plan.asked:
            with _visit(settings.options()) as port:
                refuse_recreated_topics(port, cluster.logs.created_zxids, {place.topic for place in plan.asked})
        last_messages = {name: each.last_message for name, each in found.items() if each.last_message is not None}
        files = history.staged_files(unread.run, unread.run_id, settings.shape.is_table)
        storage.sync([file.staged for file in files])  # the manifest will say that they are there
        return replace(
            unread,
            state=replace(plan.state, last_messages={**plan.state.last_messages, **last_messages}),
            partitions=partitions,
            lost=(*plan.lost, *_losses(plan, deleted)),
            files=files,
        )  # fmt: skip
    except BaseException as error:
        with suppress(Exception):  # what happened before is what counts; a later run removes the rest
            storage.delete(folder)
        if isinstance(error, Exception):
            _refuse_overtaken(history, unread.run, storage.folder)
        raise


def _deleted(
    spark: Any, settings: LoadSettings, url: str, plan: RunPlan, short: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the logs begin now of which messages were deleted while they were read, if all others were written."""
    if not short:
        return {}
    options = settings.options()
    with _visit(options) as port:
        logs = ClusterOffsets(port, options.config, options.patience_ms / 1000).log_ends(short)
    begins = {name: ends.earliest for name, ends in logs.items() if ends.earliest > plan.asked[name].start}
    counted = count_from(spark, url, settings.shape, begins)
    return {name: begin for name, begin in begins.items()
            if counted.get(name, 0) == max(0, plan.asked[name].end - begin)}


def _losses(plan: RunPlan, deleted: Mapping[TopicPartition, int]) -> list[Loss]:
    return [Loss(name, plan.asked[name].start, min(begin, plan.asked[name].end), "deleted while it was read, in part")
            for name, begin in deleted.items()]


def _history_id(settings: LoadSettings, last: Manifest | None) -> str:
    """Drawn by the first run: one that is made anew in an old folder must not be taken for the old one."""
    if not settings.shape.is_table:
        return ""
    return last.history_id if last is not None else uuid.uuid4().hex


def _refuse_overtaken(history: History, run: int, folder: str) -> None:
    """Say so if another load has published this run meanwhile: it has swept away what this one wrote."""
    last = None
    with suppress(Exception):
        last = history.last()
    if last is not None and last.run >= run:
        raise LoadOvertaken(f"another load has published run {last.run} into {folder} meanwhile; nothing of this one "
                            "was published, start it again")


def _frame(spark: Any, settings: LoadSettings, plan: RunPlan) -> Any:
    """The messages that were asked for, those that cannot be decoded among them."""
    import json

    from zkconsumer.spark.source import ZkConsumerSource

    # Spark looks for it by itself in an installation by pip alone: not in an editable one, and not in an archive.
    spark.dataSource.register(ZkConsumerSource)
    decided = ("subscribe", "subscribepattern", "blacklist", "startingoffsets", *map(str.lower, TIME_OPTIONS))
    options = {name: value for name, value in settings.source.items() if name.lower() not in decided}
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(plan.asked):
        numbers.setdefault(topic, []).append(int(number))
    options |= {
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(nested_offsets({name: span.start for name, span in plan.asked.items()})),
        "endingOffsets": json.dumps(nested_offsets({name: span.end for name, span in plan.asked.items()})),
        "onMessageError": "row",
        "failOnDataLoss": str(not settings.allow_loss).lower(),
    }
    if settings.shape.file_bytes is not None:  # a task writes its files by itself
        options["maxBytesPerPartition"] = str(settings.shape.file_bytes)
    return spark.read.format("zkconsumer").options(**options).load()
