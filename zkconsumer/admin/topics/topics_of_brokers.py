"""Reports topics from the metadata of brokers, for clusters of which no ZooKeeper is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import PartitionMetadata, TopicPartition
from zkconsumer.admin.errors import NotFound
from zkconsumer.admin.phrases import nearest
from zkconsumer.admin.topics.topic_report import TopicPartitionRow, TopicReport
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.opening import metadata_reader
from zkconsumer.config.connection_settings import config_without_group

__all__ = ["topics_of_brokers"]

_ANSWER_S = 5.0
"""Longest wait for one answer of a broker."""


def topics_of_brokers(
    brokers: str, names: Sequence[str], properties: Mapping[str, object], client_id: str
) -> TopicReport:
    """Return the partitions of topics, of all topics when none is named: leaders, replicas, offsets, problems.

    Args:
        brokers: Some of the cluster's, as `bootstrap.servers`.
        properties: Settings of the consumer by their names in Kafka.
        client_id: The name under which brokers log and count the requests.

    Raises:
        NotFound: There is no such topic.
        BrokersSilent: No broker answers.
        ConfigError: A property has a value that is not allowed.
    """
    config = config_without_group(None, {**properties, "bootstrap.servers": brokers}, client_id)
    reader = metadata_reader(config, _ANSWER_S)
    assert reader is not None
    known = reader.topics()
    for name in names:
        if name not in known:
            raise NotFound(f"topic {name!r} does not exist {config.where}", nearest(name, known, "topic"))
    found = reader.existing_topics(list(dict.fromkeys(names)) or known)
    alive = {broker.id for broker in reader.brokers()}
    wanted = [TopicPartition(name, row.partition) for name, topic in sorted(found.items()) for row in topic.partitions]
    cluster = Cluster(reader, config.client_id, _ANSWER_S, security=config.security)
    ends = cluster.log_ends(wanted, [EARLIEST, LATEST])
    rows = [
        _row(name, row, alive, ends.get(TopicPartition(name, row.partition)))
        for name, topic in sorted(found.items())
        for row in sorted(topic.partitions, key=lambda row: row.partition)
    ]
    problems = [f"{row.topic}-{row.partition}: {problem}" for row in rows for problem in row.problems]
    return TopicReport(tuple(rows), tuple(problems))


def _row(topic: str, row: PartitionMetadata, alive: set[int], offsets: LogOffsets | None) -> TopicPartitionRow:
    problems: list[str] = []
    leader = row.leader
    if leader is None:
        problems.append("leaderless: no in-sync replica is alive")
    elif leader not in alive:
        problems.append(f"leaderless: its leader, broker {leader}, is not alive")
        leader = None
    lacking = sorted(set(row.replicas) - set(row.isr))
    if lacking and leader is not None:
        problems.append(f"under-replicated: {', '.join(map(str, lacking))} of its replicas are not in sync")
    earliest, latest = offsets if isinstance(offsets, tuple) else (None, None)
    if isinstance(offsets, str) and leader is not None:
        problems.append(f"offsets unknown: {offsets}")
    return TopicPartitionRow(topic, row.partition, leader, row.replicas, row.isr, earliest, latest, tuple(problems))
