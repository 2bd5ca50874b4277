"""A process that loads what it is asked to, over and over, with one Spark session: killed more cheaply than a command.

Its argument are settings of Spark, as JSON. A line of JSON on stdin is a question, one on stdout the answer:

| question | answer |
|---|---|
| a load: `folder`, `zookeeper`, `pattern`, `skip`, `most` | `run`, `left` and `silent`, or `error` |
| the same with `dies`: `"written"`, a number | none: is killed behind the writing, before that change of the folder |
| the same with `holds` | `holds` before it publishes; then it waits for a line, and goes on |
| `rows_of`: a folder | `rows`: partition, offset and value of each, in order |
| `staged_in`: a folder | `names` of what is left there of loads that are not published |
| `publish_in`: a folder, `times` | `published`: how many of eight that create the same file did so, each time |
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from loading import DyingStorage
from pyspark.sql import SparkSession

from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.load import heartbeat, job, run_writer
from zkconsumer.spark.load.failures import LoadOvertaken, failures_in_a_sentence
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import Shape
from zkconsumer.spark.streaming import stream_logs

AT_ONCE = 8


class KilledStorage(DyingStorage):
    """A folder whose user is killed before one of the changes it makes: this process and its JVM."""

    def _change(self, act: Callable[..., None], *arguments: str) -> None:
        KilledStorage.left -= 1
        if KilledStorage.left == 0:
            die()
        act(*arguments)


def main() -> None:
    """Answer until stdin ends."""
    # What takes ten seconds for others need not be waited for here: the dead are dead.
    heartbeat.BEAT_S, heartbeat.DEAD_S = 0.1, 1.0
    stream_logs.SHRUNK_S = 0.5
    job.Storage = KilledStorage  # type: ignore[attr-defined]
    spark = session(json.loads(sys.argv[1]))
    say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if "rows_of" in asked:
            rows = spark.read.parquet(asked["rows_of"]).select("partition", "offset", "value")
            found = sorted((row.partition, row.offset, bytes(row.value).decode()) for row in rows.collect())
            say({"rows": found})
        elif "staged_in" in asked:
            say({"names": Storage(spark, asked["staged_in"]).names("_zkconsumer/staging")})
        elif "publish_in" in asked:
            storage = Storage(spark, asked["publish_in"])
            say({"published": [publish_at_once(storage, f"runs/{n}.json") for n in range(asked["times"])]})
        else:
            say(load(spark, asked))


def session(settings: dict[str, str]) -> SparkSession:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config(map=settings)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def load(spark: SparkSession, asked: dict[str, Any]) -> dict[str, object]:
    source = {"zookeeper.connect": asked["zookeeper"], "subscribePattern": asked["pattern"],
              "kafkaConsumer.pollTimeoutMs": "4000"}  # fmt: skip
    settings = LoadSettings(
        source, asked["folder"], Shape("parquet", "none"), allow_loss=asked["skip"], max_messages=asked["most"]
    )
    dies = asked.get("dies")
    KilledStorage.left = dies if isinstance(dies, int) else 10**9
    count_rows, publish = run_writer.count_rows, History.publish
    if dies == "written":
        run_writer.count_rows = lambda *arguments: die()  # type: ignore[attr-defined]

    def hold_and_publish(history: History, manifest: Any) -> None:
        say({"holds": manifest.run})
        sys.stdin.readline()
        publish(history, manifest)

    if asked.get("holds"):
        History.publish = hold_and_publish  # type: ignore[method-assign]
    try:
        with failures_in_a_sentence():
            report = run_load(spark, settings)
    except ZkConsumerError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        run_writer.count_rows, History.publish = count_rows, publish  # type: ignore[attr-defined, method-assign]
    return {"run": report.run, "left": report.left, "silent": len(report.silent)}


def publish_at_once(storage: Storage, path: str) -> int:
    """How many of eight created a file at the same moment; the content has to be that of the one who did."""
    barrier = Barrier(AT_ONCE)

    def create(number: int) -> bool:
        barrier.wait(30)
        try:
            storage.create(path, f"by {number}")
        except LoadOvertaken:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        created = list(pool.map(create, range(AT_ONCE)))
    assert storage.read_text(path) in {f"by {number}" for number, did in enumerate(created) if did}
    return sum(created)


def die() -> Any:
    os.killpg(0, signal.SIGKILL)


def say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
