"""Checks that Java and the packages that the Spark source needs are installed and new enough."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
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
