"""Properties files as they are found beside old and new consumers: what `check-config` says about each."""

from __future__ import annotations

import logging
import re

import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.config.file_check import FileCheck, check_properties
from zkconsumer.config.properties import parse_properties
from zkconsumer.errors import ConfigError

# Name -> (the file, the values that it gives by 0.8 names, findings as `severity line: words`)
FILES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "the sample of Kafka 0.7": (
        """
        # Zookeeper connection string
        # comma separated host:port pairs, each corresponding to a zk
        zk.connect=127.0.0.1:2181

        # timeout in ms for connecting to zookeeper
        zk.connectiontimeout.ms=1000000

        #consumer group id
        groupid=test-consumer-group
        """,
        {"zookeeper.connect": "127.0.0.1:2181", "zookeeper.connection.timeout.ms": "1000000",
         "group.id": "test-consumer-group"},
        [
            "warning -: names of Kafka 0.7 (zk.connect, zk.connectiontimeout.ms, groupid) and auto.offset.reset is "
            "not given",
            "note -: queued.max.message.chunks is not in the file: its default is 2, and was 10 in Kafka 0.7",
            "note -: auto.commit.interval.ms is not in the file: its default is 60000, and was 10000 in Kafka 0.7",
            "note -: Java consumers of 0.8 and later ignore names of 0.7: zk.connect",
            "note 7: it takes 1000 s",
        ],
    ),
    "a service of 0.7": (
        """
        zk.connect=zk1:2181,zk2:2181,zk3:2181/kafka07
        groupid = indexer
        zk.sessiontimeout.ms = 30000
        zk.synctime.ms = 5000
        autooffset.reset = smallest
        autocommit.enable = false
        socket.buffersize = 1048576
        fetch.size = 1048576
        queuedchunks.max = 10
        backoff.increment.ms = 1000
        shallow.iterator.enable = true
        mirror.topics.whitelist = clicks
        """,
        {"zookeeper.connect": "zk1:2181,zk2:2181,zk3:2181/kafka07", "group.id": "indexer",
         "zookeeper.session.timeout.ms": "30000", "zookeeper.sync.time.ms": "5000", "auto.offset.reset": "smallest",
         "auto.commit.enable": "false", "socket.receive.buffer.bytes": "1048576",
         "fetch.message.max.bytes": "1048576", "queued.max.message.chunks": "10"},
        [
            "warning -: rebalance.max.retries x rebalance.backoff.ms = 20000 ms is less than",
            "warning 11: backoff.increment.ms is ignored: no such setting exists; only the documentation of Kafka 0.7",
            "warning 12: shallow.iterator.enable is ignored: no such setting exists; the name of the setting of",
            "warning 13: mirror.topics.whitelist is ignored: no such setting exists; Kafka 0.7 documents it but does "
            "not",
            "note -: auto.commit.interval.ms is not in the file: its default is 60000, and was 10000",
            "note -: Java consumers of 0.8 and later ignore names of 0.7",
        ],
    ),
    "the sample of Kafka 0.8": (
        """
        zookeeper.connect=127.0.0.1:2181
        zookeeper.connection.timeout.ms=6000
        group.id=test-consumer-group
        #consumer.timeout.ms=5000
        """,
        {"zookeeper.connect": "127.0.0.1:2181", "zookeeper.connection.timeout.ms": "6000",
         "group.id": "test-consumer-group"},
        [],
    ),
    "the example of the Kafka wiki": (
        """
        zookeeper.connect=localhost:2181
        group.id=group1
        zookeeper.session.timeout.ms=400
        zookeeper.sync.time.ms=200
        auto.commit.interval.ms=1000
        """,
        {"zookeeper.connect": "localhost:2181", "group.id": "group1", "zookeeper.session.timeout.ms": "400",
         "zookeeper.sync.time.ms": "200", "auto.commit.interval.ms": "1000"},
        ["warning 4: grants at least 4000 ms; rebalance.max.retries x rebalance.backoff.ms = 800 ms is less than that"],
    ),
    "names of 0.7 and 0.8 mixed": (
        """
        zookeeper.connect=10.0.0.9:2181
        group.id=test
        metadata.broker.list=10.0.0.9:9092
        serializer.class=kafka.serializer.DefaultEncoder
        zk.sessiontimeout.ms=8000
        autocommit.enable=false
        auto.commit.enable=true
        auto.commit.interval.ms=1000
        auto.commit.interval.ms=5000
        """,
        {"zookeeper.connect": "10.0.0.9:2181", "group.id": "test", "zookeeper.session.timeout.ms": "8000",
         "auto.commit.interval.ms": "5000"},
        [
            "error 8: auto.commit.enable is 'true'; it must be given once; it is given under two names",
            "warning 4: metadata.broker.list is ignored: no such setting exists; it is a setting of producers",
            "warning 5: serializer.class is ignored: no such setting exists; it is a setting of producers",
            "warning 9: auto.commit.interval.ms has no effect: line 10 sets it again, and the last line counts",
            "note -: the settings were not checked against each other",
        ],
    ),
    "MirrorMaker": (
        """
        zookeeper.connect=zk1.dc1:2181,zk2.dc1:2181/kafka
        group.id=mirror-dc1-dc2
        consumer.timeout.ms=-1
        auto.offset.reset=smallest
        auto.commit.enable=false
        auto.commit.interval.ms=60000
        partition.assignment.strategy=roundrobin
        fetch.message.max.bytes=10485760
        num.consumer.fetchers=4
        socket.receive.buffer.bytes=8388608
        offsets.storage=kafka
        dual.commit.enabled=false
        shallow.iterator.enable=true
        """,
        {"zookeeper.connect": "zk1.dc1:2181,zk2.dc1:2181/kafka", "group.id": "mirror-dc1-dc2",
         "consumer.timeout.ms": "-1", "auto.offset.reset": "smallest", "auto.commit.enable": "false",
         "auto.commit.interval.ms": "60000", "partition.assignment.strategy": "roundrobin",
         "fetch.message.max.bytes": "10485760", "num.consumer.fetchers": "4",
         "socket.receive.buffer.bytes": "8388608", "offsets.storage": "kafka", "dual.commit.enabled": "false"},
        [
            "warning 14: shallow.iterator.enable is ignored: no such setting exists; the name of the setting of",
            "note 7: auto.commit.interval.ms has no effect with auto.commit.enable=false",
        ],
    ),
    "a source of Flume": (
        """
        agent.sources = r1
        agent.sources.r1.type = org.apache.flume.source.kafka.KafkaSource
        agent.sources.r1.zookeeperConnect = 10.0.0.13:2181
        agent.sources.r1.topic = clicks
        agent.sources.r1.groupId = flume
        agent.sources.r1.kafka.consumer.timeout.ms = 100
        agent.sources.r1.kafka.auto.offset.reset = smallest
        """,
        {},
        [
            "error -: zookeeper.connect is not in the file",
            "error -: group.id is not in the file",
            "warning 2: agent.sources is ignored",
            "warning 3: agent.sources.r1.type is ignored",
            "warning 4: it ends with the known name 'zookeeper.connect': here names have no prefix",
            "warning 5: agent.sources.r1.topic is ignored",
            "warning 6: it ends with the known name 'group.id'",
            "warning 7: it ends with the known name 'consumer.timeout.ms'",
            "warning 8: it ends with the known name 'auto.offset.reset'",
        ],
    ),
    "a job of Camus": (
        """
        camus.job.name=Camus Job
        etl.destination.path=/user/camus/topics
        kafka.brokers=kafka1:9092
        kafka.client.name=camus
        kafka.whitelist.topics=clicks
        kafka.client.buffer.size=20971520
        zookeeper.hosts=zk1:2181
        zookeeper.session.timeout=30000
        """,
        {},
        [
            "error -: zookeeper.connect is not in the file",
            "error -: group.id is not in the file",
            *(f"warning {line}: is ignored: no such setting exists" for line in range(2, 9)),
            "warning 9: zookeeper.session.timeout is ignored",
        ],
    ),
    "a newer consumer": (
        """
        bootstrap.servers=kafka1:9093,kafka2:9093
        group.id=billing
        key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
        value.deserializer=org.apache.kafka.common.serialization.StringDeserializer
        enable.auto.commit=false
        auto.offset.reset=earliest
        partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor
        session.timeout.ms=45000
        heartbeat.interval.ms=3000
        max.poll.interval.ms=300000
        max.poll.records=500
        isolation.level=read_committed
        group.instance.id=billing-1
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required password="hunter2";
        ssl.truststore.password=hunter2
        """,
        {"group.id": "billing", "isolation.level": "read_committed"},
        [
            "error 7: auto.offset.reset is 'earliest'; it must be smallest or largest ('earliest' of other consumers "
            "is 'smallest' here)",
            "warning 4: give 'key_decoder' and 'value_decoder' to create_message_streams",
            "warning 5: give 'key_decoder' and 'value_decoder' to create_message_streams",
            "warning 6: here it is called 'auto.commit.enable'",
            "warning 11: here it is called 'max.processing.interval.ms'",
            "warning 12: a stream delivers one message at a time",
            "note -: the settings were not checked against each other",
        ],
    ),
    "hand-written, with TLS and credentials": (
        """
        zookeeper.connect: zk1:2281,zk2:2281,\\
                           zk3:2281/kafka
        group.id  billing
        zookeeper.use.ssl=true
        zookeeper.ssl.cafile=/etc/zk/ca.pem
        zookeeper.sasl.mechanism=DIGEST-MD5
        zookeeper.sasl.username=billing
        zookeeper.sasl.password=hunter2
        zookeeper.auth=digest:billing:hunter2
        zookeeper.sasl.pasword=hunter2
        dual.commit.enabled=true
        consumer.timeout.ms=50
        """,
        {"zookeeper.connect": "zk1:2281,zk2:2281,zk3:2281/kafka", "group.id": "billing", "zookeeper.use.ssl": "true",
         "zookeeper.ssl.cafile": "/etc/zk/ca.pem", "zookeeper.sasl.mechanism": "DIGEST-MD5",
         "zookeeper.sasl.username": "billing", "zookeeper.sasl.password": "***", "zookeeper.auth": "***",
         "dual.commit.enabled": "true", "consumer.timeout.ms": "50"},
        [
            "warning 11: zookeeper.sasl.pasword is ignored: no such setting exists; did you mean "
            "'zookeeper.sasl.password'",
            "warning 12: dual.commit.enabled has no effect without offsets.storage=kafka",
            "warning 13: consumer.timeout.ms = 50 is less than fetch.wait.max.ms = 100",
        ],
    ),
}  # fmt: skip


@pytest.fixture(params=list(FILES))
def case(request: pytest.FixtureRequest) -> tuple[str, FileCheck, dict[str, str], list[str]]:
    text, values, expected = FILES[request.param]
    text = "\n".join(line.strip() for line in text.split("\n"))
    return text, check_properties(text), values, expected


def test_each_line_and_what_is_wrong_with_it(case: tuple[str, FileCheck, dict[str, str], list[str]]) -> None:
    _, found, values, expected = case
    shown = [f"{each.severity} {each.line or '-'}: {each.sentence}" for each in found.findings]
    assert len(shown) == len(expected), shown
    for finding, words in zip(shown, expected, strict=True):
        place, _, sentence = words.partition(": ")
        assert finding.startswith(f"{place}: ")
        assert sentence in finding
    used = {line.setting: line.value for line in found.lines if line.status == "used"}
    assert {name: used[name] for name in values} == values
    assert found.is_good is all(words.startswith("note") for words in expected)
    assert "hunter2" not in found.to_json()


def test_the_consumer_does_what_the_check_says(
    case: tuple[str, FileCheck, dict[str, str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    text, found, _, _ = case
    errors = {each.setting for each in found.findings if each.severity == "error"}
    if errors:
        with pytest.raises(ConfigError) as refused:
            ConsumerConfig.from_properties(parse_properties(text))
        assert refused.value.key in errors
        return
    with caplog.at_level(logging.WARNING):
        config = ConsumerConfig.from_properties(parse_properties(text))
    properties = config.to_properties()
    for each in found.values:
        assert each.value in (properties.get(each.setting, "off"), None, "***"), each
    logged = [record.getMessage() for record in caplog.records]
    ignored = {line.name for line in found.lines if line.status == "ignored"}
    assert {said[1] for each in logged if (said := re.match("unknown setting '(.*?)'", each))} == ignored
    sentences = [each.sentence for each in found.findings]
    assert all(each in sentences for each in logged if not each.startswith("unknown"))


def test_a_file_of_07_serves_programs_without_a_group(caplog: pytest.LogCaptureFixture) -> None:
    old = {"zk.connect": "zk1:2181", "groupid": "billing", "zk.sessiontimeout.ms": "30000", "consumer.id": None}
    config = config_without_group("zk2:2181", old)
    assert (config.zookeeper_connect, config.group_id, config.client_id) == ("zk2:2181", "billing", "billing")
    assert config_without_group("zk2:2181", None, "lag").client_id == "lag"
    assert [record.getMessage() for record in caplog.records if "0.7" in record.getMessage()] == []
    with pytest.raises(ConfigError, match="given once"):
        config_without_group("zk2:2181", {"groupid": "billing", "group.id": "other"})
    with pytest.raises(ConfigError, match="'smallest' here"):
        config_without_group("zk2:2181", {"auto.offset.reset": "earliest"})
