"""Sets the interpreter with which Spark looks for data sources.

Unless a variable names another one, Spark uses the `python3` of the `PATH`, whichever interpreter runs the program. In
a virtual environment that is not activated, `format("zkconsumer")` would be unknown.

`PYSPARK_DRIVER_PYTHON` names the interpreter of the driver, which is this process. `PYSPARK_PYTHON` is not set, because
it applies to executors, too, and the executors of a cluster may have no such path.

Source: org.apache.spark.api.python.PythonUtils.defaultPythonExec (4.0 to 4.3); pyspark.core.context.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = "PYSPARK_DRIVER_PYTHON"
_SAID_ALREADY: Final = (_VARIABLE, "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT")
"""The user has chosen an interpreter, or `spark-submit` has, which sets the last variable."""


def python_to_name(environment: Mapping[str, str], executable: str | None) -> str | None:
    """The interpreter that has to be set for Spark, `None` if Spark uses the right one already.

    Args:
        executable: the interpreter that runs the program.
    """
    if not executable or any(environment.get(name) for name in _SAID_ALREADY):
        return None
    found = shutil.which("python3", path=environment.get("PATH", os.defpath))
    # Their folders are compared, because the interpreters of all virtual environments are links to the same file.
    is_this_one = found is not None and os.path.realpath(os.path.dirname(found)) == os.path.realpath(
        os.path.dirname(executable)
    )
    return None if is_this_one else executable


def name_driver_python() -> None:
    """Make Spark look for data sources with this interpreter; warn if Spark has been started before."""
    executable = python_to_name(os.environ, sys.executable)
    if executable is None:
        return
    if not _spark_runs():
        os.environ[_VARIABLE] = executable
    elif sys.prefix != sys.base_prefix:  # elsewhere `python3` may be another name of the same interpreter
        warnings.warn(
            "Spark was started before zkconsumer.spark was imported, and looks for format(\"zkconsumer\") with the "
            f"python3 of the PATH, not with this interpreter: set PYSPARK_PYTHON={executable}, or import "
            "zkconsumer.spark first", RuntimeWarning, stacklevel=3,
        )  # fmt: skip


def _spark_runs() -> bool:
    """Whether this process has started a JVM, whose environment cannot be changed any more."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_gateway", None) is not None
