"""Sends batches of messages to the leaders of a topic's partitions, until they are acknowledged or a deadline passes.

At least once: when a connection breaks it is unknown whether a batch was stored, so it is sent again, and `doubtful`
counts its messages.

Source: kafka.producer.async.DefaultEventHandler (0.8.2.2).
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rebalance.assignment import sort_partitions
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.admin.phrases import count_of
from zkconsumer.backoff import Backoff
from zkconsumer.cli.failures import CliError
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.topic_of_07 import no_partition

__all__ = ["CLIENT_ID", "KeyValue", "SendSettings", "Sender"]

KeyValue = tuple[bytes | None, bytes | None]

CLIENT_ID = "zkconsumer-produce"
_BACKOFF = Backoff(0.1, 1.0)
_TOPIC_APPEARS_S = 10.0
_LEADER_NOT_AVAILABLE = 5
_UNKNOWN_TOPIC = 3


@dataclass(frozen=True)
class SendSettings:
    """How batches are sent.

    Attributes:
        codec: `none`, gzip, snappy or lz4.
        acks: 1: the leader has it; -1: all in-sync replicas have it; 0: no answer.
        request_timeout_s: Deadline of one request, in seconds.
        give_up_s: How long one batch is tried, in seconds.
        may_create: Have the brokers create the topic if it does not exist.
        has_keys: Messages have keys.
    """

    codec: str = "none"
    acks: int = 1
    request_timeout_s: float = 10.0
    give_up_s: float = 30.0
    may_create: bool = True
    has_keys: bool = False


class Sender:
    """Sends to one topic.

    Args:
        cluster: That in which the topic is, or shall be.
        zookeeper: Its address, for the messages of errors.
        topic: The topic to which it sends.

    Attributes:
        sent: Messages that were acknowledged (with acks 0: written to the socket).
        doubtful: Messages sent again after a connection broke; they may be stored twice.
        partitions: Of the topic, once it is open.
        is_created: The topic did not exist, and the brokers created it.

    Threads: One at a time.
    """

    def __init__(self, cluster: Cluster, zookeeper: str, topic: str, settings: SendSettings) -> None:
        self.sent = 0
        self.doubtful = 0
        self.is_created = False
        self._topic = topic
        self._settings = settings
        self._zookeeper = zookeeper
        self._cluster = cluster
        self._leaders: dict[int | str, Broker] = {}
        self._connections: dict[Broker, SimpleConsumer] = {}
        self.partitions: tuple[int | str, ...] = ()

    def open(self) -> None:
        """Find the topic's partitions; the brokers create a missing topic if they are configured to.

        Raises:
            CliError: No brokers; or no such topic, and it is not to be created, or the brokers do not create it.
        """
        brokers = self._cluster.brokers()
        if not brokers and (left_out := self._cluster.reader.left_out):
            broker_id, reason = min(left_out.items())
            raise CliError(f"no broker of the cluster can be asked; broker {broker_id}: {reason}")
        if not brokers:
            raise CliError(
                f"no broker is registered in ZooKeeper at {self._zookeeper}",
                "is Kafka running, and does its zookeeper.connect end with the same chroot?",
            )
        is_new = not self._cluster.reader.topic_exists(self._topic)
        if is_new:
            if not self._settings.may_create:
                raise self._no_topic("and --no-create is given")
            self._create(brokers)
        self.partitions = self._read_partitions(brokers)
        if not self.partitions:
            raise CliError(f"topic {self._topic!r} has no partitions")

    def _read_partitions(self, brokers: Sequence[Broker]) -> tuple[int | str, ...]:
        return self._cluster.partitions([self._topic]).get(self._topic, ())

    def _create(self, brokers: Sequence[Broker]) -> None:
        """Have the brokers create the topic, and wait for a while until it has leaders."""
        self._ask_for_topic(brokers)
        self.partitions = self._read_partitions(brokers)
        deadline = time.monotonic() + _TOPIC_APPEARS_S
        while self.leaderless() and time.monotonic() < deadline:
            time.sleep(_BACKOFF.first_s)
        self.is_created = True

    def about_creation(self) -> str | None:
        """Return what is said about a topic that did not exist, None if it did."""
        if not self.is_created:
            return None
        partitions = count_of(len(self.partitions), "partition")
        return f"topic {self._topic!r} did not exist{self._hint()}; the brokers created it with {partitions}"

    def no_partition(self, partition: int | str) -> CliError:
        """Return the error for a partition that the topic does not have."""
        known = ", ".join(map(str, sort_partitions(self.partitions)))
        return CliError(no_partition(self._topic, [partition], self.partitions), f"it has {known}")

    def _hint(self) -> str:
        near = self.near()
        return f" (there is a topic {near!r}; was it meant?)" if near else ""

    def about_sent(self) -> str:
        """Return what is said at the end."""
        twice = f"; {self.doubtful} were sent again after a lost connection and may be stored twice"
        return f"Produced {count_of(self.sent, 'message')}{twice if self.doubtful else ''}"

    def near(self) -> str | None:
        """Return the existing topic whose name is most like that of this one; None if none is like it."""
        others = [topic for topic in self._cluster.topics() if topic != self._topic]
        return next(iter(difflib.get_close_matches(self._topic, others, n=1)), None)

    def _no_topic(self, reason: str) -> CliError:
        near = self.near()
        hint = f" (did you mean {near!r}?)" if near else ""
        return CliError(
            f"topic {self._topic!r} does not exist{hint}, {reason}",
            f"create it with `zkconsumer topics create {self._topic} --partitions N`",
        )

    def _ask_for_topic(self, brokers: Sequence[Broker]) -> None:
        """Ask a broker about the topic, which creates it if `auto.create.topics.enable` is on."""
        deadline = time.monotonic() + _TOPIC_APPEARS_S
        code = self._metadata_code(brokers)
        while not self._cluster.reader.topic_exists(self._topic):
            if code == _UNKNOWN_TOPIC:
                raise self._no_topic("and the brokers do not create it (auto.create.topics.enable is off)")
            if code != _LEADER_NOT_AVAILABLE:
                raise self._no_topic(f"and the brokers do not create it: {BrokerError(code, self._topic, None)}")
            if time.monotonic() > deadline:
                raise self._no_topic(f"and the brokers did not create it within {_TOPIC_APPEARS_S:g} s")
            time.sleep(_BACKOFF.first_s)

    def _metadata_code(self, brokers: Sequence[Broker]) -> int:
        failures = []
        for broker in brokers:
            try:
                with SimpleConsumer(broker.host, broker.port, self._settings.request_timeout_s, CLIENT_ID) as asked:
                    return asked.topic_metadata([self._topic]).topics[self._topic].error_code
            except SimpleConsumerError as error:
                failures.append(str(error))
        raise CliError(f"none of the {len(brokers)} registered brokers answers ({'; '.join(failures[:3])})")

    def leaderless(self) -> list[int | str]:
        """Return the partitions that cannot be written to at the moment."""
        self._find_leaders(self.partitions)
        return [partition for partition in self.partitions if partition not in self._leaders]

    def _find_leaders(self, partitions: Sequence[int | str], denied_by: int | None = None) -> None:
        wanted = {TopicPartition(self._topic, partition): denied_by for partition in partitions}
        for partition in partitions:
            self._leaders.pop(partition, None)
        for name, broker in self._cluster.leaders(wanted).items():
            self._leaders[name.partition] = broker

    def send(self, partition: int | str, messages: Sequence[KeyValue]) -> None:
        """Send a batch, and return when it is acknowledged.

        Raises:
            CliError: It was refused for good, or not accepted within `give_up_s`.
        """
        deadline = time.monotonic() + self._settings.give_up_s
        failures = 0
        reason = ""
        denied_by: int | None = None
        while True:
            leader = self._leaders.get(partition)
            if leader is None:
                self._find_leaders([partition], denied_by)
                leader = self._leaders.get(partition)
            if leader is not None:
                failure = self._try(leader, partition, messages)
                if failure is None:
                    self.sent += len(messages)
                    return
                reason, denied_by = failure
                del self._leaders[partition]
            elif not reason:
                name = TopicPartition(self._topic, partition)
                reason = self._cluster.why_unled([name])[name]
            backoff_s = _BACKOFF.wait_s(failures)
            if time.monotonic() + backoff_s > deadline:
                raise CliError(
                    f"{len(messages)} messages for {self._topic}-{partition} were not taken within "
                    f"{self._settings.give_up_s:g} s: {reason}"
                )
            time.sleep(backoff_s)
            failures += 1

    def _connection(self, leader: Broker) -> SimpleConsumer:
        if leader not in self._connections:
            self._connections[leader] = self._connect(leader)
        return self._connections[leader]

    def _connect(self, leader: Broker) -> SimpleConsumer:
        return SimpleConsumer(leader.host, leader.port, self._settings.request_timeout_s, CLIENT_ID)

    def _try(
        self, leader: Broker, partition: int | str, messages: Sequence[KeyValue]
    ) -> tuple[str, int | None] | None:
        """Return None if the batch was accepted, else why not, and the broker that does not lead the partition."""
        connection = self._connection(leader)
        try:
            connection.produce(
                self._topic, partition, messages, codec=self._settings.codec, acks=self._settings.acks,
                timeout_ms=int(self._settings.request_timeout_s * 500),
            )
        except BrokerError as error:
            if not error.retriable:
                raise CliError(f"broker {leader.id} refused {len(messages)} messages: {error}") from error
            return str(error), leader.id
        except ConnectionFailed as error:
            self.doubtful += len(messages)
            return str(error), None
        return None

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
