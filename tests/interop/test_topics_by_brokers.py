"""Topics of real brokers created, grown, set, cut and deleted with the same words: by ZooKeeper and by the brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from zkconsumer.admin import (
    Admin,
    BrokerAdmin,
    NotFound,
    TopicNotAuthorized,
    TopicPartitionRow,
    TopicRefused,
    TopicSettings,
)
from zkconsumer.admin.topics.topic_nodes import topics_of_brokers
from zkconsumer.errors import ZkConsumerError
from zkconsumer.producer import Producer, ProducerConfig
from zkconsumer.testing import load
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real
Clusters = Callable[[str, int], KafkaCluster]
TIMEOUT_S = 60.0
BY_ZOOKEEPER = [("0.8.2.2", 2), ("0.10.2.2", 1), ("2.8.2", 2)]
BY_BROKERS = [("0.10.2.2", 1), ("2.8.2", 2), ("4.3.1", 1)]
LARGE = b"x" * 5000


def addresses(cluster: KafkaCluster) -> str:
    return ",".join(f"127.0.0.1:{broker.port}" for broker in cluster.brokers.values())


def age(cluster: KafkaCluster) -> tuple[int, ...]:
    return tuple(map(int, cluster.version.split(".")))


def rows_of(cluster: KafkaCluster, topic: str) -> list[TopicPartitionRow]:
    return list(topics_of_brokers(addresses(cluster), [topic], {}, "test").partitions)


def changes_of(found: TopicSettings) -> list[tuple[str, str | None, str | None]]:
    return [(each.name, each.old_value, each.new_value) for each in found.changes]


def takes_large_messages(cluster: KafkaCluster, topic: str) -> bool:
    """Whether the leader of partition 0 stores a message of 5,000 bytes: what a setting of the topic decides."""
    config = ProducerConfig(
        metadata_broker_list=addresses(cluster), request_required_acks=1, message_send_max_retries=0
    )
    with Producer(config) as sender:
        try:
            sender.send(topic, LARGE, partition=0).result(TIMEOUT_S)
        except ZkConsumerError:
            return False
    return True


def check_a_whole_life(cluster: KafkaCluster, admin: Admin | BrokerAdmin, topic: str, *, has_zookeeper: bool) -> None:
    replicas = len(cluster.brokers)
    said: list[str] = []
    created = admin.create_topic(topic, 2, replicas, config={"max.message.bytes": 1000}, on_progress=said.append)
    assert (created.written, created.done, said[-1]) == (True, True, "2 of 2 partitions have a leader")
    cluster.wait_leaders(topic, [0, 1])
    rows = [(row.partition, row.leader, row.replicas) for row in rows_of(cluster, topic)]
    assert rows == [(each.partition, each.leader, each.replicas) for each in created.partitions]
    assert not takes_large_messages(cluster, topic)
    if has_zookeeper or age(cluster) >= (1, 0):
        grown = admin.grow_topic(topic, 3)
        assert ([each.partition for each in grown.partitions], grown.done) == ([2], True)
        cluster.wait_leaders(topic, [2])
    if has_zookeeper or age(cluster) >= (0, 11):
        check_settings(cluster, admin, topic)
    if age(cluster) >= (0, 11):
        check_cuts(cluster, admin, topic)
    else:
        with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 0\.11 or later"):
            admin.cut_topic(topic, "latest")
    deleted = admin.delete_topic(topic)
    assert (deleted.written, deleted.done) == (True, True)
    with pytest.raises(NotFound, match="does not exist"):
        admin.delete_topic(topic)


def check_settings(cluster: KafkaCluster, admin: Admin | BrokerAdmin, topic: str) -> None:
    assert changes_of(admin.set_topic(topic, {"retention.ms": 7_200_000})) == [("retention.ms", None, "7200000")]
    planned = admin.set_topic(topic, {"max.message.bytes": 50_000}, dry_run=True)
    assert (changes_of(planned), planned.written) == ([("max.message.bytes", "1000", "50000")], False)
    assert not takes_large_messages(cluster, topic)
    admin.set_topic(topic, {"max.message.bytes": 50_000})
    wait_until(lambda: takes_large_messages(cluster, topic), TIMEOUT_S, "the leader to take large messages")
    assert changes_of(admin.set_topic(topic, unset=["retention.ms"])) == [("retention.ms", "7200000", None)]
    for config, said in (({"retention.mss": 1}, "retention.mss"), ({"retention.ms": "soon"}, "soon")):
        with pytest.raises(TopicRefused, match=re.escape(said)):
            admin.set_topic(topic, config)
    with pytest.raises(NotFound):
        admin.set_topic(f"{topic}s", {"retention.ms": 1})


def check_cuts(cluster: KafkaCluster, admin: Admin | BrokerAdmin, topic: str) -> None:
    load(cluster, topic, 10, partitions=[1])

    def ends() -> list[tuple[int | None, int | None]]:
        return [(row.earliest, row.latest) for row in rows_of(cluster, topic)[1:2]]

    wait_until(lambda: ends() == [(0, 10)], TIMEOUT_S, "ten messages", state=ends)
    assert admin.cut_topic(topic, 4, partitions=[1], dry_run=True).partitions[0].new_earliest == 4
    assert ends() == [(0, 10)]
    admin.cut_topic(topic, 4, partitions=[1])
    assert ends() == [(4, 10)]
    with pytest.raises(TopicRefused, match="partition 1: offset 11 is after the end of its log, 10"):
        admin.cut_topic(topic, 11, partitions=[1])
    admin.cut_topic(topic, "latest")
    assert ends() == [(10, 10)]


@pytest.mark.parametrize(("version", "brokers"), BY_ZOOKEEPER)
def test_a_whole_life_with_a_zookeeper(
    kafka_clusters: Clusters, version: str, brokers: int, fresh_topic: Callable[[], str]
) -> None:
    cluster = kafka_clusters(version, brokers)
    with Admin(cluster.zookeeper_connect) as admin:
        check_a_whole_life(cluster, admin, fresh_topic(), has_zookeeper=True)


@pytest.mark.parametrize(("version", "brokers"), BY_BROKERS)
def test_a_whole_life_with_brokers_alone(
    kafka_clusters: Clusters, version: str, brokers: int, fresh_topic: Callable[[], str]
) -> None:
    cluster = kafka_clusters(version, brokers)
    with BrokerAdmin(addresses(cluster)) as admin:
        check_a_whole_life(cluster, admin, fresh_topic(), has_zookeeper=False)


@pytest.mark.parametrize(("version", "brokers"), BY_BROKERS)
def test_refusals_of_real_brokers_name_value_and_limit(
    kafka_clusters: Clusters, version: str, brokers: int, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = kafka_clusters(version, brokers), fresh_topic()
    with BrokerAdmin(addresses(cluster)) as admin:
        admin.create_topic(f"{topic}.a")
        for said, call in {
            "exists already": lambda: admin.create_topic(f"{topic}.a"),
            "collide": lambda: admin.create_topic(f"{topic}_a"),
            "3 replicas of each partition need as many brokers, and ": lambda: admin.create_topic(topic, 1, 3),
            "retention.mss": lambda: admin.create_topic(topic, config={"retention.mss": 1}),
            "soon": lambda: admin.create_topic(topic, config={"retention.ms": "soon"}, dry_run=True),
            "partition 0 names broker 7": lambda: admin.create_topic(topic, assignment={0: [7]}),
        }.items():
            with pytest.raises(TopicRefused, match=re.escape(said)):
                call()
        assert not admin.create_topic(topic, dry_run=True).written
        with pytest.raises(NotFound):
            admin.delete_topic(topic)


def test_who_has_written_to_a_log_is_told(kafka_clusters: Clusters, fresh_topic: Callable[[], str]) -> None:
    cluster, topic = kafka_clusters("4.3.1", 1), fresh_topic()
    with BrokerAdmin(addresses(cluster)) as admin:
        admin.create_topic(topic)
        config = ProducerConfig(metadata_broker_list=addresses(cluster), enable_idempotence=True)
        with Producer(config) as sender:
            for number in range(3):
                sender.send(topic, b"%d" % number, partition=0).result(TIMEOUT_S)
        found = admin.topic_producers(topic)
        assert [(each.partition, each.last_sequence, each.transaction_start) for each in found.producers] == [
            (0, 2, None)
        ]
        assert found.problems == ()


def acl(*rows: tuple[str, str]) -> bytes:
    """The node of an access list: principals, and what each may do."""
    return json.dumps({"version": 1, "acls": [
        {"principal": f"User:{name}", "permissionType": "Allow", "operation": operation, "host": "*"}
        for name, operation in rows
    ]}).encode()  # fmt: skip


def test_each_missing_right_is_named_and_nothing_is_changed(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    """Everybody may see the topic `secret`, and change nothing of it; who may create topics is in a list as well."""
    client = KazooClient(zookeeper.connect)
    client.start()
    chroot = f"/{fresh_group}"
    seen = ("*", "Describe"), ("*", "DescribeConfigs")
    for path, rows in {
        "Topic/secret": (("alice", "All"), *seen), "Topic/new": (("alice", "All"), *seen),
        "Cluster/kafka-cluster": (("ANONYMOUS", "ClusterAction"),),
    }.items():  # fmt: skip
        client.create(f"{chroot}/kafka-acl/{path}", acl(*rows), makepath=True)
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "allow.everyone.if.no.acl.found": "true"}  # fmt: skip
    try:
        with KafkaCluster("2.8.2", zookeeper=zookeeper.connect, chroot=chroot, settings=settings) as cluster:
            cluster.create_topic("secret")
            with BrokerAdmin(addresses(cluster)) as by_brokers, Admin(cluster.zookeeper_connect) as by_zookeeper:
                for admin in (by_brokers, by_zookeeper):
                    for right, call in {
                        "topics like new": lambda: admin.create_topic("new"),  # noqa: B023
                        "Alter topic secret": lambda: admin.grow_topic("secret", 5),  # noqa: B023
                        "AlterConfigs": lambda: admin.set_topic("secret", {"flush.ms": 1}),  # noqa: B023
                        "Delete topic secret": lambda: admin.delete_topic("secret"),  # noqa: B023
                    }.items():
                        with pytest.raises(TopicNotAuthorized) as error:
                            call()
                        assert right in error.value.remedy
            assert cluster.client.get_children("/brokers/topics") == ["secret"]
            assert cluster.partitions("secret") == [0]
    finally:
        client.stop()
        client.close()
