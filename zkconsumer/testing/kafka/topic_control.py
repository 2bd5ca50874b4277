"""Creates, grows and deletes topics and moves leaders, in ZooKeeper or by requests to brokers.

The leaders of a topic that all running brokers agree on, and that serve requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka import probe
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.waiting import wait_until


class TopicControl(Protocol):
    """The topics of a running cluster of Kafka 0.8 or later."""

    def create(self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, object]) -> None:
        """Create a topic; KitError if it exists."""

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """Partition -> replicas; empty if there is no such topic."""

    def grow(self, topic: str, added: Mapping[int, Sequence[int]]) -> None:
        """Add partitions with these replicas."""

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when it can be created anew."""

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader of a partition; None without one."""

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Give a partition other replicas; returns when they have its messages."""

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Have the first replica lead."""


class TopicsInZooKeeper:
    """Topics of a cluster with ZooKeeper: nodes that its controller acts on.

    Args:
        client: returns the cluster's client, inside the chroot.
        timeout_s: longest wait for the controller.
    """

    def __init__(self, client: Callable[[], KazooClient], timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def create(self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, object]) -> None:
        """Write the nodes of a topic; KitError if it exists."""
        try:
            kafka_topics.create(self._client(), topic, assignment, config)
        except NodeExistsError:
            raise KitError(f"topic {topic} exists already") from None

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """Partition -> replicas as ZooKeeper has it; empty if there is no such topic."""
        return kafka_topics.assignment_of(self._client(), topic)

    def grow(self, topic: str, added: Mapping[int, Sequence[int]]) -> None:
        """Add partitions with these replicas."""
        kafka_topics.grow(self._client(), topic, added)

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when its nodes are gone."""
        client = self._client()
        kafka_topics.mark_for_deletion(client, topic)
        # The controller deletes the mark last, after the topic's settings, over which a new topic would fail.
        paths = (kafka_topics.topic_path(topic), kafka_topics.deletion_path(topic))
        wait_until(lambda: not any(map(client.exists, paths)), self._timeout_s, f"topic {topic} to be deleted")

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader as ZooKeeper has it; None without one."""
        return kafka_topics.leader_in_zookeeper(self._client(), topic, partition)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Give a partition other replicas; returns when the controller is done."""
        kafka_topics.reassign(self._client(), topic, partition, replicas)
        self._wait_gone(kafka_topics.REASSIGN, f"replicas {list(replicas)} of {topic}/{partition}")

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Have the first replica lead; returns when the controller is done."""
        kafka_topics.elect_preferred(self._client(), topic, partition)
        self._wait_gone(kafka_topics.ELECTION, f"the election of a leader of {topic}/{partition}")

    def _wait_gone(self, path: str, what: str) -> None:
        wait_until(lambda: self._client().exists(path) is None, self._timeout_s, f"{what} (node {path})")


class TopicsByRequests:
    """Topics of a cluster without ZooKeeper: requests to one of its brokers, which hands them to the controller.

    Args:
        ports: returns the ports of the brokers that answer.
        timeout_s: longest wait for the controller.
    """

    def __init__(self, ports: Callable[[], Sequence[int]], timeout_s: float) -> None:
        self._ports = ports
        self._timeout_s = timeout_s

    def create(self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, object]) -> None:
        """Create a topic; KitError if it exists."""
        if probe.create_topic(self._port(), topic, assignment, config) == probe.TOPIC_EXISTS:
            raise KitError(f"topic {topic} exists already")

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """Partition -> replicas as a broker names them; empty if there is no such topic."""
        return {number: list(each.replicas) for number, each in self._partitions(topic).items()}

    def grow(self, topic: str, added: Mapping[int, Sequence[int]]) -> None:
        """Add partitions with these replicas."""
        probe.add_partitions(self._port(), topic, added)

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when no broker knows it."""
        probe.delete_topic(self._port(), topic)
        gone = partial(self._unknown_everywhere, topic)
        wait_until(gone, self._timeout_s, f"topic {topic} to be deleted")

    def _unknown_everywhere(self, topic: str) -> bool:
        return not any(probe.partitions_known(port, topic) for port in self._ports())

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader that a broker names; None without one."""
        known = self._partitions(topic).get(partition)
        return None if known is None or known.leader < 0 else known.leader

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Give a partition other replicas; returns when they have its messages."""
        probe.reassign(self._port(), topic, partition, replicas)
        is_done = partial(self._is_filled, topic, partition, replicas)
        wait_until(is_done, self._timeout_s, f"replicas {list(replicas)} of {topic}/{partition}")

    def _is_filled(self, topic: str, partition: int, replicas: Sequence[int]) -> bool:
        if probe.is_reassigned(self._port(), topic, partition):
            return False
        return self.assignment(topic).get(partition) == list(replicas)

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Have the first replica lead."""
        probe.elect_preferred(self._port(), topic, partition)

    def _partitions(self, topic: str) -> dict[int, kafka_probe.PartitionAnswer]:
        return probe.partitions_known(self._port(), topic)

    def _port(self) -> int:
        ports = self._ports()
        if not ports:
            raise KitError("no broker of the cluster runs")
        return ports[0]


_FIRST_WITH_OFFSETS_1 = (0, 10, 1)


def agreed_leaders(
    brokers: Mapping[int, KafkaServerProcess], topic: str, partitions: Sequence[int], seen: dict[int, object]
) -> dict[int | str, int] | None:
    """Partition -> leader, if every running broker names the same leaders and those serve requests; None if not.

    Args:
        seen: is filled with what each broker said, for the error of whoever waits.
    """
    seen.clear()
    agreed: dict[int, int] = {}
    for broker in brokers.values():
        if not broker.running or broker.process.paused:
            continue
        try:
            told = kafka_probe.topic_leaders(broker.port, topic)
        except OSError as error:
            seen[broker.broker_id] = error
            return None
        seen[broker.broker_id] = told
        for partition in partitions:
            if partition not in told or told[partition].leader < 0:
                return None
            leader = told[partition].leader
            if agreed.setdefault(partition, leader) != leader:
                return None
    return dict(agreed.items()) if agreed and _lead(brokers, topic, agreed) else None


def _lead(brokers: Mapping[int, KafkaServerProcess], topic: str, leaders: Mapping[int, int]) -> bool:
    """True if each leader answers for its partitions itself."""
    for broker_id in set(leaders.values()):
        broker = brokers.get(broker_id)
        mine = [partition for partition, leader in leaders.items() if leader == broker_id]
        if broker is None or not broker.running:
            return False
        version = int(version_tuple(broker.version) >= _FIRST_WITH_OFFSETS_1)
        try:
            errors = kafka_probe.offset_errors(broker.port, topic, mine, version=version)
        except OSError:
            return False
        if set(errors) != set(mine) or any(errors.values()):
            return False
    return True
