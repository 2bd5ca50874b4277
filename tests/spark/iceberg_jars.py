"""Iceberg for the tests of loads into Iceberg tables, where pyspark is one that its pinned jar is made for.

Iceberg takes an older pyspark than the other tests have, so these have a virtual environment of their own:
docs/TESTING.md.
"""

from __future__ import annotations

import importlib.metadata

from zkconsumer.testing.java.maven import jars

ICEBERG = "1.11.0"
"""The release whose jar is pinned, that for Spark 4.1."""


def why_not() -> str:
    """Why there is no Iceberg here, empty when there is."""
    try:
        pyspark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        pyspark = "none"
    if pyspark.startswith("4.1."):
        return ""
    return (f"pyspark 4.1 is wanted for Iceberg {ICEBERG}, here is {pyspark}: python3 -m venv .venv-iceberg && "
            ".venv-iceberg/bin/pip install -e '.[test]' 'pyspark==4.1.*' && "
            ".venv-iceberg/bin/pytest tests/spark/test_load_iceberg.py (docs/TESTING.md)")  # fmt: skip


def iceberg_jars() -> str:
    """The value of `spark.jars`."""
    return ",".join(str(path) for path in jars(f"spark-iceberg-{ICEBERG}"))


def session_settings() -> dict[str, str]:
    """What a session for tests needs for Iceberg, nothing where there is none."""
    if why_not():
        return {}
    return {
        "spark.jars": iceberg_jars(),
        # For the statements of Iceberg's own that a user may call; loads need none of it.
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "warehouse",
    }
