"""Delta for the tests of loads into Delta tables, where delta-spark is installed.

Delta takes a pyspark of its own choice, so these tests have a virtual environment of their own: docs/TESTING.md.
"""

from __future__ import annotations

import importlib.metadata

from zkconsumer.testing.maven import jars

DELTA = "4.4.0"
"""The release whose jars are pinned, those for Spark 4.2."""


def why_not() -> str:
    """Why there is no Delta here, empty when there is."""
    try:
        found = importlib.metadata.version("delta_spark")
        pyspark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError as error:
        found, pyspark = f"no {error.name}", ""
    if found == DELTA and pyspark.startswith("4.2."):
        return ""
    return (f"delta-spark {DELTA} with pyspark 4.2 is wanted, here is {found}: python3 -m venv .venv-delta && "
            f".venv-delta/bin/pip install -e '.[test,delta]' delta-spark=={DELTA} && "
            ".venv-delta/bin/pytest tests/spark/test_load_delta.py (docs/TESTING.md)")  # fmt: skip


def delta_jars() -> str:
    """The value of `spark.jars`."""
    return ",".join(str(path) for path in jars(f"spark-delta-{DELTA}"))


def session_settings() -> dict[str, str]:
    """What a session for tests needs for Delta, nothing where there is none."""
    if why_not():
        return {}
    return {
        "spark.jars": delta_jars(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Fifty tasks for the state of a table with three files.
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists one folder with ten thousand tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
