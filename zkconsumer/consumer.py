"""`Consumer`: the name under which Java's own examples make a connector."""

from __future__ import annotations

from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ConsumerConnector

__all__ = ["Consumer"]


class Consumer:
    """Makes connectors, as `kafka.consumer.Consumer` does.

        Consumer.create(config).createMessageStreams({"clicks": 1}, decoder)

    `createJavaConsumerConnector` is another name of `create`. Source: the quick starts of Kafka 0.7 and 0.8.
    """

    @staticmethod
    def create(config: ConsumerConfig) -> ConsumerConnector:
        """Return a connector; arguments and errors are those of `ConsumerConnector`."""
        return ConsumerConnector(config)

    createJavaConsumerConnector = create  # noqa: N815
