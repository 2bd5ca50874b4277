"""SyncProducer: sends message sets to one broker, as Kafka's class of that name does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, ProducedPartition, TopicPartition
from zkconsumer.producer.acknowledgement_07 import wait_until_read
from zkconsumer.producer.batch import MESSAGE_OVERHEAD_BYTES, PlainPair, message_size, undecided_codes
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage
from zkconsumer.producer.outcome import SentMessage

__all__ = ["SyncProducer"]


class SyncProducer:
    """Sends messages to one broker, in the calling thread, each request once; a context manager.

    It looks up no leader, chooses no partition and tries nothing again. `Producer` does all of that.

    Args:
        host: The broker's host.
        port: The broker's port.
        kafka_generation: `0.7` for a broker of Kafka 0.7.
        request_required_acks: Who acknowledges: 1 the leader, -1 all in-sync replicas, 0 nobody.
        request_timeout_ms: Longest wait of the leader for replicas; the answer may take as long again.
        message_max_bytes: Most bytes of a message, key and value together.
        compression_codec: `none`, `gzip`, `snappy` or `lz4`.
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
        compression_codec: Literal["none", "gzip", "snappy", "lz4"] = "none",
        client_id: str = "zkconsumer-producer",
        security: Security | None = None,
    ) -> None:
        self._acks = request_required_acks
        self._timeout_ms = request_timeout_ms
        self._max_bytes = message_max_bytes
        self._codec = compression_codec
        broker = Broker(0, host, port, generation="kafka07" if kafka_generation == "0.7" else "kafka08")
        self._connection = SimpleConsumer(
            host, port, request_timeout_ms / 500, client_id, dialect=dialect_of(broker), security=security
        )  # fmt: skip
        self._has_keys = self._connection.dialect.has_metadata

    def send(
        self, topic: str, messages: Iterable[bytes | PlainPair], partition: int | str | None = None
    ) -> SentMessage:
        """Send messages of one partition in one request; return where the first one is.

        Args:
            topic: Their topic.
            messages: Values, or pairs of key and value. Kafka 0.7 stores no keys and no null values.
            partition: Their partition, which this broker leads; None lets a broker of Kafka 0.7 choose one.

        Raises:
            MessageNotSent: They were not acknowledged.
            OversizedMessage: One is larger than `message_max_bytes`, and nothing was sent; or the broker refuses the
                size of the message set.
            ValueError: No messages, or no partition for a broker of Kafka 0.8 or later.
            TypeError: A message is not bytes, or has what Kafka 0.7 does not store.
        """
        [found] = self.multi_send({TopicPartition(topic, -1 if partition is None else partition): messages}).values()
        if isinstance(found, MessageNotSent):
            raise found
        return found

    def multi_send(
        self, messages: Mapping[TopicPartition, Iterable[bytes | PlainPair]]
    ) -> dict[TopicPartition, SentMessage | MessageNotSent]:
        """Send messages of several partitions in one request; return what became of each partition's.

        Args:
            messages: Partition -> its messages, as for `send`. `TopicPartition(topic, -1)` lets a broker of Kafka 0.7
                choose a partition.

        Raises:
            What `send` raises before anything is sent.
        """
        dialect = self._connection.dialect
        sets = {
            TopicPartition(*name): dialect.encode_messages(self._pairs(*name, of_one), self._codec, None, None)
            for name, of_one in messages.items()
        }
        try:
            results = self._connection.produce_sets(sets, acks=self._acks, timeout_ms=self._timeout_ms)
            if self._acks and not self._has_keys:
                wait_until_read(self._connection, next(iter(sets)))
        except SimpleConsumerError as error:
            may_be_stored = not (isinstance(error, ConnectionFailed) and not error.is_sent)
            return {name: MessageNotSent(*name, str(error), may_be_stored=may_be_stored) for name in sets}
        undecided = undecided_codes(self._acks)
        return {name: _outcome(name, result, undecided) for name, result in zip(sets, results, strict=True)}

    def close(self) -> None:
        """Close the connection, finally."""
        self._connection.close()

    multiSend = multi_send  # noqa: N815

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pairs(self, topic: str, partition: int | str, messages: Iterable[bytes | PlainPair]) -> Sequence[PlainPair]:
        if partition == -1 and self._has_keys:
            raise ValueError(f"no partition of {topic}: only a broker of Kafka 0.7 chooses one")
        pairs = [self._checked(topic, partition, each) for each in messages]
        if not pairs:
            raise ValueError(f"no messages for {topic}/{partition}")
        return pairs

    def _checked(self, topic: str, partition: int | str, message: Any) -> PlainPair:
        key, value = message if isinstance(message, tuple) and len(message) == 2 else (None, message)
        for part in (key, value):
            if part is not None and not isinstance(part, bytes):
                raise TypeError(f"{message!r:.60} for {topic}/{partition}: bytes, or a key and a value, are needed")
        if not self._has_keys and (key is not None or value is None):
            raise TypeError(f"{message!r:.60} for {topic}: Kafka 0.7 stores no keys and no null values")
        size = message_size((key, value)) - MESSAGE_OVERHEAD_BYTES
        if size > self._max_bytes:
            reason = f"it has {size} bytes, more than message_max_bytes = {self._max_bytes}"
            raise OversizedMessage(topic, partition, reason)
        return key, value


def _outcome(name: TopicPartition, result: ProducedPartition, undecided: Sequence[int]) -> SentMessage | MessageNotSent:
    code, offset = result
    if code == 0:
        return SentMessage(name.topic, name.partition, offset if offset >= 0 else None)
    reason = str(BrokerError(code, name.topic, name.partition))
    kind = OversizedMessage if code in (10, 18) else MessageNotSent
    return kind(name.topic, name.partition, reason, may_be_stored=code in undecided)
