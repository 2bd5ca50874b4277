"""The part of an embedded cluster that differs between generations of Kafka: leaders, topics and their registration.

`coordination_08.Coordination08` has a controller. In Kafka 0.7 every broker registers itself and the topics of which it
has logs: `kafka07.coordination.Coordination07`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kazoo.client import KazooClient

from zkconsumer.testing.embedded.broker import EmbeddedBroker
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin


class Place(Protocol):
    """Where a cluster is.

    Attributes:
        chroot: path in ZooKeeper under which it lives, or nothing.
        folder: holds the data folders of its brokers.
        timeout_s: longest wait for a leader.
        login: how its clients authenticate to ZooKeeper.
    """

    chroot: str
    folder: Path
    timeout_s: float
    login: ZooKeeperLogin | None

    @property
    def has_zookeeper(self) -> bool:
        """False for a cluster that does without."""

    @property
    def zookeeper_hosts(self) -> str:
        """Connect string without the chroot."""


class Coordination(Protocol):
    """Brokers of one generation, their registration and their topics.

    Threads: every method from any thread.
    """

    @property
    def brokers(self) -> Mapping[int, EmbeddedBroker]:
        """The brokers by id."""

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client; KitError before the start, or without ZooKeeper."""

    @property
    def started(self) -> bool:
        """True between `start()` and `close()`."""

    def start(self) -> None:
        """Connect to ZooKeeper; does nothing when it is started."""

    def freeze(self) -> None:
        """From now on nothing is moved or registered: the cluster ends."""

    def close(self) -> None:
        """End all sessions."""

    def start_broker(self, broker_id: int) -> None:
        """Start a broker; returns when it is registered, with all that falls to it."""

    def stop_broker(self, broker_id: int) -> None:
        """End a broker in order; returns when its id node is gone."""

    def kill_broker(self, broker_id: int, *, expire: bool) -> None:
        """End a broker as SIGKILL does; with `expire` its session ends at once."""

    def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication: int,
        assignment: Mapping[int, Sequence[int]] | None,
        config: Mapping[str, object] | None,
    ) -> dict[int | str, int]:
        """Partition -> leader of a new topic."""

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order; KitError without the topic."""

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition as it is registered."""

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition."""

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> leader, once all of these have one."""
