"""KafkaCluster without ZooKeeper: real brokers in KRaft mode, written and read by confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka_peers import TIMEOUT_S, confluent_consume, confluent_produce, next_messages

from zkconsumer.testing.errors import KitError, NotSupported
from zkconsumer.testing.kafka import KafkaCluster, probe
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

real = pytest.mark.real


@pytest.fixture
def cluster(kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters("4.3.1", 1)


@real
def test_topics_are_made_grow_and_vanish(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    assert cluster.create_topic(topic, 2) == {0: 0, 1: 0}
    with pytest.raises(KitError, match="exists already"):
        cluster.create_topic(topic)
    assert cluster.add_partitions(topic, 3) == {0: 0, 1: 0, 2: 0}
    assert cluster.partitions(topic) == [0, 1, 2]
    assert cluster.leader(topic, 2) == 0
    cluster.delete_topic(topic)
    with pytest.raises(KitError, match=f"topic {topic} does not exist"):
        cluster.partitions(topic)
    assert cluster.leader(topic, 0) is None
    assert cluster.create_topic(topic) == {0: 0}


@real
def test_what_the_kit_writes_is_read_by_others(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    sent = cluster.produce(topic, [b"one", ("key", "two"), ("key", None)])
    assert [(place.partition, place.offset) for place in sent] == [(0, 0), (0, 1), (0, 2)]
    for codec in ("gzip", "snappy", "lz4"):
        cluster.produce(topic, [codec] * 2, codec=codec)
    values = [b"one", b"two", None, *[b"gzip"] * 2, *[b"snappy"] * 2, *[b"lz4"] * 2]
    assert confluent_consume(cluster.broker_list, topic, 9) == values


@real
def test_a_refusal_has_the_words_of_the_broker(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    with pytest.raises(KitError, match=r"cannot be created: error 40 \(.*such\.setting"):
        cluster.create_topic(fresh_topic(), config={"no.such.setting": 1})
    topic = fresh_topic()
    cluster.create_topic(topic)
    with pytest.raises(KitError, match=rf"replicas \[7\] of {topic}/0 are refused: error 39 \(.*7"):
        probe.reassign(cluster.port(0), topic, 0, [7])
    with pytest.raises(KitError, match="cannot be deleted: error 3"):
        cluster.delete_topic(fresh_topic())


@real
def test_a_topic_has_the_settings_that_it_was_made_with(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, config={"max.message.bytes": 100})
    confluent_produce(cluster.broker_list, topic, [b"short"])
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        confluent_produce(cluster.broker_list, topic, [b"long" * 100])
    assert confluent_consume(cluster.broker_list, topic, 1) == [b"short"]


@real
def test_what_needs_zookeeper_says_so(cluster: KafkaCluster) -> None:
    asked: list[Callable[[], object]] = [
        lambda: cluster.zookeeper, lambda: cluster.zookeeper_connect, lambda: cluster.client, cluster.reconnect,
        lambda: cluster.kill(0, expire=True),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(NotSupported, match=r"Kafka 4\.3\.1 runs in KRaft mode here, without ZooKeeper"):
            ask()
    assert not cluster.has_zookeeper
    assert cluster.brokers[0].running


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"version": "4.3.1", "chroot": "/kafka"}, "Kafka 4.3.1 runs in KRaft mode here, without ZooKeeper"),
        ({"version": "4.0.2", "zookeeper": "127.0.0.1:1"}, "Kafka 4.0.2 runs in KRaft mode here, without ZooKeeper"),
        ({"version": "4.3.1", "kraft": False}, "kraft=False: Kafka 4.3.1 cannot run with ZooKeeper"),
        ({"version": "2.8.2", "kraft": True}, "a cluster without ZooKeeper needs Kafka 3.9 or newer, this is 2.8.2"),
        ({"version": "3.9.2", "controllers": 1}, "controllers are for clusters without ZooKeeper; give kraft=True"),
        ({"version": "4.3.1", "controllers": -1}, "-1 controllers: 0 or more are possible"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises((NotSupported, ValueError)) as refused:
        KafkaCluster(**arguments)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_one_broker_is_its_own_controller_and_several_have_one() -> None:
    for brokers, controllers, wanted in ((1, None, 0), (3, None, 1), (1, 1, 1), (2, 0, 0), ([5, 2000], 3, 3)):
        cluster = KafkaCluster("4.3.1", brokers, controllers=controllers)  # type: ignore[arg-type]
        try:
            assert len(cluster.controllers) == wanted
            assert not set(cluster.controllers) & set(cluster.brokers)
        finally:
            cluster.close()


@real
@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.2", "4.0.2", "4.3.1"])
def test_a_node_that_is_killed_comes_back_with_its_data_behind_a_proxy(version: str) -> None:
    cluster = KafkaCluster(version, kraft=True)
    with TcpProxy(("127.0.0.1", cluster.port(0))) as proxy:
        cluster.advertise(0, proxy.port)
        with cluster:
            assert cluster.broker_list == proxy.address
            cluster.create_topic("t")
            confluent_produce(cluster.broker_list, "t", [b"kept"])
            cluster.kill(0)
            assert cluster.broker_list == ""
            cluster.start(0)
            cluster.wait_leaders("t", [0])
            assert confluent_consume(cluster.broker_list, "t", 1) == [b"kept"]
            cluster.pause(0)
            assert not kafka_probe.answers_versions(cluster.port(0), timeout_s=0.3)
            cluster.resume(0)
            assert kafka_probe.answers_versions(cluster.port(0))
            cluster.stop(0)
            cluster.start(0)
            assert confluent_consume(cluster.broker_list, "t", 1) == [b"kept"]
    assert not cluster.folder.exists()


REPLICATED = {"offsets.topic.replication.factor": 3, "min.insync.replicas": 2}


@pytest.fixture(params=["3.9.2", "4.3.1"])
def three_brokers(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, 3, kraft=True, settings=REPLICATED) as running:
        yield running


def committed(consumer: Consumer) -> int | None:
    """The committed offset of t/0; None while the client looks for the coordinator."""
    try:
        (place,) = consumer.committed([TopicPartition("t", 0)], TIMEOUT_S)
    except KafkaException:
        return None
    return int(place.offset)


@real
@pytest.mark.slow
def test_a_group_survives_the_kill_of_its_leader_and_coordinator(three_brokers: KafkaCluster) -> None:
    """`__consumer_offsets` has three replicas, so that the next broker knows what the killed one knew."""
    cluster = three_brokers
    cluster.create_topic("t", assignment={0: [0, 1, 2]})
    cluster.move_leader("t", 0, 1)
    assert cluster.leader("t", 0) == 1
    confluent_produce(cluster.broker_list, "t", [b"%d" % n for n in range(20)])
    consumer = Consumer({"bootstrap.servers": cluster.broker_list, "group.id": "g", "enable.auto.commit": False,
                         "auto.offset.reset": "earliest"})  # fmt: skip
    try:
        consumer.subscribe(["t"])
        assert [message.value() for message in next_messages(consumer, 10)] == [b"%d" % n for n in range(10)]
        consumer.commit(offsets=[TopicPartition("t", 0, 10)], asynchronous=False)
        coordinator = cluster.leader("__consumer_offsets", 0)
        assert coordinator is not None
        for killed in {1, coordinator}:
            cluster.kill(killed)
            wait_until(lambda: cluster.leader("t", 0) not in (None, killed), TIMEOUT_S, "another leader")  # noqa: B023
            cluster.start(killed)
            cluster.wait_leaders("t", [0])
        assert [message.value() for message in next_messages(consumer, 10)] == [b"%d" % n for n in range(10, 20)]
        wait_until(lambda: committed(consumer) == 10, TIMEOUT_S, "the commit before the kills")
    finally:
        consumer.close()


@real
@pytest.mark.slow
def test_brokers_serve_without_the_controller_and_have_it_back(three_brokers: KafkaCluster) -> None:
    cluster = three_brokers
    cluster.create_topic("t", replication=3)
    (controller,) = cluster.controllers.values()
    controller.process.kill()
    confluent_produce(cluster.broker_list, "t", [b"without"])
    cluster.start_all()
    assert controller.running
    cluster.create_topic("u", replication=3)
    confluent_produce(cluster.broker_list, "u", [b"with"])
    cluster.stop(2)
    assert confluent_consume(cluster.broker_list, "t", 1) == [b"without"]
    cluster.start(2)
    assert probe.brokers_known(cluster.port(0)) == {0, 1, 2}
