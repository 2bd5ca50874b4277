"""`zkconsumer load` from Kafka 0.7: each message once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka_07 import SLOW_EMBEDDED_07, Both, damage_second_of_three, entry, log_files, produce_07, send_set
from loading import counts, settings_of
from reading_07 import compressed

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load import run_writer
from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.failures import AuditFailed, OffsetsLost
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.lake import read_published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


def values_of(rows: Any) -> list[tuple[Any, ...]]:
    """Value, partition, position and number within the entry of each row, in order."""
    found = rows.selectExpr("cast(value as string) as text", "partition", "offset", "entry_index").collect()
    return sorted((tuple(row) for row in found), key=lambda row: row[1:])


def test_each_run_brings_whole_entries_and_nothing_twice(
    spark: SparkSession, cluster: Both, topic: str, fresh_group: str, tmp_path: Path
) -> None:
    packed = compressed([b"a", b"b", b"c"])
    end = send_set(cluster, topic, "1-0", entry(b"plain") + packed + packed)
    produce_07(cluster.port(0), topic, 1, [b"one"])
    settings = settings_of(cluster, tmp_path, topic, **{"kafka.generation": "0.7", "group.id": fresh_group})
    first = run_load(spark, settings)
    assert (first.run, first.stored, first.known) == (1, True, 4)
    assert counts(first) == {"0-1": (0, 13, 1), "1-0": (0, end, 7)}
    assert first.lag == {(topic, "0-1"): 0, (topic, "1-0"): 0}
    stored = cluster.client.get(f"/consumers/{fresh_group}/offsets/{topic}/1-0")[0]
    assert stored == b"%d" % end
    wanted = [
        ("one", 1, 0, 0),
        ("plain", 65536, 0, 0),
        *((value, 65536, start, index) for start in (15, 15 + len(packed)) for index, value in enumerate("abc")),
    ]
    assert values_of(spark.read.parquet(str(tmp_path))) == wanted

    again = run_load(spark, settings)
    assert (again.run, again.partitions) == (None, ())

    send_set(cluster, topic, "1-0", compressed([b"d", b"e"], "snappy"))
    third = run_load(spark, settings)
    assert [(each.partition, each.start, each.messages, each.missing) for each in third.partitions] == [
        ("1-0", end, 2, 0)
    ]
    [*_] = run_compactions(spark, CompactionSettings(str(tmp_path)))
    assert values_of(read_published(spark, str(tmp_path))) == [*wanted, ("d", 65536, end, 0), ("e", 65536, end, 1)]


def test_a_run_that_did_not_write_every_message_publishes_nothing(
    spark: SparkSession, cluster: Both, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_set(cluster, topic, "0-0", compressed([b"a", b"b", b"c"]) + entry(b"d"))
    settings = settings_of(cluster, tmp_path, topic, **{"kafka.generation": "0.7"})
    whole = run_writer.RunWriter._rows
    for lost, reason in (("value = 'b'", "messages were written"), ("value = 'd'", "bytes were written")):
        with monkeypatch.context() as patched:
            patched.setattr(run_writer.RunWriter, "_rows",
                            lambda self, plan, lost=lost: whole(self, plan).where(f"not ({lost})"))  # fmt: skip
            with pytest.raises(AuditFailed, match=reason):
                run_load(spark, settings)
    with monkeypatch.context() as patched:
        patched.setattr(run_writer.RunWriter, "_rows",
                        lambda self, plan: (rows := whole(self, plan)).union(rows.where("value = 'd'")))  # fmt: skip
        with pytest.raises(AuditFailed, match="bytes were written"):
            run_load(spark, settings)
    assert counts(run_load(spark, settings)) == {"0-0": (0, len(compressed([b"a", b"b", b"c"])) + 11, 4)}


@pytest.mark.parametrize("cluster", SLOW_EMBEDDED_07, indirect=True, scope="module")
def test_another_log_under_the_same_name_is_named_and_loaded_from_its_start(
    spark: SparkSession, cluster: Both, topic: str, tmp_path: Path
) -> None:
    produce_07(cluster.port(1), topic, 0, [b"one", b"two"])
    settings = settings_of(cluster, tmp_path, topic, **{"kafka.generation": "0.7"})
    run_load(spark, settings)
    cluster.stop(1)
    [log] = log_files(cluster, 1, f"{topic}-0")
    log.write_bytes(entry(b"six") + entry(b"ten") + entry(b"new"))  # an entry starts where the last run ended
    cluster.start(1)
    with pytest.raises(OffsetsLost, match="its log was replaced: the message at position 13 is not the one"):
        run_load(spark, settings)
    later = run_load(spark, replace(settings, allow_loss=True))
    assert counts(later) == {"1-0": (0, 39, 3)}
    assert [each.partition for each in later.lost] == [TopicPartition(topic, "1-0")]


@pytest.mark.parametrize("cluster", SLOW_EMBEDDED_07, indirect=True, scope="module")
def test_a_broker_that_is_away_is_left_to_a_later_run(
    spark: SparkSession, cluster: Both, topic: str, tmp_path: Path
) -> None:
    produce_07(cluster.port(1), topic, 0, [b"one"])
    settings = settings_of(cluster, tmp_path, topic, **{"kafka.generation": "0.7"})
    run_load(spark, settings)
    cluster.kill(1, expire=True)
    produce_07(cluster.port(0), topic, 0, [b"meanwhile"])
    assert counts(run_load(spark, settings)) == {"0-0": (0, 19, 1)}
    cluster.start(1)
    produce_07(cluster.port(1), topic, 0, [b"two"])
    assert counts(run_load(spark, settings)) == {"1-0": (13, 26, 1)}


@pytest.mark.parametrize("cluster", SLOW_EMBEDDED_07, indirect=True, scope="module")
def test_messages_that_cannot_be_read_are_put_aside_with_their_place(
    spark: SparkSession, cluster: Both, topic: str, tmp_path: Path
) -> None:
    damage_second_of_three(cluster, topic)
    report = run_load(spark, settings_of(cluster, tmp_path, topic, **{"kafka.generation": "0.7"}))
    assert [(each.messages, each.bad, each.missing) for each in report.partitions] == [(2, 1, 0)]
    [row] = spark.read.json(str(tmp_path / "_bad")).collect()
    assert (row.offset, row.broker, row.next_offset) == (16, 0, 33)
