"""Runs Java's KafkaConsumer as a member of a group that brokers coordinate, for tests of mixed groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import NotSupported
from zkconsumer.testing.history.events import parse_event
from zkconsumer.testing.kafka.known_versions import kafka_jars
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.members.java_member import JavaProgram
from zkconsumer.testing.processes import ChildProcess

SOURCE = Path(__file__).with_name("KafkaMember.java")
FIRST_VERSION = (0, 9)

ASSIGNORS: Mapping[str, str] = {
    "range": "RangeAssignor", "roundrobin": "RoundRobinAssignor", "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}  # fmt: skip


class KafkaJavaMember(JavaProgram):
    """A KafkaConsumer of the cluster's version in a process of its own: Kafka 0.9 and later.

    It writes down what it was assigned, delivered and gave up, under its `consumer_id`. Of partitions that it has lost
    clients before Kafka 2.4 say that they are revoked.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        consumer_id: str | None = None,
        *,
        bootstrap_servers: str,
        topics: Sequence[str],
        settings: Mapping[str, object] | None = None,
        work_ms: int = 0,
        timeout_s: float = 60.0,
    ) -> None:
        """Prepare a member; `start()` (or the `with` block) starts it.

        Args:
            topics: The topics that it subscribes to.
            settings: Properties of the KafkaConsumer. They override the ones that every member has. Names of assignors
                may be those of this project.
            work_ms: How long the application works on each message.

        Raises:
            NotSupported: The version has no KafkaConsumer.
        """
        if version_tuple(cluster.version) < FIRST_VERSION:
            raise NotSupported(f"a KafkaConsumer exists in Kafka 0.9 and later, this is {cluster.version}")
        super().__init__(cluster, group, consumer_id, id_prefix="java", timeout_s=timeout_s)
        self.version = cluster.version
        self._topics = ",".join(topics)
        self._work_ms = work_ms
        chosen = {
            "bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": self.consumer_id,
            "auto.offset.reset": "earliest", "enable.auto.commit": "true", **(settings or {}),
        }  # fmt: skip
        strategy = chosen.get("partition.assignment.strategy")
        if strategy is not None:
            names = [each.strip() for each in str(strategy).split(",")]
            chosen["partition.assignment.strategy"] = ",".join(
                f"org.apache.kafka.clients.consumer.{ASSIGNORS[each]}" if each in ASSIGNORS else each for each in names
            )
        self._properties = chosen

    def _launched(self) -> ChildProcess:
        return self._run(
            f"KafkaConsumer {self.id}", SOURCE, self.version, kafka_jars(self.version), self._properties,
            [self._topics, self.consumer_id, str(self._work_ms)],
        )  # fmt: skip

    def _take(self, line: str) -> None:
        if not line.startswith("#"):
            self._events.append(parse_event(line))
        elif line.split(" ")[2] == "ready":
            self._ready = True
