"""A member joins a group whose Java members keep their offsets elsewhere: named before anything is delivered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from consuming import member, owners, produce, read, read_available, texts

from tests.admin.both_stores import in_kafka, in_zookeeper, store_in_kafka
from zkconsumer.admin import Admin
from zkconsumer.offsets import two_stores
from zkconsumer.testing import EmbeddedCluster, Fault, KafkaCluster, wait_until
from zkconsumer.testing.members.java_member import JavaMember

pytestmark = pytest.mark.real

ZOOKEEPER: Mapping[str, str] = {"offsets.storage": "zookeeper"}
KAFKA: Mapping[str, str] = {"offsets.storage": "kafka", "dual.commit.enabled": "false"}


def attributes(storage: Mapping[str, str]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in storage.items()}


class Messages(logging.Handler):
    """Collects warnings with the number of messages that had been delivered when each came."""

    def __init__(self, delivered: Callable[[], int]) -> None:
        super().__init__(logging.WARNING)
        self._delivered = delivered
        self.found: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((self._delivered(), record.getMessage()))


def join_elsewhere(
    cluster: KafkaCluster, group: str, topic: str, java: Mapping[str, str], ours: Mapping[str, str], stale: int | None
) -> None:
    """Java reads all of two partitions; a member of ours with the other storage takes one of them over.

    Args:
        stale: An older offset in the store of ours, as a migration leaves it; None: there is none.
    """
    cluster.create_topic(topic, 2)
    for number in (0, 1):
        produce(cluster, topic, number, [f"{number}-{each}" for each in range(10)])
    settings = {**java, "rebalance.backoff.ms": 2000}
    in_java = in_kafka if java is KAFKA else in_zookeeper
    with Admin(cluster.zookeeper_connect) as admin:
        if stale is not None:
            admin.set_offsets(group, topic, stale, store="kafka" if ours is KAFKA else "zookeeper")
        with JavaMember(cluster, group, topics={topic: 1}, consumer_id="java", settings=settings) as running:
            running.wait_messages(20)
            wait_until(lambda: in_java(cluster, group, topic) == {0: 10, 1: 10}, 30.0, "Java's commit")
            got: list[str] = []
            log = Messages(lambda: len(got))
            logging.getLogger("zkconsumer").addHandler(log)
            try:
                with member(cluster, group, "ours", **attributes(ours)) as one:
                    [stream] = one.create_message_streams({topic: 1})[topic]
                    wait_until(lambda: len(one.status().owned) == 1, 30.0, "ours to own one partition")
                    [owned] = one.status().owned
                    number = int(owned.partition)
                    kafka, zookeeper = (10, stale) if java is KAFKA else (stale, 10)
                    figures = f"{kafka if kafka is not None else 'none'} in Kafka and " \
                              f"{zookeeper if zookeeper is not None else 'none'} in ZooKeeper"  # fmt: skip
                    [warning] = wait_until(lambda: one.status().warnings, 10.0, "a warning", state=one.status)
                    assert f"first of {topic}-{number}: {figures}" in warning
                    assert "members of this group may store their offsets elsewhere (offsets.storage)" in warning
                    # As Java does, it continues in its own store.
                    got += texts(read(stream, 10 - (stale or 0)))
                    assert got == [f"{number}-{each}" for each in range(stale or 0, 10)]
                    one.commit_offsets()
                    found = admin.describe(group)
                    storages = {row.partition: row.storage for row in found.partitions}
                    assert storages[number] in (None, "kafka" if ours is KAFKA else "zookeeper")
            finally:
                logging.getLogger("zkconsumer").removeHandler(log)
            named = [(count, text) for count, text in log.found if f"offset of {topic}-{number} is {figures}" in text]
            assert [count for count, _ in named] == [0]
            running.stop()


def refuse_elsewhere(cluster: KafkaCluster, group: str, topic: str) -> None:
    """With `offsets.intent=refuse` nothing is delivered while the stores differ."""
    cluster.create_topic(topic, 1)
    produce(cluster, topic, 0, [str(each) for each in range(10)])
    with JavaMember(cluster, group, topics={topic: 1}, consumer_id="java", settings=KAFKA) as running:
        running.wait_messages(10)
        running.stop()
    wait_until(lambda: owners(cluster, group, topic) == {}, 30.0, "Java to leave")
    with (
        Admin(cluster.zookeeper_connect) as admin,
        member(cluster, group, "ours", offsets_intent="refuse", zookeeper_connection_timeout_ms=2000) as one,
    ):
        [stream] = one.create_message_streams({topic: 1})[topic]
        [owned] = one.status().owned
        assert owned.error == "its offset is 10 in Kafka and none in ZooKeeper, and offsets.intent is refuse"
        assert read_available(stream) == []
        # The operator decides: these offsets count, here.
        operator = threading.Thread(
            target=lambda: admin.set_offsets(group, topic, 9, store="both", force=True, warn=lambda _: None)
        )
        operator.start()
        assert texts(read(stream, 1)) == ["9"]
        operator.join()


@pytest.mark.parametrize("stale", [None, 4])
@pytest.mark.parametrize(("java", "ours"), [(KAFKA, ZOOKEEPER), (ZOOKEEPER, KAFKA)], ids=["in-kafka", "in-zookeeper"])
def test_a_member_names_that_java_members_store_elsewhere_before_it_delivers(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    fresh_topic: Callable[[], str],
    java: Mapping[str, str],
    ours: Mapping[str, str],
    stale: int | None,
) -> None:
    join_elsewhere(kafka_0822, fresh_group, fresh_topic(), java, ours, stale)


def test_a_member_that_refuses_delivers_nothing_until_the_operator_has_decided(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_stores, "_READ_AGAIN_S", 0.5)
    refuse_elsewhere(kafka_0822, fresh_group, fresh_topic())


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.9.0.1", "1.1.1"])
def test_members_of_later_java_versions_that_store_elsewhere_are_named(version: str) -> None:
    with KafkaCluster(version, brokers=1) as cluster:
        join_elsewhere(cluster, "g-kafka", "t-kafka", KAFKA, ZOOKEEPER, None)
        join_elsewhere(cluster, "g-zookeeper", "t-zookeeper", ZOOKEEPER, KAFKA, 4)
        refuse_elsewhere(cluster, "g-refuse", "t-refuse")


def test_a_comparison_that_fails_is_named_and_delays_nothing(
    embedded_cluster: EmbeddedCluster,
    fresh_group: str,
    fresh_topic: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 1)
    sent = produce(embedded_cluster, topic, 0, ["a", "b"])
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    with member(embedded_cluster, fresh_group) as one:
        started_at = time.monotonic()
        assert texts(read(one.create_message_streams({topic: 1})[topic], 2)) == sent
        assert time.monotonic() - started_at < 6
    assert "the offsets of 1 partitions are not compared with those in Kafka: " in caplog.text
