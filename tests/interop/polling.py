"""Consumers that are polled, on groups that brokers or ZooKeeper coordinate: what their tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerRecord, KafkaConsumer, RebalanceCallbacks
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 40.0
VERSIONS = ["4.3.1", "0.8.2.2", *(pytest.param(version, marks=pytest.mark.slow)
                                  for version in ("0.9.0.1", "1.1.1", "3.9.2"))]  # fmt: skip
"""Clusters whose groups are tried: from 0.9 on brokers coordinate them."""


def settings_of(cluster: KafkaCluster, group: str | None, **more: Any) -> dict[str, Any]:
    """Settings of a consumer: of a group of brokers, or in ZooKeeper where the brokers know no groups."""
    found: dict[str, Any] = {"auto_offset_reset": "earliest", **more}
    if group is not None:
        found["group_id"] = group
    if cluster.version == "0.8.2.2":
        found |= {"zookeeper_connect": cluster.zookeeper_connect}
    else:
        found |= {"bootstrap_servers": address_of(cluster), "heartbeat_interval_ms": 500}
        if cluster.version == "0.9.0.1":  # its brokers allow sessions of up to 30 s
            found = {"session_timeout_ms": 30_000, **found}
    return {name: value for name, value in found.items() if value is not None}


def address_of(cluster: KafkaCluster) -> str:
    return f"127.0.0.1:{cluster.port(0)}"


def consumer_of(cluster: KafkaCluster, group: str | None, *topics: str, **more: Any) -> KafkaConsumer:
    return KafkaConsumer(*topics, **settings_of(cluster, group, **more))


def poll_until(consumer: KafkaConsumer, count: int, timeout_s: float = PATIENCE_S) -> list[ConsumerRecord[Any, Any]]:
    """The next records, at least so many."""
    found: list[ConsumerRecord[Any, Any]] = []

    def come() -> bool:
        found.extend(consumer.poll(100))
        return len(found) >= count

    wait_until(come, timeout_s, f"{count} records", interval_s=0.0, state=lambda: len(found))
    return found


def offsets(records: Collection[ConsumerRecord[Any, Any]], partition: int = 0) -> list[int]:
    return [record.offset for record in records if record.partition == partition]


def stored(cluster: KafkaCluster, group: str, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
    """The committed offsets of a group, as another consumer sees them."""
    if cluster.version == "0.8.2.2":
        found: dict[TopicPartition, int | None] = {}
        for name in partitions:
            path = f"/consumers/{group}/offsets/{name.topic}/{name.partition}"
            found[name] = int(cluster.client.get(path)[0]) if cluster.client.exists(path) else None
        return found
    with consumer_of(cluster, group) as other:
        answer = other.committed(partitions)
    return {name: None if at is None else at.offset for name, at in answer.items()}


class Seen(RebalanceCallbacks):
    """What the callbacks of a consumer were called about."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", frozenset(partitions)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", frozenset(partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", frozenset(partitions)))

    def of(self, kind: str) -> list[frozenset[TopicPartition]]:
        return [partitions for name, partitions in self.calls if name == kind]

    @property
    def held(self) -> frozenset[TopicPartition]:
        """What the callbacks say the consumer has."""
        found: frozenset[TopicPartition] = frozenset()
        for kind, partitions in self.calls:
            assert (found & partitions == frozenset()) if kind == "assigned" else (partitions <= found), self.calls
            found = found | partitions if kind == "assigned" else found - partitions
        return found


class Polling:
    """A consumer that a thread of its own polls until `stop`.

    Args:
        after: Called when the records of a poll are done.
    """

    def __init__(self, consumer: KafkaConsumer, after: Callable[[], object] = lambda: None) -> None:
        self.consumer = consumer
        self._after = after
        self.records: list[ConsumerRecord[Any, Any]] = []
        self.errors: list[BaseException] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="polling", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.records += self.consumer.poll(100)
                self._after()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)

    def stop(self) -> None:
        """End polling; what the last poll has returned is in hand."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.errors:
            raise self.errors[0]


EARLIER: set[threading.Thread] = set()
"""The threads from before the test of now (`conftest.py`): another test is to answer for them."""
_OF_NO_CONSUMER = ("zkconsumer-producer", "zkconsumer-probe", "zkconsumer-coordinators", "zkconsumer-offset-managers")
"""The test kit keeps idle producers, and administration does not wait for the end of threads that have answered it."""


def threads_of() -> list[threading.Thread]:
    """The threads that consumers of this test have left."""
    return [each for each in threading.enumerate()
            if each.name.startswith("zkconsumer") and not each.name.startswith(_OF_NO_CONSUMER)
            and each not in EARLIER]  # fmt: skip
