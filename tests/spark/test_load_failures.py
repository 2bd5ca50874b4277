"""What is said when Spark fails in a load."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from killing import descendants
from loading import settings_of
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from zkconsumer.spark.load.failures import SparkFailed, failures_in_a_sentence
from zkconsumer.spark.load.job import run_load
from zkconsumer.testing import EmbeddedCluster, Fault, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK = """An error occurred while calling o81.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times
\tat org.apache.spark.A.b(A.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/site-packages/zkconsumer/spark/range_fetcher.py", line 88, in wait
    raise PartitionUnreadable(topic, partition, offset, broker, reason)
zkconsumer.spark.errors.PartitionUnreadable: clicks/1 at 42 (broker 0 at kafka1:9092): nothing came for 120 s

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Caused by: java.io.EOFException
"""
DISK = """An error occurred while calling o81.save.
: org.apache.spark.SparkException: Task failed while writing rows
\tat org.apache.spark.A.b(A.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.io.B.c(B.java:1)
\t... 12 more
"""
_GONE = """An error occurred while calling o81.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): org.apache.spark.SparkException: {}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:1)
"""
KILLED = _GONE.format(
    "Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.sql.execution.pyspark.udf.faulthandler.enabled' or"
)
CRASHED = _GONE.format("""Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/site-packages/cramjam/x.py", line 12 in decompress
  File "/site-packages/pyspark/worker.py", line 1 in main""")
SLOW = _GONE.format("Python worker failed to connect back.")
STARTER = """An error occurred while calling o212.save.
: java.io.IOException: Stream closed
\tat java.base/java.lang.ProcessBuilder$NullOutputStream.write(ProcessBuilder.java:445)
\tat java.base/java.io.DataOutputStream.flush(DataOutputStream.java:128)
\tat org.apache.spark.api.python.PythonWorkerFactory.stopWorker(PythonWorkerFactory.scala:523)
"""
AWAY = """An error occurred while calling o67.exists.
: java.net.ConnectException: Call From here to nn:8020 failed: java.net.ConnectException: Connection refused; see wiki
\tat java.A.b(A.java:1)
Caused by: java.net.ConnectException: Connection refused
\tat java.B.c(B.java:1)
"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (Py4JError(TASK), "Spark has failed: clicks/1 at 42 (broker 0 at kafka1:9092): nothing came for 120 s"),
        (Py4JError(DISK), "Spark has failed: java.io.IOException: No space left on device"),
        (Py4JError(AWAY), "Spark has failed: java.net.ConnectException: Call From here to nn:8020 failed"),
        (Py4JError(KILLED), "Spark has failed: a Python process of Spark has ended without a message: it was killed"),
        (Py4JError(STARTER), "Spark has failed: a Python process of Spark has ended without a message: it was killed"),
        (
            Py4JError(CRASHED),
            "Spark has failed: a Python process of Spark has crashed in /site-packages/cramjam/x.py, "
            "line 12: Segmentation fault",
        ),
        (Py4JError(SLOW), "Spark has failed: a Python process of Spark did not start in time"),
        (PySparkException("[PATH_NOT_FOUND] it\nis gone"), "Spark has failed: [PATH_NOT_FOUND] it is gone"),
        (PySparkException("x" * 1000), f"Spark has failed: {'x' * 600}..."),
        (Py4JNetworkError("Answer from Java side is empty"), "the Java process of Spark has ended"),
        (ConnectionRefusedError(111, "Connection refused"), "the Java process of Spark has ended"),
    ],
)
def test_a_failure_of_spark_becomes_a_sentence(error: Exception, sentence: str) -> None:
    with pytest.raises(SparkFailed) as told, failures_in_a_sentence():
        raise error
    assert str(told.value).startswith(sentence)
    assert "\n" not in str(told.value)


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ValueError, match="ours"), failures_in_a_sentence():
        raise ValueError("ours")


def test_a_worker_that_is_killed_is_named(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 10)
    settings = settings_of(embedded_cluster, tmp_path, topic, maxBytesPerPartition="off")  # tasks alone fetch
    stalled = embedded_cluster.faults.add(Fault.stall(60, "fetch", topic), times=None)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run_load, spark, settings)
        embedded_cluster.faults.wait_used(stalled, timeout_s=60)
        commands = descendants(os.getpid())
        starters = {pid for pid, command in commands.items() if "pyspark.daemon pyspark.worker" in command}
        for pid in starters:
            for worker in descendants(pid):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
        told = "a Python process of Spark has ended without a message: it was killed, most often because memory was"
        with pytest.raises(SparkFailed, match=told), failures_in_a_sentence():
            running.result(60)
    embedded_cluster.faults.clear()
    assert run_load(spark, settings).partitions[0].messages == 10
