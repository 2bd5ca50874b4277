"""A process that loads what it is told to, over and over, with one Spark session: killed more cheaply than a command.

A line of JSON on stdin is a load: `folder`, `zookeeper`, `pattern`, `skip`, `most`. A line on stdout is what came of
it: `run`, `left` and `silent`, or `error`.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark import stream_logs
from zkconsumer.spark.load import alive
from zkconsumer.spark.load.failures import failures_in_a_sentence
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape


def main() -> None:
    """Load until stdin ends."""
    # What takes ten seconds for others need not be waited for here: the dead are dead.
    alive.BEAT_S, alive.DEAD_S = 0.1, 1.0
    stream_logs.SHRUNK_S = 0.5
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    _say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        source = {"zookeeper.connect": asked["zookeeper"], "subscribePattern": asked["pattern"],
                  "kafkaConsumer.pollTimeoutMs": "4000"}  # fmt: skip
        settings = LoadSettings(
            source, asked["folder"], Shape("parquet", "none"), allow_loss=asked["skip"], max_messages=asked["most"]
        )
        try:
            with failures_in_a_sentence():
                report = run_load(spark, settings)
        except ZkConsumerError as error:
            _say({"error": f"{type(error).__name__}: {error}"})
        else:
            _say({"run": report.run, "left": report.left, "silent": len(report.silent)})


def _say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
