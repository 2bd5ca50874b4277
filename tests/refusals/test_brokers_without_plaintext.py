"""Every command at a cluster whose only broker has no PLAINTEXT listener: a sentence that names it, and no guess."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from every_command import SERVICES, every_command, run_one
from kazoo.client import KazooClient
from secured import PATIENCE_S

from simpleconsumer.consumer import EARLIEST
from simpleconsumer.types import TopicPartition
from zkconsumer import PartitionStopped, ReadFailed, read_topic
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.spark.errors import PlanningFailed
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.connections import search_leader
from zkconsumer.spark.reading.leader_queries import LeaderQueries
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

STATE = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
NODES = {
    "/brokers/ids/0": json.dumps({
        "jmx_port": -1, "timestamp": "1", "endpoints": ["SSL://127.0.0.1:9093"], "host": None, "version": 4, "port": -1,
        "listener_security_protocol_map": {"SSL": "SSL"},
    }).encode(),
    "/brokers/topics/topic": b'{"version":1,"partitions":{"0":[0]}}',
    "/brokers/topics/topic/partitions/0/state": STATE,
    "/consumers/group/offsets/topic/0": b"1",
}  # fmt: skip
PARTITION = TopicPartition("topic", 0)
NAMED = "it has no PLAINTEXT listener (/brokers/ids/0); security.protocol chooses the listener"
CANNOT_BE_ASKED = f"its leader, broker 0, cannot be used: {NAMED}"
ASK_BROKERS = ["consume", "produce", "describe", "verify", "lag", "topics list", "offsets get", "load"]
"""Commands that cannot do their work without a broker."""


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[str]:
    client = KazooClient(zookeeper.connect)
    client.start(timeout=PATIENCE_S)
    for path, data in NODES.items():
        client.create(f"/{fresh_group}{path}", data, makepath=True)
    yield f"{zookeeper.connect}/{fresh_group}"
    client.delete(f"/{fresh_group}", recursive=True)
    client.stop()
    client.close()


@pytest.fixture
def two_brokers(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[EmbeddedCluster]:
    """A cluster whose broker 0 leads the topic."""
    with EmbeddedCluster(2, zookeeper=zookeeper, chroot=f"/{fresh_group}") as cluster:
        cluster.create_topic("topic", assignment={0: [0]})
        yield cluster


@pytest.fixture
def half_open(two_brokers: EmbeddedCluster) -> str:
    """A cluster whose broker 1 answers, and whose broker 0, the leader of the topic, has no PLAINTEXT listener."""
    start_without_plaintext(two_brokers)
    return two_brokers.zookeeper_connect


def start_without_plaintext(cluster: EmbeddedCluster) -> None:
    """Replace broker 0 by one that cannot be asked."""
    cluster.kill(0, expire=True)
    client, [id_node, *_] = cluster.client, NODES
    wait_until(lambda: client.exists(id_node) is None, PATIENCE_S, "the end of broker 0")
    client.create(id_node, NODES[id_node])
    client.set("/brokers/topics/topic/partitions/0/state", STATE)


@pytest.mark.parametrize("name", [each for each in every_command() if each not in {*SERVICES, "load", "topics delete"}])
def test_the_broker_is_named(cluster: str, name: str) -> None:
    ran = run_one(name, "--zookeeper", cluster)
    said = ran.stdout + ran.stderr
    assert "bug in zkconsumer" not in said
    assert "Traceback" not in said
    assert "no broker is registered" not in said
    assert "no broker leads it" not in said
    if name in ASK_BROKERS:
        assert f"broker 0 is left out: {NAMED}" in ran.stderr


def test_a_topic_that_is_read_without_a_group(half_open: str) -> None:
    with pytest.raises(ReadFailed, match=re.escape(CANNOT_BE_ASKED)):
        read_topic(half_open, "topic", stall_timeout_s=1.0)
    with pytest.raises(ReadFailed, match=re.escape(CANNOT_BE_ASKED)):
        read_topic(half_open, "topic", start=datetime.fromtimestamp(1, tz=UTC), stall_timeout_s=1.0)


def test_a_leader_that_loses_its_listener_while_its_topic_is_read(two_brokers: EmbeddedCluster) -> None:
    two_brokers.produce("topic", [b"one"])
    with read_topic(two_brokers.zookeeper_connect, "topic", until=None, stall_timeout_s=3.0) as reader:
        assert next(reader).value == b"one"
        start_without_plaintext(two_brokers)
        with pytest.raises(PartitionStopped, match=re.escape(CANNOT_BE_ASKED)):
            next(reader)


def test_a_spark_query(half_open: str) -> None:
    given = {"zookeeper.connect": half_open, "subscribe": "topic", "kafkaConsumer.pollTimeoutMs": "1000"}
    with pytest.raises(PlanningFailed, match=re.escape(CANNOT_BE_ASKED)):
        plan_batch(batch_options(given))


def test_the_driver_of_a_spark_stream_and_its_tasks(half_open: str) -> None:
    config = config_without_group(half_open, {})
    found = search_leader(config)(PARTITION, None)
    assert (found.broker, found.reason) == (None, CANNOT_BE_ASKED)
    with zookeeper_connection(half_open, PATIENCE_S) as port:
        queries = LeaderQueries(Cluster(port, config.client_id, PATIENCE_S, security=None), config, lambda: True)
        assert queries.log_offsets([PARTITION], EARLIEST) == {}
        assert queries.failure_of(PARTITION) == CANNOT_BE_ASKED
