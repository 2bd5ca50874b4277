"""Tells whether topics are still those of the plan, by the transactions that created them, or by their ids.

Offsets of a topic that is created again start at 0 again. What is read of it has the offsets that were planned and the
messages of another log, and the next run would read that log from its start: the messages would be there twice. The
same goes for a log that is cut and grows again; the epochs of leaders tell that.

Source: docs/SPARK_LOADING.md, "Which topic it is".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.leaders import usable_leaders
from zkconsumer.cluster.metadata_reader import BrokersSilent, MetadataReader
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all
from zkconsumer.spark.load.errors import AuditFailed, LoadRefused
from zkconsumer.spark.load.load_state import LoadState
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.streaming.stream_logs import StreamLogs
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, number_of_topic

__all__ = ["refuse_other_kind", "refuse_recreated_topics", "unchanged_epochs"]


def refuse_other_kind(before: LoadState, *, by_brokers: bool) -> None:
    """Raise if the runs before know topics again by other numbers than this one could compare.

    Raises:
        LoadRefused: They do; tells what to do.
    """
    if before.is_new or before.by_brokers == by_brokers:
        return
    if by_brokers:
        raise LoadRefused(
            "the runs in this folder identify topics by their nodes in ZooKeeper, but bootstrap.servers is given: a "
            "topic that was deleted and created again would not be noticed",
            remedy="continue with zookeeper.connect; if the cluster no longer has ZooKeeper, load into another "
                   "folder, and set startingOffsets to the `ends` of the last manifest in _zkconsumer/runs",
        )  # fmt: skip
    raise LoadRefused(
        "the runs in this folder identify topics by the ids that brokers report, but zookeeper.connect is given: a "
        "topic that was deleted and created again would not be noticed",
        remedy="continue with bootstrap.servers",
    )


def refuse_recreated_topics(
    source: ZooKeeperPort | MetadataReader, created_zxids: Mapping[str, int], topics: Collection[str]
) -> None:
    """Raise if one of these topics has been deleted and created anew since the run was planned.

    Args:
        created_zxids: Topic -> what identified it before anything was read. A topic that is gone now was read before it
            went, and one without an entry has brokers that give no ids (before Kafka 2.8).

    Raises:
        AuditFailed: Names the topics.
        ClusterSilent: No answer in time.
    """
    names = sorted(created_zxids.keys() & topics)
    now = _ids_by_leaders(source, names) if isinstance(source, MetadataReader) else _created_zxids(source, names)
    recreated = [topic for topic in names if now.get(topic, set()) - {created_zxids[topic]}]
    if recreated:
        raise AuditFailed(f"nothing was published: {', '.join(map(repr, recreated))} was deleted and created again "
                          "while it was read", remedy="start the load again")


def unchanged_epochs(
    source: ZooKeeperPort | MetadataReader, options: SourceOptions, planned: StreamOffsets,
    read: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the epochs of a plan, without those of logs whose leader does not say whether they are still the same.

    Args:
        planned: The ends of the run, with the epochs of leaders that had them when it was planned.
        read: The partitions of which messages were read.

    Raises:
        AuditFailed: A log was cut below what was planned; names the partitions.
        ClusterSilent: No answer in time.
    """
    if not planned.epochs:
        return {}
    logs = StreamLogs(options)
    logs.use(source)
    try:
        now = logs.compared(planned, logs.read())
    finally:
        logs.close()
    cut = [f"{name.topic}/{name.partition} at {now.cuts[name]}" for name in sorted(now.cuts.keys() & read)]
    if cut:
        raise AuditFailed(f"nothing was published: logs were truncated while they were read: {', '.join(cut)}",
                          remedy="start the load again")
    return {name: epoch for name, epoch in planned.epochs.items() if name in now.ends or name not in read}


def _created_zxids(port: ZooKeeperPort, topics: Collection[str]) -> dict[str, set[int]]:
    nodes = read_all(port, [Exists(znodes.topic_path(topic)) for topic in topics], READ_TIMEOUT_S)
    return {topic: {stat.czxid} for topic, stat in zip(topics, nodes, strict=True) if stat is not None}


def _ids_by_leaders(reader: MetadataReader, topics: Collection[str]) -> dict[str, set[int]]:
    """Return what any of the brokers that lead these topics says of their ids.

    A broker may not have heard yet of a topic that another one serves already. The leader that has served it has.
    """
    found: dict[str, set[int]] = {topic: set() for topic in topics}
    if not topics:
        return found
    metadata, _ = reader.metadata(topics)
    answers = [metadata]
    for leader in {each for name, each in usable_leaders(metadata).items() if name.topic in found}:
        with suppress(BrokersSilent):  # it is down: others lead by now
            answers.append(reader.metadata(topics, besides=metadata.brokers.keys() - {leader})[0])
    for answer in answers:
        for topic, known in answer.topics.items():
            if topic in found and known.topic_id is not None:
                found[topic].add(number_of_topic(known.topic_id))
    return found
