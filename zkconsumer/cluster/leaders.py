"""Looks up partition leaders: in metadata answers of the brokers first, then in ZooKeeper; in Kafka 0.7 by name.

Rules, and which failure each prevents:
- A metadata request always names topics, and only topics that exist in ZooKeeper: an empty list means all topics, and
  brokers create a topic that they are asked about (KAFKA-1087, KAFKA-101).
- Broker addresses come from ZooKeeper: a broker that came back on another port has registered the new port, while other
  brokers may still report the old one (KAFKA-474).
- A broker that has just denied leading a partition is taken for its leader only if ZooKeeper names it too (KAFKA-1367).
- The name of a partition of Kafka 0.7, `broker-partition`, says which broker has it; there is no metadata.
- The broker with the fewest requests under way is asked first (`AskingOrder`), and each has a few seconds to answer.

Source: kafka.client.ClientUtils (0.8.2.2).

The order in which brokers are asked a question that any of them can answer.

First come those with the fewest requests of this process under way, of fetches and producers too, in random order among
equals; last come brokers that did not answer the last time. One slow broker delays few callers, and a dead one none
twice.

Source: org.apache.kafka.clients.NetworkClient.leastLoadedNode (2.8); KAFKA-714.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from rebalance.rebalance_statistics import Counters
from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.connection import UNDER_WAY, Address, RequestsUnderWay
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import counting
from simpleconsumer.types import Broker, ClusterMetadata, PartitionMetadata, TopicPartition


class AskingOrder:
    """Remembers which brokers did not answer.

    Args:
        rng: Chooses among equals.
        under_way: Counts the requests; None for those of this process.

    Threads: any.
    """

    def __init__(self, rng: random.Random | None = None, under_way: RequestsUnderWay | None = None) -> None:
        self._rng = rng or random.Random()
        self._under_way = under_way or UNDER_WAY
        self._lock = threading.Lock()
        self._silent: set[Address] = set()

    def of(self, addresses: Iterable[Address]) -> list[Address]:
        """Return the addresses in the order in which they are to be asked, each once."""
        with self._lock:
            return sorted(dict.fromkeys(addresses), key=self._rank)

    def failed(self, address: Address) -> bool:
        """Take over that a broker did not answer; return whether that is new."""
        with self._lock:
            is_news = address not in self._silent
            self._silent.add(address)
            return is_news

    def answered(self, address: Address) -> None:
        """Take over that a broker answered."""
        with self._lock:
            self._silent.discard(address)

    def keep(self, addresses: Iterable[Address]) -> None:
        """Forget all but these: another broker may come to an address."""
        with self._lock:
            self._silent.intersection_update(addresses)

    def _rank(self, address: Address) -> tuple[bool, int, float]:
        return address in self._silent, self._under_way.at(address), self._rng.random()


log = logging.getLogger(__name__)
METADATA_TIMEOUT_S: Final = 3.0
"""Longest wait for one broker's metadata; there are other brokers to ask."""
_USABLE_CODES: Final = (0, 9)  # 9: a replica is down; the leader serves all the same


class LeaderDirectory(Protocol):
    """Finds the leaders of partitions.

    Attributes:
        reported: The leaders of all partitions of the topics of the last call, as a broker reported them.
        epochs: The epochs of these leaders, as far as they are known (Kafka 2.1 and later).
        brokers: By id, the brokers that were known at the last call; never changed in place.

    Threads: One at a time (in a consumer, the leader finder).
    """

    reported: dict[TopicPartition, Broker]
    epochs: dict[TopicPartition, int]
    brokers: Mapping[int, Broker]

    def leaders(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        """Return the leaders that could be found.

        Args:
            wanted: Partition -> the broker id that has just denied leading it, or None.

        Raises:
            RebalanceError: Neither ZooKeeper nor a broker answers.
        """


class BrokerDirectory:
    """Finds the leaders of partitions.

    Args:
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one broker, in seconds; three seconds are the most that is used.
        read_brokers: Returns the brokers registered in ZooKeeper.
        existing_topics: Returns those of the given topics that exist in ZooKeeper.
        read_leaders: Returns the broker ids in the state nodes of partitions, without partitions that have no leader.
        read_epochs: Returns the epochs of the leaders that the last call of `read_leaders` has returned.
        rng: Chooses the order in which brokers are asked.
        counters: Counts requests and errors.
        security: TLS and SASL of connections to brokers; None for neither.

    The three readers have their own deadlines and raise RebalanceError when ZooKeeper does not answer.

    Attributes:
        reported: The leaders of all partitions of the topics of the last call, as a broker reported them.
        epochs: The epochs of all leaders of the last call, as far as they are known.
        brokers: By id, the brokers that were registered at the last call; never changed in place.

    Threads: One at a time (in a consumer, the leader finder).
    """

    def __init__(
        self,
        client_id: str,
        timeout_s: float,
        read_brokers: Callable[[], list[Broker]],
        existing_topics: Callable[[Sequence[str]], Collection[str]],
        read_leaders: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
        rng: random.Random | None = None,
        counters: Counters | None = None,
        security: Security | None = None,
        read_epochs: Callable[[], Mapping[TopicPartition, int]] = dict,
    ) -> None:
        self._security = security
        self._read_brokers = read_brokers
        self._existing_topics = existing_topics
        self._read_leaders = read_leaders
        self._read_epochs = read_epochs
        self._order = AskingOrder(rng)
        self._counters = counters or Counters()
        self._client_id = client_id
        self._timeout_s = min(timeout_s, METADATA_TIMEOUT_S)
        self.reported: dict[TopicPartition, Broker] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.brokers: Mapping[int, Broker] = {}

    def leaders(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        """Return the leaders that could be found, by one metadata request and one read of ZooKeeper.

        Args:
            wanted: Partition -> the broker id that has just denied leading it, or None.

        Raises:
            RebalanceError: ZooKeeper does not answer.
        """
        self.reported, self.epochs = {}, {}
        named = [partition for partition in wanted if isinstance(partition.partition, str)]
        if named:
            numbered = {each: denied for each, denied in wanted.items() if not isinstance(each.partition, str)}
            return self._by_name(named) | (self.leaders(numbered) if numbered else {})
        topics = sorted(self._existing_topics(sorted({name for name, _ in wanted})))
        if not topics:
            return {}
        brokers = self.brokers = {broker.id: broker for broker in self._read_brokers()}
        self._order.keep((broker.host, broker.port) for broker in brokers.values())
        metadata = self._metadata(topics, brokers.values())
        leaders, self.epochs = usable_leaders(metadata), leader_epochs(metadata)
        self.reported = {partition: brokers[leader] for partition, leader in leaders.items() if leader in brokers}
        found: dict[TopicPartition, Broker] = {}
        doubtful: list[TopicPartition] = []
        known = set(topics)
        for partition, denied_by in wanted.items():
            reported = self.reported.get(partition)
            if reported is not None and reported.id != denied_by:
                found[partition] = reported
            elif partition.topic in known:
                doubtful.append(partition)
                self.epochs.pop(partition, None)
        for partition, leader in self._read_leaders(doubtful).items():
            if leader in brokers:
                found[partition] = brokers[leader]
        if doubtful:
            self.epochs |= {name: epoch for name, epoch in self._read_epochs().items() if name in doubtful}
        return found

    def _by_name(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Broker]:
        """Return the brokers of partitions of Kafka 0.7, whose names say them, as far as they are registered."""
        brokers = {broker.id: broker for broker in self._read_brokers()}
        found = {each: brokers.get(broker_and_number(each.partition)[0]) for each in partitions}
        return {partition: broker for partition, broker in found.items() if broker is not None}

    def _metadata(self, topics: list[str], brokers: Collection[Broker]) -> ClusterMetadata | None:
        """Return the metadata of the first broker that answers; None when no broker answers."""
        by_address = {(broker.host, broker.port): broker for broker in brokers}
        for address in self._order.of(by_address):
            broker = by_address[address]
            self._counters.add("broker_requests", "metadata")
            try:
                dialect = dialect_of(broker)
                with SimpleConsumer(
                    broker.host,
                    broker.port,
                    self._timeout_s,
                    self._client_id,
                    dialect=dialect,
                    security=self._security,
                    on_throttle=counting(self._counters.add),
                ) as consumer:
                    metadata = consumer.topic_metadata(topics, create=not dialect.chooses_versions)
            except SimpleConsumerError as error:
                self._counters.add("errors", "broker_connection")
                if self._order.failed(address):
                    log.warning("broker %d does not answer a metadata request: %s", broker.id, error)
            else:
                self._order.answered(address)
                return metadata
        return None


def usable_leaders(metadata: ClusterMetadata | None) -> dict[TopicPartition, int]:
    """Return the usable leaders of a metadata answer."""
    if metadata is None:
        return {}
    return {
        TopicPartition(topic.topic, row.partition): row.leader
        for topic in metadata.topics.values()
        for row in topic.partitions
        if row.leader is not None and _is_usable(row)
    }


def leader_epochs(metadata: ClusterMetadata | None) -> dict[TopicPartition, int]:
    """Return the epochs of leaders in a metadata answer, as far as it holds them."""
    if metadata is None:
        return {}
    return {
        TopicPartition(topic.topic, row.partition): row.leader_epoch
        for topic in metadata.topics.values()
        for row in topic.partitions
        if row.leader_epoch >= 0
    }


def _is_usable(row: PartitionMetadata) -> bool:
    return row.error_code in _USABLE_CODES
