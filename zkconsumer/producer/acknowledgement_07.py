"""What stands for an acknowledgement of a broker of Kafka 0.7, which answers no produce request."""

from __future__ import annotations

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.types import TopicPartition

__all__ = ["wait_until_read"]


def wait_until_read(connection: SimpleConsumer, name: TopicPartition) -> None:
    """Return when a broker of Kafka 0.7 has read what was sent before on the same connection.

    It serves the requests of a connection in order, and closes the connection at a produce request that it refuses. So
    its answer to another request, on the same connection, comes behind the messages.

    Args:
        connection: The connection on which the messages were sent.
        name: A partition of theirs; -1 if the broker chose it.

    Raises:
        ConnectionFailed: The connection was closed before, or no answer came.
    """
    opened = connection.connects
    connection.get_offsets_before(name.topic, 0 if name.partition == -1 else name.partition, LATEST)
    if connection.connects != opened:
        raise ConnectionFailed(connection.host, connection.port, "closed behind the messages")
