"""Opens the way of messages to the brokers, which it finds by ZooKeeper or by a list of some of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.types import Broker
from zkconsumer.cluster.generation import generation_named, generation_of_cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.errors import ConfigError
from zkconsumer.producer.batching.batch_queues import Limits
from zkconsumer.producer.messages.handlers import EventHandler, hooks_of
from zkconsumer.producer.messages.placing import Encoding, Placer
from zkconsumer.producer.sending.broker_thread import ANY_PARTITION, RequestSettings
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer.producer.sending.dispatch import BrokerDispatch, EventDispatch
from zkconsumer.producer.sending.handled_sending import HandledSending
from zkconsumer.producer.sending.lookup_thread import Lookup
from zkconsumer.producer.sending.sending import DirectSending
from zkconsumer.producer.sending.topic_lookup import FoundTopic, TopicLookup
from zkconsumer.producer.sending.zookeeper_lookup import Lookup07, ZooKeeperLookup
from zkconsumer.producer.transactions.coordinator import Coordinator
from zkconsumer.producer.transactions.transactions import Transactions

__all__ = ["FoundCluster", "Handlers", "Sending", "find_cluster", "open_sending", "registered_cluster"]

Sending = DirectSending | HandledSending
"""What `Producer` hands its messages to, without and with handlers of the application."""

_CODECS_07: Final = ("none", "gzip", "snappy")
_HINT_07: Final = "list each broker of Kafka 0.7 as id:host:port, or set kafka.generation to 0.7"
_HINT_08: Final = (
    "brokers with ids in the list are of Kafka 0.7; for Kafka 0.8 and later, leave out the ids and kafka.generation"
)


class Handlers(NamedTuple):
    """What an application gives to see or take over messages.

    Attributes:
        callbacks: A callback handler, or None.
        events: An event handler, or None.
    """

    callbacks: object
    events: EventHandler | None

    @property
    def has_any(self) -> bool:
        """Whether there is one of them."""
        return self.callbacks is not None or self.events is not None


def open_sending(
    config: ProducerConfig,
    encoding: Encoding,
    handlers: Handlers,
    cluster: FoundCluster | None,
    opened: ExitStack,
    rng: random.Random | None,
) -> Sending:
    """Return what takes the messages of a producer; `opened` closes what it needs.

    Args:
        config: The settings.
        encoding: Encodes, and chooses partitions.
        handlers: What the application gives to see or take over messages.
        cluster: Where the messages go; None: the cluster that the settings name.
        opened: Gets what has to be closed behind the producer.
        rng: Chooses among equal partitions and brokers.

    Raises:
        ConfigError: A codec, or acks, that Kafka 0.7 does not have.
        What opening a connection to ZooKeeper raises.
    """
    hooks_of(handlers.callbacks)  # what is no handler is refused before a thread starts
    if handlers.has_any and config.transactional_id is not None:
        raise ConfigError("transactional.id", config.transactional_id, "left out with a callback or event handler")
    wait_ms = config.queue_enqueue_timeout_ms
    wait_s = None if wait_ms < 0 else wait_ms / 1000
    limits = _limits(config)
    if handlers.events is not None:
        return HandledSending(handlers.callbacks, EventDispatch(handlers.events, config.client_id), limits, wait_s)
    found = cluster or find_cluster(config, rng)
    opened.callback(found.close)
    limits = replace(limits, takes_turns=not found.has_keys)
    settings = _request_settings(config)
    coordinator: Coordinator | None = None
    transactions = None
    if config.transactional_id is not None:
        coordinator = Coordinator(config.transactional_id, found.brokers, settings.connection)
        opened.callback(coordinator.close)
        transactions = Transactions(config.transactional_id, config.transaction_timeout_ms, coordinator)
    delivery = Delivery(found.lookup, limits, settings, rng, transactions)
    if coordinator is not None:
        coordinator.on_throttle = delivery.throttled
    if found.notify is not None:
        found.notify(delivery.look_up_again)
    placer = Placer(delivery, encoding, config.message_max_bytes, found.has_keys)
    if handlers.callbacks is not None:
        return HandledSending(handlers.callbacks, BrokerDispatch(placer, delivery), limits, wait_s)
    return DirectSending(placer, delivery, limits, wait_s, transactions)


class FoundCluster(NamedTuple):
    """What a producer works with.

    Attributes:
        lookup: Finds partitions and leaders.
        has_keys: Messages have keys; False in Kafka 0.7.
        close: Ends the connection to ZooKeeper, if there is one.
        notify: Has a function called when brokers or partitions change; None if nothing is watched.
        brokers: Returns some brokers, which know the coordinator of transactions; it raises SimpleConsumerError.
    """

    lookup: Lookup
    has_keys: bool
    close: Callable[[], None]
    notify: Callable[[Callable[[], None]], None] | None = None
    brokers: Callable[[], Sequence[Broker]] = tuple


def find_cluster(config: ProducerConfig, rng: random.Random | None = None) -> FoundCluster:
    """Return the cluster that the settings name.

    Raises:
        ConfigError: A codec, or acks, that Kafka 0.7 does not have.
        What opening a connection to ZooKeeper raises.
    """
    timeout_s = config.connect_timeout_ms / 1000
    brokers = config.metadata_broker_list
    if brokers is not None:
        if _is_listed_as_07(config):
            _check_07(config)
            return FoundCluster(_ListOf07(brokers), False, _nothing)
        addresses = [(each.host, each.port) for each in brokers]
        lookup = TopicLookup(lambda: addresses, config.client_id, timeout_s, rng, config.security, _HINT_07)
        return FoundCluster(lookup, True, _nothing, brokers=lookup.brokers)
    assert config.zookeeper_connect is not None
    stack = ExitStack()
    with stack:
        port = stack.enter_context(zookeeper_connection(
            config.zookeeper_connect, config.zookeeper_connection_timeout_ms / 1000, **zookeeper_options(config)
        ))  # fmt: skip
        return registered_cluster(port, config, rng)._replace(close=stack.pop_all().close)


def registered_cluster(port: ZooKeeperPort, config: ProducerConfig, rng: random.Random | None = None) -> FoundCluster:
    """Return the cluster that is registered in a ZooKeeper.

    Args:
        port: A connected port; it stays the caller's.
        config: The settings of the producer.
        rng: Chooses the order in which brokers are asked.

    Raises:
        ConfigError: A codec, or acks, that Kafka 0.7 does not have.
    """
    timeout_s = config.connect_timeout_ms / 1000
    forced = generation_named(config.kafka_generation)
    is_07 = (forced or generation_of_cluster(port, {}, READ_TIMEOUT_S)).has_broker_nodes
    if is_07:
        _check_07(config)
        of_07 = Lookup07(port, config.client_id, timeout_s)
        return FoundCluster(of_07, False, _nothing, of_07.notify)
    by_zookeeper = ZooKeeperLookup(port, config.client_id, timeout_s, rng, config.security)
    return FoundCluster(by_zookeeper, True, _nothing, brokers=by_zookeeper.brokers)


class _ListOf07:
    """The brokers of a list of Kafka 0.7: each takes messages of every topic, and chooses a partition of its own."""

    def __init__(self, brokers: Sequence[BrokerAddress]) -> None:
        known = [Broker(index if each.id is None else each.id, each.host, each.port, generation="kafka07")
                 for index, each in enumerate(brokers)]  # fmt: skip
        self._found = FoundTopic({f"{broker.id}-{ANY_PARTITION}": broker for broker in known})

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return every broker for each of the topics."""
        return dict.fromkeys(topics, self._found)


def _is_listed_as_07(config: ProducerConfig) -> bool:
    brokers = config.metadata_broker_list
    return brokers is not None and (brokers[0].id is not None or config.kafka_generation == "0.7")


def _check_07(config: ProducerConfig) -> None:
    if config.compression_codec not in _CODECS_07:
        raise ConfigError("compression.codec", config.compression_codec, "none, gzip or snappy with Kafka 0.7")
    if config.request_required_acks == -1:
        raise ConfigError("request.required.acks", -1, "0 or 1 with Kafka 0.7, which has no replicas")


def _nothing() -> None:
    pass


def _limits(config: ProducerConfig) -> Limits:
    return Limits(
        config.batch_num_messages, config.batch_max_bytes, config.request_max_bytes,
        0.0 if config.producer_type == "sync" else config.queue_buffering_max_ms / 1000,
        config.queue_buffering_max_messages, config.queue_buffering_max_bytes, config.message_send_max_retries,
        config.retry_backoff_ms / 1000, config.retry_unanswered_batches,
        lambda topic: _codec_of(config, topic) != "none", config.request_required_acks,
        absence_s=config.unknown_topic_timeout_ms / 1000,
    )  # fmt: skip


def _codec_of(config: ProducerConfig, topic: str) -> str:
    topics = config.compressed_topics
    return config.compression_codec if not topics or topic in topics else "none"


def _request_settings(config: ProducerConfig) -> RequestSettings:
    refresh_ms = config.topic_metadata_refresh_interval_ms
    return RequestSettings(
        config.request_required_acks, config.request_timeout_ms, config.connect_timeout_ms / 1000,
        config.send_buffer_bytes, config.client_id, partial(_codec_of, config),
        None if refresh_ms < 0 else refresh_ms / 1000, config.security, config.enable_idempotence,
        config.transactional_id, _HINT_08 if _is_listed_as_07(config) else "",
    )  # fmt: skip
