"""Clusters of one broker that benchmarks compare: embedded or real, of Kafka 0.7 to 4.x."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from simpleconsumer import KAFKA011, KAFKA07, KAFKA08
from simpleconsumer.dialect import Dialect
from zkconsumer.testing import EmbeddedCluster, KafkaCluster
from zkconsumer.testing.kafka.known_versions import KAFKA_07_JAR

__all__ = ["BESIDE", "OneBroker", "check_versions", "cluster_of", "dialect_of", "has_record_batches"]

OneBroker = EmbeddedCluster | KafkaCluster
BESIDE: Final = {"embedded-0.7": "embedded-0.8", "0.7.2": "0.8.2.2"}
"""Brokers of Kafka 0.7 -> those of 0.8 that they are compared with."""


def check_versions(versions: Sequence[str]) -> None:
    """Check that there is a jar of Kafka 0.7 if one is needed.

    Raises:
        SystemExit: There is none; with what to set.
    """
    if "0.7.2" in versions and not os.environ.get(KAFKA_07_JAR):
        raise SystemExit(f"Kafka 0.7 is in no public repository: set {KAFKA_07_JAR} to the path of a kafka-0.7.2.jar")


def dialect_of(version: str) -> Dialect:
    """Return what the brokers speak."""
    if version in BESIDE:
        return KAFKA07
    return KAFKA011 if has_record_batches(version) else KAFKA08


def has_record_batches(version: str) -> bool:
    """Return whether a real broker of a version stores record batches: from 0.11 on."""
    numbers = re.findall(r"\d+", version)
    return not version.startswith("embedded") and (int(numbers[0]), int(numbers[1])) >= (0, 11)


def cluster_of(version: str, partitions: int) -> OneBroker:
    """Return a cluster that is not started yet.

    Args:
        version: `embedded-0.7`, `embedded-0.8`, or the version of a real broker.
        partitions: How many a topic will have.
    """
    settings = {"num.partitions": partitions} if dialect_of(version) is KAFKA07 else {}
    kind, _, generation = version.partition("-")
    if kind == "embedded":
        return EmbeddedCluster(1, generation=generation, settings=settings)
    # A broker of 0.8 takes more than a minute for a thousand partitions.
    return KafkaCluster(version, 1, settings=settings, timeout_s=90.0 + partitions / 4)
