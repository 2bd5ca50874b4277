"""Joining when something is missing or wrong: a clear error in time, or waiting until it is there."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    config,
    member,
    owned,
    owners,
    produce,
    read,
    texts,
    wait_owned,
    wait_owners,
)
from kazoo.client import KazooClient

from zkconsumer import (
    ConfigError,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerIdInUse,
    GroupRefused,
    NamespaceMissing,
    UnsupportedFilter,
    Whitelist,
    ZooKeeperUnavailable,
)
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import Deadline, wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


@contextmanager
def zookeeper_client(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client of the whole server, without a chroot."""
    client = KazooClient(server.connect, timeout=30)
    client.start(timeout=PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------


def refused_by(hosts: str, error: type[Exception], match: str, **settings: object) -> ConsumerConnector:
    """A connector whose start failed with this error, well within its time."""
    consumer = ConsumerConnector(ConsumerConfig(hosts, "group", zookeeper_connection_timeout_ms=1500, **settings))
    deadline = Deadline(PATIENCE_S)
    with pytest.raises(error, match=match):
        consumer.create_message_streams({"topic": 1})
    assert not deadline.expired
    assert consumer.status().state == "closed"
    return consumer


def test_nobody_listens_at_the_address_of_zookeeper() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    refused_by(hosts, ZooKeeperUnavailable, f"no ZooKeeper server answered at {hosts} within 1.5 s")


@pytest.mark.catalogue("A6")
def test_the_name_of_zookeeper_does_not_resolve() -> None:
    refused_by("no-such-host.invalid:2181", ZooKeeperUnavailable, "no-such-host.invalid:2181 within 1.5 s")


def test_whoever_listens_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        refused_by(hosts, ZooKeeperUnavailable, hosts)


@pytest.mark.catalogue("A6")
def test_one_dead_server_of_two_is_no_obstacle(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    for number in range(4):  # the order in which servers are tried is random
        hosts = f"127.0.0.1:{free_port()},{kafka_0822.zookeeper_hosts}"
        with ConsumerConnector(ConsumerConfig(hosts, f"{fresh_group}-{number}")) as consumer:
            consumer.create_message_streams({topic: 1})
            wait_owned(consumer, [(topic, 0)])


@pytest.mark.catalogue("M1")
def test_a_chroot_that_is_missing_is_named_and_not_created(kafka_0822: KafkaCluster) -> None:
    hosts = f"{kafka_0822.zookeeper_hosts}/no/such/place"
    refused_by(hosts, NamespaceMissing, "/no/such/place")
    assert kafka_0822.client.exists("/no") is None


# -- brokers and topics ------------------------------------------------------------------------------------------------


def test_without_brokers_a_member_waits_and_works_once_they_are_there(
    fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    with KafkaCluster("0.8.2.2", brokers=1) as cluster:
        cluster.create_topic(topic)
        sent = produce(cluster, topic, 0, ["stored before"])
        cluster.stop(0)
        with member(cluster, fresh_group) as consumer:
            reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
            wait_owned(consumer, [(topic, 0)])
            cluster.start(0)
            assert texts(reader.wait(1)) == sent
            assert reader.errors == []


def test_an_empty_cluster_is_waited_for_too(
    zookeeper: ZooKeeperServer, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    """Not even `/brokers` is there when the member joins: ZooKeeper came up before the first broker ever did."""
    topic, chroot = fresh_topic(), f"/{fresh_topic()}"
    cluster = KafkaCluster("0.8.2.2", brokers=1, zookeeper=zookeeper, chroot=chroot)
    with zookeeper_client(zookeeper) as client:
        client.ensure_path(chroot)
        try:
            with ConsumerConnector(config(cluster, fresh_group)) as consumer:
                [stream] = consumer.create_message_streams_by_filter(Whitelist(f"{topic}.*"))
                cluster.start_all()
                cluster.create_topic(topic)
                sent = produce(cluster, topic, 0, ["the first ever"])
                assert texts(read(stream, 1)) == sent
        finally:
            cluster.close()


def test_an_unknown_topic_is_waited_for_and_named_in_the_status(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        status = consumer.status()
        assert (status.state, status.owned) == ("stable", ())
        assert any(topic in warning for warning in status.warnings)
        kafka_0822.create_topic(topic)
        sent = produce(kafka_0822, topic, 0, ["at last"])
        assert texts(read(stream, 1)) == sent
        assert consumer.status().warnings == ()


# -- the group ---------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("A9")
def test_a_consumer_id_in_use_is_refused_and_its_holder_undisturbed(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    with member(kafka_0822, fresh_group, "same") as first:
        streams = first.create_message_streams({topic: 1})[topic]
        second = member(
            kafka_0822, fresh_group, "same", zookeeper_session_timeout_ms=1000, zookeeper_connection_timeout_ms=20_000
        )
        with pytest.raises(ConsumerIdInUse, match=f"{fresh_group}_same"):
            second.create_message_streams({topic: 1})
        assert owners(kafka_0822, fresh_group, topic) == {0: f"{fresh_group}_same-0"}
        sent = produce(kafka_0822, topic, 0, ["for the first"])
        assert texts(read(streams, 1)) == sent


@pytest.mark.catalogue("A1")
def test_a_consumer_id_whose_holder_is_dead_is_free_when_its_session_is_over(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    with TcpProxy(kafka_0822.zookeeper_hosts) as proxy:
        settings = ConsumerConfig(proxy.address, fresh_group, consumer_id="same", zookeeper_session_timeout_ms=1500)
        dead = ConsumerConnector(settings)
        dead.create_message_streams({topic: 1})
        proxy.cut()  # for ZooKeeper it has died; its session lives on for a while
        with member(kafka_0822, fresh_group, "same") as heir:
            heir.create_message_streams({topic: 1})
            wait_owners(kafka_0822, fresh_group, topic, {0: f"{fresh_group}_same-0"})
            wait_owned(heir, [(topic, 0)])
        dead.shutdown(timeout=0)


@pytest.mark.parametrize("data", [b"", b"null", b"topic1", b'{"subscription":{"t":"2"}}', b"\xff\xfe", b"x" * 500_000])
def test_a_registration_that_nobody_can_read_stops_nobody_and_is_named(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], data: bytes
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 2)
    kafka_0822.client.create(f"/consumers/{fresh_group}/ids/{fresh_group}_odd", data, makepath=True)
    with member(kafka_0822, fresh_group, "a") as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert owned(consumer) == [(topic, 0), (topic, 1)]
        sent = produce(kafka_0822, topic, 1, ["all the same"])
        assert texts(read(stream, 1)) == sent
        assert any(f"{fresh_group}_odd" in warning for warning in consumer.status().warnings)


# -- settings and clusters that are not served -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"auto_offset_reset": "earliest"}, "auto.offset.reset"),
        ({"group_id": "with/slash"}, "group.id"),
        ({"group_id": ".."}, "group.id"),
        ({"zookeeper_connect": "host:port"}, "zookeeper.connect"),
        ({"zookeeper_connect": ""}, "zookeeper.connect"),
        ({"socket_timeout_ms": 50, "fetch_wait_max_ms": 100}, "socket.timeout.ms"),
        ({"fetch_message_max_bytes": 0}, "fetch.message.max.bytes"),
        ({"partition_assignment_strategy": "sticky"}, "partition.assignment.strategy"),
        ({"consumer_timeout_ms": "soon"}, "consumer.timeout.ms"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        ConsumerConfig(**({"zookeeper_connect": "localhost:2181", "group_id": "group"} | settings))  # type: ignore[arg-type]


@pytest.mark.catalogue("E13")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"partition_assignment_strategy": "roundrobin"}, "roundrobin, but members of Kafka 0.7 support only range"),
        ({"offsets_storage": "kafka"}, "offsets.storage is kafka, but members of Kafka 0.7 support only zookeeper"),
        ({"kafka_generation": "0.8"}, "kafka.generation is 0.8, but broker 0 is registered in the format of Kafka 0.7"),
    ],
)
def test_what_kafka_07_does_not_have_is_refused_before_anything_is_registered(
    zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str], settings: dict[str, str], reason: str
) -> None:
    chroot = f"/{fresh_topic()}"
    with zookeeper_client(zookeeper) as client:
        client.create(f"{chroot}/brokers/ids/0", b"127.0.0.1-1300000000000:127.0.0.1:9092", makepath=True)
        refused_by(zookeeper.connect + chroot, GroupRefused, reason, **settings)
        assert client.get_children(chroot) == ["brokers"]


@pytest.mark.catalogue("N1")
def test_a_filter_that_is_no_regular_expression_is_refused_at_once() -> None:
    with pytest.raises(UnsupportedFilter):
        Whitelist("clicks(")


@pytest.mark.parametrize("topic", ["", "with/slash", "..", "x" * 256])
def test_a_topic_that_no_broker_would_have_is_refused(kafka_0822: KafkaCluster, fresh_group: str, topic: str) -> None:
    with pytest.raises(ValueError):
        member(kafka_0822, fresh_group).create_message_streams({topic: 1})
    with pytest.raises(ValueError):
        member(kafka_0822, fresh_group).create_message_streams({"topic": 0})
    assert kafka_0822.client.exists(f"/consumers/{fresh_group}") is None


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            json.dumps(
                {"version": 4, "host": None, "port": -1, "endpoints": ["SSL://127.0.0.1:9093"], "timestamp": "1"}
            ).encode(),
            "PLAINTEXT",
        ),
    ],
)
def test_a_cluster_that_cannot_be_spoken_to_is_refused_before_anything_is_registered(
    zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str], node: bytes, reason: str
) -> None:
    chroot = f"/{fresh_topic()}"
    with zookeeper_client(zookeeper) as client:
        client.create(f"{chroot}/brokers/ids/0", node, makepath=True)
        refused_by(zookeeper.connect + chroot, GroupRefused, reason)
        assert client.get_children(chroot) == ["brokers"]


def test_a_failed_start_leaves_no_thread_and_no_session(kafka_0822: KafkaCluster) -> None:
    before = set(threading.enumerate())
    refused_by(f"{kafka_0822.zookeeper_hosts}/no/such/place", NamespaceMissing, "no/such/place")
    refused_by(f"127.0.0.1:{free_port()}", ZooKeeperUnavailable, "no ZooKeeper")
    wait_until(
        lambda: set(threading.enumerate()) <= before, PATIENCE_S, "the threads to end", state=threading.enumerate
    )


@pytest.mark.catalogue("A11")
def test_the_first_member_of_the_first_group_makes_the_tree_it_needs(
    zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str]
) -> None:
    """`/consumers` itself may be missing; nothing is made outside of it."""
    chroot = f"/{fresh_topic()}"
    with zookeeper_client(zookeeper) as client:
        client.ensure_path(f"{chroot}/brokers/ids")
        with ConsumerConnector(ConsumerConfig(zookeeper.connect + chroot, "group", consumer_id="a")) as consumer:
            consumer.create_message_streams({"topic": 1})
            assert client.get_children(f"{chroot}/consumers/group/ids") == ["group_a"]
        assert sorted(client.get_children(chroot)) == ["brokers", "consumers"]
        assert client.get_children(f"{chroot}/consumers/group/ids") == []
