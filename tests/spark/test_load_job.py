"""`zkconsumer load` from real brokers of Kafka 0.8.2.2: each message once, whenever a run dies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta_jars import why_not
from loading import counts, die_at_each_change, numbered, settings_of
from producing import produce

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import OptionRefused, RequirementMissing, TopicMissing
from zkconsumer.spark.load import heartbeat, run_writer
from zkconsumer.spark.load.failures import AuditFailed, LoadOvertaken, LoadRefused, OffsetsLost
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape
from zkconsumer.spark.streaming.group_offsets import GroupHasMembers
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

Topic = Callable[[], str]


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Topic) -> str:
    """A topic of two partitions, 100 and 40 messages."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    produce(kafka_0822, name, 0, numbered(0, 100), "snappy")
    produce(kafka_0822, name, 1, numbered(0, 40))
    return name


def loaded(spark: SparkSession, folder: Path) -> list[Any]:
    return spark.read.parquet(str(folder)).orderBy("topic", "partition", "offset").collect()


def offsets(spark: SparkSession, folder: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in loaded(spark, folder):
        found.setdefault(row.partition, []).append(row.offset)
    return found


def test_each_run_brings_what_is_new_and_nothing_twice(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
) -> None:
    settings = settings_of(kafka_0822, tmp_path, topic, **{"group.id": fresh_group})
    first = run_load(spark, settings)
    assert (first.run, counts(first), first.stored) == (1, {0: (0, 100, 100), 1: (0, 40, 40)}, True)
    assert first.lag == {(topic, 0): 0, (topic, 1): 0}
    assert [(row.key, row.value) for row in loaded(spark, tmp_path)] == [*numbered(0, 100), *numbered(0, 40)]
    assert sum(each.bytes for each in first.partitions) == sum(
        len(key or b"") + len(value or b"") for key, value in [*numbered(0, 100), *numbered(0, 40)]
    )
    assert (tmp_path / f"topic={topic}").is_dir()

    again = run_load(spark, settings)
    assert (again.run, again.known, again.partitions) == (None, 2, ())

    produce(kafka_0822, topic, 1, numbered(40, 7), "gzip")
    third = run_load(spark, settings)
    assert (third.run, counts(third)) == (2, {1: (40, 47, 7)})
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(47)]}
    stored = kafka_0822.client
    for partition, end in ((0, b"100"), (1, b"47")):
        assert stored.get(f"/consumers/{fresh_group}/offsets/{topic}/{partition}")[0] == end


def test_a_run_that_dies_at_any_change_of_the_folder_costs_no_message_and_repeats_none(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "DEAD_S", 0.3)
    settings = replace(settings_of(kafka_0822, tmp_path, topic), shape=Shape("parquet", "none"))
    run_load(spark, settings)
    have = 40

    def grow() -> None:
        nonlocal have
        produce(kafka_0822, topic, 1, numbered(have, 3))
        have += 3

    def check() -> None:
        assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(have)]}

    die_at_each_change(spark, settings, monkeypatch, before_each=grow, after_each=check)
    published = sorted(path.name for path in (tmp_path / "_zkconsumer" / "runs").glob("*.json"))
    assert published == [f"{n:09}.json" for n in range(1, len(published) + 1)]


def test_what_a_run_has_written_is_on_the_disk_before_the_run_counts(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    fsync, publish = os.fsync, History.publish

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def compare_and_publish(history: History, manifest: Manifest) -> None:
        files = [tmp_path / file.staged for file in manifest.files]
        assert len(files) == 2
        assert {place.stat().st_ino for file in files for place in (file, *file.parents[:7])} <= synced
        assert files[0].parents[6] == tmp_path
        publish(history, manifest)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(History, "publish", compare_and_publish)
    assert run_load(spark, settings_of(kafka_0822, tmp_path, topic)).run == 1


def test_a_failed_run_leaves_nothing(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(kafka_0822, tmp_path, topic)
    # As if one file had not been written as it should.
    write_rows = run_writer.write_rows

    def write_all_but_one(spark: SparkSession, frame: Any, *rest: Any) -> None:
        write_rows(spark, frame.where("offset != 7"), *rest)

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, "write_rows", write_all_but_one)
        with pytest.raises(AuditFailed, match=rf"{topic}/0: 1 of the offsets 0 to 99 are missing"):
            run_load(spark, settings)
    assert not (tmp_path / f"topic={topic}").exists()
    assert not list((tmp_path / "_zkconsumer").rglob("*.parquet"))
    assert run_load(spark, settings).run == 1


def test_of_two_loads_at_the_same_time_one_publishes(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(kafka_0822, tmp_path, topic)
    publish = History.publish

    def overtaken(history: History, manifest: Any) -> None:
        monkeypatch.setattr(History, "publish", publish)
        assert run_load(spark, settings).run == 1
        publish(history, manifest)

    monkeypatch.setattr(History, "publish", overtaken)
    with pytest.raises(LoadOvertaken, match="start it again"):
        run_load(spark, settings)
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}
    assert run_load(spark, settings).run is None


def test_what_is_no_text_goes_to_the_side_with_its_place_and_reason(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=1)
    produce(kafka_0822, topic, 0, [(None, "grün".encode()), (b"\xff", b"x"), (b"k", b"a\xc3("), (None, None)])
    settings = replace(settings_of(kafka_0822, tmp_path, topic), shape=Shape("json", "hour", text=True))
    report = run_load(spark, settings)
    [partition] = report.partitions
    assert (partition.messages, partition.bad, partition.missing) == (2, 2, 0)
    rows = spark.read.json(str(tmp_path)).orderBy("offset").collect()
    assert [(row.offset, row.value) for row in rows] == [(0, "grün"), (3, None)]
    [bad] = (tmp_path / "_bad").glob("*.json")
    lines = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [(line["topic"], line["partition"], line["offset"], line["reason"]) for line in lines] == [
        (topic, 0, 1, "the key is not UTF-8 text"),
        (topic, 0, 2, "the value is not UTF-8 text"),
    ]
    assert (lines[0]["key"], lines[0]["value"]) == ("/w==", "eA==")


def test_a_filter_takes_topics_that_come_later_from_their_begin(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    source = {"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribePattern": rf"{topic}.*",
              "startingOffsets": "latest"}  # fmt: skip
    settings = LoadSettings(source, str(tmp_path))
    first = run_load(spark, settings)
    assert (first.run, first.partitions) == (1, ())  # only later messages are wanted
    assert run_load(spark, settings).run is None
    produce(kafka_0822, topic, 0, numbered(100, 5))
    later = f"{topic}-later"
    kafka_0822.create_topic(later, partitions=1)
    produce(kafka_0822, later, 0, numbered(0, 3))
    report = run_load(spark, settings)
    assert {(each.topic, each.partition, each.start, each.end) for each in report.partitions} == {
        (topic, 0, 100, 105), (later, 0, 0, 3),
    }  # fmt: skip


def test_a_topic_that_was_created_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = settings_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    kafka_0822.delete_topic(topic)
    wait_until(lambda: kafka_0822.client.exists(f"/brokers/topics/{topic}") is None, 30, "the topic to be gone")
    kafka_0822.create_topic(topic, partitions=2)
    produce(kafka_0822, topic, 0, numbered(0, 300))
    with pytest.raises(OffsetsLost, match=rf"{topic}-0 from offset 100 on: its topic was deleted and created again"):
        run_load(spark, settings)
    report = run_load(spark, replace(settings, allow_loss=True))
    assert counts(report) == {0: (0, 300, 300)}
    assert {loss.partition for loss in report.lost} == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


def test_what_cannot_be_is_refused_by_name(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_group: str, tmp_path: Path
) -> None:
    settings = settings_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    with pytest.raises(LoadRefused, match="has parquet by date, but parquet by hour was requested"):
        run_load(spark, replace(settings, shape=Shape("parquet", "hour")))
    with pytest.raises(TopicMissing, match="topic 'nowhere'"):
        run_load(spark, settings_of(kafka_0822, tmp_path, "nowhere"))
    with pytest.raises(OptionRefused, match="endingOffsets: not for a load"):
        settings_of(kafka_0822, tmp_path, topic, endingOffsets="latest")
    with pytest.raises(OptionRefused, match="endingTimestamp: not for a load"):
        settings_of(kafka_0822, tmp_path, topic, endingTimestamp="1")
    with pytest.raises(OptionRefused, match="filterPushdown: not for a load: a run reads everything that it has"):
        settings_of(kafka_0822, tmp_path, topic, filterPushdown="true")
    with pytest.raises(
        LoadRefused, match="format 'avro' is not known; it must be one of parquet, json, delta, iceberg"
    ):
        replace(settings, shape=Shape("avro", "date"))
    with pytest.raises(LoadRefused, match="nosuch"):
        run_load(spark, replace(settings, folder="nosuch://host/folder"))
    kafka_0822.client.create(f"/consumers/{fresh_group}/ids/{fresh_group}_a", b"{}", makepath=True)
    with pytest.raises(GroupHasMembers, match=f"{fresh_group}_a"):
        run_load(spark, settings_of(kafka_0822, tmp_path, topic, **{"group.id": fresh_group}))
    manifest = tmp_path / "_zkconsumer" / "runs" / "000000001.json"
    manifest.write_text("{")
    with pytest.raises(LoadRefused, match=r"000000001\.json is not a manifest"):
        run_load(spark, settings)


@pytest.mark.skipif(not why_not(), reason="the session of the tests has Delta where delta-spark is installed")
def test_a_session_without_delta_is_refused_before_anything_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    source = {"zookeeper.connect": "127.0.0.1:1", "subscribe": "clicks"}
    with pytest.raises(RequirementMissing, match=r"session with the jar of Delta, .*spark\.sql\.extensions=io\.delta"):
        run_load(spark, LoadSettings(source, str(tmp_path), Shape("delta", "date")))
    assert not list(tmp_path.iterdir())
