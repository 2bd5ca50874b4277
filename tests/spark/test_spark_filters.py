"""Filters of queries on real sessions of Spark: with its setting and the option, only what passes is planned and read.

Spark up to 4.3 keeps one plan for all that is made of one `load()`, which is why the option is asked for each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSourceReader

from zkconsumer.testing import Fault, load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if not hasattr(DataSourceReader, "pushFilters"):
    pytest.skip("Spark 4.0 has no filters", allow_module_level=True)

Topic = Callable[[], str]
SETTING = "spark.sql.python.filterPushdown.enabled"
PARTITIONS, MESSAGES = 3, 300
ALL = PARTITIONS * MESSAGES
FETCH_BYTES = {"fetch.message.max.bytes": "2000"}
"""So small that it shows in the number of fetches how much is read."""


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.set(SETTING, "false")


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Topic) -> str:
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=PARTITIONS)
    load(embedded_cluster, name, MESSAGES, value=lambda partition, n: b"%d" % (n % 7) * 50)
    return name


def table(spark: SparkSession, cluster: EmbeddedCluster, topic: str, **options: object) -> DataFrame:
    place = {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "filterPushdown": "true"}
    return spark.read.format("zkconsumer").options(**{**place, **FETCH_BYTES, **options}).load()


def places(found: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in found.select("partition", "offset").collect())


def fetches(cluster: EmbeddedCluster, topic: str) -> Callable[[], list[int]]:
    """How many fetches there were of each partition from now on."""
    counters = [
        cluster.faults.add(replace(Fault.delay(0, "fetch", topic), partition=partition), None)
        for partition in range(PARTITIONS)
    ]
    return lambda: [cluster.faults.used(counter) for counter in counters]


def test_only_the_offsets_that_pass_are_planned_and_fetched(
    spark: SparkSession, pushdown: None, embedded_cluster: EmbeddedCluster, topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    count = fetches(embedded_cluster, topic)
    passing = table(spark, embedded_cluster, topic).where(
        f"topic = '{topic}' and partition in (1, 5) and offset between 100 and 109 and length(value) > 0"
    )
    assert passing.rdd.getNumPartitions() == 1
    assert places(passing) == [(1, offset) for offset in range(100, 110)]
    narrow = count()
    assert (narrow[0], narrow[2]) == (0, 0)
    passing.explain("formatted")
    plan = capsys.readouterr().out
    assert "PushedFilters" in plan
    assert all(f"{name}" in plan.split("PushedFilters")[1].splitlines()[0] for name in ("topic", "partition", "offset"))
    assert "Condition : " in plan  # of value, which is Spark's
    assert "offset" not in plan.split("Condition : ")[1].splitlines()[0]

    assert table(spark, embedded_cluster, topic).count() == ALL
    whole = [after - before for after, before in zip(count(), narrow, strict=True)]
    assert min(whole) >= 10
    assert narrow[1] * 3 <= whole[1]


CONDITIONS = {
    "offset in (3, 299, 1000) or false": 6,
    "offset <> 7 and partition < 2.5 and offset < '9'": 6,
    "partition = 0 and partition = 1": 1,
    "topic like 'topic-%' and not (partition in (0, 2))": 1,
    "(offset < 3 or offset > 297) and partition = 2": 1,
    "key is null and substring(cast(value as string), 1, 1) = '4' and offset < 30": 3,
}
"""Condition -> tasks, of three partitions; where nothing is read Spark makes one of its own, or none."""


@pytest.mark.slow
def test_a_filter_lets_the_rows_through_that_it_lets_through_behind_the_source(
    spark: SparkSession, pushdown: None, embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    rows = table(spark, embedded_cluster, topic).collect()
    assert len(rows) == ALL
    everything = spark.createDataFrame(rows, table(spark, embedded_cluster, topic).schema)
    for condition, tasks in CONDITIONS.items():
        found = table(spark, embedded_cluster, topic).where(condition)
        assert places(found) == places(everything.where(condition)), condition
        assert found.rdd.getNumPartitions() in {tasks, tasks - (tasks == 1 and not places(found))}, condition


def test_columns_are_filtered_that_the_query_does_not_show(
    spark: SparkSession, pushdown: None, embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    assert table(spark, embedded_cluster, topic).where("offset < 10").count() == 30
    assert table(spark, embedded_cluster, topic).where("offset > 5000").count() == 0
    values = table(spark, embedded_cluster, topic).where("offset = 8 and partition = 0").select("value").collect()
    assert [row.value for row in values] == [b"1" * 50]
    two = {"zookeeper.connect": embedded_cluster.zookeeper_connect, "subscribe": topic, "filterPushdown": "true"}
    narrow = spark.read.format("zkconsumer").options(**two).schema("value binary, offset long").load()
    assert narrow.where("offset = 8").count() == 3


def test_without_the_setting_the_option_reads_all_and_spark_filters(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    spark.conf.set(SETTING, "false")
    passing = table(spark, embedded_cluster, topic).where("partition = 1 and offset < 10")
    assert passing.rdd.getNumPartitions() == PARTITIONS
    assert places(passing) == [(1, offset) for offset in range(10)]


def test_without_the_option_a_table_can_be_used_again_with_the_setting_on(
    spark: SparkSession, pushdown: None, embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    clicks = table(spark, embedded_cluster, topic, filterPushdown="false")
    assert clicks.where("partition = 1").count() == MESSAGES
    assert clicks.count() == ALL
    assert clicks.where("partition = 0").union(clicks.where("partition = 1 and offset < 5")).count() == MESSAGES + 5


def test_with_it_the_plan_of_the_last_filter_is_that_of_the_table_which_is_why_it_is_asked_for(
    spark: SparkSession, pushdown: None, embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    """Where this fails Spark has learnt to plan each use for itself, and the option may become the default there."""
    clicks = table(spark, embedded_cluster, topic)
    assert clicks.where("partition = 1").count() == MESSAGES
    assert clicks.count() == MESSAGES  # and not ALL
    assert table(spark, embedded_cluster, topic).count() == ALL
