"""One run of a load: what there is to read, reading it, counting it, and publishing it at one blow.

    finish the last run -> ask the cluster -> plan -> write aside -> count what was written -> publish -> finish
    (put files in their places, or append their rows to the Delta table) -> store offsets

Until it is published, nothing of a run counts, and whatever ends it costs its work alone.

Source: docs/SPARK.md, "Loading into files".
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rebalance import znodes
from rebalance.errors import RebalanceError, UnreadableNode
from rebalance.requests import Exists, GetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster import read_all
from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.bounds import LogEnds
from zkconsumer.spark.cluster_offsets import ClusterOffsets
from zkconsumer.spark.errors import TopicMissing
from zkconsumer.spark.group_offsets import GroupOffsets
from zkconsumer.spark.load.audit import Found, audit
from zkconsumer.spark.load.delta import DeltaTable
from zkconsumer.spark.load.delta_session import check_session
from zkconsumer.spark.load.errors import LoadOvertaken, LoadRefused
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.job_progress import Tell, watched_jobs
from zkconsumer.spark.load.manifest import LoadedPartition, Manifest
from zkconsumer.spark.load.planning import LostSpan, RunPlan, plan_run
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import count_rows, write_rows
from zkconsumer.spark.offsets_json import nested_offsets
from zkconsumer.spark.options import SourceOptions
from zkconsumer.zookeeper_options import zookeeper_options
from zkconsumer.zookeeper_visit import READ_TIMEOUT_S, visit_zookeeper

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
        lag: what has come in meanwhile and is left for the next run, by topic and partition.
        files: how many were put in their places; rows in a Delta table are in none of these.
        stored: whether the offsets stand in the group, too; `None` without a group.
    """

    folder: str
    run: int | None
    known: int
    partitions: tuple[LoadedPartition, ...] = ()
    lost: tuple[LostSpan, ...] = ()
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)
    files: int = 0
    seconds: float = 0.0
    stored: bool | None = None


@dataclass(frozen=True)
class _Cluster:
    """What the cluster has at the begin of a run."""

    logs: Mapping[TopicPartition, LogEnds]
    births: Mapping[str, int]
    starts: Mapping[TopicPartition, int]
    compacted: frozenset[str]


def run_load(spark: Any, settings: LoadSettings, tell: Tell = lambda what, done, total: None) -> LoadReport:
    """Load what is new, and return what that was.

    Args:
        spark: a session with a driver of its own.
        tell: called with a word for the step, and how much of it is done of how much.

    Raises:
        LoadRefused: the folder holds something else, or the settings do not fit what it holds.
        OffsetsLost: what was left to be read is gone, and `allow_loss` is not set.
        AuditFailed: what was written is not what was asked for.
        AppendFailed: a run is published and its rows are not in the Delta table; the next load tries again.
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
    options = settings.options()
    with _visit(options) as port:
        if options.has_group:
            GroupOffsets(port, options.config.group_id, options.commit_to_live_group).refuse_members()
        cluster = _look(port, options, settings)
    plan = _plan(cluster, last, settings)
    if not plan.asked and last is not None and (plan.ends, cluster.births) == (last.ends, _of(last, cluster.births)):
        stored = _store(options, last)
        return LoadReport(storage.folder, None, len(cluster.logs), lost=plan.lost, stored=stored,
                          seconds=time.monotonic() - began_s)  # fmt: skip
    if table is not None:
        table.create()
    manifest = _written(spark, settings, storage, history, cluster, plan, last, tell)
    history.publish(manifest)
    stored = _store(options, manifest)
    return LoadReport(
        storage.folder, manifest.run, len(cluster.logs), manifest.partitions, plan.lost, _lag(options, manifest),
        sum(bool(file.final) for file in manifest.files), time.monotonic() - began_s, stored,
    )  # fmt: skip


def _table(spark: Any, storage: Storage, settings: LoadSettings) -> DeltaTable | None:
    if not settings.shape.is_table:
        return None
    check_session(spark)
    return DeltaTable(spark, storage, settings.shape)


def _history(spark: Any, storage: Storage, table: DeltaTable | None, tell: Tell) -> History:
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
    with visit_zookeeper(config.zookeeper_connect, timeout_s, **zookeeper_options(config)) as port:
        yield port


def _look(port: ZooKeeperPort, options: SourceOptions, settings: LoadSettings) -> _Cluster:
    offsets = ClusterOffsets(port, options.config, options.patience_ms / 1000)
    offsets.refuse_other_generations()
    known = offsets.topics()
    topics = options.choice.topics_of(known, options.config.exclude_internal_topics)
    births, compacted = _born(port, topics)
    missing = [topic for topic in topics if topic not in births]
    if missing:
        raise TopicMissing(f"topic {missing[0]!r} is not in ZooKeeper at {options.config.zookeeper_connect}")
    names = [TopicPartition(topic, n) for topic, numbers in offsets.partitions(topics).items() for n in numbers]
    logs = offsets.log_ends(names)
    starts: Mapping[TopicPartition, int] = {}
    if settings.begins_at_latest:
        starts = {name: ends.latest for name, ends in logs.items()}
    elif options.starting.kind == "group":
        starts = offsets.group_offsets(options.config.group_id, names)
    elif options.starting.kind == "each":
        starts = {name: offset for name, offset in options.starting.each.items() if offset >= 0}
    return _Cluster(logs, births, starts, compacted)


def _born(port: ZooKeeperPort, topics: list[str]) -> tuple[dict[str, int], frozenset[str]]:
    """The transaction that created each topic, and those of the topics that are compacted."""
    paths = [znodes.topic_config_path(topic) for topic in topics]
    stats = read_all(port, [Exists(znodes.topic_path(topic)) for topic in topics], READ_TIMEOUT_S)
    configs = read_all(port, [GetData(path) for path in paths], READ_TIMEOUT_S)
    births = {topic: int(stat.czxid) for topic, stat in zip(topics, stats, strict=True) if stat is not None}
    compacted = set()
    for topic, path, value in zip(topics, paths, configs, strict=True):
        try:
            policy = "" if value is None else znodes.parse_topic_config(path, value[0]).get("cleanup.policy", "")
        except UnreadableNode as error:
            log.warning("%s; taken for a topic that is not compacted", error)
            continue
        if "compact" in policy:
            compacted.add(topic)
    return births, frozenset(compacted)


def _plan(cluster: _Cluster, last: Manifest | None, settings: LoadSettings) -> RunPlan:
    ends, births = ({}, {}) if last is None else (last.ends, last.births)
    return plan_run(cluster.logs, cluster.births, ends, births, cluster.starts, settings.allow_loss)


def _of(last: Manifest, births: Mapping[str, int]) -> dict[str, int]:
    """The births of these topics as the last run knew them."""
    return {topic: last.births[topic] for topic in births if topic in last.births}


def _lag(options: SourceOptions, manifest: Manifest) -> dict[tuple[str, int], int]:
    """What has come in since; nothing of partitions that cannot be asked now, which is no reason to fail."""
    names = [TopicPartition(each.topic, each.partition) for each in manifest.partitions]
    try:
        with _visit(options) as port:
            latest = ClusterOffsets(port, options.config, options.patience_ms / 1000).latest(names)
    except (ZkConsumerError, RebalanceError) as error:
        log.warning("how much is left to be read is not known: %s", error)
        return {}
    return {(topic, int(n)): max(0, end - manifest.ends[topic][int(n)]) for (topic, n), end in latest.items()}


def _store(options: SourceOptions, manifest: Manifest) -> bool | None:
    """Store the offsets in the group: behind the data, and never a reason to lose it."""
    if not options.has_group:
        return None
    offsets = {
        TopicPartition(topic, number): end for topic, ends in manifest.ends.items() for number, end in ends.items()
    }
    try:
        with _visit(options) as port:
            group = GroupOffsets(port, options.config.group_id, options.commit_to_live_group)
            group.commit(offsets, manifest.births)
    except (ZkConsumerError, RebalanceError) as error:
        log.warning("the data is published, the offsets of the group are left to the next run: %s", error)
        return False
    return True


# -- the data ------------------------------------------------------------------------------------------------------


def _written(
    spark: Any, settings: LoadSettings, storage: Storage, history: History, cluster: _Cluster, plan: RunPlan,
    last: Manifest | None, tell: Callable[[str, int, int], None],
) -> Manifest:
    """Write a run aside, and return its manifest once the counts agree."""
    began = datetime.now(UTC)
    run, run_id = (last.run if last is not None else 0) + 1, uuid.uuid4().hex[:12]
    folder = staging_folder(run, run_id)
    options = settings.options()
    try:
        found: Mapping[TopicPartition, Found] = {}
        # Without anything to read a run still notes where partitions begin that it has seen for the first time.
        if plan.asked:
            with watched_jobs(spark, "loading", tell):
                write_rows(spark, _frame(spark, settings, plan), storage.url(folder), settings.shape, began)
            with watched_jobs(spark, "counting", tell):
                found = count_rows(spark, storage.url(folder), settings.shape, plan.asked)
        may_miss = {place.topic for place in plan.asked} if settings.allow_gaps else cluster.compacted
        partitions = audit(plan.asked, found, may_miss)
        births = {**(last.births if last is not None else {}), **cluster.births}
        return Manifest(
            run, run_id, began.isoformat(timespec="seconds"), options.config.zookeeper_connect, settings.shape.format,
            settings.shape.partition_by, plan.ends, births, partitions,
            history.staged_files(run, run_id, settings.shape.is_table), settings.shape.text,
            _history_id(settings, last),
        )  # fmt: skip
    except BaseException as error:
        with suppress(Exception):  # what happened before is what counts; a later run removes the rest
            storage.delete(folder)
        if isinstance(error, Exception):
            _refuse_overtaken(history, run, storage.folder)
        raise


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
    decided = ("subscribe", "subscribepattern", "blacklist", "startingoffsets")
    options = {name: value for name, value in settings.source.items() if name.lower() not in decided}
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(plan.asked):
        numbers.setdefault(topic, []).append(int(number))
    options |= {
        "assign": json.dumps(numbers),
        "startingOffsets": json.dumps(nested_offsets({name: span.start for name, span in plan.asked.items()})),
        "endingOffsets": json.dumps(nested_offsets({name: span.end for name, span in plan.asked.items()})),
        "onMessageError": "row",
    }
    return spark.read.format("zkconsumer").options(**options).load()
