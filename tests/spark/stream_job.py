"""Two streams at once, into parquet and into SQLite, for a test that kills them: `stream_job.py '{"topic": ...}'`.

SQLite is written by the function that docs/SPARK_STREAMING.md shows.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
QUERIES = ("parquet", "sqlite")


def recipe(module: str = "sqlite3") -> dict[str, Any]:
    """The names that the recipe defines which imports this module first."""
    text = (ROOT / "docs" / "SPARK_STREAMING.md").read_text(encoding="utf-8")
    [code] = re.findall(rf"```python\n(import {module}\b.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/SPARK_STREAMING.md", "exec"), names)
    return names


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "local"))
        # Or a query that was killed while it wrote the first file of its checkpoint does not start again.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .getOrCreate()
    )


def main() -> None:
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    spark = session(folder)
    print("READY", flush=True)
    running = []
    for name in QUERIES:
        rows = (
            spark.readStream.format("zkconsumer")
            .option("zookeeper.connect", job["zookeeper"])
            .option("subscribe", job["topic"])
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", job["limit"])
            .option("group.id", f"{job['group']}-{name}")
            .load()
        )
        writer = rows.writeStream.option("checkpointLocation", str(folder / name / "checkpoint"))
        if name == "parquet":
            writer = writer.format("parquet").option("path", str(folder / name / "rows"))
        else:
            writer = writer.foreachBatch(recipe()["into_sqlite"](str(folder / name / "messages.db")))
        running.append(writer.queryName(name).trigger(availableNow=True).start())
    for query in running:
        query.awaitTermination()
    print("DONE", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
