"""`zkconsumer load` from Kafka 0.7 as a process that is killed: each message once, in parquet and JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from kafka_07 import Both, entry, send_set
from killing import descendants, wait_gone
from reading_07 import compressed

from zkconsumer.testing.waiting import wait_until
from zkconsumer.topic_reader.topic_reader import read_topic

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PLACE = ("partition", "offset", "entry_index")
TIMEOUT_S = 240.0


def numbers_of(partition: str) -> int:
    broker, number = map(int, partition.split("-"))
    return broker * 65536 + number


def fill(cluster: Both, topic: str, first: int) -> None:
    """Brings plain and compressed entries to three partitions."""
    for partition in ("0-0", "0-1", "1-1"):
        values = [f"{partition} {n}".encode() for n in range(first, first + 60)]
        parts = [compressed(values[n : n + 7], "gzip" if n % 2 else "snappy") for n in range(0, 49, 7)]
        send_set(cluster, topic, partition, b"".join([*parts, *map(entry, values[49:])]))


def rows_in(lake: Path, file_format: str) -> Counter[tuple[Any, ...]]:
    """Partition, position, number within the entry, and value of each row that is published."""
    rows: list[dict[str, Any]] = []
    for path in lake.glob(f"topic=*/**/*.{file_format}"):
        if file_format == "json":
            rows += map(json.loads, path.read_text().splitlines())
        else:
            rows += pyarrow.parquet.ParquetFile(path).read([*PLACE, "value"]).to_pylist()
    return Counter((*(row[name] for name in PLACE), row["value"]) for row in rows)


def rows_of(cluster: Both, topic: str) -> Counter[tuple[Any, ...]]:
    with read_topic(cluster.zookeeper_connect, topic) as reader:
        return Counter(
            (numbers_of(str(each.partition)), each.offset, each.index, (each.value or b"").decode()) for each in reader
        )


class Loads:
    """Runs of the command on one folder."""

    def __init__(self, cluster: Both, topic: str, lake: Path, more: Sequence[str]) -> None:
        self.lake = lake
        self._command = [
            sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", cluster.zookeeper_connect, "--topic", topic,
            "--to", str(lake), "--partition-by", "none", "--text", "--master", "local[2]", *more,
        ]  # fmt: skip

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        command = [*self._command, *more]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def run_killed(self, file_format: str) -> None:
        """A run that is killed as soon as it has written a file, with all of its processes."""
        command = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        staging = self.lake / "_zkconsumer" / "staging"
        wait_until(lambda: command.poll() is not None or any(staging.rglob(f"*.{file_format}")), TIMEOUT_S, "a file",
                   interval_s=0.002)  # fmt: skip
        assert command.poll() is None
        group = descendants(command.pid)
        for each in (command.pid, *group):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        command.wait(TIMEOUT_S)
        wait_gone(group)


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_a_load_that_is_killed_in_the_middle_is_made_good_by_the_next_one(
    cluster: Both, topic: str, fresh_group: str, tmp_path: Path, file_format: str
) -> None:
    loads = Loads(cluster, topic, tmp_path / "lake", ["--format", file_format, "--group", fresh_group])
    fill(cluster, topic, 0)
    done = loads.run()
    assert done.returncode == 0, done.stderr
    assert "LAG (BYTES)" in done.stdout
    assert "Run 1 published: 180 messages" in done.stdout
    assert "every entry counted" in done.stdout
    assert rows_in(loads.lake, file_format) == rows_of(cluster, topic)
    fill(cluster, topic, 60)
    loads.run_killed(file_format)
    done = loads.run("--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    published = rows_in(loads.lake, file_format)
    assert published == rows_of(cluster, topic)
    assert max(published.values()) == 1
    assert sum(published.values()) == 360
    assert {partition: lag for _, partition, lag in report["lag"]} == {"0-0": 0, "0-1": 0, "1-1": 0}
    assert not any((loads.lake / "_zkconsumer" / "staging").iterdir())
    for each in report["partitions"]:
        path = f"/consumers/{fresh_group}/offsets/{topic}/{each['partition']}"
        assert cluster.client.get(path)[0] == b"%d" % each["end"]
    assert "Nothing new in 4 partitions." in loads.run().stdout
