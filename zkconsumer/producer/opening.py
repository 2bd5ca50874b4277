"""Finds the cluster of a producer, by ZooKeeper or by a list of brokers, and its generation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from simpleconsumer.types import Broker
from zkconsumer.cluster.generation import generation_named, generation_of_cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.producer_kinds import BrokerAddress
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.errors import ConfigError
from zkconsumer.producer.delivery import ANY_PARTITION, Lookup
from zkconsumer.producer.topic_lookup import FoundTopic, TopicLookup
from zkconsumer.producer.zookeeper_lookup import Lookup07, ZooKeeperLookup

__all__ = ["FoundCluster", "find_cluster"]

_CODECS_07: Final = ("none", "gzip", "snappy")


class FoundCluster(NamedTuple):
    """What a producer works with.

    Attributes:
        lookup: Finds partitions and leaders.
        has_keys: Messages have keys; False in Kafka 0.7.
        close: Ends the connection to ZooKeeper, if there is one.
    """

    lookup: Lookup
    has_keys: bool
    close: Callable[[], None]


def find_cluster(config: ProducerConfig, rng: random.Random | None) -> FoundCluster:
    """Return the cluster that the settings name.

    Raises:
        ConfigError: A codec, or acks, that Kafka 0.7 does not have.
        What opening a connection to ZooKeeper raises.
    """
    timeout_s = config.connect_timeout_ms / 1000
    brokers = config.metadata_broker_list
    if brokers is not None:
        if brokers[0].id is not None or config.kafka_generation == "0.7":
            _check_07(config)
            return FoundCluster(_ListOf07(brokers), False, _nothing)
        addresses = [(each.host, each.port) for each in brokers]
        return FoundCluster(TopicLookup(lambda: addresses, config.client_id, timeout_s, rng), True, _nothing)
    assert config.zookeeper_connect is not None
    stack = ExitStack()
    with stack:
        port = stack.enter_context(zookeeper_connection(
            config.zookeeper_connect, config.zookeeper_connection_timeout_ms / 1000, **zookeeper_options(config)
        ))  # fmt: skip
        forced = generation_named(config.kafka_generation)
        is_07 = (forced or generation_of_cluster(port, {}, READ_TIMEOUT_S)).has_broker_nodes
        lookup: Lookup
        if is_07:
            _check_07(config)
            lookup = Lookup07(port, config.client_id, timeout_s)
        else:
            lookup = ZooKeeperLookup(port, config.client_id, timeout_s, rng)
        return FoundCluster(lookup, not is_07, stack.pop_all().close)


class _ListOf07:
    """The brokers of a list of Kafka 0.7: each takes messages of every topic, and chooses a partition of its own."""

    def __init__(self, brokers: Sequence[BrokerAddress]) -> None:
        known = [Broker(index if each.id is None else each.id, each.host, each.port, generation="kafka07")
                 for index, each in enumerate(brokers)]  # fmt: skip
        self._found = FoundTopic({f"{broker.id}-{ANY_PARTITION}": broker for broker in known})

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return every broker for each of the topics."""
        return dict.fromkeys(topics, self._found)


def _check_07(config: ProducerConfig) -> None:
    if config.compression_codec not in _CODECS_07:
        raise ConfigError("compression.codec", config.compression_codec, "none, gzip or snappy with Kafka 0.7")
    if config.request_required_acks == -1:
        raise ConfigError("request.required.acks", -1, "0 or 1 with Kafka 0.7, which has no replicas")


def _nothing() -> None:
    pass
