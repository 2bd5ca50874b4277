"""Transactions for the tests of Spark, written by confluent-kafka: committed, aborted, or left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from zkconsumer.testing.kafka import KafkaCluster

confluent_kafka = pytest.importorskip("confluent_kafka")

PATIENCE_S = 60
Header = tuple[str, bytes | None]


class Log:
    """A topic, who writes to it, and what readers of committed messages get of it.

    Attributes:
        place: The options of the source that name the cluster: by brokers where it has no ZooKeeper.
        committed: The values that readers of committed messages get of partition 0.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int = 1) -> None:
        self.cluster, self.topic = cluster, topic
        self.brokers = cluster.addresses()
        self.place = ({"kafka.bootstrap.servers": self.brokers} if cluster.is_kraft
                      else {"zookeeper.connect": cluster.zookeeper_connect})  # fmt: skip
        self.committed: list[bytes] = []
        cluster.create_topic(topic, partitions=partitions)
        cluster.wait_leaders(topic, range(partitions))
        self._plain = confluent_kafka.Producer({"bootstrap.servers": self.brokers})
        self._count = 0

    def plain(self, *values: bytes | None, headers: Sequence[Header] | None = None, partition: int = 0) -> None:
        """Write messages outside of any transaction."""
        self.send(self._plain, values, headers, partition)
        if partition == 0:
            self.committed += [value for value in values if value is not None]

    def send(
        self, producer: Any, values: Sequence[bytes | None], headers: Sequence[Header] | None = None, partition: int = 0
    ) -> None:
        """Write messages, in the transaction of the producer if it has one open."""
        for value in values:
            producer.produce(self.topic, value, partition=partition, headers=headers)
        assert producer.flush(PATIENCE_S) == 0

    def opened(self, *values: bytes, headers: Sequence[Header] | None = None, partition: int = 0) -> Any:
        """Write messages in a transaction that stays open; return its producer."""
        self._count += 1
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.brokers, "transactional.id": f"{self.topic}-{self._count}"}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        self.send(producer, values, headers, partition)
        return producer

    def aborted(self, *values: bytes) -> None:
        """Write messages in a transaction, and abort it."""
        self.opened(*values).abort_transaction(PATIENCE_S)

    def kept(self, *values: bytes, headers: Sequence[Header] | None = None) -> None:
        """Write messages in a transaction, and commit it."""
        self.opened(*values, headers=headers).commit_transaction(PATIENCE_S)
        self.committed += values
