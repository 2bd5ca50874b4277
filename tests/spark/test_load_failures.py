"""What is said when Spark fails in a load."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from zkconsumer.spark.load.failures import SparkFailed, failures_in_a_sentence

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
