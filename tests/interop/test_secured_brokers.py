"""Producers, groups by ZooKeeper, administration and commands at real brokers with TLS and SASL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_peers import confluent_produce

from simpleconsumer import AuthenticationFailed
from simpleconsumer.security import Security
from tests.cli.command_line import run
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, ZkConsumerError
from zkconsumer.admin import Admin, BrokerAdmin
from zkconsumer.errors import StreamFailed
from zkconsumer.producer import MessageNotSent, Producer, ProducerConfig, SyncProducer
from zkconsumer.testing import KafkaCluster
from zkconsumer.topic_reader.topic_reader import read_topic

pytestmark = pytest.mark.real
SLOW = pytest.mark.slow
PASSWORD = "secret-of-alice"
VALUES = [b"%d" % number for number in range(20)]

Secured = Callable[[str], KafkaCluster]
Settings = dict[str, str]

WAYS = [
    ("2.8.2", "SASL_SSL", "SCRAM-SHA-256"),
    pytest.param("0.9.0.1", "SSL", None, marks=SLOW),
    pytest.param("0.10.2.2", "SASL_SSL", "PLAIN", marks=SLOW),
    pytest.param("1.1.1", "SASL_PLAINTEXT", "SCRAM-SHA-512", marks=SLOW),
    pytest.param("3.9.2", "SASL_SSL", "PLAIN", marks=SLOW),
    pytest.param("3.9.2", "SSL", None, marks=SLOW),
]


def settings(cluster: KafkaCluster, protocol: str, mechanism: str | None, password: str = PASSWORD) -> Settings:
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl.ca.location"] = str(cluster.certificates.authority.certificate)
    if mechanism is not None:
        found |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
    return found


def refused(cluster: KafkaCluster, protocol: str, mechanism: str | None) -> Settings:
    """Settings with which brokers, or their certificates, are refused."""
    if mechanism is not None:
        return settings(cluster, protocol, mechanism, "wrong")
    return settings(cluster, protocol, None) | {"ssl.ca.location": str(cluster.certificates.untrusted.certificate)}


@pytest.mark.parametrize(("version", "protocol", "mechanism"), WAYS)
def test_messages_go_from_a_producer_to_a_group_and_its_offsets_to_kafka(
    version: str, protocol: str, mechanism: str | None, secured_clusters: Secured,
    fresh_topic: Callable[[], str], fresh_group: str,
) -> None:  # fmt: skip
    cluster, topic = secured_clusters(version), fresh_topic()
    given = settings(cluster, protocol, mechanism)
    cluster.create_topic(topic, 2)
    where = {"zookeeper.connect": cluster.zookeeper_connect}
    with Producer(ProducerConfig.from_properties({**given, **where})) as producer:
        for value in VALUES:
            producer.send(topic, value)
    config = ConsumerConfig.from_properties({
        **given, "zookeeper.connect": cluster.zookeeper_connect, "group.id": fresh_group,
        "auto.offset.reset": "smallest", "consumer.timeout.ms": "5000", "offsets.storage": "kafka",
    })  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert sorted(next(stream).value for _ in VALUES) == sorted(VALUES)
        connector.commit_offsets()
    with Admin(cluster.zookeeper_connect, properties=given) as admin:
        report = admin.lag(fresh_group)
    assert [group.lag for group in report.groups] == [0]
    assert report.problems == ()


@pytest.mark.parametrize(("version", "protocol", "mechanism"), WAYS)
def test_a_member_that_brokers_refuse_ends_with_the_reason(
    version: str, protocol: str, mechanism: str | None, secured_clusters: Secured,
    fresh_topic: Callable[[], str], fresh_group: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic)
    given = refused(cluster, protocol, mechanism)
    config = ConsumerConfig.from_properties({
        **given, "zookeeper.connect": cluster.zookeeper_connect, "group.id": fresh_group,
        "consumer.timeout.ms": "20000",
    })  # fmt: skip

    def first(connector: ConsumerConnector) -> object:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        return next(stream)

    with ConsumerConnector(config) as connector, pytest.raises(StreamFailed) as failed:
        first(connector)
    assert isinstance(failed.value.__cause__, AuthenticationFailed)
    assert failed.value.__cause__.reason in str(failed.value)
    assert "Traceback" not in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(("version", "protocol", "mechanism"), WAYS)
def test_messages_of_a_producer_that_brokers_refuse_fail_at_once(
    version: str, protocol: str, mechanism: str | None, secured_clusters: Secured, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic)
    given = refused(cluster, protocol, mechanism)
    for where in ({"zookeeper.connect": cluster.zookeeper_connect},
                  {"metadata.broker.list": cluster.addresses(protocol)}):  # fmt: skip
        config = ProducerConfig.from_properties({**given, **where, "message.send.max.retries": "1000000"})
        with Producer(config) as producer, pytest.raises(MessageNotSent, match=r"refused|closed the conn") as failed:
            producer.send(topic, b"x")
        assert not failed.value.may_be_stored
    host, port = cluster.addresses(protocol).split(":")
    sync = SyncProducer(host, int(port), security=Security.of(given))
    with sync, pytest.raises(AuthenticationFailed):
        sync.send(topic, [b"x"], 0)


def config_file(folder: Path, given: Settings, **more: Any) -> str:
    path = folder / "secured.properties"
    path.touch(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in {**given, **more}.items()))
    return str(path)


def test_commands_take_security_from_a_file(
    secured_clusters: Secured, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    cluster, topic = secured_clusters("2.8.2"), fresh_topic()
    given = settings(cluster, "SASL_SSL", "SCRAM-SHA-512")
    where = ("--zookeeper", cluster.zookeeper_connect, "--config", config_file(tmp_path, given))
    made = run("topics", "create", topic, "--partitions", "1", *where)
    assert made.returncode == 0, made.stderr
    sent = run("produce", "--topic", topic, *where, stdin=b"one\ntwo\n")
    assert sent.stderr == b"Produced 2 messages\n"
    read = run("consume", "--topic", topic, "--from-beginning", "--max-messages", "2", *where)
    assert read.stdout == b"one\ntwo\n", read.stderr
    listed = run("topics", "list", *where)
    assert topic.encode() in listed.stdout
    wrong = config_file(tmp_path, refused(cluster, "SASL_SSL", "SCRAM-SHA-512"))
    for command in (("consume", "--topic", topic, "--from-beginning"), ("produce", "--topic", topic)):
        failed = run(*command, "--zookeeper", cluster.zookeeper_connect, "--config", wrong, stdin=b"x\n")
        assert failed.returncode == 1
        assert b"SaslAuthenticationFailed (code 58)" in failed.stderr
        assert b"bug in zkconsumer" not in failed.stderr
        assert PASSWORD.encode() not in failed.stderr


@pytest.mark.parametrize(("version", "protocol", "mechanism"), [*WAYS, ("4.3.1", "SASL_SSL", "SCRAM-SHA-256")])
def test_groups_that_brokers_coordinate_are_administered(
    version: str, protocol: str, mechanism: str | None, secured_clusters: Secured,
    fresh_topic: Callable[[], str], fresh_group: str, tmp_path: Path,
) -> None:  # fmt: skip
    cluster, topic = secured_clusters(version), fresh_topic()
    cluster.create_topic(topic, 2)
    brokers = cluster.addresses(protocol)
    given = settings(cluster, protocol, mechanism)
    with BrokerAdmin(brokers, properties=given) as admin:
        admin.set_offsets(fresh_group, topic, "latest")
        assert admin.describe(fresh_group).coordinator_address in brokers
        listed = {row.group for row in admin.groups().groups}
        assert fresh_group in listed or version.startswith("0.9")  # which lists groups with members alone
    file = config_file(tmp_path, given, **{"bootstrap.servers": brokers})
    shown = run("offsets", "get", fresh_group, "--config", file, "--json")
    assert [row["lag"] for row in json.loads(shown.stdout)["partitions"]] == [0, 0], shown.stderr
    with pytest.raises(ZkConsumerError, match=r"code 58|certificate|during the authentication"):
        BrokerAdmin(brokers, properties=refused(cluster, protocol, mechanism)).groups()


def test_commands_reach_kafka_4_by_the_addresses_of_its_brokers(
    secured_clusters: Secured, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    cluster, topic = secured_clusters("4.3.1"), fresh_topic()
    cluster.create_topic(topic)
    file = config_file(tmp_path, settings(cluster, "SASL_SSL", "SCRAM-SHA-256"))
    where = ("--bootstrap-server", cluster.addresses("SASL_SSL"), "--config", file)
    sent = run("produce", "--topic", topic, *where, stdin=b"one\ntwo\n")
    assert sent.stderr == b"Produced 2 messages\n"
    read = run("consume", "--topic", topic, "--from-beginning", "--max-messages", "2", *where)
    assert read.stdout == b"one\ntwo\n", read.stderr
    listed = run("topics", "list", topic, "--json", *where)
    [row] = json.loads(listed.stdout)["partitions"]
    assert (row["earliest"], row["latest"], row["problems"]) == (0, 2, []), listed.stderr


def test_a_topic_of_kafka_4_is_read_by_the_addresses_of_its_brokers(
    secured_clusters: Secured, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = secured_clusters("4.3.1"), fresh_topic()
    cluster.create_topic(topic)
    confluent_produce(cluster.addresses(), topic, VALUES)
    given = settings(cluster, "SASL_SSL", "SCRAM-SHA-256") | {"bootstrap.servers": cluster.addresses("SASL_SSL")}
    with read_topic(None, topic, properties=given) as reader:
        assert [message.value for message in reader] == VALUES
    wrong = given | {"sasl.password": "wrong"}
    with pytest.raises(AuthenticationFailed), read_topic(None, topic, properties=wrong) as reader:
        next(iter(reader))


def test_a_member_without_messages_waits_as_on_a_plain_connection(
    secured_clusters: Secured, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    cluster, topic = secured_clusters("2.8.2"), fresh_topic()
    cluster.create_topic(topic)
    config = ConsumerConfig.from_properties({
        **settings(cluster, "SSL", None), "zookeeper.connect": cluster.zookeeper_connect, "group.id": fresh_group,
        "consumer.timeout.ms": "1500",
    })  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        with pytest.raises(ConsumerTimeout):
            next(stream)
        cluster.produce(topic, [b"later"])
        assert next(stream).value == b"later"
