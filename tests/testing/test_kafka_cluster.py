"""KafkaCluster against real brokers; messages are written and read by raw bytes, not by the code under test."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from raw_requests import fetch, produce

from zkconsumer.testing.cluster import spread
from zkconsumer.testing.errors import KitError, MavenMissing, NotSupported
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.settings import broker_properties
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

real = pytest.mark.real


@real
def test_messages_go_in_and_out_of_every_partition(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    for partition, leader in kafka_0822.create_topic(topic, partitions=3).items():
        port = kafka_0822.port(leader)
        assert produce(port, topic, partition, b"value-%d" % partition) == 0
        error, message_set = fetch(port, topic, partition)
        assert error == 0
        assert message_set.endswith(b"value-%d" % partition)


@real
def test_topics_grow_and_vanish(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2, replication=2, config={"segment.bytes": 123456})
    assert b'"segment.bytes":"123456"' in kafka_0822.client.get(f"/config/topics/{topic}")[0]
    with pytest.raises(KitError, match="exists already"):
        kafka_0822.create_topic(topic)
    assert sorted(kafka_0822.add_partitions(topic, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="so it cannot grow to"):
        kafka_0822.add_partitions(topic, 5)
    kafka_0822.delete_topic(topic)
    assert kafka_0822.client.exists(f"/brokers/topics/{topic}") is None


@real
def test_a_leader_moves_within_and_beyond_its_replicas(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    within, beyond = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(within, assignment={0: [0, 1]})
    kafka_0822.create_topic(beyond, assignment={0: [0]})
    assert produce(kafka_0822.port(0), beyond, 0, b"kept") == 0
    for topic in (within, beyond):
        kafka_0822.move_leader(topic, 0, 1)
        assert kafka_0822.leader(topic, 0) == 1
        assert produce(kafka_0822.port(1), topic, 0, b"new") == 0
    assert b"kept" in fetch(kafka_0822.port(1), beyond, 0)[1]
    assert fetch(kafka_0822.port(0), within, 0)[0] == 6  # NotLeaderForPartition


@real
def test_brokers_are_killed_paused_stopped_and_come_back_with_their_data() -> None:
    with KafkaCluster("0.8.2.2", brokers=2, chroot="/deep/chroot") as cluster:
        assert cluster.zookeeper_connect.endswith("/deep/chroot")
        cluster.create_topic("t", assignment={0: [0], 1: [1]})
        assert produce(cluster.port(1), "t", 1, b"kept") == 0
        cluster.kill(1)
        assert cluster.client.exists("/brokers/ids/1") is not None  # its session lives on
        assert cluster.broker_list == f"127.0.0.1:{cluster.port(0)}"
        cluster.start(1)
        cluster.wait_leaders("t", [0, 1])
        assert fetch(cluster.port(1), "t", 1)[1].endswith(b"kept")
        cluster.kill(1, expire=True)
        assert cluster.client.exists("/brokers/ids/1") is None
        old_port = cluster.port(1)
        cluster.start(1, port=cluster.port(1) + 1 if old_port < 65535 else old_port - 1)
        assert cluster.port(1) != old_port
        cluster.pause(1)
        assert not kafka_probe.answers(cluster.port(1), timeout_s=0.3)
        cluster.resume(1)
        assert kafka_probe.answers(cluster.port(1))
        cluster.stop(0)
        assert cluster.client.exists("/brokers/ids/0") is None
    assert not cluster.folder.exists()


@real
def test_a_proxy_stands_in_front_of_a_broker() -> None:
    cluster = KafkaCluster("0.8.2.2")
    with TcpProxy(("127.0.0.1", cluster.port(0))) as proxy:
        cluster.advertise(0, proxy.port)
        with cluster:
            assert b'"port":%d' % proxy.port in cluster.client.get("/brokers/ids/0")[0]
            assert cluster.broker_list == proxy.address
            assert kafka_probe.answers(proxy.port)
            proxy.stall()
            assert not kafka_probe.answers(proxy.port, timeout_s=0.3)


@real
def test_a_port_that_was_taken_meanwhile_is_exchanged() -> None:
    cluster = KafkaCluster("0.8.2.2")
    with socket.create_server(("127.0.0.1", cluster.port(0))) as other, cluster:
        assert cluster.port(0) != other.getsockname()[1]
        assert cluster.create_topic("t") == {0: 0}


@pytest.mark.catalogue("M2")
@real
def test_two_clusters_share_a_zookeeper_by_chroot(kafka_0822: KafkaCluster) -> None:
    with KafkaCluster("0.8.2.2", zookeeper=kafka_0822.zookeeper, chroot="/second") as second:
        second.create_topic("t")
        client = KazooClient(kafka_0822.zookeeper_hosts)
        client.start()
        try:
            assert client.exists("/second/brokers/topics/t") is not None
            assert client.exists("/brokers/topics/t") is None
        finally:
            client.stop()
            client.close()
    assert kafka_0822.zookeeper.running


@real
@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in kafka_versions(with_zookeeper=True) if version != "0.7.2"])
def test_every_version_starts_and_does_the_whole_round(version: str) -> None:
    with KafkaCluster(version, brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, replication=2)
        cluster.add_partitions("t", 3)
        cluster.move_leader("t", 0, 1)
        assert produce(cluster.port(1), "t", 0, b"value") == 0
        # A consumer is shown what the other replica has, too, which needs a moment.
        wait_until(lambda: fetch(cluster.port(1), "t", 0)[1].count(b"value") == 1, 20, "the message to be shown")
        cluster.kill(1)
        cluster.start(1)
        leader = cluster.wait_leaders("t", [0])[0]
        assert fetch(cluster.port(leader), "t", 0)[1].count(b"value") == 1  # newer brokers pad the set they convert


@real
@pytest.mark.slow
def test_0_8_0_is_advertised_through_its_znode() -> None:
    cluster = KafkaCluster("0.8.0")
    with TcpProxy(("127.0.0.1", cluster.port(0))) as proxy:
        cluster.advertise(0, proxy.port)
        with cluster:
            assert cluster.create_topic("t") == {0: 0}
            assert b'"port": %d' % proxy.port in cluster.client.get("/brokers/ids/0")[0]


def test_0_7_2_needs_a_jar_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZKCONSUMER_KAFKA_07_JAR", raising=False)
    cluster = KafkaCluster("0.7.2", jar="/no/such.jar")
    try:
        with pytest.raises(MavenMissing, match=r"/no/such\.jar is not a file"):
            cluster.start_all()
        with pytest.raises(NotSupported, match=r"needs Kafka 0\.8 or newer"):
            cluster.create_topic("t", replication=2)
    finally:
        cluster.close()


def test_versions_are_listed_oldest_first() -> None:
    assert kafka_versions() == [
        "0.7.2",
        "0.8.0",
        "0.8.1.1",
        "0.8.2.2",
        "0.9.0.1",
        "0.10.2.2",
        "0.11.0.3",
        "1.1.1",
        "2.8.2",
        "3.9.2",
        "4.0.2",
        "4.3.1",
    ]
    assert kafka_versions(with_zookeeper=True)[-1] == "3.9.2"
    with pytest.raises(NotSupported, match="known versions are"):
        KafkaCluster("0.8.9")


@pytest.mark.parametrize("chroot", ["kafka", "/kafka/"])
def test_a_chroot_is_an_absolute_path(chroot: str) -> None:
    with pytest.raises(ValueError, match="chroot"):
        KafkaCluster(chroot=chroot)


def test_replicas_are_spread_over_brokers() -> None:
    assert spread(3, 2, [7, 5]) == {0: [5, 7], 1: [7, 5], 2: [5, 7]}
    with pytest.raises(ValueError, match="replication 3"):
        spread(1, 3, [0, 1])


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.7.2", {"brokerid": "1", "zk.connect": "z"}, {"broker.id", "listeners"}),
        ("0.8.0", {"port": "9", "host.name": "127.0.0.1"}, {"advertised.port", "offsets.topic.num.partitions"}),
        ("0.8.2.2", {"advertised.port": "10", "delete.topic.enable": "true"}, {"listeners"}),
        ("3.9.2", {"advertised.listeners": "PLAINTEXT://127.0.0.1:10", "message.max.bytes": "5"},
         {"port", "num.partitions"}),
    ],
)  # fmt: skip
def test_settings_follow_the_version(version: str, has: dict[str, str], lacks: set[str]) -> None:
    more = {"message.max.bytes": 5, "num.partitions": None}
    properties = broker_properties(version, 1, 9, "z", Path("/logs"), advertised_port=10, settings=more)
    assert has.items() <= properties.items()
    assert not lacks & properties.keys()
