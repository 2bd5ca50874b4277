"""The topic that `zkconsumer produce` sends to: whether it exists, who creates it, which partitions it has.

The cluster is found in ZooKeeper (`RegisteredTopic`), or by some of its brokers (`ListedTopic`).

The topic of Kafka 0.7 that `zkconsumer produce` sends to.

A topic that does not exist is made by its first message, on each broker that gets one. Partition 0 is the one that
every broker has.

Source: kafka.producer.ZKBrokerPartitionInfo, kafka.server.KafkaRequestHandlers (0.7.2).
"""

from __future__ import annotations

import difflib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from rebalance.subscription import sort_partitions
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.admin.values import count_of
from zkconsumer.cli.messages.message_lines import LineForm
from zkconsumer.cli.terminal import CliError
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.registry import no_partition
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer_error import ErrorCode

_POLL_S: Final = 0.1
_ANSWER_S: Final = 10.0
_TOPIC_APPEARS_S: Final = 10.0
_UNKNOWN_S: Final = 1.5
"""How long brokers may answer that they do not know a topic that they were asked to create."""
Answer = TypeVar("Answer")
Address = tuple[str, int]


class Target(Protocol):
    """A topic to send to.

    Attributes:
        partitions: Its partitions, once it is open; empty where they are not known.
    """

    partitions: tuple[int | str, ...]

    def open(self) -> None:
        """Find the partitions, and have a missing topic created; CliError if that is not possible."""

    def about_creation(self) -> str | None:
        """Return what is said about a topic that did not exist, None if it did."""

    def no_partition(self, partition: int | str) -> CliError:
        """Return the error for a partition that the topic does not have."""


class TargetTopic(ABC):
    """One topic.

    Args:
        topic: Its name.
        may_create: Have the brokers create it if it does not exist.
        client_id: The name under which brokers log and count the requests.
        security: TLS and SASL of connections to brokers; None for neither.

    Attributes:
        partitions: Its partitions, once it is open.

    Threads: One at a time.
    """

    def __init__(self, topic: str, may_create: bool, client_id: str, security: Security | None = None) -> None:
        self._security = security
        self.partitions: tuple[int | str, ...] = ()
        self._topic = topic
        self._may_create = may_create
        self._client_id = client_id
        self._is_created = False

    def open(self) -> None:
        """Find the partitions; the brokers create a missing topic if they are configured to.

        Raises:
            CliError: No brokers; or no such topic, and it is not to be created, or the brokers do not create it.
        """
        self._check_brokers()
        if not self._exists():
            if not self._may_create:
                raise self._no_topic("and --no-create is given")
            self._create()
        self.partitions = self._read_partitions()
        if not self.partitions:
            raise CliError(f"topic {self._topic!r} has no partitions")

    def about_creation(self) -> str | None:
        """Return what is said about a topic that did not exist, None if it did."""
        if not self._is_created:
            return None
        partitions = count_of(len(self.partitions), "partition")
        return f"topic {self._topic!r} did not exist{self._hint()}; the brokers created it with {partitions}"

    def no_partition(self, partition: int | str) -> CliError:
        """Return the error for a partition that the topic does not have."""
        known = ", ".join(map(str, sort_partitions(self.partitions)))
        return CliError(no_partition(self._topic, [partition], self.partitions), f"it has {known}")

    @abstractmethod
    def _check_brokers(self) -> None:
        """Raise CliError if no broker can be asked."""

    @abstractmethod
    def _exists(self) -> bool:
        """Return whether the topic is there."""

    @abstractmethod
    def _topics(self) -> list[str]:
        """Return all topics of the cluster."""

    @abstractmethod
    def _read_partitions(self) -> tuple[int | str, ...]:
        """Return the partitions; none if there is no such topic."""

    @abstractmethod
    def _is_unled(self) -> bool:
        """Return whether one of `partitions` has no leader."""

    @abstractmethod
    def _addresses(self) -> Sequence[Address]:
        """Return the brokers that can be asked."""

    def _create(self) -> None:
        """Have the brokers create the topic, and wait for a while until it has leaders."""
        self._ask_for_topic()
        self.partitions = self._read_partitions()
        deadline = time.monotonic() + _TOPIC_APPEARS_S
        while self._is_unled() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._is_created = True

    def _ask_for_topic(self) -> None:
        """Ask a broker about the topic, which creates it if `auto.create.topics.enable` is on."""
        started = time.monotonic()
        deadline = started + _TOPIC_APPEARS_S
        code = self._metadata_code()
        while not self._exists():
            # Brokers without a ZooKeeper answer so, too, while the controller creates the topic.
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and time.monotonic() - started > _UNKNOWN_S:
                raise self._no_topic("and the brokers do not create it (auto.create.topics.enable is off)")
            if code not in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise self._no_topic(f"and the brokers do not create it: {BrokerError(code, self._topic, None)}")
            if time.monotonic() > deadline:
                raise self._no_topic(f"and the brokers did not create it within {_TOPIC_APPEARS_S:g} s")
            time.sleep(_POLL_S)

    def _metadata_code(self) -> int:
        return self._ask(lambda broker: broker.topic_metadata([self._topic]).topics[self._topic].error_code)

    def _ask(self, call: Callable[[SimpleConsumer], Answer]) -> Answer:
        """Return what the first broker answers that answers at all."""
        failures = []
        addresses = self._addresses()
        for host, port in addresses:
            try:
                with SimpleConsumer(host, port, _ANSWER_S, self._client_id, security=self._security) as broker:
                    return call(broker)
            except SimpleConsumerError as error:
                failures.append(str(error))
        raise CliError(f"none of the {len(addresses)} known brokers answers ({'; '.join(failures[:3])})")

    def _hint(self) -> str:
        near = self._near()
        return f" (did you mean topic {near!r}?)" if near else ""

    def _near(self) -> str | None:
        """Return the existing topic whose name is most like that of this one; None if none is like it."""
        others = [topic for topic in self._topics() if topic != self._topic]
        return next(iter(difflib.get_close_matches(self._topic, others, n=1)), None)

    def _no_topic(self, reason: str) -> CliError:
        near = self._near()
        hint = f" (did you mean {near!r}?)" if near else ""
        return CliError(
            f"topic {self._topic!r} does not exist{hint}, {reason}",
            f"create it with `zkconsumer topics create {self._topic} --partitions N`",
        )


class RegisteredTopic(TargetTopic):
    """A topic of a cluster that is found in ZooKeeper.

    Args:
        cluster: That in which the topic is, or shall be.
        zookeeper: Its address, for the messages of errors.
        topic, may_create, client_id: As for `TargetTopic`.
    """

    def __init__(self, cluster: Cluster, zookeeper: str, topic: str, may_create: bool, client_id: str) -> None:
        super().__init__(topic, may_create, client_id, cluster.security)
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._brokers: list[Broker] = []

    def _check_brokers(self) -> None:
        self._brokers = self._cluster.brokers()
        if not self._brokers and (left_out := self._cluster.reader.left_out):
            broker_id, reason = min(left_out.items())
            raise CliError(f"no broker of the cluster can be used; broker {broker_id}: {reason}")
        if not self._brokers:
            raise CliError(
                f"no broker is registered in ZooKeeper at {self._zookeeper}",
                "check that Kafka runs, and that its zookeeper.connect has the same chroot",
            )

    def _exists(self) -> bool:
        return self._cluster.reader.topic_exists(self._topic)

    def _topics(self) -> list[str]:
        return self._cluster.topics()

    def _read_partitions(self) -> tuple[int | str, ...]:
        return self._cluster.partitions([self._topic]).get(self._topic, ())

    def _is_unled(self) -> bool:
        names = [TopicPartition(self._topic, partition) for partition in self.partitions]
        return len(self._cluster.leaders(dict.fromkeys(names))) < len(names)

    def _addresses(self) -> list[Address]:
        return [(broker.host, broker.port) for broker in self._brokers]


class ListedTopic(TargetTopic):
    """A topic of a cluster of Kafka 0.8 or later of which some brokers are given.

    Args:
        brokers: Some brokers of the cluster.
        topic, may_create, client_id, security: As for `TargetTopic`.
    """

    def __init__(
        self, brokers: Sequence[BrokerAddress], topic: str, may_create: bool, client_id: str, security: Security
    ) -> None:
        super().__init__(topic, may_create, client_id, security)
        self._listed = [(each.host, each.port) for each in brokers]
        self._known: list[str] = []
        self._is_asked_for = False

    def _check_brokers(self) -> None:
        # Asking about the topic by its name could create it.
        self._known = sorted(self._ask(lambda broker: broker.all_topic_metadata()).topics)

    def _exists(self) -> bool:
        return self._topic in self._known or (self._is_asked_for and self._metadata_code() == 0)

    def _metadata_code(self) -> int:
        self._is_asked_for = True
        return super()._metadata_code()

    def _topics(self) -> list[str]:
        return self._known

    def _read_partitions(self) -> tuple[int | str, ...]:
        return tuple(sorted(self._leaders()))

    def _is_unled(self) -> bool:
        return None in self._leaders().values()

    def _leaders(self) -> dict[int, int | None]:
        found = self._ask(lambda broker: broker.topic_metadata([self._topic]).topics[self._topic])
        return {each.partition: each.leader for each in found.partitions}

    def _addresses(self) -> list[Address]:
        return self._listed


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
            raise CliError(
                f"a list of brokers of Kafka 0.7 does not show whether topic {self._topic!r} exists",
                "leave --no-create out, or give --zookeeper",
            )

    def about_creation(self) -> str | None:
        """Return None: whether the topic exists is not known."""
        return None

    def no_partition(self, partition: int | str) -> CliError:
        """Return the error for any partition."""
        return CliError(
            f"a list of brokers of Kafka 0.7 does not show partitions such as {partition}",
            "leave --partition out, or give --zookeeper",
        )
