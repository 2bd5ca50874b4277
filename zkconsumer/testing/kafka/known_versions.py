"""The versions of Kafka that the kit starts: what they need, and their jars.

Which versions of Kafka the kit starts, what they need, and which one an unknown version comes closest to.

The jars of a version of Kafka, with that of Kafka 0.7, which an operator has and no public repository holds.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from pathlib import Path

from zkconsumer.testing.errors import MavenMissing, NotSupported, version_tuple
from zkconsumer.testing.java import maven
from zkconsumer.testing.kafka.settings import FIRST_WITHOUT_ZOOKEEPER

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


def kafka_versions(*, with_zookeeper: bool = False) -> list[str]:
    """Versions of Kafka whose brokers can be started, oldest first.

    Args:
        with_zookeeper: only versions that run with ZooKeeper.
    """
    names = [name for name in maven.known_versions() if not name.startswith("zk-") and "-" not in name]
    kept = (name for name in names if not with_zookeeper or version_tuple(name) < FIRST_WITHOUT_ZOOKEEPER)
    return sorted(kept, key=version_tuple)


def needs_of(version: str) -> str:
    """The needs of brokers of a version on this machine, jars that are fetched already left out."""
    needs = maven.needs_of(JAR_SETS.get(version, version))
    return f"{needs}; its jar, named by {KAFKA_07_JAR}" if is_07(version) else needs


def nearest_version(version: str) -> str | None:
    """The known version that an unknown one comes closest to; None if it is no version at all."""
    try:
        wanted = version_tuple(version)
    except ValueError:
        return None

    def distance(known: str) -> list[int]:
        return [abs(theirs - ours) for theirs, ours in zip_longest(wanted, version_tuple(known), fillvalue=0)]

    return min(kafka_versions(), key=distance)


def check_version(version: str) -> None:
    """Return if brokers of this version can be started; NotSupported, which names the nearest, if not."""
    if version in kafka_versions():
        return
    nearest = nearest_version(version)
    hint = f"; the nearest is {nearest}" if nearest else ""
    raise NotSupported(f"Kafka {version}: known versions are {', '.join(kafka_versions())}{hint}")
