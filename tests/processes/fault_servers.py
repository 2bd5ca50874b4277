"""The servers that fault scenarios run on: Kafka 0.8.2.2, 2.8.2, 3.9.2, and Kafka 0.7, on ZooKeeper 3.9 or 3.3.

Kafka 0.7 is embedded or real. Kafka 2 and later have no Java members of ZooKeeper's groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from fault_players import CASTS
from kafka_07 import cluster_07, needs_jar_07

from rebalance.zookeeper.znodes_07 import GENERATION_07, GENERATION_08, Generation
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.known_versions import is_07
from zkconsumer.testing.zookeeper import ZooKeeperServer

__all__ = ["KAFKA_07_REAL", "KAFKA_08", "PARTITIONS", "OF_TODAY", "SERVERS", "AnyCluster", "Servers", "servers_of"]

AnyCluster = KafkaCluster | EmbeddedCluster
BROKERS = 2
PARTITIONS = 8
"""Of the topic of a scenario; in Kafka 0.7 half of them on each broker."""


@dataclass(frozen=True)
class Servers:
    """Two brokers of one kind on a ZooKeeper of one version.

    Attributes:
        name: as in the report.
        zookeeper: the jars of ZooKeeper; None takes those of 3.9.
        kind: of the brokers: `real`, or `embedded` ones of Kafka 0.7.
        casts: which groups can be on them: Java members need a jar.
        version: of brokers that number messages.
    """

    name: str
    generation: Generation
    zookeeper: str | None
    kind: str
    casts: tuple[str, ...]
    version: str = "0.8.2.2"

    @property
    def marks(self) -> Sequence[pytest.MarkDecorator]:
        """Of tests on them: real brokers of Kafka 0.7 need a jar."""
        return [needs_jar_07] if self.generation is GENERATION_07 and self.kind == "real" else []

    @contextmanager
    def running(self, settings: Mapping[str, object]) -> Iterator[AnyCluster]:
        """A cluster of its own with these settings of the brokers."""
        with ExitStack() as stack:
            server = stack.enter_context(ZooKeeperServer(version=self.zookeeper))
            cluster: AnyCluster
            if self.generation is GENERATION_08:
                cluster = KafkaCluster(self.version, BROKERS, zookeeper=server, settings=settings)
            else:
                each = {"num.partitions": PARTITIONS // BROKERS, **settings}
                cluster = cluster_07(self.kind, BROKERS, zookeeper=server, settings=each)
            yield stack.enter_context(cluster)


KAFKA_08 = Servers("0.8.2.2", GENERATION_08, None, "real", tuple(CASTS))
KAFKA_07_REAL = Servers("0.7 ZK 3.3", GENERATION_07, "zk-3.3.6", "real", tuple(CASTS))
"""The combination that was usual: ZooKeeper 3.3 has no transactions."""

OF_TODAY = tuple(Servers(version, GENERATION_08, None, "real", ("ours",), version) for version in ("2.8.2", "3.9.2"))
"""Brokers with record batches, and with requests in versions of their own."""

SERVERS = (
    KAFKA_08,
    *OF_TODAY,
    Servers("0.7 emb.", GENERATION_07, None, "embedded", ("ours",)),
    Servers("0.7 emb. ZK 3.3", GENERATION_07, "zk-3.3.6", "embedded", ("ours",)),
    KAFKA_07_REAL,
)


def servers_of(version: str) -> Servers:
    """The real servers whose generation a version of Kafka has."""
    return KAFKA_07_REAL if is_07(version) else KAFKA_08
