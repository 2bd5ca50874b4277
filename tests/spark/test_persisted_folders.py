"""Checkpoints and folders of loads that an earlier version wrote are continued, and each message is read once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from persisted_folders import (
    LOADED,
    NOT_TEXT,
    STREAMED,
    TOPIC,
    load_settings,
    produce_up_to,
    restore_checkpoint,
    restore_load,
    run_stream,
    stream_options,
)  # fmt: skip
from producing import produce
from pyspark.errors import StreamingQueryException

from zkconsumer.spark.load import heartbeat
from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.failures import LoadRefused, OffsetsLost
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROWN = (12, 9)
Places = list[tuple[int, int]]


@pytest.fixture
def cluster(embedded_cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """A cluster with the topic that the folders are of, empty."""
    embedded_cluster.create_topic(TOPIC, partitions=2)
    embedded_cluster.wait_leaders(TOPIC, range(2))
    yield embedded_cluster
    embedded_cluster.delete_topic(TOPIC)
    path = f"/brokers/topics/{TOPIC}"
    wait_until(lambda: embedded_cluster.client.exists(path) is None, 30, "the topic to be gone")


@pytest.fixture(autouse=True)
def the_dead_are_believed_dead_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "DEAD_S", 0.5)
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 0.5)


def places(*ends: int) -> Places:
    return [(partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_last_batch_finished", [True, False], ids=["finished", "killed"])
def test_a_stream_continues_its_checkpoint(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, is_last_batch_finished: bool
) -> None:
    produce_up_to(cluster, GROWN)
    before = restore_checkpoint(tmp_path / "checkpoint", cluster)
    if not is_last_batch_finished:
        (tmp_path / "checkpoint" / "commits" / "3").unlink()
    after = run_stream(spark, stream_options(cluster), tmp_path / "checkpoint")
    assert min(after) == (4 if is_last_batch_finished else 3)
    if not is_last_batch_finished:
        assert after[3] == before[3]
    rows = [tuple(place) for batch in (before | after).values() for place in batch]
    assert sorted(rows) == places(*GROWN)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [(TOPIC, "was deleted and created again"), ("@cluster", "the checkpoint is of another cluster")],
)
def test_a_stream_knows_the_topic_and_the_cluster_of_its_checkpoint(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, name: str, complaint: str
) -> None:
    produce_up_to(cluster, STREAMED)
    restore_checkpoint(tmp_path / "checkpoint", cluster)
    for path in (tmp_path / "checkpoint" / "offsets").iterdir():
        *head, last = path.read_text("utf-8").splitlines()
        offsets = json.loads(last)
        offsets["@born"][name] -= 1
        path.write_text("\n".join([*head, json.dumps(offsets)]), "utf-8")
    with pytest.raises(StreamingQueryException, match=complaint):
        run_stream(spark, stream_options(cluster), tmp_path / "checkpoint")


# -- loads -------------------------------------------------------------------------------------------------------------


def loaded(spark: SparkSession, folder: Path) -> Places:
    """Partition and offset of each row, also of those that could not be decoded."""
    rows = spark.read.parquet(str(folder)).select("partition", "offset").collect()
    aside = spark.read.json(str(folder / "_bad")).select("partition", "offset").collect()
    assert {(row.partition, row.offset) for row in aside} == {NOT_TEXT}
    return sorted((row.partition, row.offset) for row in [*rows, *aside])


def test_a_load_continues_its_folder(spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """It finishes the compaction that was killed, replaces the run that was killed, and loads what is new."""
    produce_up_to(cluster, GROWN)
    settings = load_settings(cluster, tmp_path / "load")
    restore_load(tmp_path / "load", cluster)
    report = run_load(spark, settings)
    assert report.run == 5
    assert [(each.partition, each.start, each.end) for each in report.partitions] == [(0, 9, 12), (1, 7, 9)]
    assert report.lost == ()
    assert loaded(spark, tmp_path / "load") == places(*GROWN)
    assert run_load(spark, settings).run is None
    assert [*(tmp_path / "load" / "_zkconsumer" / "staging").iterdir()] == []
    [compaction] = run_compactions(spark, CompactionSettings(settings.folder))
    assert (compaction.compaction, compaction.files_after) == (3, 1)
    assert loaded(spark, tmp_path / "load") == places(*GROWN)


def test_a_compaction_continues_the_folder_of_a_load(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    produce_up_to(cluster, LOADED[-1])
    restore_load(tmp_path / "load", cluster)
    reports = list(run_compactions(spark, CompactionSettings(str(tmp_path / "load"))))
    assert [report.compaction for report in reports] == [None]
    assert len(list((tmp_path / "load").rglob("topic=*/**/000000001-compacted-000000002-*.parquet"))) == 1
    assert loaded(spark, tmp_path / "load") == places(*LOADED[-1])


def test_a_load_knows_the_last_message_of_its_folder(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """A log that was cut, and has grown since, has another message there."""
    produce_up_to(cluster, (9, 6))
    produce(cluster, TOPIC, 1, [(None, b"another"), (None, b"a later one")])
    restore_load(tmp_path / "load", cluster)
    with pytest.raises(OffsetsLost, match=rf"{TOPIC}-1 from offset 2 to 7: its log was truncated"):
        run_load(spark, load_settings(cluster, tmp_path / "load"))


@pytest.mark.parametrize(
    ("key", "error", "complaint"),
    [
        ("births", OffsetsLost, "was deleted and created again"),
        ("cluster_ms", LoadRefused, "not the cluster of the last run"),
    ],
)
def test_a_load_knows_the_topic_and_the_cluster_of_its_folder(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, key: str, error: type[Exception], complaint: str
) -> None:
    produce_up_to(cluster, GROWN)
    restore_load(tmp_path / "load", cluster)
    for path in (tmp_path / "load" / "_zkconsumer" / "runs").iterdir():
        manifest = json.loads(path.read_text("utf-8"))
        manifest[key] = {TOPIC: 1} if key == "births" else 1
        path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(error, match=complaint):
        run_load(spark, load_settings(cluster, tmp_path / "load"))
