"""What a load makes of logs that were cut, went, came back as others, or have no leader."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import GroupHasNoOffsets, NoMessageAtTime, PlanningFailed, TopicMissing
from zkconsumer.spark.load import run_writer
from zkconsumer.spark.load.failures import AuditFailed, LoadRefused, OffsetsLost
from zkconsumer.spark.load.job import LoadReport, run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
Topic = Callable[[], str]
Run = Callable[..., LoadReport]


@pytest.fixture
def run(spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Run:
    """Loads a topic, or what else is asked for, into one folder."""

    def run(topic: str = "", skip: bool = False, **more: Any) -> LoadReport:
        source = {"zookeeper.connect": embedded_cluster.zookeeper_connect, "kafkaConsumer.pollTimeoutMs": "1000"}
        source |= {"subscribe": topic} if topic else {}
        source |= more.pop("source", {})
        return run_load(spark, LoadSettings(source, str(tmp_path), allow_loss=skip, **more))

    return run


@pytest.fixture(autouse=True)
def cuts_are_believed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 0.5)


def spans(report: LoadReport) -> dict[int, tuple[int, int]]:
    return {each.partition: (each.start, each.end) for each in report.partitions}


def values(spark: SparkSession, folder: Path, partition: int = 0) -> list[str]:
    rows = spark.read.parquet(str(folder)).where(f"partition = {partition}").collect()
    return sorted(bytes(row.value).decode() for row in rows)


def numbered(*spans: tuple[int, int], partition: int = 0) -> list[str]:
    return sorted(f"{partition}:{n}" for first, last in spans for n in range(first, last))


def losses(report: LoadReport) -> list[tuple[int, int, int | None]]:
    return [(int(each.partition.partition), each.begin, each.end) for each in report.lost]


# -- topics that go, and come again ------------------------------------------------------------------------------------


def created_anew(cluster: EmbeddedCluster, topic: str, partitions: int) -> None:
    cluster.delete_topic(topic)
    wait_until(lambda: cluster.client.exists(f"/brokers/topics/{topic}") is None, 30, "the topic to be gone")
    cluster.create_topic(topic, partitions=partitions)
    cluster.wait_leaders(topic, range(partitions))


def test_old_ends_of_partitions_that_a_new_topic_lacks_go_with_the_old_one(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=2)
    load(embedded_cluster, topic, 50)
    run(topic)
    created_anew(embedded_cluster, topic, 1)
    load(embedded_cluster, topic, 3, first=100)
    report = run(topic, skip=True)
    assert spans(report) == {0: (0, 3)}
    assert losses(report) == [(0, 50, None), (1, 50, None)]
    embedded_cluster.add_partitions(topic, 2)
    embedded_cluster.wait_leaders(topic, [1])
    load(embedded_cluster, topic, 60, partitions=[1], first=100)
    report = run(topic)
    assert (spans(report), report.lost) == ({1: (0, 60)}, ())
    assert values(spark, tmp_path, 1) == numbered((0, 50), (100, 160), partition=1)


def test_a_topic_that_is_created_anew_while_it_is_read_is_not_published_as_the_old_one(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    run: Run,
    fresh_topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 10)
    run(topic)
    load(embedded_cluster, topic, 10, first=10)
    write_rows = run_writer.write_rows

    def create_anew_and_write(*arguments: Any) -> None:
        created_anew(embedded_cluster, topic, 1)
        load(embedded_cluster, topic, 40, first=100)
        write_rows(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, "write_rows", create_anew_and_write)
        with pytest.raises(AuditFailed, match=f"'{topic}' was deleted and created again while it was read"):
            run(topic)
    report = run(topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (0, 40)}, [(0, 10, None)])
    assert values(spark, tmp_path) == numbered((0, 10), (100, 140))


def test_a_topic_that_vanishes_behind_a_filter_is_named_once(
    embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    gone = f"{topic}-gone"
    source = {"subscribePattern": f"{topic}.*"}
    for name in (topic, gone):
        embedded_cluster.create_topic(name, partitions=1)
        load(embedded_cluster, name, 5)
    run(source=source)
    load(embedded_cluster, gone, 5, first=5)
    embedded_cluster.delete_topic(gone)
    wait_until(lambda: embedded_cluster.client.exists(f"/brokers/topics/{gone}") is None, 30, "the topic to be gone")
    with pytest.raises(OffsetsLost, match=rf"{gone}-0 from offset 5 on: it no longer exists"):
        run(source=source)
    report = run(source=source, skip=True)
    assert [(each.partition, each.begin, each.end) for each in report.lost] == [(TopicPartition(gone, 0), 5, None)]
    report = run(source=source)
    assert (report.run, report.lost) == (None, ())
    with pytest.raises(TopicMissing, match=gone):
        run(gone)


def test_a_topic_that_is_created_later_is_read_from_its_beginning_also_by_who_began_at_latest(
    embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    source = {"subscribePattern": f"{topic}.*", "startingOffsets": "latest"}
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 5)
    assert run(source=source).partitions == ()
    embedded_cluster.add_partitions(topic, 2)
    embedded_cluster.create_topic(f"{topic}-later", partitions=1)
    embedded_cluster.wait_leaders(topic, [1])
    load(embedded_cluster, topic, 2, partitions=[1])
    load(embedded_cluster, f"{topic}-later", 3)
    report = run(source=source)
    assert {(each.topic, each.partition, each.start, each.end) for each in report.partitions} == {
        (topic, 1, 0, 2), (f"{topic}-later", 0, 0, 3),
    }  # fmt: skip


def test_a_group_to_begin_at_has_to_have_an_offset_and_what_comes_later_need_not(
    embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic, fresh_group: str
) -> None:
    topic = fresh_topic()
    source = {"subscribePattern": f"{topic}.*", "startingOffsets": "group", "group.id": fresh_group}
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 5)
    with pytest.raises(GroupHasNoOffsets, match=f"group '{fresh_group}' has no offset of {topic}/0"):
        run(source=source)
    embedded_cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", b"2", makepath=True)
    assert spans(run(source=source)) == {0: (2, 5)}
    embedded_cluster.create_topic(f"{topic}-later", partitions=1)
    load(embedded_cluster, f"{topic}-later", 3)
    assert spans(run(source=source)) == {0: (0, 3)}


# -- logs that were cut ------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Topic) -> str:
    """One partition, 100 messages."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=1)
    load(embedded_cluster, name, 100)
    return name


def test_a_load_begins_by_time_and_what_comes_later_may_have_nothing_that_young(
    run: Run, embedded_cluster: EmbeddedCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    for n in range(3):
        load(embedded_cluster, topic, 10, first=10 * n)
        if n < 2:
            embedded_cluster.log(topic, 0).roll()
    now_s = time.time()
    for path, hours in zip(sorted(embedded_cluster.folder.rglob(f"{topic}-0/*.log")), (30, 20, 10), strict=True):
        os.utime(path, (now_s - hours * 3600, now_s - hours * 3600))
    future = {"startingTimestamp": str(int(now_s + 86_400) * 1000), "startingOffsets": "latest"}
    with pytest.raises(NoMessageAtTime, match=f"{topic}/0"):
        run(topic, source=future)
    source = {"startingTimestamp": str(int(now_s - 15 * 3600) * 1000), "startingOffsets": "latest"}
    assert spans(run(topic, source=source)) == {0: (10, 30)}
    embedded_cluster.add_partitions(topic, 2)  # empty: nothing in it is that young
    assert run(topic, source=source).partitions == ()
    load(embedded_cluster, topic, 5, partitions=[1])
    assert spans(run(topic, source=source)) == {1: (0, 5)}


def test_a_cut_log_is_read_on_from_its_new_end(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, run: Run, topic: str, tmp_path: Path
) -> None:
    run(topic)
    embedded_cluster.log(topic, 0).truncate(90)
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 0 to 100: its log was truncated and now ends at 90"):
        run(topic)
    report = run(topic, skip=True)
    assert (spans(report), losses(report)) == ({}, [(0, 0, 100)])
    load(embedded_cluster, topic, 20, first=200)
    report = run(topic)
    assert (spans(report), report.lost) == ({0: (90, 110)}, ())
    assert values(spark, tmp_path) == numbered((0, 100), (200, 220))


def test_runs_before_tell_how_much_of_a_cut_log_has_stayed(
    embedded_cluster: EmbeddedCluster, run: Run, topic: str
) -> None:
    run(topic)
    for first in (100, 110, 120):
        load(embedded_cluster, topic, 10, first=first)
        run(topic)
    embedded_cluster.log(topic, 0).truncate(115)
    load(embedded_cluster, topic, 10, first=500)
    assert losses(run(topic, skip=True)) == [(0, 110, 130)]


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_log_that_was_cut_and_has_grown_past_its_old_end_is_noticed(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, run: Run, topic: str, tmp_path: Path, codec: str
) -> None:
    run(topic)
    load(embedded_cluster, topic, 10, first=100)
    run(topic)
    embedded_cluster.log(topic, 0).truncate(105)
    load(embedded_cluster, topic, 15, first=500, codec=codec)
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 100 to 110: .*has since grown past the end"):
        run(topic)
    report = run(topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (110, 120)}, [(0, 100, 110)])
    assert values(spark, tmp_path) == numbered((0, 110), (505, 515))
    load(embedded_cluster, topic, 5, first=600, codec=codec)
    assert run(topic).lost == ()


def test_a_log_that_was_cut_and_has_grown_up_to_its_old_end_is_noticed_once(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, run: Run, topic: str, tmp_path: Path
) -> None:
    run(topic)
    load(embedded_cluster, topic, 10, first=100)
    run(topic)
    embedded_cluster.log(topic, 0).truncate(105)
    load(embedded_cluster, topic, 5, first=500)
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 100 to 110: .*has since grown up to the end"):
        run(topic)
    report = run(topic, skip=True)
    assert (report.run, spans(report), losses(report)) == (3, {}, [(0, 100, 110)])
    again = run(topic)
    assert (again.run, again.lost) == (None, ())
    load(embedded_cluster, topic, 5, first=600)
    assert run(topic).lost == ()
    assert values(spark, tmp_path) == numbered((0, 110), (600, 605))


def test_retention_that_took_everything_is_no_cut(embedded_cluster: EmbeddedCluster, run: Run, topic: str) -> None:
    run(topic)
    log = embedded_cluster.log(topic, 0)
    log.roll()
    assert log.delete_head(100) == 100
    again = run(topic)
    assert (again.run, again.lost) == (None, ())


def test_a_log_that_was_cut_just_before_a_run_and_has_grown_since_is_noticed_by_the_next(
    embedded_cluster: EmbeddedCluster, run: Run, topic: str
) -> None:
    run(topic)
    embedded_cluster.log(topic, 0).truncate(90)
    run(topic, skip=True)
    embedded_cluster.log(topic, 0).truncate(80)
    load(embedded_cluster, topic, 20, first=500)
    assert losses(run(topic, skip=True)) == [(0, 0, 90)]


def test_retention_that_took_the_last_message_is_no_cut(
    embedded_cluster: EmbeddedCluster, run: Run, topic: str
) -> None:
    log = embedded_cluster.log(topic, 0)
    run(topic)
    log.roll()
    load(embedded_cluster, topic, 50, first=100)
    assert log.delete_head(100) == 100
    report = run(topic)
    assert (spans(report), report.lost) == ({0: (100, 150)}, ())
    load(embedded_cluster, topic, 20, first=150)
    log.roll()
    load(embedded_cluster, topic, 30, first=170)
    assert log.delete_head(170) == 170
    report = run(topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (170, 200)}, [(0, 150, 170)])


@pytest.fixture
def log_of_two_segments(embedded_cluster: EmbeddedCluster, fresh_topic: Topic) -> PartitionLog:
    """60 messages and 40."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    log = embedded_cluster.log(topic, 0)
    for first, last in ((0, 60), (60, 100)):
        load(embedded_cluster, topic, last - first, first=first)
        log.roll()
    return log


def delete_before_reading(log: PartitionLog, begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have retention strike when a run was planned."""
    write_rows = run_writer.write_rows

    def delete_and_write(*arguments: Any) -> None:
        assert log.delete_head(begin) == begin
        write_rows(*arguments)

    monkeypatch.setattr(run_writer, "write_rows", delete_and_write)


@pytest.mark.parametrize("begin", [60, 100], ids=["a part of it", "all of it"])
def test_what_retention_takes_while_it_is_read_fails_a_load_that_must_lose_nothing_and_publishes_nothing(
    run: Run, log_of_two_segments: PartitionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    topic = log_of_two_segments.topic
    delete_before_reading(log_of_two_segments, begin, monkeypatch)
    with pytest.raises(Exception, match=topic):
        run(topic)
    assert not list(tmp_path.glob("topic=*"))
    report = run(topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (begin, 100)} if begin < 100 else {}, [])


def test_what_retention_takes_while_it_is_read_is_named(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    run: Run,
    log_of_two_segments: PartitionLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = log_of_two_segments.topic
    delete_before_reading(log_of_two_segments, 60, monkeypatch)
    report = run(topic, skip=True)
    assert (spans(report), losses(report)) == ({0: (0, 100)}, [(0, 0, 60)])
    assert values(spark, tmp_path) == numbered((60, 100))
    load(embedded_cluster, topic, 5, first=100)
    assert spans(run(topic)) == {0: (100, 105)}


def test_compaction_that_took_the_last_message_is_no_cut(
    embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1, config={"cleanup.policy": "compact"})
    load(embedded_cluster, topic, 10)
    run(topic)
    load(embedded_cluster, topic, 5, first=10)
    embedded_cluster.log(topic, 0).roll()
    embedded_cluster.log(topic, 0).remove([9])
    report = run(topic)
    assert (spans(report), report.lost) == ({0: (10, 15)}, ())


def test_where_gaps_are_allowed_a_last_message_that_is_gone_is_no_cut_and_another_one_is(
    embedded_cluster: EmbeddedCluster, run: Run, topic: str
) -> None:
    """Brokers may compact by default, which no node of the topic says."""
    run(topic, allow_gaps=True)
    load(embedded_cluster, topic, 5, first=100)
    embedded_cluster.log(topic, 0).roll()
    embedded_cluster.log(topic, 0).remove([99])
    report = run(topic, allow_gaps=True)
    assert (spans(report), report.lost) == ({0: (100, 105)}, ())
    embedded_cluster.log(topic, 0).truncate(103)
    load(embedded_cluster, topic, 5, first=500)
    assert losses(run(topic, skip=True, allow_gaps=True)) == [(0, 0, 105)]


def test_an_end_that_a_new_leader_names_for_a_moment_is_asked_for_again(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    run: Run,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 20.0)
    run(topic)
    log = embedded_cluster.log(topic, 0)
    log.truncate(40)
    catches_up = Timer(1.0, load, (embedded_cluster, topic, 70), {"first": 40})
    catches_up.start()
    try:
        report = run(topic)
    finally:
        catches_up.join()
    assert (spans(report), report.lost) == ({0: (100, 110)}, ())
    assert values(spark, tmp_path) == numbered((0, 110))


# -- leaders -----------------------------------------------------------------------------------------------------------


def stop_leader_of_partition_1(cluster: EmbeddedCluster, topic: str) -> int:
    """Make a topic of two partitions with ten messages each, and stop the broker of one of them."""
    cluster.create_topic(topic, partitions=2)
    load(cluster, topic, 10)
    down = cluster.leader(topic, 1)
    assert down is not None
    cluster.stop(down)
    return down


@pytest.mark.embedded_cluster(brokers=2)
def test_a_partition_without_a_leader_is_named_and_the_others_are_loaded(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic = fresh_topic()
    down = stop_leader_of_partition_1(embedded_cluster, topic)
    report = run(topic)
    assert (spans(report), [*report.silent]) == ({0: (0, 10)}, [TopicPartition(topic, 1)])
    assert report.silent[TopicPartition(topic, 1)]
    load(embedded_cluster, topic, 5, partitions=[0], first=10)
    report = run(topic)
    assert (spans(report), [*report.silent]) == ({0: (10, 15)}, [TopicPartition(topic, 1)])
    again = run(topic)
    assert (again.run, [*again.silent]) == (None, [TopicPartition(topic, 1)])
    with pytest.raises(PlanningFailed, match=rf"after 1 s no broker has answered for {topic}/1 \("):
        run(topic, allow_leaderless=False)
    embedded_cluster.start(down)
    embedded_cluster.wait_leaders(topic, [1])
    report = run(topic)
    assert (spans(report), report.silent, report.lost) == ({1: (0, 10)}, {}, ())
    assert values(spark, tmp_path, 1) == numbered((0, 10), partition=1)


@pytest.mark.embedded_cluster(brokers=2)
@pytest.mark.parametrize("again", [0, 1, 2])
def test_a_partition_that_was_left_to_the_next_run_and_is_gone_then_is_named(
    embedded_cluster: EmbeddedCluster, run: Run, fresh_topic: Topic, again: int
) -> None:
    """Its topic was deleted, and created anew with so many partitions."""
    topic = fresh_topic()
    source = {"subscribePattern": topic}
    down = stop_leader_of_partition_1(embedded_cluster, topic)
    run(source=source)
    embedded_cluster.start(down)
    embedded_cluster.wait_leaders(topic, [1])
    embedded_cluster.delete_topic(topic)
    wait_until(lambda: embedded_cluster.client.exists(f"/brokers/topics/{topic}") is None, 30, "the topic to be gone")
    if again:
        embedded_cluster.create_topic(topic, partitions=again)
        load(embedded_cluster, topic, 3)
    with pytest.raises(OffsetsLost, match=rf"{topic}-1 from offset 0 on: it had no leader"):
        run(source=source)
    report = run(source=source, skip=True)
    assert spans(report) == dict.fromkeys(range(again), (0, 3))
    assert losses(report) == [(0, 10, None), (1, 0, None)]
    report = run(source=source)
    assert (report.run, report.lost) == (None, ())


@pytest.mark.embedded_cluster(brokers=2)
def test_the_command_names_it_and_ends_with_a_status_of_its_own(
    embedded_cluster: EmbeddedCluster, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic = fresh_topic()
    stop_leader_of_partition_1(embedded_cluster, topic)
    command = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", embedded_cluster.zookeeper_connect,
               "--topic", topic, "--to", str(tmp_path), "--option", "kafkaConsumer.pollTimeoutMs=2000",
               "--master", "local[1]"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    assert "Run 1 published: 10 messages" in done.stdout
    assert f"! left to the next run {topic}-1: " in done.stderr


# -- the same folder ---------------------------------------------------------------------------------------------------


def test_a_manifest_in_the_place_of_another_is_refused(run: Run, topic: str, tmp_path: Path) -> None:
    run(topic)
    runs = tmp_path / "_zkconsumer" / "runs"
    (runs / "000000002.json").write_text((runs / "000000001.json").read_text())
    with pytest.raises(LoadRefused, match=r"000000002\.json belongs to run 1"):
        run(topic)


def test_another_cluster_is_refused(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, run: Run, topic: str
) -> None:
    run(topic)
    with EmbeddedCluster(1) as other:
        other.create_topic(topic, partitions=1)
        with pytest.raises(LoadRefused, match="is not the cluster of the last run"):
            run(topic, source={"zookeeper.connect": other.zookeeper_connect})
