"""How fast Spark writes a topic through `format("zkconsumer")`: beside its own connector, and two clients in Python.

    python tests/benchmarks/spark_sink.py                              # 1 M messages of 100 B: some twelve minutes
    python tests/benchmarks/spark_sink.py --cases plain --rows 200000 --size 1000
    python tests/benchmarks/spark_sink.py --cases keyed-snappy gzip --writers connector

One real Kafka broker holds topics of four partitions. One session of Spark (`local[2]`) keeps the rows in memory, and
all writers write them in turns, each time into a topic of its own, until everything is acknowledged (`acks=1`); medians
over rounds. The rows of each topic are counted afterwards. Cases: *plain*, without keys and compression; *keyed*, with
keys of 16 bytes; *snappy* and *gzip*; and *keyed-snappy* and *keyed-gzip*.

| writer | |
|---|---|
| ours | `df.write.format("zkconsumer")` |
| connector | `df.write.format("kafka")` |
| confluent | `foreachPartition` with confluent-kafka, which waits in `flush()` |
| kafka-python | `foreachPartition` with kafka-python |

*python*, *java* and *broker* are the CPU times of Python workers, Spark's JVM and the broker, in microseconds for each
row. The connector is of Spark 4.0.0, the last whose
jars are all in Maven Central; without it, or without one of the clients, the rest is measured.

Needs: Java, Maven, some 4 GB of memory; confluent-kafka and kafka-python (2.3.3) beside which it is measured.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = "spark-kafka-4.0.0"
PARTITIONS = 4
CASES = {
    "plain": (False, "none"), "keyed": (True, "none"), "snappy": (False, "snappy"), "gzip": (False, "gzip"),
    "keyed-snappy": (True, "snappy"), "keyed-gzip": (True, "gzip"),
}  # fmt: skip
"""Case -> whether there are keys, and the codec."""
TARGET = 1.0
"""Of ours over the connector."""


class Run(NamedTuple):
    """One writer, once."""

    seconds: float
    python_s: float
    java_s: float
    broker_s: float


class Place(NamedTuple):
    """Where to write, and how."""

    zookeeper: str
    broker: str
    codec: str


def with_ours(rows: Any, topic: str, place: Place) -> None:
    """Write through the sink of this package."""
    writer = rows.write.format("zkconsumer").mode("append").option("zookeeper.connect", place.zookeeper)
    writer.option("topic", topic).option("compression.codec", place.codec).save()


def with_connector(rows: Any, topic: str, place: Place) -> None:
    """Write through Spark's own sink."""
    writer = rows.write.format("kafka").mode("append").option("kafka.bootstrap.servers", place.broker)
    writer = writer.option("kafka.acks", "1").option("kafka.enable.idempotence", "false")
    writer.option("topic", topic).option("kafka.compression.type", place.codec).save()


def with_confluent(rows: Any, topic: str, place: Place) -> None:
    """Write with confluent-kafka, as programs without a sink do."""

    def write(part: Iterator[Any]) -> None:
        from confluent_kafka import Producer

        failed: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({
            "bootstrap.servers": place.broker, "acks": 1, "compression.type": place.codec, "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        })  # fmt: skip
        for row in part:
            key = None if row.key is None else bytes(row.key)
            while True:
                try:
                    producer.produce(topic, bytes(row.value), key, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(120) or failed:
            raise RuntimeError(f"not delivered: {failed[:3]}")

    rows.foreachPartition(write)


def with_kafka_python(rows: Any, topic: str, place: Place) -> None:
    """Write with kafka-python, as programs without a sink do."""

    def write(part: Iterator[Any]) -> None:
        from kafka import KafkaProducer

        codec = None if place.codec == "none" else place.codec
        producer = KafkaProducer(bootstrap_servers=place.broker, acks=1, compression_type=codec, linger_ms=5)
        futures = [producer.send(topic, bytes(row.value), None if row.key is None else bytes(row.key)) for row in part]
        producer.flush(120)
        for future in futures:
            future.get(1)
        producer.close()

    rows.foreachPartition(write)


def made_rows(spark: Any, is_keyed: bool, arguments: Namespace) -> Any:
    """Return the rows, which are kept in memory: each value its own."""
    padding = "".join(str(n * 7919) for n in range(arguments.size))[: arguments.size - 10]
    key = "cast(format_string('key%013d', id) as binary)" if is_keyed else "cast(null as binary)"
    rows = spark.range(arguments.rows, numPartitions=PARTITIONS)
    rows = rows.selectExpr(f"{key} as key", f"cast(concat(format_string('%010d', id), '{padding}') as binary) as value")
    rows = rows.persist()
    if rows.count() != arguments.rows:
        raise SystemExit("the rows are not there")
    return rows


def measure(arguments: Namespace, cluster: Any, spark: Any, writers: dict[str, Callable[..., None]]) -> None:
    """Write the rows of each case in turns, and print."""
    from zkconsumer.spark import ZkConsumerSource

    spark.dataSource.register(ZkConsumerSource)
    for case in arguments.cases:
        is_keyed, codec = CASES[case]
        place = Place(cluster.zookeeper_connect, f"127.0.0.1:{cluster.port(0)}", codec)
        rows = made_rows(spark, is_keyed, arguments)
        print(f"\n{case}: {arguments.rows:,} messages of {arguments.size} B, to Kafka {arguments.kafka}", flush=True)
        show(runs_of(rows, place, arguments, cluster, spark, writers), arguments)
        rows.unpersist(blocking=True)


def runs_of(
    rows: Any, place: Place, arguments: Namespace, cluster: Any, spark: Any, writers: dict[str, Callable[..., None]]
) -> dict[str, list[Run]]:
    """Return the runs of each writer; all write the same rows."""
    from tests.benchmarks.process_times import cpu_seconds
    from tests.benchmarks.spark import python_seconds

    pids = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), cluster.brokers[0].process.pid
    runs: dict[str, list[Run]] = defaultdict(list)
    for number in range(arguments.rounds + 1):
        for name, write in writers.items():
            topic = f"bench-{uuid.uuid4().hex[:8]}"
            cluster.create_topic(topic, PARTITIONS)
            before, began_s = (python_seconds(), *map(cpu_seconds, pids)), time.monotonic()
            write(rows, topic, place)
            after = python_seconds(), *map(cpu_seconds, pids)
            run = Run(time.monotonic() - began_s, *(late - soon for late, soon in zip(after, before, strict=True)))
            written = spark.read.format("zkconsumer").option("zookeeper.connect", place.zookeeper)
            found = written.option("subscribe", topic).load().count()
            if found != arguments.rows:
                raise SystemExit(f"{name}: {found:,} rows were written of {arguments.rows:,}")
            if number:  # the first round warms up
                runs[name].append(run)
            cluster.delete_topic(topic)
    return runs


def show(runs: dict[str, list[Run]], arguments: Namespace) -> None:
    """Print the medians, and what they come to."""
    print(f"\n{'writer':<14}{'seconds':>9}{'rows/s':>11}{'least':>8}{'most':>8}{'python':>9}{'java':>7}{'broker':>8}")
    medians = {}
    for name, some in runs.items():
        seconds = medians[name] = statistics.median(run.seconds for run in some)
        cpu = [statistics.median(run[place] for run in some) / arguments.rows * 1e6 for place in (1, 2, 3)]
        print(f"{name:<14}{seconds:>9.2f}{arguments.rows / seconds:>11,.0f}{min(run.seconds for run in some):>8.2f}"
              f"{max(run.seconds for run in some):>8.2f}{cpu[0]:>9.2f}{cpu[1]:>7.2f}{cpu[2]:>8.2f}")  # fmt: skip
    print()
    for name, seconds in medians.items():
        if name != "ours":
            times = seconds / medians["ours"]
            kept = f"; at least {TARGET}: {'kept' if times >= TARGET else 'MISSED'}" if name == "connector" else ""
            print(f"ours is {times:.2f} times as fast as {name}{kept}")


def main() -> None:
    """Read the command line and run."""
    from tests.benchmarks.spark import session
    from zkconsumer.testing import KafkaCluster

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every worker compiles what it imports
    from zkconsumer.testing.errors import KitError
    from zkconsumer.testing.java.maven import jars

    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value, at least 20")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["plain", "keyed", "snappy", "gzip"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", default="2.8.2", help="version of the broker, 0.10.2.2 or newer")
    parser.add_argument("--writers", default="ours,connector,confluent,kafka-python", help="some, between commas")
    arguments = parser.parse_args()
    writers: dict[str, Callable[..., None]] = {"ours": with_ours}
    connector: list[Path] = []
    try:
        connector = jars(CONNECTOR)
        writers["connector"] = with_connector
    except KitError as error:
        print(f"The connector is left out: {error}")
    for name, module, write in (
        ("confluent", "confluent_kafka", with_confluent), ("kafka-python", "kafka", with_kafka_python)
    ):  # fmt: skip
        if importlib.util.find_spec(module) is None:
            print(f"{name} is left out: it is not installed")
        else:
            writers[name] = write
    wanted = arguments.writers.split(",")
    writers = {name: write for name, write in writers.items() if name in ("ours", *wanted)}
    folder = Path(tempfile.mkdtemp(prefix="bench-sink-"))
    try:
        with KafkaCluster(arguments.kafka, heap_mb=512) as cluster, session(folder, connector) as spark:
            measure(arguments, cluster, spark, writers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # Beside this file stands one of the name of a package of Spark.
    sys.path[0] = str(ROOT)
    main()
