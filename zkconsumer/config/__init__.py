"""The settings of consumers and producers: a table of names, types and defaults, and a frozen value for each."""

from typing import TYPE_CHECKING

from simpleconsumer.lazy_names import lazy_names

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # mypy would take every name for one of the package
    __getattr__ = lazy_names(
        __name__,
        {
            "zkconsumer.config.consumer_config": ["ConsumerConfig"],
            "zkconsumer.config.kafka_consumer_config": ["KafkaConsumerConfig"],
            "zkconsumer.config.producer_config": ["ProducerConfig"],
            "zkconsumer.config.tables.keys": ["READ_COMMITTED"],
            "zkconsumer.config.typed.typed_settings": [
                "ConsumerSettings",
                "KafkaConsumerSettings",
                "OptionalSettings",
                "ProducerSettings",
            ],
        },
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
