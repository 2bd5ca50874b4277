"""The jars of a version of Kafka, with that of Kafka 0.7, which an operator has and no public repository holds."""

from __future__ import annotations

import os
from pathlib import Path

from zkconsumer.testing.errors import MavenMissing
from zkconsumer.testing.java import maven
from zkconsumer.testing.versions import version_tuple

KAFKA_07_JAR = "ZKCONSUMER_KAFKA_07_JAR"
"""The environment variable that names the jar of Kafka 0.7."""
JAR_SETS = {"3.9.2": "3.9.2-broker"}  # the set named 3.9.2 also holds the command line tools, which no broker needs


def is_07(version: str) -> bool:
    """Return whether this is a version of Kafka 0.7."""
    return version_tuple(version) < (0, 8)


def kafka_jars(version: str, jar: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the class path of a broker, or of a Java consumer, of a version.

    Args:
        version: One of `kafka_versions()`.
        jar: Kafka 0.7 only: its own jar; None takes the one that the environment names.

    Raises:
        MavenMissing: Jars cannot be fetched, or nobody says where that of Kafka 0.7 is.
    """
    own = [jar_07(version, jar)] if is_07(version) else []
    return maven.jars(JAR_SETS.get(version, version)) + own


def jar_07(version: str, jar: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the jar of Kafka 0.7 itself: the given one, or the one that the environment names.

    Raises:
        MavenMissing: There is none; says how to name it.
    """
    chosen = jar or os.environ.get(KAFKA_07_JAR)
    if not chosen or not Path(chosen).is_file():
        raise MavenMissing(
            f"Kafka {version} is in no public repository: pass jar=... or set {KAFKA_07_JAR} to the path "
            f"of kafka-{version}.jar" + (f" ({chosen} is not a file)" if chosen else "")
        )
    return Path(chosen).resolve()
