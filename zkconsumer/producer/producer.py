"""Producer: sends messages to topics."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, overload

from simpleconsumer.closing import Closing
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.bulk import BulkSend, SendSummary
from zkconsumer.producer.batching.columns import ColumnSend
from zkconsumer.producer.batching.counters import ProducerStatistics
from zkconsumer.producer.batching.outcome import BatchFuture, SendFuture
from zkconsumer.producer.errors import ProducerClosed, ProducerError
from zkconsumer.producer.handlers import EventHandler, configured_handler
from zkconsumer.producer.keyed_message import (
    GivenHeaders,
    KeyedMessage,
    ProducerData,
    as_given_messages,
    check_messages,
)
from zkconsumer.producer.partitioners import Partitioner
from zkconsumer.producer.placing import Encoder, Encoding, as_encoder, as_partitioner, encoder_named
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer.producer.sending.sending import DirectSending, FoundCluster, Handlers, Lifetime, open_sending
from zkconsumer.producer.transactions import Transactions
from zkconsumer.wakeup import notify_after_fork

_NOT_GIVEN: Final = object()


class Producer(Closing):
    """Sends messages; a context manager that ends with `close()`.

    Every message has an outcome: the partition and offset where its broker has it, or an error that names it. With
    `request.required.acks=0` no broker answers, and messages can be lost without an error. At least once: a message
    whose acknowledgement was lost is sent again, and may be stored twice.

    Args:
        config: The settings.
        key_encoder: Makes bytes of keys, instead of `key.serializer.class`.
        value_encoder: Makes bytes of values, instead of `serializer.class`.
        partitioner: Chooses the partition of a key, instead of `partitioner.class`.
        callback_handler: Sees messages on their way (`CallbackHandler`), instead of `callback.handler`.
        event_handler: Takes batches instead of the brokers (`EventHandler`), instead of `event.handler`.
        cluster: Finds partitions and leaders, instead of `metadata.broker.list` or `zookeeper.connect`.

    Attributes:
        config: The settings.

    Raises:
        ConfigError: A class that a setting names does not exist.
        TypeError: `config` is not a ProducerConfig, or a handler has the wrong type.

    Threads: any. A forked process needs a producer of its own.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        key_encoder: Encoder | None = None,
        value_encoder: Encoder | None = None,
        partitioner: Partitioner | None = None,
        callback_handler: object = None,
        event_handler: EventHandler | None = None,
        cluster: FoundCluster | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not isinstance(config, ProducerConfig):
            raise TypeError(f"{config!r:.60} is not a ProducerConfig: call "
                            "Producer(ProducerConfig(metadata_broker_list=...)), or use "
                            "ProducerConfig.from_properties(...) for a file or a dict")  # fmt: skip
        self.config = config
        self._is_sync = config.producer_type == "sync"
        value = _encoder(value_encoder, config.serializer_class, "serializer.class", config)
        encoding = Encoding(
            _encoder(key_encoder, config.key_serializer_class, "key.serializer.class", config), value,
            as_partitioner(config.partitioner_class if partitioner is None else partitioner),
        )  # fmt: skip
        callbacks = callback_handler or configured_handler(
            config.callback_handler, config.callback_handler_props, "callback.handler"
        )
        events = event_handler or configured_handler(config.event_handler, config.event_handler_props, "event.handler")
        with ExitStack() as opened:
            handlers = Handlers(callbacks, events)
            self._sending = open_sending(config, encoding, handlers, cluster, opened, rng)
            self._lifetime = Lifetime(self, self._sending, opened.pop_all().close)
        self._append = (None if self._is_sync else self._sending.append) or _added_nothing
        self._is_forked = False
        notify_after_fork(self)
        self._is_closed = False

    # -- sending -------------------------------------------------------------------------------------------------------

    @overload
    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | str | None = None,
        part_key: Any = None,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture: ...

    @overload
    def send(self, topic: KeyedMessage) -> SendFuture: ...

    @overload
    def send(self, topic: ProducerData) -> list[SendFuture]: ...

    def send(
        self,
        topic: str | KeyedMessage | ProducerData,
        value: Any = _NOT_GIVEN,
        key: Any = None,
        partition: int | str | None = None,
        part_key: Any = None,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture | list[SendFuture]:
        """Send a message; return the future of its outcome.

        With `producer.type=sync` the outcome is there when it returns, and an error is raised. With `async` messages
        are gathered in batches and sent in the background.

        Args:
            topic: Its topic; or a KeyedMessage; or ProducerData, which returns a future for each of its values. Nothing
                else is given besides these two.
            value: What the value encoder accepts; with the default encoder bytes, or None for a tombstone.
            key: What the key encoder accepts.
            partition: Its partition; None lets the partitioner choose by the key, or the producer choose any.
            part_key: What the partitioner gets instead of the key.
            headers: Pairs of name and bytes, or None. Brokers before Kafka 0.11 store none: the message fails there.
            timestamp_ms: Its time, in milliseconds since 1970; None: now. Brokers before Kafka 0.10 store none: the
                message fails there. Topics with `message.timestamp.type=LogAppendTime` have the time of the broker.

        Raises:
            MessageNotSent: `sync`, and it was not acknowledged.
            QueueFull: There was no room in the queue within `queue.enqueue.timeout.ms`.
            ProducerClosed: The producer is closed.
            ValueError: The name of the topic is not legal, the topic does not have the partition, or the time is
                negative or above 2**63 - 1.
            TypeError: The encoder or the partitioner does not accept the message, the time is no whole number, or
                something is given besides a KeyedMessage or ProducerData.
        """
        if key is None and partition is None and part_key is None and timestamp_ms is None and not headers:
            append = self._append  # in a name of its own: Python calls that faster than an attribute
            added = append(topic, value)
            if added is not None:
                return added
        if self._is_forked:
            raise _forked()
        if value is _NOT_GIVEN or isinstance(topic, KeyedMessage | ProducerData):
            more = {
                "key": key, "partition": partition, "part_key": part_key, "headers": headers,
                "timestamp_ms": timestamp_ms,
            }  # fmt: skip
            return self._send_given(topic, value, more)
        future = self._sending.send(topic, value, key, partition, part_key, headers, timestamp_ms)
        if self._is_sync:
            future.result()
        return future

    def _send_given(self, message: Any, value: Any, more: Mapping[str, Any]) -> SendFuture | list[SendFuture]:
        try:
            given = as_given_messages(message, has_value=value is not _NOT_GIVEN, more=more)
        except TypeError as error:
            self._sending.refused(error)
            raise
        send = self._sending.send
        futures = [
            send(each.topic, each.message, each.key, each.partition, each.part_key, each.headers, each.timestamp_ms)
            for each in given
        ]
        if self._is_sync:
            for future in futures:
                future.result()
        return futures[0] if isinstance(message, KeyedMessage) else futures

    def send_all(self, messages: Iterable[Any], topic: str | None = None) -> SendSummary:
        """Send messages in batches; return when all of them have their outcome.

        It is several times as fast as `send`, since the messages of a batch share one outcome. Batches do not wait for
        `queue.buffering.max.ms`. Messages are read ahead of the brokers only as far as the queue has room.

        Args:
            messages: `KeyedMessage`s; or, with a topic, values or pairs of key and value.
            topic: The topic of values and pairs.

        Returns:
            How many messages were sent.

        Raises:
            MessagesNotSent: Some were not acknowledged, or not accepted; names how many, and the first by their
                numbers. All others were sent.
            ProducerClosed: The producer is closed.
            TypeError: Text, bytes, a mapping, or a single message, whose pieces would be sent.
            What reading `messages` raises; what was read before is sent.
        """
        self._check_process()
        try:
            check_messages(messages)
        except TypeError as error:
            self._sending.refused(error)
            raise
        if self._is_closed:
            raise ProducerClosed("the producer is closed")
        return self._sending.send_all(messages, topic)

    def bulk(self, *, spreads: bool = False) -> BulkSend:
        """Return `send_all` in steps, for messages that come one by one.

        Args:
            spreads: Messages without a key go to one partition after the other; else to one for some time.
        """
        return self._direct().bulk(spreads)

    def send_batch(
        self, topic: str, messages: Sequence[tuple[Any, Any]], partition: int | str,
        timestamps_ms: Sequence[int | None] | None = None,
    ) -> BatchFuture:  # fmt: skip
        """Send messages to one partition as one batch; return the future of their outcome.

        Args:
            topic: Their topic.
            messages: Pairs of key and value, at least one.
            partition: Their partition.
            timestamps_ms: Of each its time as for `send`; None for no times.

        Raises:
            What `send` raises for each of them; none of them is sent then.
        """
        return self._direct().send_batch(topic, messages, partition, timestamps_ms)

    def columns(self, stall_s: float | None = None) -> ColumnSend:
        """Return a sender for messages that are given as columns; like `send_all`, it sends them in batches.

        Args:
            stall_s: Longest wait for the partitions of a topic, for room in the queue, and for the outcome of one batch
                when all are sent; what has no outcome then fails. None waits for every outcome.
        """
        return self._direct().columns(stall_s)

    # -- transactions --------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout_s: float = 60.0) -> None:
        """Take over the `transactional.id`; call it once, before the first transaction.

        A transaction that another producer of the name left open is aborted, and that producer is fenced.

        Args:
            timeout_s: Longest wait for the coordinator.

        Raises:
            ProducerFenced: A later producer has taken over.
            TransactionFailed: The coordinator refused, or has not answered in time.
            TypeError: The producer has no `transactional.id`.
        """
        transactions, delivery = self._transactional()
        transactions.init(delivery, timeout_s)

    def begin_transaction(self) -> None:
        """Begin a transaction, to which all messages belong until it is committed or aborted.

        Raises:
            As `init_transactions`; TransactionFailed, too, while another transaction is open.
        """
        self._transactional()[0].begin()

    def commit_transaction(self, timeout_s: float = 60.0) -> None:
        """Wait until all messages are acknowledged, and make them visible to `read_committed` consumers.

        Args:
            timeout_s: Longest wait for messages and coordinator.

        Raises:
            As `init_transactions`; TransactionFailed, too, if a message failed: abort the transaction then. With
                `outcome_is_unknown` it may be committed all the same: call this again.
        """
        transactions, delivery = self._transactional()
        transactions.commit(delivery, timeout_s)

    def abort_transaction(self, timeout_s: float = 60.0) -> None:
        """Fail the waiting messages, and hide those of the transaction from `read_committed` consumers.

        Args:
            timeout_s: Longest wait for messages that are under way, and for the coordinator.

        Raises:
            As `init_transactions`; call this again then.
        """
        transactions, delivery = self._transactional()
        transactions.abort(delivery, timeout_s)

    @contextmanager
    def transaction(self, timeout_s: float = 60.0) -> Iterator[None]:
        """Begin a transaction, and commit it at the end; abort it if the block raises.

        Args:
            timeout_s: As for `commit_transaction`.

        Raises:
            As `begin_transaction` and `commit_transaction`. If the commit fails, it is aborted; not if its outcome is
                unknown.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction(timeout_s)
        except BaseException as error:
            try:
                self.abort_transaction(timeout_s)
            except ProducerError as second:
                error.add_note(f"and the transaction was not aborted: {second}")
            raise

    def _transactional(self) -> tuple[Transactions, Delivery]:
        sending = self._direct()
        if sending.transactions is None:
            raise TypeError("a producer without transactional.id has no transactions")
        return sending.transactions, sending.delivery

    @property
    def repeated(self) -> int:
        """How many messages were sent again after a lost connection, and may be stored twice."""
        return self._direct().repeated

    def _direct(self) -> DirectSending:
        self._check_process()
        if not isinstance(self._sending, DirectSending):
            raise TypeError("a producer with a callback or event handler has only send and send_all")
        return self._sending

    def statistics(self) -> ProducerStatistics:
        """Return the figures of the waiting messages, and the counters since the producer was created."""
        self._check_process()
        return self._sending.statistics()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send all waiting messages; return whether each of them has its outcome in time."""
        self._check_process()
        return self._sending.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> int:
        """Send the waiting messages, for so long; fail the rest at their futures, and return how many failed.

        Args:
            timeout_s: Longest wait, in seconds; None waits for every outcome, of which there is one in the end.
        """
        if self._is_closed or self._is_forked:
            return 0
        self._is_closed = True
        self._append = _added_nothing
        return self._lifetime.close(timeout_s)

    def _check_process(self) -> None:
        if self._is_forked:
            raise _forked()

    def _on_fork(self) -> None:
        """This process is a fork; the threads and connections are those of its parent."""
        self._is_forked = True
        self._append = _added_nothing


def _added_nothing(topic: object, value: object) -> None:
    """Stand for what adds a message to an open batch, where there is none: each goes the long way."""


def _forked() -> ProducerClosed:
    return ProducerClosed("this process was forked from the process of the producer; create a producer in this process")


def _encoder(given: Encoder | None, name: str, setting: str, config: ProducerConfig) -> Encoder:
    if given is not None:
        return as_encoder(given)
    return encoder_named(name, setting, config.serializer_encoding)
