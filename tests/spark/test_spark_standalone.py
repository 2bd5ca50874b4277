"""A standalone cluster whose executors have the archive alone: tables, streams, sinks and loads, also when one dies."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as arrow_files
import pytest
from producing import produce
from spark_jobs import reads_streams
from standalone import StandaloneSpark

from zkconsumer import read_topic
from zkconsumer.spark.archive import write_archive
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

JOB_S = 240.0
PARTITIONS, MESSAGES, TASKS = 2, 40_000, 40
BEGIN = """
import json, sys
from pyspark.sql import SparkSession
from zkconsumer.spark import ZkConsumerSource
options = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(ZkConsumerSource)
"""
BATCH = """
spark.read.format("zkconsumer").options(**options).load().write.parquet("rows")
"""
STREAM = """
rows = spark.readStream.format("zkconsumer").options(**options).load()
writer = rows.writeStream.format("parquet").option("path", "rows").option("checkpointLocation", "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
spark.read.parquet("rows").write.parquet("listed")  # what Spark's file sink has listed, without files of a dead task
"""
SINK = """
rows = spark.range(0, 80000, 1, 40).selectExpr("cast(id as string) as key", "cast(id as string) as value")
rows.write.format("zkconsumer").options(**options).mode("append").save()
"""
STREAM_INTO_TOPIC = """
spark.sparkContext.addPyFile(sys.argv[3])
spark.dataSource.register(ZkConsumerSource)  # Spark keeps with the source which archives there are at this moment
rows = spark.readStream.format("zkconsumer").options(**options).load().select("key", "value")
writer = rows.writeStream.format("zkconsumer").option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"])
writer = writer.option("topic", sys.argv[2]).option("checkpointLocation", "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "zkconsumer.zip"
    write_archive(path)
    return path


def submitted(standalone: StandaloneSpark, archive: Path, folder: Path, program: str, *arguments: str) -> ChildProcess:
    job = folder / "job.py"
    job.write_text(BEGIN + program, encoding="utf-8")
    return standalone.submit(job, *arguments, options=["--py-files", str(archive)])


def finished(job: ChildProcess) -> str:
    """What a job has printed that must end well."""
    try:
        assert job.wait(JOB_S) == 0, job.tail(200)
    finally:
        job.kill_group()
    return job.log_path.with_name("stdout.txt").read_text(encoding="utf-8")


def places(folder: Path) -> Counter[tuple[int, int]]:
    """How often each message is in the files of a folder."""
    table = arrow_files.dataset(folder, format="parquet").to_table(columns=["partition", "offset"])
    return Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def each_once(count: int) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(count))


def killed_executor(standalone: StandaloneSpark, job: ChildProcess, has_begun: Callable[[], object]) -> None:
    """Kill an executor of a job as soon as it has done a part of its work."""
    wait_until(lambda: has_begun() or not job.running, JOB_S, "a part of the work")
    assert job.running, job.tail(200)
    os.kill(standalone.executors()[0], signal.SIGKILL)


@reads_streams
def test_a_stream_is_read_where_executors_have_the_archive_alone(
    standalone: StandaloneSpark, archive: Path, tmp_path: Path
) -> None:
    with EmbeddedCluster(1, zookeeper=False) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            cluster.produce("t", [b"%d" % n for n in range(50)], partition=partition)
        options = {"kafka.bootstrap.servers": cluster.broker_list, "subscribe": "t", "startingOffsets": "earliest"}
        finished(submitted(standalone, archive, tmp_path, STREAM, json.dumps(options)))
    assert places(tmp_path / "listed") == each_once(50)


@pytest.fixture(scope="module")
def full_topic(kafka_clusters: Callable[[str, int], KafkaCluster]) -> tuple[KafkaCluster, str]:
    """A topic with `MESSAGES` in each of its partitions."""
    cluster, topic = kafka_clusters("3.9.2", 1), "full"
    cluster.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        for first in range(0, MESSAGES, 5000):
            produce(cluster, topic, partition, [(None, b"%d" % n) for n in range(first, first + 5000)])
    return cluster, topic


def options_of(full_topic: tuple[KafkaCluster, str], **more: str) -> str:
    cluster, topic = full_topic
    return json.dumps({"kafka.bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "subscribe": topic, **more})


@pytest.mark.slow
def test_a_table_has_each_row_once_when_an_executor_is_killed(
    standalone: StandaloneSpark, archive: Path, full_topic: tuple[KafkaCluster, str], tmp_path: Path
) -> None:
    job = submitted(standalone, archive, tmp_path, BATCH, options_of(full_topic, minPartitions=f"{TASKS}"))
    killed_executor(standalone, job, lambda: len(list(tmp_path.glob("rows/_temporary/0/task*"))) > 4)
    assert not (tmp_path / "rows" / "_SUCCESS").exists(), "the executor was killed after the end"
    finished(job)
    assert places(tmp_path / "rows") == each_once(MESSAGES)


@pytest.mark.slow
@reads_streams
def test_a_stream_has_each_row_once_when_an_executor_is_killed(
    standalone: StandaloneSpark, archive: Path, full_topic: tuple[KafkaCluster, str], tmp_path: Path
) -> None:
    given = options_of(full_topic, startingOffsets="earliest", maxOffsetsPerTrigger="8000", minPartitions="4")
    job = submitted(standalone, archive, tmp_path, STREAM, given)
    killed_executor(standalone, job, lambda: (tmp_path / "checkpoint" / "commits" / "2").exists())
    assert not (tmp_path / "checkpoint" / "commits" / "9").exists(), "the executor was killed after the end"
    finished(job)
    assert places(tmp_path / "listed") == each_once(MESSAGES)


@pytest.mark.slow
def test_a_load_has_each_message_once_when_an_executor_is_killed(
    standalone: StandaloneSpark, archive: Path, full_topic: tuple[KafkaCluster, str], tmp_path: Path
) -> None:
    cluster, topic = full_topic
    lake = tmp_path / "lake"
    settings = {
        "spark.submit.pyFiles": str(archive), "spark.executor.memory": "600m", "spark.executor.cores": "1",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    }  # fmt: skip
    program = str(Path(sys.executable).with_name("zkconsumer"))
    job = ChildProcess(
        "load", [program, "load", "--bootstrap-server", f"127.0.0.1:{cluster.port(0)}", "--topic", topic,
                 "--to", str(lake), "--option", f"minPartitions={TASKS}",
                 "--master", standalone.master, *(f"--conf={name}={value}" for name, value in settings.items())],
        tmp_path / "stderr.txt", output_path=tmp_path / "stdout.txt", directory=tmp_path,
        environment=standalone.environment,
    )  # fmt: skip
    killed_executor(standalone, job, lambda: len(list(lake.glob("_zkconsumer/staging/*/_temporary/0/task*"))) > 4)
    assert not list(lake.glob("_zkconsumer/runs/*")), "the executor was killed after the end"
    finished(job)
    assert places(next(lake.glob("topic=*"))) == each_once(MESSAGES)


@pytest.mark.slow
def test_a_sink_loses_no_row_when_an_executor_is_killed(
    standalone: StandaloneSpark, archive: Path, full_topic: tuple[KafkaCluster, str], tmp_path: Path
) -> None:
    """Rows of tasks that the executor had not ended may be there twice, as docs/SPARK_WRITING.md says."""
    cluster, topic = full_topic[0], "sunk"
    cluster.create_topic(topic)
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "topic": topic}
    job = submitted(standalone, archive, tmp_path, SINK, json.dumps(given))
    killed_executor(standalone, job, lambda: len(keys_of(cluster, topic)) > 6000)
    finished(job)
    keys = keys_of(cluster, topic)
    assert set(keys) == {b"%d" % n for n in range(80_000)}
    assert len(keys) - 80_000 <= 2 * 80_000 // TASKS, "rows of other tasks are there twice, too"


@pytest.mark.slow
@reads_streams
def test_a_stream_from_topic_to_topic_where_the_program_adds_the_archive(
    standalone: StandaloneSpark, archive: Path, full_topic: tuple[KafkaCluster, str], tmp_path: Path
) -> None:
    """The interpreter of the program has the package, and that of the executors has not."""
    cluster, topic = full_topic[0], "copied"
    cluster.create_topic(topic)
    given = options_of(full_topic, startingOffsets="earliest", maxOffsetsPerTrigger="40000")
    job = tmp_path / "job.py"
    job.write_text(BEGIN + STREAM_INTO_TOPIC, encoding="utf-8")
    driver = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    finished(standalone.submit(job, given, topic, str(archive), environment=driver))
    assert len(keys_of(cluster, topic)) == PARTITIONS * MESSAGES


def keys_of(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    """The keys of all messages of a topic."""
    with read_topic(None, topic, properties={"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}"}) as reader:
        return [message.key for message in reader]
