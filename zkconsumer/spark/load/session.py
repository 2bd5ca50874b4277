"""Starts a Spark session for a command, and stops it afterwards.

Reports the progress of Spark jobs a few times a second.

Threads: one of its own during the block; it asks the JVM and calls `tell`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from zkconsumer.spark.load.delta import delta_packages, delta_settings
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.iceberg import iceberg_packages
from zkconsumer.spark.load.writing import DELTA

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.faulthandler.enabled": "true",  # or nothing is known of one that has crashed
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def spark_session(master: str, settings: Mapping[str, str], table: str | None = None) -> Iterator[Any]:
    """A session, stopped at the end of the block.

    Args:
        master: URL of the cluster, or `local[*]`.
        settings: of Spark; they take precedence over the defaults here.
        table: the table format that it must be able to write, `delta` or `iceberg`.

    Raises:
        RequirementMissing: a jar or package for that format is missing, or does not fit this pyspark.
        LoadRefused: Spark does not start.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # py4j logs tracebacks of interrupted calls, and of a JVM that is gone. These errors are raised as well. Some are
    # logged to the root logger, which writes to stderr if it has no handler.
    logging.getLogger().addHandler(logging.NullHandler())
    # Workers on this machine must run the interpreter that has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("zkconsumer load")
    settings = settings if table is None else table_settings(table, settings)
    for name, value in {**_QUIET, **(_LOCAL if master.startswith("local") else {}), **settings}.items():
        builder = builder.config(name, value)
    before = _children()
    try:
        spark = builder.getOrCreate()
    except KeyboardInterrupt:
        # A JVM that is just starting would never end: pyspark removes the folder into which it writes its port.
        for process in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise
    except (PySparkException, OSError) as error:
        packages = settings.get("spark.jars.packages")
        hint = (f" It had to download {packages} from Maven Central, see its output above; `--conf spark.jars=FILES` "
                "uses local jars") if packages else ""  # fmt: skip
        raise LoadRefused(f"Spark does not start at {master}: {error}{hint}") from error
    try:
        yield spark
    except KeyboardInterrupt:
        with suppress(Exception):
            spark.sparkContext.setLogLevel("OFF")  # Spark prints pages about tasks that are cancelled
        raise
    finally:
        spark.stop()


def table_settings(table: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark with those of a table format.

    Raises:
        RequirementMissing: A jar or package for that format is missing, or does not fit this pyspark.
    """
    import pyspark

    packages = delta_packages(given) if table == DELTA else iceberg_packages(given, pyspark.__version__)
    settings = {**given} if packages is None else {**given, "spark.jars.packages": packages}
    return delta_settings(settings) if table == DELTA else settings


def _children() -> set[int]:
    """The child processes of this one, from Linux's /proc; none on other systems."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(path.parent.name))
    return found


log = logging.getLogger(__name__)
Tell = Callable[[str, int, int], None]
"""Called with the name of the present step, how much of it is done, and of how much."""
_EVERY_S: Final = 0.25
_END_S: Final = 5.0


@contextmanager
def watched_jobs(spark: Any, what: str, tell: Tell) -> Iterator[None]:
    """Report how many tasks of the jobs that the block starts are done; Ctrl-C cancels the jobs."""
    context = spark.sparkContext
    group = f"zkconsumer-{uuid.uuid4().hex[:8]}"
    context.setJobGroup(group, f"zkconsumer load: {what}", interruptOnCancel=True)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(context, group, what, tell, over), daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        watcher.join(_END_S)
        context.setLocalProperty("spark.jobGroup.id", None)


def _watch(context: Any, group: str, what: str, tell: Tell, over: threading.Event) -> None:
    while not over.wait(_EVERY_S):
        try:
            done, total = _tasks(context.statusTracker(), group)
        except Exception as error:  # noqa: BLE001 - a progress bar that cannot be updated must not stop a load
            log.debug("the progress of %s is not known: %s", what, error)
            continue
        if total:
            tell(what, done, total)


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """Tasks that are done, and all of them, of the jobs of a group."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            of_stage = tracker.getStageInfo(stage)
            if of_stage is not None:
                done += of_stage.numCompletedTasks
                total += of_stage.numTasks
    return done, total
