"""`zkconsumer compact-files` killed in earnest, its driver or its JVM, while loads bring further messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from killing import killed_when_files_come

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad

pytestmark = [pytest.mark.real, pytest.mark.slow]

DEADLINE_S = 600.0
MOMENTS = {
    "written, not published": "_zkconsumer/staging/compaction-*/kind=data/**/*.parquet",
    "published": "_zkconsumer/compactions/*.json",
    "the first file in its place": "topic=*/**/*-compacted-*.parquet",
}
"""When a compaction dies: as soon as one more of these files is there."""


def offsets_of(lake: Path) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for path in lake.glob("topic=*/**/*.parquet"):
        table = pyarrow.parquet.ParquetFile(path).read(["partition", "offset"])
        found.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("victim", ["jvm", "driver"])
def test_a_compaction_that_is_killed_costs_no_message_and_repeats_none(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path, victim: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=3)
    lake = tmp_path / "lake"
    load_files = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", kafka_0822.zookeeper_connect,
                  "--topic", topic, "--to", str(lake), "--master", "local[2]", "--file-size", "16k"]  # fmt: skip
    compact = [sys.executable, "-m", "zkconsumer.cli", "compact-files", "--to", str(lake), "--master", "local[2]",
               "--file-size", "100k"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed: list[str] = []
    with SteadyLoad(kafka_0822, [topic], partitions=3, rate_per_s=20) as load:
        load.grow(200)
        for moment, pattern in MOMENTS.items():
            subprocess.run(load_files, env=environment, check=True, timeout=DEADLINE_S)
            log = tmp_path / f"{moment}.log"
            if killed_when_files_come(
                compact, victim, lake, pattern, log, environment=environment, timeout_s=DEADLINE_S
            ):
                killed.append(moment)
        load.stop()
        acked = {(event.partition, event.offset) for event in load.acked}
    subprocess.run(load_files, env=environment, check=True, timeout=DEADLINE_S)
    assert [place for place, times in offsets_of(lake).items() if times > 1] == []
    assert offsets_of(lake).keys() >= acked
    count = len(list(lake.glob("topic=*/**/*.parquet")))
    subprocess.run(compact, env=environment, check=True, timeout=DEADLINE_S)
    print(f"{len(acked)} messages, killed the {victim}: {'; '.join(killed)}; {count} files")
    assert len(killed) >= 2
    assert not list((lake / "_zkconsumer" / "staging").iterdir())
    assert len(list(lake.glob("topic=*/**/*.parquet"))) < count
    assert [place for place, times in offsets_of(lake).items() if times > 1] == []
    assert offsets_of(lake).keys() >= acked
