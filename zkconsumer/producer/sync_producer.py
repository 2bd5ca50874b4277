"""SyncProducer: sends messages to one broker, as Kafka's class of that name does, in the format of that broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from simpleconsumer.closing import Closing
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import coordinates_groups, dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError, Throttled
from simpleconsumer.probe import Probe
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import HELD_S
from simpleconsumer.types import Broker, ProducedPartition, TopicPartition
from zkconsumer.producer.batching.batch_queues import MESSAGE_OVERHEAD_BYTES, Batch, Pair, message_size
from zkconsumer.producer.batching.message_sets import MessageSets
from zkconsumer.producer.batching.outcome import SentMessage
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage, may_have_been_sent
from zkconsumer.producer.keyed_message import as_headers, as_timestamp
from zkconsumer.producer.sending.broker_thread import wait_until_read
from zkconsumer.producer.sending.produce_codes import TOO_LARGE, may_be_stored, remedy_for


class SyncProducer(Closing):
    """Sends messages to one broker, in the calling thread, each request once; a context manager.

    It looks up no leader, chooses no partition and tries nothing again. `Producer` does all of that.

    A broker of Kafka 0.8 or later is asked what it speaks when the first message is sent, and again behind a lost
    connection: there may be another one at its address. From Kafka 0.11 on it gets record batches.

    Args:
        host: The broker's host.
        port: The broker's port.
        kafka_generation: `0.7` for a broker of Kafka 0.7; `0.8` for every later one.
        request_required_acks: Who acknowledges: 1 the leader, -1 all in-sync replicas, 0 nobody.
        request_timeout_ms: Longest wait of the leader for replicas; the answer may take as long again.
        message_max_bytes: Most bytes of a message, key and value together.
        compression_codec: `none`, `gzip`, `snappy`, `lz4`, or `zstd` (Kafka 2.1 and later).
        client_id: The name under which the broker logs and counts the requests.
        security: TLS and SASL (`simpleconsumer.security.Security.of`); None for neither.

    Threads: One at a time. `close()` from any thread ends a call that waits.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        kafka_generation: Literal["0.7", "0.8"] = "0.8",
        request_required_acks: Literal[-1, 0, 1] = 1,
        request_timeout_ms: int = 10_000,
        message_max_bytes: int = 1_000_000,
        compression_codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none",
        client_id: str = "zkconsumer-producer",
        security: Security | None = None,
    ) -> None:
        self._acks = request_required_acks
        self._timeout_ms = request_timeout_ms
        self._max_bytes = message_max_bytes
        self._place = host, port
        self._client_id = client_id
        self._security = security
        self._has_keys = kafka_generation != "0.7"
        self._sets = MessageSets(lambda topic: compression_codec)
        self._connection: SimpleConsumer | None = None
        self._probe = Probe(host, port, self._timeout_ms / 500, client_id, security=security)

    def send(self, topic: str, messages: Iterable[bytes | Pair], partition: int | str | None = None) -> SentMessage:
        """Send messages of one partition in one request; return where the first one is.

        Args:
            topic: Their topic.
            messages: Values, pairs of key and value, or key, value and headers, or these and the time in ms since 1970.
                Kafka 0.7 stores no keys and no null values, brokers before Kafka 0.10 no times, and those before 0.11
                no headers.
            partition: Their partition, which this broker leads; None lets a broker of Kafka 0.7 choose one.

        Raises:
            MessageNotSent: They were not acknowledged.
            AuthenticationFailed: Broker or client refuse each other; nothing was sent.
            OversizedMessage: One is larger than `message_max_bytes`, and nothing was sent; or the broker refuses the
                size of the message set.
            ValueError: No messages, no partition for a broker of Kafka 0.8 or later, or a time that is negative or
                above 2**63 - 1.
            TypeError: A message is not bytes, or has what Kafka 0.7 does not store.
        """
        [found] = self.multi_send({TopicPartition(topic, -1 if partition is None else partition): messages}).values()
        if isinstance(found, MessageNotSent):
            raise found
        return found

    def multi_send(
        self, messages: Mapping[TopicPartition, Iterable[bytes | Pair]]
    ) -> dict[TopicPartition, SentMessage | MessageNotSent]:
        """Send messages of several partitions in one request; return the outcome of each partition.

        Args:
            messages: Partition -> its messages, as for `send`. `TopicPartition(topic, -1)` lets a broker of Kafka 0.7
                choose a partition.

        Raises:
            What `send` raises before anything is sent.
        """
        batches = [self._batch(*name, of_one) for name, of_one in messages.items()]
        has_begun = False
        try:
            connection = self._connected()
            self._sets.look(connection)
            refusals = {batch.name: self._sets.refusal(batch, False) for batch in batches}
            sets = {each.name: self._sets.encoded([each], connection) for each in batches if not refusals[each.name]}
            has_begun = True
            results = connection.produce_sets(sets, acks=self._acks, timeout_ms=self._timeout_ms) if sets else []
            if sets and self._acks and not self._has_keys:
                wait_until_read(connection, next(iter(sets)))
        except SimpleConsumerError as error:
            if not isinstance(error, Throttled):  # the connection stays, and waits for the end of it
                self._disconnect()
            is_sent = has_begun and may_have_been_sent(error)
            return {each.name: MessageNotSent(*each.name, str(error), may_be_stored=is_sent) for each in batches}
        answers = {name: ProducedPartition(code, -1) for name, code in refusals.items() if code}
        answers |= zip(sets, results, strict=True)
        return {batch.name: _outcome(batch, answers[batch.name], self._acks) for batch in batches}

    def close(self) -> None:
        """Close the connection for good."""
        self._probe.close()
        if self._connection is not None:
            self._connection.close()

    multiSend = multi_send  # noqa: N815

    def _connected(self) -> SimpleConsumer:
        """Return the connection; a new one speaks what the broker speaks by now."""
        if self._connection is None:
            host, port = self._place
            broker = self._probe.ask() if self._has_keys else Broker(0, host, port, generation="kafka07")
            self._connection = SimpleConsumer(
                host, port, self._timeout_ms / 500, self._client_id, dialect=dialect_of(broker),
                security=self._security, held_s=HELD_S if coordinates_groups(broker) else 0.0,
            )  # fmt: skip
            if self._probe.is_closed:  # meanwhile, by another thread
                self._connection.close()
        return self._connection

    def _disconnect(self) -> None:
        """Have the next call connect again, and ask what the broker speaks."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.close()

    def _batch(self, topic: str, partition: int | str, messages: Iterable[bytes | Pair]) -> Batch:
        if partition == -1 and self._has_keys:
            raise ValueError(f"no partition of {topic} is given; only brokers of Kafka 0.7 choose one")
        batch = Batch(TopicPartition(topic, partition), False, time.monotonic())
        batch.pairs = [self._checked(topic, partition, each) for each in messages]
        if not batch.pairs:
            raise ValueError(f"no messages for {topic}/{partition}")
        return batch

    def _checked(self, topic: str, partition: int | str, message: Any) -> Pair:
        is_pair = isinstance(message, tuple) and len(message) in (2, 3, 4)
        key, value, headers, time_ms = (
            (*message, *((), None)[len(message) - 2 :]) if is_pair else (None, message, (), None)
        )
        for part in (key, value):
            if part is not None and not isinstance(part, bytes):
                raise TypeError(f"{message!r:.60} for {topic}/{partition}: give bytes, or a pair of key and value")
        if not self._has_keys and (key is not None or value is None or headers or time_ms is not None):
            raise TypeError(f"{message!r:.60} for {topic}: Kafka 0.7 stores no keys, no headers and no null values, "
                            "and no times")  # fmt: skip
        pair: Pair = (key, value, as_headers(headers)) if headers else (key, value)
        if time_ms is not None:
            pair = key, value, pair[2] if len(pair) > 2 else (), as_timestamp(time_ms, topic)
        size = message_size(pair) - MESSAGE_OVERHEAD_BYTES
        if size > self._max_bytes:
            reason = f"it has {size} bytes, more than message_max_bytes = {self._max_bytes}"
            raise OversizedMessage(topic, partition, reason)
        return pair


def _outcome(batch: Batch, result: ProducedPartition, acks: int) -> SentMessage | MessageNotSent:
    (topic, partition), (code, offset, time_ms) = batch.name, result
    if code == 0:
        return SentMessage(topic, partition, offset if offset >= 0 else None, time_ms if time_ms >= 0 else None)
    reason = BrokerError(code, topic, partition)
    kind = OversizedMessage if code in TOO_LARGE else MessageNotSent
    error = kind(topic, partition, str(reason), may_be_stored=may_be_stored(code, acks))
    error.remedy = remedy_for(reason, batch.pairs)
    return error
