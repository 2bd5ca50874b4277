"""Loads of clusters of which some brokers are given, and no ZooKeeper: topics are known again by their ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from zkconsumer.spark.errors import TopicMissing
from zkconsumer.spark.load import run_writer
from zkconsumer.spark.load.cluster_state import compacted_topics
from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.failures import AuditFailed, LoadRefused, OffsetsLost
from zkconsumer.spark.load.job import LoadReport, run_load
from zkconsumer.spark.load.lake import read_published
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.settings_files import open_source
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Topic = Callable[[], str]
Clusters = Callable[[str, int], KafkaCluster]


class Lake:
    """A folder that topics are loaded into, from whatever cluster is named."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder

    def load(
        self, cluster: str, topic: str = "", *, skip: bool = False, gaps: bool = False, **source: str
    ) -> LoadReport:
        by_zookeeper = source.pop("by_zookeeper", "")
        options = {"zookeeper.connect" if by_zookeeper else "bootstrap.servers": cluster}
        options |= {"subscribe": topic} if topic else {}
        options |= {"kafkaConsumer.pollTimeoutMs": "4000", **source}
        return run_load(self._spark, LoadSettings(options, str(self.folder), allow_loss=skip, allow_gaps=gaps))

    def manifest(self, run: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifest_path(run).read_text())
        return found

    def manifest_path(self, run: int) -> Path:
        return self.folder / "_zkconsumer" / "runs" / f"{run:09}.json"

    def rows(self) -> list[tuple[int, int, bytes]]:
        """Partition, offset and value."""
        rows = read_published(self._spark, str(self.folder)).select("partition", "offset", "value").collect()
        return sorted((row.partition, row.offset, bytes(row.value)) for row in rows)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake")


@pytest.fixture(autouse=True)
def cuts_are_believed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 0.5)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    """A broker of Kafka 0.8.2, which knows nothing of ids, with its ZooKeeper."""
    with EmbeddedCluster(1) as cluster:
        yield cluster


def spans(report: LoadReport) -> dict[int, tuple[int, int]]:
    return {int(each.partition): (each.start, each.end) for each in report.partitions}


def losses(report: LoadReport) -> list[tuple[int, int, int | None]]:
    return [(int(each.partition.partition), each.begin, each.end) for each in report.lost]


def produce(brokers: str, topic: str, first: int, last: int, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": brokers, "compression.type": "zstd", "linger.ms": 20, **settings})
    for n in range(first, last):
        producer.produce(topic, b"v%d" % n, b"k%d" % n, partition=0)
    assert producer.flush(60) == 0


def created(cluster: KafkaCluster, topic: str, **config: str) -> None:
    cluster.create_topic(topic, config=config)
    cluster.wait_leaders(topic, [0])


def created_again(cluster: KafkaCluster, topic: str) -> None:
    cluster.delete_topic(topic)
    wait_until(lambda: topic not in _topics(cluster), 30, "the topic to be gone")
    created(cluster, topic)


def _topics(cluster: KafkaCluster) -> set[str]:
    return set(Producer({"bootstrap.servers": cluster.addresses()}).list_topics(timeout=10).topics)


def read_by_confluent(brokers: str, topic: str, **settings: Any) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of partition 0, from its start to its end."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "peer", "enable.auto.commit": False,
                         "enable.partition.eof": True, **settings})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    assert message is not None, "the end was not reached"
    return found


# -- Kafka 4 -----------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("version", ["4.3.1", pytest.param("3.9.2", marks=pytest.mark.slow)])
def test_a_load_goes_on_and_knows_a_topic_that_was_created_again(
    lake: Lake, kafka_clusters: Clusters, fresh_topic: Topic, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    brokers = f"127.0.0.1:1,{cluster.addresses()}"
    created(cluster, topic)
    produce(cluster.addresses(), topic, 0, 300)
    assert spans(lake.load(brokers, topic)) == {0: (0, 300)}
    produce(cluster.addresses(), topic, 300, 500)
    assert spans(lake.load(brokers, topic)) == {0: (300, 500)}
    assert lake.load(brokers, topic).run is None
    assert lake.rows() == read_by_confluent(cluster.addresses(), topic)
    manifest = lake.manifest(2)
    assert (manifest["version"], manifest["bootstrap_servers"], manifest["zookeeper"]) == (4, brokers, "")
    assert [list(manifest[key]) for key in ("ids", "epochs")] == [[topic], [topic]]
    assert not manifest.keys() & {"births", "cluster_ms"}
    created_again(cluster, topic)
    produce(cluster.addresses(), topic, 1000, 1600)  # more than there was: its length says nothing
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 500 on: its topic was deleted and created again"):
        lake.load(brokers, topic)
    report = lake.load(brokers, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (0, 600)}, [(0, 500, None)])
    assert len(lake.rows()) == 1100
    assert lake.manifest(3)["ids"] != manifest["ids"]
    [compaction] = run_compactions(lake._spark, CompactionSettings(str(lake.folder)))
    assert (compaction.files_before, compaction.files_after) == (2, 1), "files of the first topic, and none of both"
    assert len(lake.rows()) == 1100


@pytest.mark.real
def test_a_topic_that_is_created_again_while_it_is_read_is_not_published_as_the_old_one(
    lake: Lake, kafka_clusters: Clusters, fresh_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, topic = kafka_clusters("4.3.1", 1), fresh_topic()
    brokers = cluster.addresses()
    created(cluster, topic)
    produce(brokers, topic, 0, 10)
    lake.load(brokers, topic)
    produce(brokers, topic, 10, 20)
    write_rows = run_writer.write_rows

    def create_again_and_write(*arguments: Any) -> None:
        created_again(cluster, topic)
        produce(brokers, topic, 100, 140)
        write_rows(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, "write_rows", create_again_and_write)
        with pytest.raises(AuditFailed, match=f"'{topic}' was deleted and created again while it was read"):
            lake.load(brokers, topic)
    report = lake.load(brokers, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (0, 40)}, [(0, 10, None)])


@pytest.mark.real
def test_another_cluster_is_known_by_its_id(lake: Lake, kafka_clusters: Clusters, fresh_topic: Topic) -> None:
    cluster, topic = kafka_clusters("4.3.1", 1), fresh_topic()
    created(cluster, topic)
    lake.load(cluster.addresses(), topic)
    manifest = lake.manifest(1)
    assert len(manifest["cluster_id"]) == 22
    lake.manifest_path(1).write_text(json.dumps({**manifest, "cluster_id": "another"}))
    with pytest.raises(LoadRefused, match="is not the cluster of the last run: it has another id"):
        lake.load(cluster.addresses(), topic)


@pytest.mark.real
def test_a_broker_tells_which_topics_are_compacted(kafka_clusters: Clusters, fresh_topic: Topic) -> None:
    for version in ("4.3.1", "1.1.1"):
        cluster, plain, compacted = kafka_clusters(version, 1), fresh_topic(), f"{fresh_topic()}-compacted"
        created(cluster, plain)
        created(cluster, compacted, **{"cleanup.policy": "compact"})
        settings = LoadSettings({"bootstrap.servers": cluster.addresses(), "subscribe": plain}, "/nowhere")
        config = settings.options().config
        with open_source(config) as source:
            assert compacted_topics(source, config, [plain, compacted]) == {compacted}


@pytest.mark.real
def test_a_load_over_tls_and_sasl_keeps_its_password_to_itself(
    spark: SparkSession, lake: Lake, secured_clusters: Callable[[str], KafkaCluster], fresh_topic: Topic,
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("DEBUG")
    cluster, topic, secret = secured_clusters("4.3.1"), fresh_topic(), "secret-of-alice"
    created(cluster, topic)
    produce(cluster.addresses(), topic, 0, 50)
    file = tmp_path / "alice.properties"
    file.touch(0o600)
    given = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice",
        "sasl.password": secret, "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.certificates.authority.certificate),
    }  # fmt: skip
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    report = lake.load(cluster.addresses("SASL_SSL"), topic, config=str(file))
    assert spans(report) == {0: (0, 50)}
    file.write_text(file.read_text().replace(secret, f"{secret}-wrong"))
    with pytest.raises(Exception, match="refused") as raised:
        lake.load(cluster.addresses("SASL_SSL"), topic, config=str(file))
    shown = [str(raised.value), repr(report), caplog.text]
    shown += [path.read_text("latin-1") for path in lake.folder.rglob("*") if path.is_file()]
    assert [text for text in shown if secret in text] == []


# -- brokers without ids -----------------------------------------------------------------------------------------------


def test_a_load_goes_on_by_that_with_which_it_began(
    lake: Lake, embedded: EmbeddedCluster, fresh_topic: Topic, tmp_path: Path, spark: SparkSession
) -> None:
    topic, other = fresh_topic(), Lake(spark, tmp_path / "other")
    embedded.create_topic(topic)
    embedded.produce(topic, [b"a", b"b"], partition=0)
    by_zookeeper = {"by_zookeeper": "yes"}
    assert spans(lake.load(embedded.broker_list, topic)) == {0: (0, 2)}
    assert spans(other.load(embedded.zookeeper_connect, topic, **by_zookeeper)) == {0: (0, 2)}
    assert (lake.manifest(1)["ids"], other.manifest(1)["version"]) == ({}, 2)
    embedded.produce(topic, [b"c"], partition=0)
    with pytest.raises(LoadRefused, match=r"by the ids that brokers report, but zookeeper\.connect is given") as raised:
        lake.load(embedded.zookeeper_connect, topic, **by_zookeeper)
    assert raised.value.remedy == "continue with bootstrap.servers"
    with pytest.raises(LoadRefused, match=r"by their nodes in ZooKeeper, but bootstrap\.servers is given") as raised:
        other.load(embedded.broker_list, topic)
    assert raised.value.remedy.startswith("continue with zookeeper.connect; if the cluster no longer has ZooKeeper")
    assert spans(lake.load(embedded.broker_list, topic)) == {0: (2, 3)}
    assert spans(other.load(embedded.zookeeper_connect, topic, **by_zookeeper)) == {0: (2, 3)}


def test_the_last_message_shows_a_topic_that_was_created_again_where_there_are_no_ids(
    lake: Lake, embedded: EmbeddedCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    embedded.create_topic(topic)
    embedded.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    lake.load(embedded.broker_list, topic)
    embedded.delete_topic(topic)
    assert embedded.client.exists(f"/brokers/topics/{topic}") is None
    embedded.create_topic(topic)
    embedded.produce(topic, [b"%d" % n for n in range(100, 130)], partition=0)
    with pytest.raises(
        OffsetsLost,
        match=rf"{topic}-0 from offset 0 to 10: its log was truncated, and has since "
        r"grown past",
    ):
        lake.load(embedded.broker_list, topic)


def test_latest_is_where_the_first_run_begins_and_later_topics_are_read_from_their_start(
    lake: Lake, embedded: EmbeddedCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    source = {"subscribePattern": f"{topic}.*", "startingOffsets": "latest"}
    assert lake.load(embedded.broker_list, **source).run == 1, "it notes that there was no such topic"
    embedded.create_topic(topic)
    embedded.produce(topic, [b"a", b"b"], partition=0)
    assert spans(lake.load(embedded.broker_list, **source)) == {0: (0, 2)}
    embedded.add_partitions(topic, 2)
    embedded.wait_leaders(topic, [1])
    embedded.produce(topic, [b"c"], partition=1)
    embedded.produce(topic, [b"d"], partition=0)
    assert spans(lake.load(embedded.broker_list, **source)) == {0: (2, 3), 1: (0, 1)}


def test_a_first_run_may_leave_the_past_out(lake: Lake, embedded: EmbeddedCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    embedded.create_topic(topic)
    embedded.produce(topic, [b"a", b"b"], partition=0)
    assert lake.load(embedded.broker_list, topic, startingOffsets="latest").partitions == ()
    embedded.produce(topic, [b"c"], partition=0)
    assert spans(lake.load(embedded.broker_list, topic, startingOffsets="latest")) == {0: (2, 3)}


def test_a_topic_that_is_not_there_is_named(lake: Lake, embedded: EmbeddedCluster) -> None:
    with pytest.raises(TopicMissing, match="topic 'nowhere' does not exist at the brokers 127"):
        lake.load(embedded.broker_list, "nowhere")
