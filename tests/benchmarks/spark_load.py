"""How fast `zkconsumer load` brings a topic into Parquet, beside a plain `df.write.parquet` of the same rows.

    python tests/benchmarks/spark_load.py                              # 4 M messages of 100 B: some five minutes
    python tests/benchmarks/spark_load.py --rows 1000000 --size 1000   # larger ones

One real Kafka 2.8.2 broker holds a topic of four partitions. One session of Spark (`local[2]`) writes it in turns, each
time into a new folder: `format("zkconsumer")` to Parquet as Spark does it, and as a run of a load, which writes aside,
reads back what it has written, counts it, and publishes it. Both files have Spark's default compression. Medians over
rounds, and the share of the plain write's rate that the load reaches, as the median of the rounds' own shares.

Needs: Java, Maven, some 4 GB of memory and, for 4 M messages, 2 GB of disk.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = 0.6
"""Of the plain write's rate."""


def plain_write(spark: Any, zookeeper: str, topic: str, folder: Path) -> int:
    """Write the topic as Spark does, which counts nothing."""
    frame = spark.read.format("zkconsumer").option("zookeeper.connect", zookeeper).option("subscribe", topic).load()
    frame.write.parquet(str(folder))
    return 0


def load(spark: Any, zookeeper: str, topic: str, folder: Path) -> int:
    """Load the topic; return the messages that the run has counted."""
    from zkconsumer.spark.load.job import run_load
    from zkconsumer.spark.load.settings import LoadSettings

    report = run_load(spark, LoadSettings({"zookeeper.connect": zookeeper, "subscribe": topic}, str(folder)))
    return sum(each.messages for each in report.partitions)


def timed(work: Callable[..., int], spark: Any, zookeeper: str, topic: str, folder: Path, rows: int) -> float:
    """Seconds of one write into a folder of its own, whose rows are counted afterwards."""
    target = folder / work.__name__
    began_s = time.monotonic()
    counted = work(spark, zookeeper, topic, target)
    seconds = time.monotonic() - began_s
    found = spark.read.option("recursiveFileLookup", "true").parquet(str(target)).count()
    if found != rows or counted not in (0, rows):
        raise SystemExit(f"{work.__name__}: {found:,} rows were written of {rows:,}, {counted:,} counted")
    shutil.rmtree(target)
    return seconds


def measure(arguments: argparse.Namespace, cluster: Any, spark: Any, folder: Path) -> None:
    """Fill a topic, write it in turns, and print."""
    from tests.benchmarks.spark import PARTITIONS, create, fill
    from zkconsumer.spark import ZkConsumerSource

    spark.dataSource.register(ZkConsumerSource)
    topic = "bench"
    create(cluster, topic)
    fill(cluster, topic, arguments)
    rows = arguments.rows // PARTITIONS * PARTITIONS
    mb = rows * (arguments.size + (16 if arguments.keyed else 0)) / 1e6
    print(f"{rows:,} messages of {arguments.size} B, {arguments.codec}: {mb:,.0f} MB", flush=True)
    seconds: dict[str, list[float]] = {"plain_write": [], "load": []}
    for number in range(arguments.rounds + 1):
        works = (plain_write, load) if number % 2 else (load, plain_write)
        for work in works:
            taken = timed(work, spark, cluster.zookeeper_connect, topic, folder, rows)
            if number:  # the first round warms up
                seconds[work.__name__].append(taken)
    for name, some in seconds.items():
        print(f"{name:<12}{statistics.median(some):>7.2f} s{mb / statistics.median(some):>8,.0f} MB/s"
              f"{min(some):>8.2f} to {max(some):.2f} s")  # fmt: skip
    share = statistics.median(p / own for p, own in zip(seconds["plain_write"], seconds["load"], strict=True))
    print(f"load / plain write: {share:.2f}; at least {TARGET}: {'kept' if share >= TARGET else 'MISSED'}")


def main() -> None:
    """Read the command line and run."""
    from tests.benchmarks.spark import message_parser, session
    from zkconsumer.testing import KafkaCluster

    arguments = message_parser(__doc__, rounds=5).parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-load-"))
    try:
        with KafkaCluster("2.8.2", heap_mb=512) as cluster, session(folder, []) as spark:
            measure(arguments, cluster, spark, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # Beside this file stands one of the name of a package of Spark.
    sys.path[0] = str(ROOT)
    main()
