"""Reduces an error of Spark to one sentence: its own texts are stack traces of Java around tracebacks of Python.

The errors of loads.

A load that raises one of these has published nothing, except after `AppendFailed`.
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree.
# ruff: noqa: N818

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.errors import RemediedError

_OURS: Final = re.compile(r"^(?:zkconsumer|rebalance|simpleconsumer)\.[\w.]+: (.+)$", re.MULTILINE)
"""The line of a Python traceback with the error that this package has raised."""
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_RAISED: Final = re.compile(r"^: (.+)$", re.MULTILINE)
_WORKER: Final = re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)")
"""Spark's text for a Python process that is gone, or did not come; the causes below that name none."""
_SILENT: Final = re.compile(
    r"(?:EOFException|SocketException|Stream closed|Broken pipe|Connection reset)[^\n]*\n"
    r"(?:\s+at [^\n]*\n){0,20}?\s+at org\.apache\.spark\.(?:api|sql\.execution)\.python\."
)
"""Java's text where it waits for such a process, or for the one that starts them, and Spark adds nothing."""
_FATAL: Final = re.compile(r"Fatal Python error: ([^\n]+)")
"""The first line that Python prints when a signal ends it; SIGKILL leaves none."""
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
_LONGEST: Final = 600


class SparkFailed(ZkConsumerError):
    """Spark failed during a load. The next load continues as if this one had been killed."""


@contextmanager
def failures_in_a_sentence() -> Iterator[None]:
    """Replace errors that Spark raises in the block by one sentence.

    Raises:
        SparkFailed: In place of the errors of pyspark and py4j.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkFailed("the Java process of Spark has ended or no longer answers; it may have been killed, or "
                          "have run out of memory") from error  # fmt: skip
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark has failed: {sentence_of_spark(str(error))}") from error


def sentence_of_spark(text: str) -> str:
    """The relevant line of an error of Spark: the error that this package has raised, otherwise the deepest cause.

    >>> sentence_of_spark("o42.save.\\n: SparkException: aborted.\\n\\tat A.b(A.java:1)\\nCaused by: IOException: full")
    'IOException: full'
    """
    ours = _OURS.findall(text)
    if ours:
        return _shortened(ours[-1])
    worker = _WORKER.search(text) or _SILENT.search(text)
    if worker:
        return _of_worker(worker)
    causes = _CAUSE.findall(text)
    if causes:
        # An error that was raised around it may repeat its text, and add the place.
        around = [line for line in [*_RAISED.findall(text)[:1], *causes[:-1]] if causes[-1] in line]
        return _shortened((around or causes)[-1])
    return _shortened(" ".join(each.strip() for each in text.split("\n\tat ")[0].splitlines() if each.strip()))


def _of_worker(said: re.Match[str]) -> str:
    """The sentence about a Python process of Spark that is gone, or did not come."""
    if "connect back" in said[0]:
        return ("a Python process of Spark did not start in time, perhaps because the machine is busy; the next load "
                "tries again")  # fmt: skip
    fatal = _FATAL.search(said.string, said.end())
    if fatal is None:
        return ("a Python process of Spark has ended without a message: it was killed, most often because memory was "
                "short (see the log of the machine or of the cluster), or a compiled package crashed")  # fmt: skip
    frame = _FRAME.search(said.string, fatal.end())
    where = f" in {frame[1]}, line {frame[2]}" if frame else ""
    return _shortened(f"a Python process of Spark has crashed{where}: {fatal[1]}")


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


class LoadRefused(RemediedError):
    """The folder, its history and the settings do not fit together."""


class OffsetsLost(LoadRefused):
    """Messages are not in the logs any more: retention, a log that was cut, or a topic that was created anew."""

    remedy = "`--on-data-loss skip` loads the messages that exist"


class AppendFailed(RemediedError):
    """A run is published, and its rows are not in the table yet; the next load appends them first."""


class AuditFailed(RemediedError):
    """The written files differ from the plan; nothing of them was published."""


class LoadOvertaken(RemediedError):
    """Another load has published into the same folder meanwhile; nothing of this one was published."""
