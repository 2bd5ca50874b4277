"""The topic of Kafka 0.7 that `zkconsumer produce` sends to.

A topic that does not exist is made by its first message, on each broker that gets one. Partition 0 is the one that
every broker has.

Source: kafka.producer.ZKBrokerPartitionInfo, kafka.server.KafkaRequestHandlers (0.7.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rebalance.assignment import sort_partitions
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.messages.line_parsers import LineForm
from zkconsumer.cli.messages.target_topic import RegisteredTopic
from zkconsumer.config.producer_config import ProducerConfig

__all__ = ["ListedTopic07", "RegisteredTopic07", "check_settings_07"]

_CODECS: Final = ("none", "gzip", "snappy")
_MADE: Final = "brokers of Kafka 0.7 create it with its first message"


def check_settings_07(config: ProducerConfig, form: LineForm, headers: Sequence[str]) -> None:
    """Refuse what Kafka 0.7 does not have.

    Args:
        config: The settings of the producer.
        form: The fields of a line.
        headers: Those of every message.

    Raises:
        CliError: Keys, headers, acks of replicas, or a codec that it does not know.
    """
    if form.key_separator is not None:
        raise CliError("Kafka 0.7 stores no keys", "leave --key-separator out")
    if form.headers is not None or headers:
        raise CliError("Kafka 0.7 stores no headers", "leave --header and parse.headers out")
    if config.request_required_acks == -1:
        raise CliError("Kafka 0.7 has no replicas that could acknowledge a message", "leave --acks out")
    codec = config.compression_codec
    if codec not in _CODECS:
        raise CliError(f"Kafka 0.7 does not support {codec}", f"choose one of {', '.join(_CODECS)}")


class RegisteredTopic07(RegisteredTopic):
    """A topic of a cluster that is found in ZooKeeper; see `RegisteredTopic`."""

    _is_missing = False

    def _create(self) -> None:
        self._is_missing = True

    def _read_partitions(self) -> tuple[int | str, ...]:
        return super()._read_partitions() or tuple(f"{broker.id}-0" for broker in self._brokers)

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
            f"it is not known before its first message whether topic {self._topic!r} will have partition {partition}",
            f"leave --partition out, or choose a partition that it will have: {known}",
        )


class ListedTopic07:
    """A topic of brokers that are given: each of them takes every topic, and chooses one of its partitions.

    Attributes:
        partitions: Empty, as only ZooKeeper knows them.
    """

    def __init__(self, topic: str, may_create: bool) -> None:
        self.partitions: tuple[int | str, ...] = ()
        self._topic = topic
        self._may_create = may_create

    def open(self) -> None:
        """Do nothing: brokers of Kafka 0.7 cannot be asked about topics.

        Raises:
            CliError: The topic is not to be made, and nobody knows whether it is there.
        """
        if not self._may_create:
            raise CliError(f"a list of brokers of Kafka 0.7 does not show whether topic {self._topic!r} exists",
                           "leave --no-create out, or give --zookeeper")

    def about_creation(self) -> str | None:
        """Return None: whether the topic exists is not known."""
        return None

    def no_partition(self, partition: int | str) -> CliError:
        """Return the error for any partition."""
        return CliError(f"a list of brokers of Kafka 0.7 does not show partitions such as {partition}",
                        "leave --partition out, or give --zookeeper")
