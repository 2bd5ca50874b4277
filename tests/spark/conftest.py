"""One Spark session for all tests that need one.

A session costs twenty seconds of a core and half a gigabyte. `pytest --dist loadfile` gives whole files to its
processes; those whose tests ask for `spark` are named in `SPARK_FILES` of tests/conftest.py and go to one process
together. What needs no session is tested in files of its own, which do not ask for the fixture; what needs another
master than `local[2]` runs as a program of its own (`spark_jobs.run_job`), and is marked `slow`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_jars import session_settings as delta_settings
from iceberg_jars import session_settings as iceberg_settings
from spark_jobs import QUICK_JAVA, archive_options, class_archive

from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.requirements import check_java
from zkconsumer.testing.errors import JavaMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.register_assert_rewrite("table_scenarios")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Java start so in the processes that a test starts."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", archive_options())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores that knows `format("zkconsumer")` as an installation by pip does; do not stop it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        check_java()
    except RequirementMissing as error:
        raise JavaMissing(str(error)) from error  # skipped, unless real servers are required
    folder = tmp_path_factory.mktemp("spark")
    archive = class_archive(folder)
    java = {"JDK_JAVA_OPTIONS": QUICK_JAVA, "SPARK_SUBMIT_OPTS": " ".join(archive.flags)}
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYTHONPATH", *java)}
    os.environ.update(java)  # Java reads them once, at its start
    # Workers must find the packages, and `pyspark_zkconsumer` among the top-level modules, which an editable
    # installation does not show to them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before["PYTHONPATH"]]))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config(map={**delta_settings(), **iceberg_settings()})
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for name in java:
        _restore(name, before.pop(name))
    try:
        yield session
    finally:
        session.stop()
        if archive.is_to_be_written:
            gateway = SparkContext._gateway
            gateway.shutdown()
            gateway.proc.stdin.close()  # at which Java ends
            archive.keep(gateway.proc.wait(120))
            SparkContext._gateway = SparkContext._jvm = None
        for name, value in before.items():
            _restore(name, value)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
