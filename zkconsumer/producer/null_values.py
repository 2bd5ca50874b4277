"""Whether brokers take null values: those of Kafka 0.8.0 store them, and Java consumers of 0.8.0 cannot read them.

Source: kafka.server.KafkaApis (0.8.0 closes the connection at an offset fetch request, 0.8.1 and later answer it);
kafka.consumer.ConsumerIterator (0.8.0: a null pointer).
"""

from __future__ import annotations

from collections.abc import Iterable

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.types import TopicPartition

__all__ = ["takes_null_values"]

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
