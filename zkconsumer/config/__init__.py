"""The settings of consumers and producers: a table of names, types and defaults, and a frozen value for each."""

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.keys import READ_COMMITTED
from zkconsumer.config.typed.typed_settings import (
    ConsumerSettings,
    KafkaConsumerSettings,
    OptionalSettings,
    ProducerSettings,
)

__all__ = [
    "READ_COMMITTED",
    "ConsumerConfig",
    "ConsumerSettings",
    "KafkaConsumerConfig",
    "KafkaConsumerSettings",
    "OptionalSettings",
    "ProducerConfig",
    "ProducerSettings",
]
