"""MessageSets: encodes the batches of a producer for what the broker of a connection takes.

Brokers of Kafka 0.11 and later get record batches: one of each partition in a request. Older ones get message sets of
before. From 0.10 on messages have the times that they were given, or those at which they came. What a broker cannot
store is refused here, under the error code that Kafka has for it, and not sent: no older format has headers, that of
before 0.10 has no times either, and brokers before 2.1 do not know zstd.

Source: org.apache.kafka.clients.producer.KafkaProducer, ProduceRequest (2.1: zstd from version 7 on).

Whether brokers take null values: those of Kafka 0.8.0 store them, and Java consumers of 0.8.0 cannot read them.

Source: kafka.server.KafkaApis (0.8.0 closes the connection at an offset fetch request, 0.8.1 and later answer it);
kafka.consumer.ConsumerIterator (0.8.0: a null pointer).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import (
    NO_PRODUCER,
    RECORD_BATCH,
    encode_producer_batch,
    encode_producer_set,
    takes_producer_ids,
    takes_zstd,
)
from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.batching.batch_queues import Ahead, Batch, PlainPair, has_headers, time_of
from zkconsumer.producer.sending.produce_codes import NO_HEADERS, NO_IDEMPOTENCE, NO_ZSTD


class MessageSets:
    """Encodes for one connection at a time.

    Args:
        codec_of: Topic -> codec.
    """

    def __init__(self, codec_of: Callable[[str], str]) -> None:
        self._codec_of = codec_of
        self._magic: int | None = None
        self._has_zstd = False
        self._has_producer_ids = False

    def look(self, connection: SimpleConsumer) -> None:
        """Find out what the broker takes: behind a new connection may be another one.

        Raises:
            SimpleConsumerError: There is no connection; nothing was sent.
        """
        served = connection.served_versions()
        self._magic = connection.dialect.newest_magic(served)
        self._has_zstd = takes_zstd(served)
        self._has_producer_ids = takes_producer_ids(served)

    def refusal(self, batch: Batch, is_idempotent: bool) -> int:
        """Return the error code of a batch that the broker cannot store as it is; 0 if it can."""
        if is_idempotent and not self._has_producer_ids:
            return NO_IDEMPOTENCE
        if not self._has_zstd and self._codec_of(batch.name.topic) == "zstd":
            return NO_ZSTD
        if self._magic != RECORD_BATCH and any(map(has_headers, batch.pairs)):
            return NO_HEADERS
        if self._magic not in (1, RECORD_BATCH) and any(time_of(pair) is not None for pair in batch.pairs):
            return NO_HEADERS
        return 0

    def encoded(self, batches: Sequence[Batch], connection: SimpleConsumer) -> bytes:
        """Return the message set of batches of one partition, in their order."""
        ahead = batches[0].encoded
        for batch in batches:
            batch.encoded = None  # one that waits for a retry is counted without it
        if ahead is not None and ahead.batches == tuple(batches):
            return ahead.data
        codec = self._codec_of(batches[0].name.topic)
        if self._magic in (1, RECORD_BATCH):
            return _timed(batches, codec, self._magic == RECORD_BATCH)
        encode = connection.dialect.encode_messages
        return b"".join(encode(cast("list[PlainPair]", batch.pairs), codec, self._magic, None) for batch in batches)

    def encode_ahead(self, batches: Sequence[Batch], connection: SimpleConsumer) -> None:
        """Encode batches of one partition for the next request."""
        if batches[0].encoded is None and not any(self.refusal(batch, False) for batch in batches):
            batches[0].encoded = Ahead(self.encoded(batches, connection), tuple(batches))


def _timed(batches: Sequence[Batch], codec: str, is_record_batch: bool) -> bytes:
    runs = [(batch.pairs, batch.times or (batch.created_at,)) for batch in batches]
    clock_s = time.time() - time.monotonic()
    if is_record_batch:
        return encode_producer_batch(runs, codec, clock_s, batches[0].numbers or NO_PRODUCER)
    return b"".join(encode_producer_set([run], codec, clock_s) for run in runs)


_GROUP = "zkconsumer-producer"


def takes_null_values(connections: Iterable[SimpleConsumer], topic: str) -> bool | str:
    """Return whether brokers are of Kafka 0.8.1 or later, by the first one that answers; as text, why none does.

    Args:
        connections: New connections to some brokers; they are closed.
        topic: Any topic.
    """
    reason = "no broker is known"
    for broker in connections:
        with broker:
            try:
                broker.topic_metadata([topic])
                is_answered = _answers_offset_fetch(broker, topic)
                broker.topic_metadata([topic])  # a broker that has just died closes connections, too
            except (SimpleConsumerError, AuthenticationFailed) as error:
                reason = str(error)
            else:
                return is_answered
    return reason


def _answers_offset_fetch(broker: SimpleConsumer, topic: str) -> bool:
    before = broker.connects
    try:
        broker.fetch_offsets(_GROUP, [TopicPartition(topic, 0)])
    except BrokerError:
        return True
    except ConnectionFailed as error:
        if "no answer" in error.reason:
            raise
        return False
    return broker.connects == before
