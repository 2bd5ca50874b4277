"""Producers for every broker from Kafka 0.7 on.

    with Producer(ProducerConfig(metadata_broker_list="kafka1:9092")) as producer:
        future = producer.send("clicks", b"a value", key=b"a key")
        producer.send_all(["one", "two"], topic="clicks")

docs/PRODUCING.md says what is promised.
"""

from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.bulk import SendSummary
from zkconsumer.producer.batching.counters import Distribution, ProducerStatistics, TopicFigures
from zkconsumer.producer.batching.outcome import SendFuture, SentMessage
from zkconsumer.producer.errors import (
    MessageNotSent,
    MessagesNotSent,
    OversizedMessage,
    ProducerClosed,
    ProducerError,
    ProducerFenced,
    QueueFull,
    TransactionFailed,
)
from zkconsumer.producer.handlers import CallbackHandler, EventHandler, QueueItem
from zkconsumer.producer.keyed_message import KeyedMessage, ProducerData
from zkconsumer.producer.partitioners import PARTITIONERS, Partitioner
from zkconsumer.producer.placing import DefaultEncoder, Encoder, NullEncoder, StringEncoder
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sync_producer import SyncProducer

__all__ = [
    "PARTITIONERS",
    "CallbackHandler",
    "DefaultEncoder",
    "Distribution",
    "Encoder",
    "EventHandler",
    "KeyedMessage",
    "MessageNotSent",
    "MessagesNotSent",
    "NullEncoder",
    "OversizedMessage",
    "Partitioner",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerData",
    "ProducerError",
    "ProducerFenced",
    "ProducerStatistics",
    "QueueFull",
    "QueueItem",
    "SendFuture",
    "SendSummary",
    "SentMessage",
    "StringEncoder",
    "SyncProducer",
    "TopicFigures",
    "TransactionFailed",
]
