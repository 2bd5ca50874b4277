"""How fast Spark reads a topic through `format("zkconsumer")`: beside Spark's own connector, Parquet, and a plain loop.

    python tests/benchmarks/spark.py                              # 4 M messages of 100 B: some ten minutes
    python tests/benchmarks/spark.py --rows 1000000 --size 1000   # larger ones
    python tests/benchmarks/spark.py --keyed --codec snappy
    python tests/benchmarks/spark.py --kafka 3.9.2                # or 4.3.1, which has no ZooKeeper

One real Kafka 2.8.2 broker holds a topic of four partitions in the message format of 0.10, so that neither side has
anything converted. Brokers of another version hold record batches. One session of Spark (`local[2]`) does everything,
the readers taking turns; medians over rounds.

| reader | |
|---|---|
| ours | `format("zkconsumer")` as it comes |
| ours, pruned | the same, `.schema("value binary")` |
| connector | `format("kafka")` as it comes |
| connector, tuned | the same with `kafka.max.poll.records=20000` and fetches of 4 MiB a partition |
| parquet | Spark reads the same rows from Parquet |
| batches | no Spark: one process reads `KafkaStream.batches()` of a group |

| work | |
|---|---|
| count | `count()` |
| length | `sum(length(value))` |
| parquet | all columns into Parquet, uncompressed |

A checksum over value, partition and offset must be the same for all. *outside* is the share of a run in which none of
the processes that run our code (Python workers) was computing: what Spark, the broker and waiting took. The connector
is of Spark 4.0.0, the last whose jars are all in Maven Central; without it the rest is measured.

Needs: Java, Maven, some 4 GB of memory and, for 4 M messages, 2 GB of disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = "spark-kafka-4.0.0"
PARTITIONS = 4
OLD_FORMAT = "2.8.2"
"""The version of the brokers that hold messages of magic 1."""
TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(100 * 1024 * 1024),
}
WORKS = ("count", "length", "parquet")
TARGETS = {"count": 2.0, "parquet": 1.4}
"""Of ours over the tuned connector, for messages of 100 B without key and codec."""


class Run(NamedTuple):
    """One reader at one work, once."""

    seconds: float
    python_s: float


# -- the topic -----------------------------------------------------------------------------------------------------


def create(cluster: Any, topic: str) -> None:
    """Create the topic, on brokers of 2.8.2 in the message format of 0.10."""
    is_old = cluster.version == OLD_FORMAT
    cluster.create_topic(topic, PARTITIONS, config={"message.format.version": "0.10.0"} if is_old else {})


def fill(cluster: Any, topic: str, arguments: argparse.Namespace) -> None:
    """Produce the messages, each value its own, some 16 kB at a time, as producers do.

    A broker looks for an offset from the begin of the set that was produced with it: large sets make each fetch slow.
    """
    from simpleconsumer import KAFKA011, KAFKA08, SimpleConsumer

    is_old = cluster.version == OLD_FORMAT
    form = {"magic": 1, "version": 2} if is_old else {}
    each = arguments.rows // PARTITIONS
    step = max(1, 16_384 // (arguments.size + 34))
    padding = b"".join(b"%d" % (n * 7919) for n in range(arguments.size))[: arguments.size - 10]
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA08 if is_old else KAFKA011) as broker:
        for partition in range(PARTITIONS):
            for first in range(0, each, step):
                messages = [
                    (b"key%013d" % n if arguments.keyed else None, b"%010d" % n + padding)
                    for n in range(first, min(first + step, each))
                ]
                broker.produce(topic, partition, messages, codec=arguments.codec, **form)


def message_parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of which messages there are, and how often they are read."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value, at least 20")
    parser.add_argument("--keyed", action="store_true", help="keys of 16 bytes")
    parser.add_argument("--codec", choices=("none", "gzip", "snappy"), default="none")
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


# -- the readers ---------------------------------------------------------------------------------------------------


def readers(spark: Any, cluster: Any, topic: str, folder: Path, with_connector: bool) -> dict[str, Callable[[], Any]]:
    """What makes a table of each reader."""
    from zkconsumer.spark import ZkConsumerSource

    spark.dataSource.register(ZkConsumerSource)
    brokers = f"127.0.0.1:{cluster.port(0)}"
    place = (
        ("zookeeper.connect", cluster.zookeeper_connect)
        if cluster.has_zookeeper
        else ("kafka.bootstrap.servers", brokers)
    )
    ours = spark.read.format("zkconsumer").option(*place).option("subscribe", topic)
    found: dict[str, Callable[[], Any]] = {"ours": ours.load}
    pruned = spark.read.format("zkconsumer").option(*place)
    found["ours, pruned"] = pruned.option("subscribe", topic).schema("value binary").load
    if with_connector:
        for name, options in (("connector", {}), ("connector, tuned", TUNED)):
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", brokers)
            reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
            found[name] = reader.options(**options).load
    rows = str(folder / "rows")
    found["ours"]().write.option("compression", "none").parquet(rows)
    found["parquet"] = lambda: spark.read.parquet(rows)
    return found


def work_on(table: Any, work: str, folder: Path) -> None:
    """Do it."""
    from pyspark.sql import functions as f

    if work == "count":
        table.count()
    elif work == "length":
        table.agg(f.sum(f.length("value"))).collect()
    else:
        target = folder / f"written-{uuid.uuid4().hex[:8]}"
        table.write.option("compression", "none").parquet(str(target))
        shutil.rmtree(target)


def checksum(table: Any) -> tuple[int, int]:
    """Rows, and a sum over value, partition and offset."""
    from pyspark.sql import functions as f

    digest = f.xxhash64("value", "partition", "offset").cast("decimal(20,0)")
    row = table.agg(f.count(f.lit(1)), f.sum(digest)).collect()[0]
    return int(row[0]), int(row[1])


def python_seconds() -> float:
    """CPU seconds of the Python workers that read, so far: the daemon, and those it has forked."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if b"pyspark.daemon" not in (entry / "cmdline").read_bytes():
                continue
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime and stime of the process, and of the children it has waited for.
        total += sum(map(int, fields[11:15])) / ticks
    return total


def loop_over_batches(zookeeper: str, topic: str, rows: int) -> None:
    """Body of the process that reads without Spark; prints the seconds from the first batch to the last."""
    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(zookeeper, f"bench-{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        count, began_s = 0, time.monotonic()
        for batch in connector.create_message_streams({topic: 1})[topic][0].batches():
            count += len(batch)
            if count >= rows:
                break
        print(time.monotonic() - began_s)


# -- the whole -----------------------------------------------------------------------------------------------------


@contextmanager
def session(folder: Path, jars: list[Path]) -> Iterator[Any]:
    """A session of Spark on two cores."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "2g", "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2", "spark.jars": ",".join(map(str, jars)),
    }  # fmt: skip
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def measure(arguments: argparse.Namespace, cluster: Any, spark: Any, folder: Path, with_connector: bool) -> None:
    """Fill a topic, read it in turns, and print."""
    topic = "bench"
    create(cluster, topic)
    began_s = time.monotonic()
    fill(cluster, topic, arguments)
    rows = arguments.rows // PARTITIONS * PARTITIONS
    kind = f"{arguments.size} B{', keyed' if arguments.keyed else ''}, {arguments.codec}"
    taken_s = time.monotonic() - began_s
    print(f"Kafka {cluster.version}: {rows:,} messages of {kind}, filled in {taken_s:.0f} s", flush=True)
    sources = readers(spark, cluster, topic, folder, with_connector)
    sums = {name: checksum(load()) for name, load in sources.items() if name != "ours, pruned"}
    if set(sums.values()) != {sums["ours"]} or sums["ours"][0] != rows:
        raise SystemExit(f"the checksums differ: {sums}")
    print(f"{len(sums)} readers have the same checksum over {rows:,} rows", flush=True)
    runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for number in range(arguments.rounds + 1):
        for work in WORKS:
            for name, load in sources.items():
                before, began_s = python_seconds(), time.monotonic()
                work_on(load(), work, folder)
                run = Run(time.monotonic() - began_s, python_seconds() - before)
                if number:  # the first round warms up
                    runs[work, name].append(run)
        if number and cluster.has_zookeeper:
            command = [sys.executable, str(Path(__file__)), "--batches", cluster.zookeeper_connect, topic, str(rows)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
            runs["count", "batches"].append(Run(float(done.stdout.split()[-1]), 0.0))
    show(runs, rows, arguments)


def show(runs: dict[tuple[str, str], list[Run]], rows: int, arguments: argparse.Namespace) -> None:
    """Print the medians, and what they come to."""
    size = arguments.size + (16 if arguments.keyed else 0)
    print(f"\n{'work':<10}{'reader':<18}{'seconds':>9}{'rows/s':>12}{'MB/s':>7}{'least':>8}{'most':>8}{'outside':>9}")
    medians: dict[tuple[str, str], float] = {}
    for work in WORKS:
        for (of_work, name), some in runs.items():
            if of_work != work:
                continue
            seconds = statistics.median(run.seconds for run in some)
            medians[work, name] = seconds
            ours = name.startswith("ours")
            share = 1 - statistics.median(run.python_s for run in some) / (2 * seconds)
            print(f"{work:<10}{name:<18}{seconds:>9.2f}{rows / seconds:>12,.0f}{rows * size / seconds / 1e6:>7.0f}"
                  f"{min(run.seconds for run in some):>8.2f}{max(run.seconds for run in some):>8.2f}"
                  f"{f'{share:.0%}' if ours else '-':>9}")  # fmt: skip
    if ("count", "connector") not in medians:
        print(f"\nThe connector was left out: {arguments.why_not}")
        return
    binding = (arguments.size, arguments.keyed, arguments.codec) == (100, False, "none")
    print()
    for work in WORKS:
        ours, tuned = medians[work, "ours"], medians[work, "connector, tuned"]
        default = medians[work, "connector"]
        target = TARGETS.get(work)
        verdict = f"; at least {target}: {'kept' if tuned / ours >= target else 'MISSED'}" if target and binding else ""
        print(f"{work}: {default / ours:.2f} times the connector, {tuned / ours:.2f} times the tuned one{verdict}")


def main() -> None:
    """Read the command line and run."""
    parser = message_parser(__doc__, rounds=3)
    parser.add_argument("--kafka", default=OLD_FORMAT, metavar="VERSION", help="of the broker (%(default)s)")
    parser.add_argument("--batches", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batches:
        loop_over_batches(arguments.batches[0], arguments.batches[1], int(arguments.batches[2]))
        return
    from zkconsumer.testing import KafkaCluster
    from zkconsumer.testing.errors import KitError
    from zkconsumer.testing.java.maven import jars

    arguments.why_not, connector = "", []
    try:
        connector = jars(CONNECTOR)
    except KitError as error:
        arguments.why_not = str(error)
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        with KafkaCluster(arguments.kafka, heap_mb=512) as cluster, session(folder, connector) as spark:
            measure(arguments, cluster, spark, folder, bool(connector))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # Beside this file stands one of the name of the package that is measured.
    sys.path[0] = str(ROOT)
    main()
