"""What a load makes of logs that real brokers have cut, deleted, lost the leader of, or created anew.

`test_load_changes` has the same rules, and more of them, on embedded brokers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delete_records import delete_records

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import PartitionUnreadable
from zkconsumer.spark.load import run_writer
from zkconsumer.spark.load.failures import OffsetsLost
from zkconsumer.spark.load.job import LoadReport, run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.testing import load
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ["0.8.2.2", "2.8.2", "3.9.2"]
OLDEST_BY_DEFAULT = [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in VERSIONS[1:])]
Topic = Callable[[], str]


class Lake:
    """A folder that topics of one cluster are loaded into."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder

    def load(self, cluster: KafkaCluster, topic: str = "", skip: bool = False, **source: str) -> LoadReport:
        source = {"zookeeper.connect": cluster.zookeeper_connect, "kafkaConsumer.pollTimeoutMs": "4000"} | source
        source |= {"subscribe": topic} if topic else {}
        return run_load(self._spark, LoadSettings(source, str(self.folder), allow_loss=skip))

    def values(self, partition: int = 0) -> list[str]:
        rows = self._spark.read.parquet(str(self.folder)).where(f"partition = {partition}").collect()
        return sorted(bytes(row.value).decode() for row in rows)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


@pytest.fixture(autouse=True)
def cuts_are_believed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 1.0)


def numbered(*spans: tuple[int, int], partition: int = 0) -> list[str]:
    return sorted(f"{partition}:{n}" for first, last in spans for n in range(first, last))


def spans(report: LoadReport) -> dict[int, tuple[int, int]]:
    return {each.partition: (each.start, each.end) for each in report.partitions}


def losses(report: LoadReport) -> list[tuple[int, int, int | None]]:
    return [(int(each.partition.partition), each.begin, each.end) for each in report.lost]


def end_of(cluster: KafkaCluster, topic: str, time_ms: int = LATEST, partition: int = 0) -> int | None:
    leader = cluster.leader(topic, partition)
    if leader is None or not cluster.brokers[leader].running:
        return None
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
        [(code, offsets)] = broker.multi_offsets_before([TopicPartition(topic, partition)], time_ms)
    return None if code else offsets[0]


def in_sync(cluster: KafkaCluster, topic: str) -> list[int]:
    state, _ = cluster.client.get(f"/brokers/topics/{topic}/partitions/0/state")
    return sorted(json.loads(state)["isr"])


# -- logs that an unclean election has cut -----------------------------------------------------------------------------

CUT_SETTINGS = {"offsets.topic.replication.factor": 1, "unclean.leader.election.enable": True}


@pytest.fixture(scope="module")
def cut_clusters() -> Iterator[Callable[[str], KafkaCluster]]:
    """Two brokers that elect whoever is there, by version; tests leave both of them running."""
    running: dict[str, KafkaCluster] = {}

    def cluster(version: str) -> KafkaCluster:
        if version not in running:
            running[version] = KafkaCluster(version, 2, settings=CUT_SETTINGS).start_all()
        return running[version]

    yield cluster
    for each in running.values():
        each.close()


def leave_behind(cluster: KafkaCluster, topic: str) -> None:
    """A topic with 50 messages on both brokers, of which 1 has stopped; 0 takes what comes."""
    cluster.create_topic(topic, assignment={0: [0, 1]}, config={"unclean.leader.election.enable": "true"})
    load(cluster, topic, 50)
    wait_until(lambda: end_of(cluster, topic) == 50, 30, "both brokers to have the messages")
    cluster.kill(1, expire=True)
    wait_until(lambda: in_sync(cluster, topic) == [0], 30, "broker 1 to be out of sync")


def elect_the_other(cluster: KafkaCluster, topic: str) -> None:
    """Put broker 1, and what it has, in the place of 0."""
    cluster.kill(0, expire=True)
    cluster.start(1)
    wait_until(lambda: end_of(cluster, topic) == 50, 60, "broker 1 to lead with what it has")


@pytest.mark.parametrize("version", OLDEST_BY_DEFAULT)
def test_a_log_that_an_unclean_election_has_cut_is_read_on_from_its_new_end(
    cut_clusters: Callable[[str], KafkaCluster], lake: Lake, fresh_topic: Topic, version: str
) -> None:
    cluster, topic = cut_clusters(version), fresh_topic()
    leave_behind(cluster, topic)
    assert spans(lake.load(cluster, topic)) == {0: (0, 50)}
    load(cluster, topic, 30, first=50)
    assert spans(lake.load(cluster, topic)) == {0: (50, 80)}
    elect_the_other(cluster, topic)
    reason = "its log was truncated " + (
        "there when its leader changed" if version != VERSIONS[0] else "and now ends there"
    )
    with pytest.raises(OffsetsLost, match=f"{topic}-0 from offset 50 to 80: {reason}"):
        lake.load(cluster, topic)
    report = lake.load(cluster, topic, skip=True)
    assert (spans(report), losses(report)) == ({}, [(0, 50, 80)])
    load(cluster, topic, 10, first=500)
    cluster.start(0)
    wait_until(lambda: in_sync(cluster, topic) == [0, 1], 60, "broker 0 to be cut like 1")
    report = lake.load(cluster, topic)
    assert (spans(report), losses(report)) == ({0: (50, 60)}, [])
    assert lake.values() == numbered((0, 80), (500, 510))


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "snappy"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_that_was_cut_and_has_grown_past_its_old_end_is_noticed(
    cut_clusters: Callable[[str], KafkaCluster], lake: Lake, fresh_topic: Topic, version: str, codec: str
) -> None:
    """By the epochs of its leaders, and read on where it was cut; before Kafka 2.1 by its last message."""
    cluster, topic = cut_clusters(version), fresh_topic()
    has_epochs = version != VERSIONS[0]
    leave_behind(cluster, topic)
    lake.load(cluster, topic)
    load(cluster, topic, 30, first=50, codec=codec)
    lake.load(cluster, topic)
    elect_the_other(cluster, topic)
    load(cluster, topic, 40, first=500, codec=codec)
    reason = "its log was truncated there when its leader changed" if has_epochs else ".*has since grown past the end"
    with pytest.raises(OffsetsLost, match=f"{topic}-0 from offset 50 to 80: {reason}"):
        lake.load(cluster, topic)
    report = lake.load(cluster, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (50 if has_epochs else 80, 90)}, [(0, 50, 80)])
    cluster.start(0)
    wait_until(lambda: in_sync(cluster, topic) == [0, 1], 60, "broker 0 to be cut like 1")
    load(cluster, topic, 5, first=600, codec=codec)
    wait_until(lambda: end_of(cluster, topic) == 95, 30, "both brokers to have the messages")
    report = lake.load(cluster, topic)
    assert (spans(report), losses(report)) == ({0: (90, 95)}, [])
    assert lake.values() == numbered((0, 80), (500 if has_epochs else 530, 540), (600, 605))


@pytest.mark.slow
def test_an_end_that_readers_may_not_pass_yet_is_no_cut(lake: Lake, fresh_topic: Topic) -> None:
    """All brokers lose their power; the leader comes back alone, and has written down long ago how far all were."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": 3_600_000, "replica.lag.time.max.ms": 120_000,
                "zookeeper.session.timeout.ms": 60_000}  # fmt: skip
    topic = fresh_topic()
    with KafkaCluster("2.8.2", 2, settings=settings) as cluster:
        cluster.create_topic(topic, assignment={0: [0, 1]})
        load(cluster, topic, 100)
        wait_until(lambda: end_of(cluster, topic) == 100, 30, "both brokers to have the messages")
        assert spans(lake.load(cluster, topic)) == {0: (0, 100)}
        options = batch_options({"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic,
                                 "failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": "4000"})  # fmt: skip
        [planned] = plan_batch(options)
        for broker in cluster.brokers.values():
            broker.process.kill()
        cluster.start(0)
        wait_until(lambda: end_of(cluster, topic) == 0, 30, "the leader to know of nothing that all have")
        report = lake.load(cluster, topic, skip=True)
        assert (report.run, report.lost, [*report.silent]) == (None, (), [TopicPartition(topic, 0)])
        assert "its log ends at 100, but readers get it only up to 0 so far" in report.silent[TopicPartition(topic, 0)]
        with pytest.raises(PartitionUnreadable, match=f"{topic}.*no message arrived for 4 s"):
            [*read_range(planned, ("value",), options)]
        cluster.start(1)
        wait_until(lambda: end_of(cluster, topic) == 100, 60, "both brokers to have the messages again")
        load(cluster, topic, 10, first=100)
        assert spans(lake.load(cluster, topic)) == {0: (100, 110)}
    assert lake.values() == numbered((0, 110))


# -- leaders -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_command_loads_the_others_while_a_partition_has_no_leader_and_the_rest_when_it_is_back(
    cut_clusters: Callable[[str], KafkaCluster], lake: Lake, fresh_topic: Topic, version: str
) -> None:
    cluster, topic = cut_clusters(version), fresh_topic()
    cluster.create_topic(topic, assignment={0: [0], 1: [1, 0], 2: [1]},
                         config={"unclean.leader.election.enable": "false"})  # fmt: skip
    load(cluster, topic, 20)
    command = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", cluster.zookeeper_connect, "--topic",
               topic, "--to", str(lake.folder), "--option", "kafkaConsumer.pollTimeoutMs=4000", "--master", "local[1]",
               "--conf", "spark.ui.enabled=false"]  # fmt: skip

    def run() -> tuple[int, str, str]:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
        return done.returncode, done.stdout, done.stderr

    status, out, err = run()
    assert (status, "Run 1 published: 60 messages" in out) == (0, True), err
    cluster.kill(1, expire=True)
    wait_until(lambda: cluster.leader(topic, 1) == 0 and end_of(cluster, topic, partition=1) == 20, 30,
               "broker 0 to lead partition 1")  # fmt: skip
    load(cluster, topic, 5, partitions=[0, 1], first=20)
    status, out, err = run()
    assert (status, "Run 2 published: 10 messages" in out) == (3, True), err
    assert [line for line in err.splitlines() if line.startswith("! left to the next run")] == [
        f"! left to the next run {topic}-2: no broker leads it"
    ]
    assert "skipped" not in err
    status, out, err = run()
    assert (status, "Nothing new in 3 partitions." in out) == (3, True), err
    cluster.start(1)
    cluster.wait_leaders(topic, [0, 1, 2])
    load(cluster, topic, 5, partitions=[2], first=20)
    status, out, err = run()
    assert (status, "Run 3 published: 5 messages" in out, "!" in err) == (0, True, False), err
    for partition in range(3):
        assert lake.values(partition) == numbered((0, 25), partition=partition)


# -- topics that go, and come again ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_old_ends_of_partitions_that_a_new_topic_lacks_go_with_the_old_one(
    kafka_clusters: Callable[[str, int], KafkaCluster], lake: Lake, fresh_topic: Topic, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 2), fresh_topic()
    cluster.create_topic(topic, partitions=2)
    load(cluster, topic, 50)
    lake.load(cluster, topic)
    cluster.delete_topic(topic)
    cluster.create_topic(topic, partitions=1)
    load(cluster, topic, 3, first=100)
    report = lake.load(cluster, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (0, 3)}, [(0, 50, None), (1, 50, None)])
    cluster.add_partitions(topic, 2)
    load(cluster, topic, 60, partitions=[1], first=100)
    report = lake.load(cluster, topic)
    assert (spans(report), losses(report)) == ({1: (0, 60)}, [])
    assert lake.values(1) == numbered((0, 50), (100, 160), partition=1)


@pytest.mark.parametrize("version", OLDEST_BY_DEFAULT)
def test_a_topic_that_is_deleted_behind_a_filter_is_named_once(
    kafka_clusters: Callable[[str, int], KafkaCluster], lake: Lake, fresh_topic: Topic, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 2), fresh_topic()
    gone, pattern = f"{topic}-gone", {"subscribePattern": f"{topic}.*"}
    for name in (topic, gone):
        cluster.create_topic(name, partitions=1)
        load(cluster, name, 5)
    lake.load(cluster, **pattern)
    load(cluster, gone, 5, first=5)
    cluster.delete_topic(gone)
    with pytest.raises(OffsetsLost, match=rf"{gone}-0 from offset 5 on: it no longer exists"):
        lake.load(cluster, **pattern)
    report = lake.load(cluster, skip=True, **pattern)
    assert [(each.partition, each.begin, each.end) for each in report.lost] == [(TopicPartition(gone, 0), 5, None)]
    assert lake.load(cluster, **pattern).lost == ()
    assert cluster.client.exists(f"/brokers/topics/{gone}") is None, "looking for it has created it anew"


# -- retention ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_lived() -> Iterator[KafkaCluster]:
    """A broker of Kafka 0.8.2.2 that looks for what to delete four times a second, thirty seconds after its start."""
    with KafkaCluster("0.8.2.2", 1, settings={"log.retention.check.interval.ms": 250}) as cluster:
        yield cluster


SMALL = {"segment.bytes": 1000, "retention.bytes": 2000, "segment.index.bytes": 1000, "file.delete.delay.ms": 100}


def push_out(cluster: KafkaCluster, topic: str, first: int) -> tuple[int, int]:
    """Write until retention has deleted everything before `first`, and return begin and end of the log."""
    load(cluster, topic, 200, first=first, batch=10)
    end = first + 200
    most = 3000 // (12 + 14 + len("0:100"))  # less than a segment above the limit, of messages with their heads
    wait_until(lambda: end - (end_of(cluster, topic, EARLIEST) or 0) <= most, 60, "retention to strike")
    begin = end_of(cluster, topic, EARLIEST)
    assert begin is not None
    return begin, end


@pytest.mark.slow
def test_retention_between_runs_and_in_the_middle_of_one_takes_what_is_named_and_no_more(
    short_lived: KafkaCluster, lake: Lake, fresh_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic()
    short_lived.create_topic(topic, config=SMALL)
    load(short_lived, topic, 20)
    assert spans(lake.load(short_lived, topic)) == {0: (0, 20)}
    begin, end = push_out(short_lived, topic, 20)
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 20 to {begin}: deleted before it was read"):
        lake.load(short_lived, topic)
    report = lake.load(short_lived, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (begin, end)}, [(0, 20, begin)])
    assert lake.values() == numbered((0, 20), (begin, end))

    load(short_lived, topic, 10, first=end)
    strikes: list[tuple[int, int]] = []
    write_rows = run_writer.write_rows

    def strike_and_write(*arguments: Any) -> None:
        strikes.append(push_out(short_lived, topic, end + 10 + 200 * len(strikes)))
        write_rows(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, "write_rows", strike_and_write)
        with pytest.raises(Exception, match=topic):
            lake.load(short_lived, topic)
        report = lake.load(short_lived, topic, skip=True)
    planned, (struck_begin, struck_end) = end + 210, strikes[1]
    assert struck_begin > planned
    assert losses(report) == [(0, end, strikes[0][0]), (0, strikes[0][0], planned)]
    report = lake.load(short_lived, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (struck_begin, struck_end)}, [(0, planned, struck_begin)])
    assert lake.values() == numbered((0, 20), (begin, end), (struck_begin, struck_end))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_deleted_records_are_named_and_the_deleted_last_message_is_no_cut(
    kafka_clusters: Callable[[str, int], KafkaCluster],
    lake: Lake,
    fresh_topic: Topic,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic)
    load(cluster, topic, 20)
    lake.load(cluster, topic)
    load(cluster, topic, 30, first=20)
    delete_records(cluster.port(0), topic, 0, 20)
    report = lake.load(cluster, topic)
    assert (spans(report), losses(report)) == ({0: (20, 50)}, [])
    load(cluster, topic, 30, first=50)
    delete_records(cluster.port(0), topic, 0, 63)
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 50 to 63: deleted before it was read"):
        lake.load(cluster, topic)
    report = lake.load(cluster, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (63, 80)}, [(0, 50, 63)])

    load(cluster, topic, 20, first=80)
    write_rows = run_writer.write_rows

    def delete_and_write(*arguments: Any) -> None:
        delete_records(cluster.port(0), topic, 0, 91)
        write_rows(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, "write_rows", delete_and_write)
        report = lake.load(cluster, topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (80, 100)}, [(0, 80, 91)])
    load(cluster, topic, 5, first=100)
    report = lake.load(cluster, topic)
    assert (spans(report), losses(report)) == ({0: (100, 105)}, [])
    assert lake.values() == numbered((0, 50), (63, 80), (91, 105))
