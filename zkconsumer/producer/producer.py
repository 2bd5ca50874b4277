"""Producer: sends messages to topics."""

from __future__ import annotations

import atexit
import logging
import os
import random
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.producer.accumulator import Limits
from zkconsumer.producer.bulk import BulkSend, SendSummary
from zkconsumer.producer.columns import ColumnSend
from zkconsumer.producer.delivery import Delivery, RequestSettings
from zkconsumer.producer.encoders import Encoder, as_encoder, encoder_named, load_named
from zkconsumer.producer.errors import MessageNotSent, ProducerClosed
from zkconsumer.producer.opening import FoundCluster, find_cluster
from zkconsumer.producer.outcome import BatchFuture, BatchOutcome, SendFuture
from zkconsumer.producer.partitioners import PARTITIONERS, Partitioner
from zkconsumer.producer.placing import Placer

__all__ = ["Producer"]

log = logging.getLogger(__name__)

_AT_EXIT_S: Final = 10.0


class Producer:
    """Sends messages; a context manager that ends with `close()`.

    Every message has an outcome: the partition and offset where its broker has it, or an error that names it. With
    `request.required.acks=0` no broker answers, and messages can be lost without an error. At least once: a message
    whose acknowledgement was lost is sent again, and may be stored twice.

    Args:
        config: The settings.
        key_encoder: Makes bytes of keys, instead of `key.serializer.class`.
        value_encoder: Makes bytes of values, instead of `serializer.class`.
        partitioner: Chooses the partition of a key, instead of `partitioner.class`.
        cluster: Finds partitions and leaders, instead of `metadata.broker.list` or `zookeeper.connect`.

    Raises:
        ConfigError: A class that a setting names is not there.

    Threads: any. A forked process needs a producer of its own.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        key_encoder: Encoder | None = None,
        value_encoder: Encoder | None = None,
        partitioner: Partitioner | None = None,
        cluster: FoundCluster | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self._is_sync = config.producer_type == "sync"
        wait_ms = config.queue_enqueue_timeout_ms
        self._wait_s = None if wait_ms < 0 else wait_ms / 1000
        self._limits = _limits(config)
        encoders = _encoder(key_encoder, config, "key.serializer.class"), _encoder(
            value_encoder, config, "serializer.class"
        )
        chosen = partitioner or _partitioner(config.partitioner_class)
        found = cluster or find_cluster(config, rng)
        self._close_cluster = found.close
        self._delivery = Delivery(found.lookup, self._limits, _request_settings(config), rng)
        self._placer = Placer(self._delivery, *encoders, chosen, config.message_max_bytes, found.has_keys)
        self._pid = os.getpid()
        self._is_closed = False
        self._at_exit = _close_at_exit(self)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(
        self, topic: str, value: Any, key: Any = None, partition: int | str | None = None, part_key: Any = None
    ) -> SendFuture:
        """Send a message; return the future of its outcome.

        With `producer.type=sync` the outcome is there when it returns, and an error is raised. With `async` messages
        are gathered in batches and sent in the background.

        Args:
            topic: Its topic.
            value: What the value encoder takes; with the default one bytes, or None for a tombstone.
            key: What the key encoder takes.
            partition: Its partition; None lets the partitioner choose by the key, or any partition take it.
            part_key: What the partitioner gets instead of the key.

        Raises:
            MessageNotSent: `sync`, and it was not acknowledged.
            QueueFull: There was no room in the queue within `queue.enqueue.timeout.ms`.
            ProducerClosed: The producer is closed.
            ValueError: No legal topic, or a partition that the topic does not have.
            TypeError: What the encoder or the partitioner does not take.
        """
        self._check_process()
        try:
            placed = self._placer.place(topic, value, key, partition, part_key)
        except MessageNotSent as error:
            future = _failed(error)
        else:
            name, pair, size, is_movable = placed
            future = SendFuture(*self._delivery.add(name, pair, size, is_movable, self._wait_s))
        if self._is_sync:
            future.result()
        return future

    def send_all(self, messages: Iterable[Any], topic: str | None = None) -> SendSummary:
        """Send messages in batches; return when all of them have their outcome.

        It is several times as fast as `send`, since the messages of a batch share one outcome. Batches do not wait for
        `queue.buffering.max.ms`. At most what the queue takes is read ahead of the brokers.

        Args:
            messages: `KeyedMessage`s; or, with a topic, values or pairs of key and value.
            topic: The topic of values and pairs.

        Returns:
            How many messages were sent.

        Raises:
            MessagesNotSent: Some were not acknowledged, or not taken; names how many, and the first ones by their
                numbers. All others were sent.
            What `send` raises for a closed producer, and what reading `messages` raises; what was read before is sent.
        """
        return self.bulk().send(messages, topic)

    def bulk(self, *, spreads: bool = False) -> BulkSend:
        """Return `send_all` in steps, for messages that come one by one.

        Args:
            spreads: Messages without a key go to one partition after the other; else to one for some time.
        """
        self._check_process()
        return BulkSend(self._placer, self._delivery, self._limits, self._wait_s, spreads=spreads)

    def send_batch(self, topic: str, messages: Sequence[tuple[Any, Any]], partition: int | str) -> BatchFuture:
        """Send messages to one partition as a batch of their own; return the future of their outcome.

        Args:
            topic: Their topic.
            messages: Pairs of key and value, at least one.
            partition: Their partition.

        Raises:
            What `send` raises for each of them; none of them is sent then.
        """
        self._check_process()
        name, pairs, size = self._placer.place_batch(topic, messages, partition)
        outcome = self._delivery.add_batch(name, pairs, size, False, self._wait_s)
        return BatchFuture(outcome, len(pairs))

    @property
    def repeated(self) -> int:
        """How many messages were sent again after a lost connection, and may be stored twice."""
        return self._delivery.repeated

    def columns(self, stall_s: float | None = None) -> ColumnSend:
        """Return what sends messages that are given as columns, in batches, as `send_all` does.

        Args:
            stall_s: Longest wait for the outcome of a batch when all are sent, and for room in the queue before that;
                what has no outcome then fails. None waits for every outcome.
        """
        self._check_process()
        wait_s = self._wait_s if stall_s is None else stall_s
        bulk = BulkSend(self._placer, self._delivery, self._limits, wait_s, stall_s=stall_s)
        return ColumnSend(self._placer, self._delivery, self._limits, bulk)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send everything that waits now; return whether all of it has its outcome within the time."""
        self._check_process()
        return self._delivery.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> int:
        """Send what waits, for so long; fail the rest, whose futures name it, and return how many messages that are.

        Args:
            timeout_s: Longest wait, in seconds; None waits for every outcome, of which there is one in the end.
        """
        if self._is_closed or self._pid != os.getpid():
            return 0
        self._is_closed = True
        atexit.unregister(self._at_exit)
        try:
            return self._delivery.close(timeout_s)
        finally:
            self._close_cluster()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ProducerClosed("this process was forked from the one of the producer; it needs a producer of its own")


def _failed(error: MessageNotSent) -> SendFuture:
    outcome = BatchOutcome(error.topic, -1 if error.partition is None else error.partition)
    outcome.finish(outcome.partition, -1, error)
    return SendFuture(outcome, 0)


def _close_at_exit(producer: Producer) -> Callable[[], None]:
    """Have a producer that is not closed send what waits when the program ends; what is left is logged."""
    found = weakref.ref(producer)

    def close() -> None:
        left = found()
        if left is not None and (count := left.close(_AT_EXIT_S)):
            log.error("the program ends without close(): %s messages of the producer were not sent", count)

    atexit.register(close)
    return close


def _encoder(given: Encoder | None, config: ProducerConfig, setting: str) -> Encoder:
    if given is not None:
        return as_encoder(given)
    return encoder_named(getattr(config, setting.replace(".", "_")), setting, config.serializer_encoding)


def _partitioner(name: str) -> Partitioner:
    known: Partitioner | None = PARTITIONERS.get(name.strip())
    if known is not None:
        return known
    found = load_named(name, "partitioner.class")
    made = found() if isinstance(found, type) else found
    method: Partitioner | None = made if callable(made) else getattr(made, "partition", None)
    if method is None:
        raise ConfigError("partitioner.class", name, "a function of key and number of partitions")
    return method


def _limits(config: ProducerConfig) -> Limits:
    return Limits(
        config.batch_num_messages, config.batch_max_bytes, config.request_max_bytes,
        0.0 if config.producer_type == "sync" else config.queue_buffering_max_ms / 1000,
        config.queue_buffering_max_messages, config.queue_buffering_max_bytes, config.message_send_max_retries,
        config.retry_backoff_ms / 1000, config.retry_unanswered_batches,
    )  # fmt: skip


def _request_settings(config: ProducerConfig) -> RequestSettings:
    topics = frozenset(config.compressed_topics)

    def codec_of(topic: str) -> str:
        return config.compression_codec if not topics or topic in topics else "none"

    refresh_ms = config.topic_metadata_refresh_interval_ms
    return RequestSettings(
        config.request_required_acks, config.request_timeout_ms, config.client_id, codec_of,
        None if refresh_ms < 0 else refresh_ms / 1000,
    )  # fmt: skip
