"""Spark jobs in processes of their own, for tests that need another master than the shared session has."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.requirements import check_java
from zkconsumer.testing.errors import JavaMissing
from zkconsumer.testing.java import find_java
from zkconsumer.testing.java.runtime import ClassArchive
from zkconsumer.testing.processes import ChildProcess

ROOT = Path(__file__).resolve().parents[2]
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""The options of Java for tests: a JVM that compiles less, and verifies no bytecode, takes half the CPU seconds."""


def class_archive(folder: Path) -> ClassArchive:
    """The archive of Spark's classes, with which the JVM of a session starts with half the CPU time."""
    return ClassArchive(find_java(), sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")), folder)


@functools.cache
def archive_options() -> str:
    """The options of the JVM of a session that a test starts in a process of its own; none if no archive is there."""
    with tempfile.TemporaryDirectory() as folder:
        archive = class_archive(Path(folder))
        return "" if archive.is_to_be_written else " ".join(archive.flags)


reads_streams = pytest.mark.skipif(
    pyspark.__version__.startswith(("4.0.", "4.1.")), reason="streams are read with pyspark 4.2 or newer"
)
"""For tests of streams that the source reads."""
_SESSION = """
import json, os, sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master({master!r}).config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", "warehouse").config("spark.local.dir", os.getcwd()))
for name, value in {settings!r}.items():
    spark = spark.config(name, value)
spark = spark.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""


def run_job(
    program: str,
    master: str,
    folder: Path,
    *,
    settings: dict[str, str] | None = None,
    on_path: bool = True,
    timeout_s: float = 900,
) -> Any:
    """Run a program that has `spark`, and return what its last line printed, as JSON; the folder has its `stderr.txt`.

    Args:
        on_path: The packages of this project stand on PYTHONPATH, as after an installation.
    """
    try:
        check_java()
    except RequirementMissing as error:
        raise JavaMissing(str(error)) from error
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)
    if on_path:
        environment["PYTHONPATH"] = str(ROOT)
    script = folder / "job.py"
    script.write_text(_SESSION.format(master=master, settings=settings or {}) + program, encoding="utf-8")
    errors, output = folder / "stderr.txt", folder / "stdout.txt"
    command = [sys.executable, str(script)]
    job = ChildProcess("Spark job", command, errors, output_path=output, directory=folder, environment=environment)
    try:
        status = job.wait(timeout_s)
    finally:
        job.kill_group()  # JVMs and workers that it has left
    assert status == 0, errors.read_text(encoding="utf-8")[-4000:]
    return json.loads(output.read_text(encoding="utf-8").splitlines()[-1])
