"""Sends batches of messages to brokers of Kafka 0.7, which acknowledge nothing.

Rules, and which failure each prevents:
- A batch counts as sent when its broker has answered another request behind it on the same connection: a broker serves
  the requests of a connection in their order, and closes it at a produce request that it refuses. So a broker that dies
  loses no batch unnoticed. What is too large for it a broker drops without a sign.
- A topic that does not exist is made by its first message, on each broker that gets one. Partition 0 is the one that
  every broker has.

Source: kafka.producer.ZKBrokerPartitionInfo, kafka.server.KafkaRequestHandlers (0.7.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from rebalance.assignment import sort_partitions
from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import ConnectionFailed, SimpleConsumerError
from simpleconsumer.types import Broker
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.messages.sender import CLIENT_ID, KeyValue, Sender

__all__ = ["Sender07"]

_CODECS: Final = ("none", "gzip", "snappy")
_LARGEST_BYTES: Final = 1_000_000
"""`max.message.size` of brokers, if it is not set otherwise."""
_MADE: Final = "brokers of Kafka 0.7 make it with its first message"


class Sender07(Sender):
    """Sends to one topic of Kafka 0.7; see `Sender`.

    Attributes:
        sent: Messages that brokers have read (with acks 0: written to the socket).
    """

    _is_missing = False
    _has_warned = False

    def open(self) -> None:
        """Find the topic's partitions; of a topic that does not exist the first one of each broker.

        Raises:
            CliError: No brokers; no such topic, and it is not to be made; or settings that 0.7 does not have.
        """
        settings = self._settings
        if settings.has_keys:
            raise CliError("Kafka 0.7 stores no keys", "leave --key-separator out")
        if settings.acks == -1:
            raise CliError("Kafka 0.7 has no replicas that could acknowledge a message", "leave --acks out")
        if settings.codec not in _CODECS:
            raise CliError(f"Kafka 0.7 does not know {settings.codec}", f"choose one of {', '.join(_CODECS)}")
        super().open()

    def _create(self, brokers: Sequence[Broker]) -> None:
        self._is_missing = True

    def _read_partitions(self, brokers: Sequence[Broker]) -> tuple[int | str, ...]:
        return super()._read_partitions(brokers) or tuple(f"{broker.id}-0" for broker in brokers)

    def about_creation(self) -> str | None:
        """Return what is said about a topic that does not exist."""
        if not self._is_missing:
            return None
        return f"topic {self._topic!r} does not exist{self._hint()}; {_MADE}"

    def _no_topic(self, reason: str) -> CliError:
        return CliError(f"topic {self._topic!r} does not exist{self._hint()}, {reason}", f"leave that out: {_MADE}")

    def no_partition(self, partition: int | str) -> CliError:
        """Return the error for a partition that the topic does not have, or perhaps will not have."""
        if not self._is_missing:
            return super().no_partition(partition)
        known = ", ".join(map(str, sort_partitions(self.partitions)))
        return CliError(
            f"whether topic {self._topic!r} will have a partition {partition} is not known before its first message",
            f"leave --partition out, or choose one that it will have: {known}",
        )

    def about_sent(self) -> str:
        """Return what is said at the end."""
        known = "the brokers have read these" if self._settings.acks else "nothing is known of these"
        return f"{super().about_sent()}; Kafka 0.7 acknowledges no message: {known}"

    def send(self, partition: int | str, messages: Sequence[KeyValue]) -> None:
        """Send a batch, and return when its broker has read it.

        Raises:
            CliError: No broker has read it within `give_up_s`.
        """
        large = sum(len(value or b"") > _LARGEST_BYTES for _, value in messages)
        if large and not self._has_warned:
            self._has_warned = True
            click.echo(f"zkconsumer: {count_of(large, 'message')} of more than {_LARGEST_BYTES} bytes, the default of "
                       "max.message.size: brokers drop what is larger than that without a sign", err=True)  # fmt: skip
        super().send(partition, messages)

    def _connect(self, leader: Broker) -> SimpleConsumer:
        timeout_s = self._settings.request_timeout_s
        return SimpleConsumer(leader.host, leader.port, timeout_s, CLIENT_ID, dialect=dialect_of(leader))

    def _try(
        self, leader: Broker, partition: int | str, messages: Sequence[KeyValue]
    ) -> tuple[str, int | None] | None:
        """Return None if the broker has read the batch, else why that is not known."""
        connection = self._connection(leader)
        try:
            connection.produce(self._topic, partition, messages, codec=self._settings.codec, acks=0)
            if not self._settings.acks:
                return None
            opened = connection.connects
            connection.get_offsets_before(self._topic, partition, LATEST)
            if connection.connects == opened:
                return None
            reason = f"broker {leader.id} closed the connection behind them"
        except ConnectionFailed as error:
            reason = str(error)
        except SimpleConsumerError as error:
            raise CliError(f"broker {leader.id}: what it answers behind {len(messages)} messages: {error}") from error
        self.doubtful += len(messages)
        return reason, None
