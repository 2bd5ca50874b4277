"""Streams whose driver, JVM or Python workers are killed: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rebalance.zookeeper import znodes
from tests.spark.stream_job import QUERIES, ROOT
from zkconsumer.spark.streaming.group_offsets import newest_finished
from zkconsumer.spark.streaming.stream_offsets import parse_stream_offsets
from zkconsumer.testing import KafkaCluster, WaitTimeout, load
from zkconsumer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S, RUN_S = 300, 600
EACH_ROUND, LIMIT = 500, 150
OF_SPARK = (
    # Ten seconds are what it gives a new process: not enough on a machine with much else to do.
    "Python worker failed to connect back",
    # One query packs its tasks while another one changes what they share.
    "Task serialization failed: java.lang.IllegalStateException: Illegal size",
)
"""What ends a run and is of Spark's own making: the run is repeated."""
Scene = Callable[[subprocess.Popen[str], Path], None]


def descendants(root: int) -> list[int]:
    """The processes below one, parents first."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                children[int(Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()[1])].append(int(name))
    found, waiting = [], [root]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return found


def command(pid: int) -> str:
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_text().replace("\0", " ")
    return ""


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_everything(job: subprocess.Popen[str], folder: Path) -> None:
    kill(job.pid, *descendants(job.pid))


def kill_driver(job: subprocess.Popen[str], folder: Path) -> None:
    kill(job.pid)


def kill_jvm(job: subprocess.Popen[str], folder: Path) -> None:
    kill(*[pid for pid in descendants(job.pid) if "java" in command(pid).split(" ")[0]][:1])


def kill_worker(job: subprocess.Popen[str], folder: Path) -> None:
    kill(*[pid for pid in descendants(job.pid) if "pyspark" in command(pid) and "java" not in command(pid)][-1:])


def kill_when(pattern: str) -> Scene:
    """Kill everything in the moment in which a file comes up."""

    def scene(job: subprocess.Popen[str], folder: Path) -> None:
        before = set(folder.glob(pattern))
        wait_until(lambda: set(folder.glob(pattern)) != before or job.poll() is not None, START_S, pattern,
                   interval_s=0.002)  # fmt: skip
        kill_everything(job, folder)

    scene.__name__ = f"kill_when {pattern}"
    return scene


def kill_and_forget(job: subprocess.Popen[str], folder: Path) -> None:
    """As if it had died between the sink's end and Spark's own note of it; the test deletes the note."""
    kill_everything(job, folder)


def forget_commits(folder: Path) -> None:
    for name in QUERIES:
        checkpoint = folder / name / "checkpoint"
        newest = newest_finished(str(checkpoint))
        if newest is not None:
            (checkpoint / "commits" / str(newest.number)).unlink()
            (checkpoint / "commits" / f".{newest.number}.crc").unlink(missing_ok=True)


SCENES: list[Scene] = [
    kill_when("parquet/checkpoint/offsets/0"),
    kill_everything,
    kill_jvm,
    kill_and_forget,
    kill_when("parquet/rows/_spark_metadata/[0-9]*"),
    kill_worker,
    kill_driver,
    kill_when("sqlite/checkpoint/offsets/[0-9]*"),
]


@contextmanager
def started(folder: Path, **job: object) -> Iterator[subprocess.Popen[str]]:
    """The job; at the end of the block none of its processes is left."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, str(Path(__file__).with_name("stream_job.py")),
                 json.dumps({"folder": str(folder), "limit": LIMIT, **job})]  # fmt: skip
    with (folder / "errors").open("a") as errors:
        process = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    below: list[int] = []
    try:
        assert process.stdout is not None
        answers, _, _ = select.select([process.stdout], [], [], START_S)
        assert answers, f"the job said nothing in {START_S} s"
        line = process.stdout.readline()
        below = descendants(process.pid)
        assert line == "READY\n" or process.wait(RUN_S), (folder / "errors").read_text()[-2000:]
        yield process
    finally:
        below += descendants(process.pid)
        # What is left ends itself when the driver or the JVM is gone; it must not meet its successor.
        with suppress(WaitTimeout):
            wait_until(lambda: process.poll() is not None and not any(map(command, below)), 60, "the job to end")
        kill(process.pid, *below)
        wait_until(lambda: process.poll() is not None and not any(map(command, below)), 60, "the job to end")
        assert process.stdout is not None
        process.stdout.close()


def finish(folder: Path, **job: object) -> None:
    """Let the job run to its end."""
    for _ in range(3):
        (folder / "errors").write_text("")
        with started(folder, **job) as process:
            if process.wait(RUN_S) == 0:
                return
        errors = (folder / "errors").read_text()
        assert any(reason in errors for reason in OF_SPARK), errors[-4000:]
    raise AssertionError(f"three runs in a row ended by {OF_SPARK}")


def commits(folder: Path) -> int:
    return sum(len(list((folder / name / "checkpoint" / "commits").glob("[0-9]*"))) for name in QUERIES)


@pytest.mark.slow
def test_streams_that_are_killed_lose_and_repeat_nothing(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, tmp_path: Path
):
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    job = {"zookeeper": kafka_0822.zookeeper_connect, "topic": topic, "group": fresh_group}
    rng = random.Random()
    killed: list[tuple[str, float]] = []
    done: dict[tuple[str, str, int], int] = {}
    for number, scene in enumerate(SCENES):
        load(kafka_0822, topic, EACH_ROUND, first=number * EACH_ROUND)
        with started(tmp_path, **job) as process:
            if not scene.__name__.startswith("kill_when"):
                before = commits(tmp_path)
                wait_until(lambda before=before: commits(tmp_path) > before or process.poll() is not None,  # type: ignore[misc]
                           START_S, "a batch")  # fmt: skip
                delay_s = rng.random() * 2
                killed.append((scene.__name__, delay_s))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(delay_s)
            scene(process, tmp_path)
        for name, at in finished(tmp_path).items():
            done[name] = max(at, done.get(name, 0))
        ahead = {name: at for name, at in stored(kafka_0822, fresh_group, topic).items() if at > done.get(name, -1)}
        assert not ahead, ("stored ahead of the checkpoint", ahead, done, killed)
        if scene is kill_and_forget:
            forget_commits(tmp_path)
    finish(tmp_path, **job)
    wanted = sorted((partition, n, b"%d:%d" % (partition, n)) for partition in (0, 1)
                    for n in range(EACH_ROUND * len(SCENES)))  # fmt: skip
    table = spark.read.parquet(str(tmp_path / "parquet" / "rows"))
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in table.collect()) == wanted, killed
    with closing(sqlite3.connect(tmp_path / "sqlite" / "messages.db")) as database:
        rows = database.execute("SELECT partition, offset, value FROM messages").fetchall()
    assert sorted((partition, offset, bytes(value)) for partition, offset, value in rows) == wanted, killed
    assert stored(kafka_0822, fresh_group, topic) == {
        (name, topic, partition): EACH_ROUND * len(SCENES) for name in QUERIES for partition in (0, 1)
    }


def finished(folder: Path) -> dict[tuple[str, str, int], int]:
    """The ends in the checkpoints."""
    found = {}
    for name in QUERIES:
        checkpoint = folder / name / "checkpoint"
        newest = newest_finished(str(checkpoint)) if checkpoint.exists() else None
        if newest is not None:
            for (topic, partition), at in parse_stream_offsets(newest.ends[0]).offsets.items():
                found[name, topic, int(partition)] = at
    return found


def stored(cluster: KafkaCluster, group: str, topic: str) -> dict[tuple[str, str, int], int]:
    """The ends in ZooKeeper."""
    found = {}
    for name in QUERIES:
        for partition in (0, 1):
            path = znodes.offset_path(f"{group}-{name}", topic, partition)
            if cluster.client.exists(path) is not None:
                found[name, topic, partition] = int(cluster.client.get(path)[0])
    return found
