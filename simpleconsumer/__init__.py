"""A client of one Kafka broker at a time: messages, offsets and metadata, without groups and ZooKeeper.

from simpleconsumer import EARLIEST, SimpleConsumer

with SimpleConsumer("broker1", 9092) as consumer:
    [offset] = consumer.get_offsets_before("clicks", 0, EARLIEST)
    for message in consumer.fetch("clicks", 0, offset):
        print(message.offset, message.key, message.value)

A broker of Kafka 0.7 is read with `SimpleConsumer("broker1", 9092, dialect=KAFKA07)`.
"""

from typing import TYPE_CHECKING

from simpleconsumer.lazy_names import lazy_names

if TYPE_CHECKING:
    from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
    from simpleconsumer.dialect import KAFKA011, KAFKA07, KAFKA08
    from simpleconsumer.errors import (
        AuthenticationFailed,
        BrokenFraming,
        BrokerError,
        BufferUnderflow,
        ConnectionFailed,
        CorruptMessage,
        CrcMismatch,
        DamagedOffset,
        DecodeError,
        LimitExceeded,
        MessageError,
        MessageTooLarge,
        NoSuchRequest,
        SimpleConsumerError,
        Throttled,
        UnknownCodec,
        broker_error,
    )
    from simpleconsumer.kafka08.message_encode import encode_message_set
    from simpleconsumer.kafka08.message_set import decode_messages, shallow_end
    from simpleconsumer.types import (
        AbortedTransaction,
        Broker,
        ClusterMetadata,
        EntryMessage,
        FetchedPartition,
        FetchRequest,
        HeaderMessage,
        Message,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionMetadata,
        ProducedPartition,
        TopicMetadata,
        TopicPartition,
    )

__all__ = [
    "EARLIEST",
    "KAFKA07",
    "KAFKA08",
    "KAFKA011",
    "LATEST",
    "AbortedTransaction",
    "AuthenticationFailed",
    "BrokenFraming",
    "Broker",
    "BrokerError",
    "BufferUnderflow",
    "ClusterMetadata",
    "ConnectionFailed",
    "CorruptMessage",
    "CrcMismatch",
    "DamagedOffset",
    "DecodeError",
    "EntryMessage",
    "FetchRequest",
    "FetchedPartition",
    "HeaderMessage",
    "LimitExceeded",
    "Message",
    "MessageError",
    "MessageTooLarge",
    "NoSuchRequest",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "ProducedPartition",
    "SimpleConsumer",
    "SimpleConsumerError",
    "Throttled",
    "TopicMetadata",
    "TopicPartition",
    "UnknownCodec",
    "broker_error",
    "decode_messages",
    "encode_message_set",
    "shallow_end",
]

if not TYPE_CHECKING:  # mypy would take every name for one of the package
    __getattr__ = lazy_names(
        __name__,
        {
            "simpleconsumer.consumer": ["EARLIEST", "LATEST", "SimpleConsumer"],
            "simpleconsumer.dialect": ["KAFKA011", "KAFKA07", "KAFKA08"],
            "simpleconsumer.errors": [
                "AuthenticationFailed",
                "BrokenFraming",
                "BrokerError",
                "BufferUnderflow",
                "ConnectionFailed",
                "CorruptMessage",
                "CrcMismatch",
                "DamagedOffset",
                "DecodeError",
                "LimitExceeded",
                "MessageError",
                "MessageTooLarge",
                "NoSuchRequest",
                "SimpleConsumerError",
                "Throttled",
                "UnknownCodec",
                "broker_error",
            ],
            "simpleconsumer.kafka08.message_encode": ["encode_message_set"],
            "simpleconsumer.kafka08.message_set": ["decode_messages", "shallow_end"],
            "simpleconsumer.types": [
                "AbortedTransaction",
                "Broker",
                "ClusterMetadata",
                "EntryMessage",
                "FetchedPartition",
                "FetchRequest",
                "HeaderMessage",
                "Message",
                "OffsetAndMetadata",
                "OffsetAndTimestamp",
                "PartitionMetadata",
                "ProducedPartition",
                "TopicMetadata",
                "TopicPartition",
            ],
        },
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
