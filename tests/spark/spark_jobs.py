"""Spark jobs in processes of their own, for tests that need another master than the shared session has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.requirements import check_java
from zkconsumer.testing.errors import JavaMissing

ROOT = Path(__file__).resolve().parents[2]
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
    program: str, master: str, folder: Path, *, settings: dict[str, str] | None = None, on_path: bool = True,
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
    errors = folder / "stderr.txt"
    with errors.open("w", encoding="utf-8") as said:
        # A session of its own, so that JVMs and workers of it end with it, whatever happens.
        job = subprocess.Popen(
            [sys.executable, str(script)], cwd=folder, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=said,
        )  # fmt: skip
    try:
        out, _ = job.communicate(timeout=timeout_s)
    finally:
        try:
            os.killpg(job.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert job.returncode == 0, errors.read_text(encoding="utf-8")[-4000:]
    return json.loads(out.splitlines()[-1])
