"""Which versions of Kafka the kit starts, what they need, and which one an unknown version comes closest to."""

from __future__ import annotations

from itertools import zip_longest

from zkconsumer.testing.errors import NotSupported
from zkconsumer.testing.java import maven
from zkconsumer.testing.kafka.jars import JAR_SETS, KAFKA_07_JAR, is_07
from zkconsumer.testing.kafka.settings import FIRST_WITHOUT_ZOOKEEPER
from zkconsumer.testing.versions import version_tuple


def kafka_versions(*, with_zookeeper: bool = False) -> list[str]:
    """Versions of Kafka whose brokers can be started, oldest first.

    Args:
        with_zookeeper: only those that run with ZooKeeper.
    """
    names = [name for name in maven.known_versions() if not name.startswith("zk-") and "-" not in name]
    kept = (name for name in names if not with_zookeeper or version_tuple(name) < FIRST_WITHOUT_ZOOKEEPER)
    return sorted(kept, key=version_tuple)


def needs_of(version: str) -> str:
    """What brokers of a version need on this machine, jars that are fetched already left out."""
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
