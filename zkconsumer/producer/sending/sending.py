"""The way of messages from `Producer` to the brokers, without handlers.

Opens the way of messages to the brokers, which it finds by ZooKeeper or by a list of some of them.

Ends what a producer opened: in `close()`, when nobody refers to the producer any more, or when the program ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.types import Broker
from zkconsumer.cluster.generation import generation_named, generation_of_cluster
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, zookeeper_connection
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer.config.zookeeper_tls import zookeeper_options
from zkconsumer.errors import ConfigError
from zkconsumer.producer.batching.batch_queues import Limits
from zkconsumer.producer.batching.bulk import BulkSend, SendSummary
from zkconsumer.producer.batching.columns import ColumnSend
from zkconsumer.producer.batching.outcome import BatchFuture, SendFuture, failed_future
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.handlers import EventHandler, hooks_of
from zkconsumer.producer.keyed_message import GivenHeaders
from zkconsumer.producer.placing import Encoding, Placer
from zkconsumer.producer.sending.broker_thread import ANY_PARTITION, RequestSettings
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer.producer.sending.handled_sending import BrokerDispatch, EventDispatch, HandledSending
from zkconsumer.producer.sending.topic_lookup import FoundTopic, Lookup, Lookup07, TopicLookup, ZooKeeperLookup
from zkconsumer.producer.transactions import Coordinator, Transactions


class DirectSending:
    """Encodes messages, chooses their partitions, and gives them to the delivery.

    Args:
        placer: Encodes and chooses partitions.
        delivery: Takes the messages.
        limits: Those of a batch.
        wait_s: Longest wait for room in the queue; None waits for ever.
        transactions: Those that messages belong to; None for none.

    Attributes:
        transactions: As given.
        delivery: As given.
        append: Adds a message without a key to an open batch, if it can (`Delivery.appender`); None: nothing does.
    """

    def __init__(
        self,
        placer: Placer,
        delivery: Delivery,
        limits: Limits,
        wait_s: float | None,
        transactions: Transactions | None = None,
    ) -> None:
        self.transactions = transactions
        self._placer = placer
        self._delivery = self.delivery = delivery
        self._limits = limits
        self._wait_s = wait_s
        is_as_given = placer.takes_bytes and placer.keeps_no_key
        self.append = delivery.appender(placer.max_bytes) if is_as_given else None
        self.flush = delivery.flush
        self.close = delivery.close
        self.refused = delivery.refused
        self.statistics = delivery.statistics

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | str | None,
        part_key: Any,
        headers: GivenHeaders | None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Take a message, and return the future of its outcome."""
        try:
            if self.transactions is not None:
                self.transactions.check_open()
            name, pair, size, is_movable = self._placer.place(
                topic, value, key, partition, part_key, headers, timestamp_ms
            )
            return SendFuture(*self._delivery.add(name, pair, size, is_movable, self._wait_s))
        except BaseException as error:
            self._delivery.refused(error)
            if isinstance(error, MessageNotSent):
                return failed_future(error)
            raise

    def send_all(self, messages: Iterable[Any], topic: str | None) -> SendSummary:
        """Send messages, and return what became of them."""
        return BulkSend(self._placer, self._delivery, self._limits, self._wait_s).send(messages, topic)

    def bulk(self, spreads: bool) -> BulkSend:
        """Return `send_all` in steps; see `Producer.bulk`."""
        return BulkSend(self._placer, self._delivery, self._limits, self._wait_s, spreads=spreads)

    def columns(self, stall_s: float | None) -> ColumnSend:
        """Return what sends columns; see `Producer.columns`."""
        wait_s = self._wait_s if stall_s is None else stall_s
        bulk = BulkSend(self._placer, self._delivery, self._limits, wait_s, stall_s=stall_s)
        return ColumnSend(self._placer, self._delivery, self._limits, bulk, stall_s)

    def send_batch(
        self, topic: str, messages: Sequence[tuple[Any, Any]], partition: int | str,
        timestamps_ms: Sequence[int | None] | None,
    ) -> BatchFuture:  # fmt: skip
        """Send messages of one partition as a batch; see `Producer.send_batch`."""
        try:
            name, pairs, size = self._placer.place_batch(topic, messages, partition, timestamps_ms)
            return BatchFuture(self._delivery.add_batch(name, pairs, size, False, self._wait_s), len(pairs))
        except BaseException as error:
            self._delivery.refused(error)
            raise

    @property
    def repeated(self) -> int:
        """How many messages were sent again after a lost connection."""
        return self._delivery.repeated


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


log = logging.getLogger(__name__)
_AT_EXIT_S: Final = 10.0


class Lifetime:
    """What `sending` holds lives until the first of these ends it; a forked process ends nothing.

    Args:
        producer: Who is referred to.
        sending: What takes its messages; it must not refer to the producer.
        close_cluster: Ends the connection to ZooKeeper, if there is one.
    """

    def __init__(self, producer: object, sending: Sending, close_cluster: Callable[[], None]) -> None:
        self._sending = sending
        self._close_cluster = close_cluster
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(producer, self._dropped)
        self._finalizer.atexit = False
        atexit.register(self._at_exit)

    def close(self, timeout_s: float | None) -> int:
        """Send what waits, for so long; fail the rest, end everything, and return how many messages have failed."""
        self._finalizer.detach()
        try:
            return self._sending.close(timeout_s)
        finally:
            self._close_cluster()
            atexit.unregister(self._at_exit)

    def _dropped(self) -> None:
        """Close in a thread: a finalizer runs in any thread, whatever locks it holds, and must not wait."""
        if self._pid != os.getpid():
            return
        try:
            threading.Thread(target=self.close, args=(None,), name="zkconsumer-producer-dropped", daemon=True).start()
        except RuntimeError:
            log.warning(
                "a producer without references was not closed, because no thread could be started", exc_info=True
            )

    def _at_exit(self) -> None:
        """Send what waits when the program ends; what is left is logged."""
        if self._pid == os.getpid() and (count := self.close(_AT_EXIT_S)):
            log.error("the program ends without close() of a producer: %s messages were not sent", count)
