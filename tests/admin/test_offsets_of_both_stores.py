"""Groups that keep their offsets in Kafka, as administration shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from simpleconsumer import SimpleConsumer, TopicPartition
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import Broker
from zkconsumer.admin import Admin
from zkconsumer.cli.program import program
from zkconsumer.testing import EmbeddedCluster, Fault, load, wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions with ten messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, 2)
    load(embedded_cluster, name, 10)
    return name


def manager_of(cluster: EmbeddedCluster, group: str) -> Broker | None:
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
        try:
            return consumer.consumer_metadata(group)
        except BrokerError:
            return None


def store_in_kafka(cluster: EmbeddedCluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    manager = wait_until(lambda: manager_of(cluster, group), 30.0, "an offset manager")
    with SimpleConsumer(manager.host, manager.port) as consumer:
        consumer.commit_offsets(group, {TopicPartition(topic, at): value for at, value in offsets.items()}, version=1)


def store_in_zookeeper(cluster: EmbeddedCluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    for partition, offset in offsets.items():
        cluster.client.create(f"/consumers/{group}/offsets/{topic}/{partition}", str(offset).encode(), makepath=True)


def test_a_group_with_offsets_in_kafka_alone_is_shown_with_its_offsets(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4, 1: 10})
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        found = admin.describe(fresh_group)
        rows = admin.offsets(fresh_group, topic).partitions
    assert found.partitions == rows
    shown = [(row.partition, row.offset, row.offset_in_zookeeper, row.offset_in_kafka, row.lag) for row in rows]
    assert shown == [(0, 4, None, 4, 6), (1, 10, None, 10, 0)]
    assert (found.lag, found.lag_unknown, found.problems) == (6, 0, ())


def test_each_offset_names_its_store(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 7, 1: 2})
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        rows = admin.describe(fresh_group).partitions
    assert [(row.offset, row.offset_in_zookeeper, row.offset_in_kafka) for row in rows] == [(7, 7, 4), (2, 2, None)]


def test_the_commands_show_both_stores(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 7})
    for command in (["describe"], ["offsets", "get"]):
        arguments = [*command, fresh_group, "--zookeeper", embedded_cluster.zookeeper_connect]
        lines = CliRunner().invoke(program, arguments).stdout.splitlines()
        header = next(line for line in lines if line.startswith("TOPIC"))
        row = next(line for line in lines if line.startswith(topic) and line.split()[1] == "0")
        assert header.split() == ["TOPIC", "PARTITION", "OFFSET", "LOG", "END", "LAG", "IN", "ZOOKEEPER", "IN", "KAFKA",
                                  "OWNER"]
        assert row.split() == [topic, "0", "7", "10", "3", "7", "4", "none"]
        answer = json.loads(CliRunner().invoke(program, [*arguments, "--json"]).stdout)
        first = answer["partitions"][0]
        assert (first["offset"], first["offset_in_zookeeper"], first["offset_in_kafka"]) == (7, 7, 4)


def test_an_offset_manager_that_does_not_answer_is_a_problem_and_no_empty_group(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}-k/ids")
    store_in_kafka(embedded_cluster, f"{fresh_group}-k", topic, {0: 4})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        started_at = time.monotonic()
        found = admin.describe(f"{fresh_group}-k")
        assert time.monotonic() - started_at < 5
        assert [problem for problem in found.problems if problem.startswith("the offsets in Kafka cannot be read: ")]
        # What ZooKeeper has is not wrong because a store that the group may not use does not answer.
        found = admin.describe(fresh_group)
        assert found.problems == ()
        assert [row.offset for row in found.partitions] == [1, None]
