"""Delta for the tests of loads into Delta tables, where delta-spark is installed.

Delta takes a pyspark of its own choice, so these tests have a virtual environment of their own: docs/TESTING.md.
"""

from __future__ import annotations

import importlib.metadata
import os
from importlib.util import find_spec

import pytest

from zkconsumer.testing.java.maven import jars
from zkconsumer.testing.pytest_plugin import REQUIRE_REAL

DELTA = "4.4.0"
"""The release whose jars are pinned, those for Spark 4.2."""
INSTALL = ("python3 -m venv .venv-delta && "
           f".venv-delta/bin/pip install -e '.[delta]' delta-spark=={DELTA} pytest hypothesis")  # fmt: skip


def why_not() -> str:
    """Why there is no Delta here, empty when there is."""
    found, pyspark = (version_of(name) for name in ("delta_spark", "pyspark"))
    if found == DELTA and pyspark.startswith("4.2."):
        return ""
    return (f"delta-spark {DELTA} with pyspark 4.2 is wanted, here is {found} with pyspark {pyspark}: {INSTALL} && "
            ".venv-delta/bin/pytest tests/spark/test_load_delta.py (docs/TESTING.md)")  # fmt: skip


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def skip_without_delta() -> None:
    """Skip the file that asks; with ZKCONSUMER_REQUIRE_REAL=1 fail, where delta-spark is installed and will not do."""
    reason = why_not()
    if not reason:
        return
    if os.environ.get(REQUIRE_REAL) == "1" and find_spec("delta") is not None:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


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
