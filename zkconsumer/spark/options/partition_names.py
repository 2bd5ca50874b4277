"""The names of partitions in offsets and columns: a number, or in Kafka 0.7 `broker-partition`. Pure.

Every broker of Kafka 0.7 numbers its partitions of a topic from 0, so the number alone names none. Offsets as JSON,
checkpoints and manifests have the name, `0-3`. The column `partition` is an int, as in every schema of Spark's Kafka
source: broker * 65536 + number, which can be turned back into both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from simpleconsumer.types import TopicPartition

__all__ = ["PARTITIONS_OF_A_BROKER", "are_byte_positions", "broker_of", "column_value", "parse_partition",
           "partition_of_column"]  # fmt: skip

PARTITIONS_OF_A_BROKER: Final = 65_536
"""Of one topic, in the column `partition`: 1 + the highest number."""
_LARGEST_INT: Final = 2**31 - 1
_MOST_DIGITS: Final = 10
_OF_BROKER: Final = re.compile(r"(0|[1-9][0-9]{0,8})-(0|[1-9][0-9]{0,8})", re.ASCII)


def parse_partition(text: str) -> int | str | None:
    """Return the partition that a text names, None if it names none.

    >>> parse_partition("7"), parse_partition("0-3"), parse_partition("0-03")
    (7, '0-3', None)
    """
    if _OF_BROKER.fullmatch(text):
        return text
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) <= _LARGEST_INT:
        return int(text)
    return None


def are_byte_positions(names: Iterable[TopicPartition]) -> bool:
    """Return whether the offsets of these partitions count bytes: the partitions are those of Kafka 0.7."""
    return any(isinstance(name.partition, str) for name in names)


def column_value(partition: int | str) -> int:
    """Return the value of the column `partition`.

    >>> column_value(7), column_value("0-3"), column_value("2-3")
    (7, 3, 131075)

    Raises:
        ValueError: Broker and number do not fit into the column; a clause.
    """
    if isinstance(partition, int):
        return partition
    broker, number = _parts(partition)
    largest = _LARGEST_INT // PARTITIONS_OF_A_BROKER
    if number >= PARTITIONS_OF_A_BROKER or broker > largest:
        raise ValueError(
            f"partition {partition} does not fit into the column `partition`, which is broker * "
            f"{PARTITIONS_OF_A_BROKER} + number: brokers up to {largest} and numbers below {PARTITIONS_OF_A_BROKER} do"
        )
    return broker * PARTITIONS_OF_A_BROKER + number


def broker_of(partition: int | str) -> int | None:
    """Return the broker that a partition of Kafka 0.7 is on; None for one that may be on any broker."""
    return None if isinstance(partition, int) else _parts(partition)[0]


def partition_of_column(value: int) -> str:
    """Return the name of a partition of Kafka 0.7 from its value in the column `partition`.

    >>> partition_of_column(131075)
    '2-3'
    """
    broker, number = divmod(value, PARTITIONS_OF_A_BROKER)
    return f"{broker}-{number}"


def _parts(partition: str) -> tuple[int, int]:
    found = _OF_BROKER.fullmatch(partition)
    if found is None:
        raise ValueError(f"partition {partition!r} is not named broker-partition, such as 0-3")
    return int(found[1]), int(found[2])
