"""`zkconsumer load --format delta` killed around and inside of the append, while messages keep coming in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet
import pytest
from delta_jars import delta_jars, skip_without_delta
from killing import killed_when_files_come

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad

skip_without_delta()

pytestmark = [pytest.mark.real, pytest.mark.slow]

DEADLINE_S = 900.0
MOMENTS = {
    "published, not appended": "_zkconsumer/runs/*.json",
    "inside the append": "topic=*/**/*.parquet",
    "appended, not marked": "_delta_log/*.json",
    "marked, not swept": "_zkconsumer/runs/*.appended",
}
"""When a load dies: as soon as one more of these files is there."""


def offsets_of(folder: Path) -> Counter[tuple[int, int]]:
    """The rows of a Delta table by partition and offset, read without Spark: its log says which files count."""
    files: dict[str, None] = {}
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[unquote(action["add"]["path"])] = None
            if "remove" in action:
                del files[unquote(action["remove"]["path"])]
    found: Counter[tuple[int, int]] = Counter()
    for file in files:
        rows = pyarrow.parquet.ParquetFile(folder / file).read(["partition", "offset"])
        found.update(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("victim", ["jvm", "driver"])
def test_a_load_that_is_killed_around_its_append_brings_each_message_once(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path, victim: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=3)
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", kafka_0822.zookeeper_connect,
               "--topic", topic, "--to", str(lake), "--format", "delta", "--master", "local[2]",
               "--conf", f"spark.jars={delta_jars()}", "--conf", "spark.databricks.delta.snapshotPartitions=2",
               "--conf", "spark.sql.shuffle.partitions=2"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed: list[str] = []
    with SteadyLoad(kafka_0822, [topic], partitions=3, rate_per_s=100) as load:
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
    found = offsets_of(lake)
    print(f"{len(acked)} messages, killed the {victim}: {'; '.join(killed)}")
    assert len(killed) > len(MOMENTS) / 2
    assert [place for place, times in found.items() if times > 1] == []
    assert found.keys() >= acked
