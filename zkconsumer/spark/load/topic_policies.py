"""Finds out which topics are compacted, and so may miss offsets: from ZooKeeper, or from a broker.

ZooKeeper has the settings that were given to a topic. A broker tells those in force, its own defaults among them (Kafka
0.11 and later); one that is older, or does not let the user see them, leaves it unknown.

Threads: one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetData, ZooKeeperPort
from simpleconsumer.dialect import KAFKA011, dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all
from zkconsumer.config import ConsumerConfig
from zkconsumer.spark.reading import connections

__all__ = ["compacted_topics"]

log = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_AT_ONCE: Final = 500


def compacted_topics(
    source: ZooKeeperPort | MetadataReader, config: ConsumerConfig, topics: Iterable[str]
) -> frozenset[str]:
    """Return those of the topics whose logs are compacted; a topic of which that is not known is not among them.

    Raises:
        ClusterSilent: No answer in time.
    """
    names = sorted(topics)
    found = (_told_by_broker(source, config, names) if isinstance(source, MetadataReader)
             else _set_in_zookeeper(source, names))  # fmt: skip
    return frozenset(topic for topic, policy in found if _COMPACT in policy)


def _set_in_zookeeper(port: ZooKeeperPort, topics: Sequence[str]) -> Iterator[tuple[str, str]]:
    paths = [znodes.topic_config_path(topic) for topic in topics]
    values = read_all(port, [GetData(path) for path in paths], READ_TIMEOUT_S)
    for topic, path, value in zip(topics, paths, values, strict=True):
        try:
            yield topic, "" if value is None else znodes.parse_topic_config(path, value[0]).get(_POLICY, "")
        except UnreadableNode as error:
            log.warning("%s; the topic is treated as not compacted", error)


def _told_by_broker(
    reader: MetadataReader, config: ConsumerConfig, topics: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for first in range(0, len(topics), _AT_ONCE):
        some = topics[first : first + _AT_ONCE]
        for topic, (code, settings) in zip(some, _settings(reader, config, some), strict=True):
            if code:
                log.warning("%s: it is not known whether the topic is compacted; it is treated as not compacted",
                            BrokerError(code, topic, None))  # fmt: skip
            yield topic, settings.get(_POLICY) or ""


def _settings(
    reader: MetadataReader, config: ConsumerConfig, topics: Sequence[str]
) -> Sequence[tuple[int, dict[str, str | None]]]:
    """Return error code and settings of each topic, by the first broker that answers; none if none can."""
    reason = "its brokers are older than Kafka 0.11"
    for broker in reader.brokers():
        if dialect_of(broker) is not KAFKA011:
            continue
        consumer = connections.take(broker, config)
        try:
            answer = consumer.ask(KAFKA011.topic_settings(topics, [_POLICY]))
        except SimpleConsumerError as error:
            consumer.close()
            reason = str(error)
            continue
        connections.give_back(consumer, config)
        return [(code, dict(settings)) for code, settings in answer]
    log.info("which topics are compacted is not known: %s", reason)
    return [(0, {})] * len(topics)
