"""`zkconsumer load --format iceberg` killed around and inside of the append, while messages keep coming in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from iceberg_jars import iceberg_jars, why_not
from killing import killed_when_files_come

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

DEADLINE_S = 900.0
MOMENTS = {
    "published, not appended": "_zkconsumer/runs/*.json",
    "rows written, no snapshot": "data/**/*.parquet",
    "a snapshot that nobody reads yet": "metadata/snap-*.avro",
    "one or two commits": "metadata/v*.metadata.json",
    "marked, not swept": "_zkconsumer/runs/*.appended",
}
"""When a load dies: as soon as one more of these files is there."""


def offsets_of(spark: SparkSession, folder: Path) -> Counter[tuple[int, int]]:
    """The rows of an Iceberg table by partition and offset."""
    rows = spark.read.format("iceberg").load(str(folder)).select("partition", "offset").collect()
    return Counter((row.partition, row.offset) for row in rows)


@pytest.mark.parametrize("victim", ["jvm", "driver"])
def test_a_load_that_is_killed_around_its_append_brings_each_message_once(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path, victim: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=3)
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", kafka_0822.zookeeper_connect,
               "--topic", topic, "--to", str(lake), "--format", "iceberg", "--master", "local[2]",
               "--conf", f"spark.jars={iceberg_jars()}", "--conf", "spark.sql.shuffle.partitions=2"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed: list[str] = []
    with SteadyLoad(kafka_0822, [topic], partitions=3, rate_per_s=20) as load:
        load.grow(200)
        subprocess.run(command, env=environment, check=True, timeout=DEADLINE_S)
        for moment, pattern in MOMENTS.items():
            load.grow(200)
            log = tmp_path / f"{moment}.log"
            if killed_when_files_come(
                command, victim, lake, pattern, log, environment=environment, timeout_s=DEADLINE_S
            ):
                killed.append(moment)
        load.stop()
        acked = {(event.partition, event.offset) for event in load.acked}
    subprocess.run(command, env=environment, check=True, timeout=DEADLINE_S)
    assert not list((lake / "_zkconsumer" / "staging").iterdir())
    found = offsets_of(spark, lake)
    print(f"{len(acked)} messages, killed the {victim}: {'; '.join(killed)}")
    assert len(killed) > len(MOMENTS) / 2
    assert [place for place, times in found.items() if times > 1] == []
    assert found.keys() >= acked
