"""Loads of logs in which offsets are missing: real brokers compact them, and mark the ends of transactions in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import settings_of
from transaction_marks import add_mark

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.types import FetchRequest
from zkconsumer.spark.load.failures import AuditFailed
from zkconsumer.spark.load.job import LoadReport, run_load, run_portions
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.slow]

MAGIC_1 = {"magic": 1, "version": 2}  # no time: retention would take old messages away
EAGER = {"log.cleaner.enable": True, "log.cleaner.backoff.ms": 300, "log.cleaner.min.cleanable.ratio": 0.01}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": 200, "min.cleanable.dirty.ratio": 0.01}


@pytest.fixture(scope="module", params=["0.8.2.2", "2.8.2"])
def eager(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A broker that compacts at once."""
    with KafkaCluster(request.param, 1, settings=EAGER) as cluster:
        yield cluster


def produce_in_turns(cluster: KafkaCluster, topic: str, first: int, last: int) -> None:
    """Give three keys new values, one request and one segment after the other."""
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for n in range(first, last):
            broker.produce(topic, 0, [(b"k%d" % (n % 3), b"v%d" % n)])


def first_at(cluster: KafkaCluster, topic: str, offset: int) -> int | None:
    """The offset of the first message that the log has from there on."""
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        [answer] = broker.multifetch([FetchRequest(topic, 0, offset, 10_000)])
    message = next(decode_messages(answer.message_set, topic, 0, offset), None)
    return None if message is None else message.offset


def spans(report: LoadReport) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in report.partitions]


def test_compaction_that_took_the_last_message_is_no_cut(
    spark: SparkSession, eager: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    eager.create_topic(topic, config=COMPACTED)
    settings = settings_of(eager, tmp_path, topic)
    produce_in_turns(eager, topic, 0, 20)
    assert spans(run_load(spark, settings)) == [(0, 20)]
    produce_in_turns(eager, topic, 20, 60)
    wait_until(lambda: first_at(eager, topic, 19) not in (19, None), 90, "compaction")
    report = run_load(spark, settings)
    assert (spans(report), report.lost) == ([(20, 60)], ())
    loaded = {row.offset: bytes(row.value) for row in spark.read.parquet(str(tmp_path)).collect()}
    assert {57: b"v57", 58: b"v58", 59: b"v59"}.items() <= loaded.items()
    assert run_load(spark, settings).run is None


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2"])
def test_marks_at_the_end_are_no_messages_and_no_cut(
    spark: SparkSession,
    kafka_clusters: Callable[[str, int], KafkaCluster],
    fresh_topic: Callable[[], str],
    tmp_path: Path,
    version: str,
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic)
    settings = settings_of(cluster, tmp_path, topic)

    def add(messages: int, marks: int) -> None:
        if messages:
            with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
                broker.produce(topic, 0, [b"v%d" % n for n in range(messages)], **MAGIC_1)
        for _ in range(marks):
            add_mark(cluster.port(0), topic, 0)

    add(5, 1)
    with pytest.raises(AuditFailed, match=r"1 of the offsets 0 to 5 are missing.*`--gaps allow`"):
        run_load(spark, settings)
    settings = replace(settings, allow_gaps=True)
    assert spans(run_load(spark, settings)) == [(0, 6)]
    assert run_load(spark, settings).run is None
    add(0, 1)
    assert spans(run_load(spark, settings)) == [(6, 7)]
    add(3, 3)
    reports = [*run_portions(spark, replace(settings, max_messages=2))]
    assert [spans(each) for each in reports] == [[(7, 9)], [(9, 11)], [(11, 13)]]
    assert not any(each.lost for each in reports)
    rows = spark.read.parquet(str(tmp_path)).collect()
    assert sorted(row.offset for row in rows) == [*range(5), *range(7, 10)]
