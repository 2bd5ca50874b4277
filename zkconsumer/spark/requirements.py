"""Checks that Java and the packages that the Spark source needs are installed and new enough.

Sets the interpreter with which Spark looks for data sources.

Unless a variable names another one, Spark uses the `python3` of the `PATH`, whichever interpreter runs the program. In
a virtual environment that is not activated, `format("zkconsumer")` would be unknown.

`PYSPARK_DRIVER_PYTHON` names the interpreter of the driver, which is this process. `PYSPARK_PYTHON` is not set, because
it applies to executors, too, and the executors of a cluster may have no such path.

Source: org.apache.spark.api.python.PythonUtils.defaultPythonExec (4.0 to 4.3); pyspark.core.context.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zkconsumer.spark.errors import RequirementMissing

LEAST_VERSIONS: Final = {"pyspark": (4, 0), "pyarrow": (17, 0), "numpy": (1, 26)}
LEAST_JAVA: Final = 17
_INSTALL: Final = "pip install 'zkconsumer[spark]' installs it"
_JAVA_ANSWER_S: Final = 30.0


def check_requirements() -> None:
    """Raise unless Java and the packages are there.

    Raises:
        RequirementMissing: The first that is missing or too old, with what to do.
    """
    check_packages()
    check_java()


def check_packages(*names: str) -> None:
    """Raise unless the packages are there: all of `LEAST_VERSIONS` if none are named.

    Raises:
        RequirementMissing: The first that is missing or too old, with what to do.
    """
    for name in names or LEAST_VERSIONS:
        least = LEAST_VERSIONS[name]
        wanted = ".".join(map(str, least))
        found: str | None
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = _version_of_module(name)
        if found is None:
            raise RequirementMissing(
                f"the Spark source needs {name} {wanted} or newer, which is not installed", remedy=_INSTALL
            )
        numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
        if numbers < least:
            raise RequirementMissing(f"the Spark source needs {name} {wanted} or newer, not {found}", remedy=_INSTALL)


def check_java() -> None:
    """Raise unless there is a Java that Spark 4 runs on.

    Raises:
        RequirementMissing: There is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    install = f"install Java {LEAST_JAVA} or newer, and set JAVA_HOME or PATH to it"
    if java is None:
        raise RequirementMissing("Spark needs Java, which was not found", remedy=install)
    version = java_version(java)
    if version is None:
        place = f"JAVA_HOME is {home}, and {java}" if home else java
        raise RequirementMissing(f"Spark needs Java, but {place} does not run", remedy=install)
    if version < LEAST_JAVA:
        raise RequirementMissing(f"Spark needs Java {LEAST_JAVA} or newer, but {java} is {version}", remedy=install)


def java_version(java: str) -> int | None:
    """Return the feature number of a Java, 8 for `1.8.0`; None if it does not print one."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, timeout=_JAVA_ANSWER_S, text=True, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def _version_of_module(name: str) -> str | None:
    """Return the version of a module without metadata, such as one that was sent in an archive."""
    try:
        module = __import__(name)
    except ImportError:
        return None
    version = getattr(module, "__version__", None)
    return version if isinstance(version, str) else None


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
