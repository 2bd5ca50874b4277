"""Offsets, times and partitions as JSON, in the format of Spark's own Kafka source: `{"clicks": {"0": 42, "1": -2}}`.
Topics and partitions are always written in order, because Spark compares the offsets of a stream as text.
Partitions of Kafka 0.7 have their names, `broker-partition`: `{"clicks": {"0-0": 42, "1-0": -2}}`.

Pure.

The names of partitions in offsets and columns: a number, or in Kafka 0.7 `broker-partition`.

Every broker of Kafka 0.7 numbers its partitions of a topic from 0, so the number alone names none. Offsets as JSON,
checkpoints and manifests have the name, `0-3`. The column `partition` is an int, as in every schema of Spark's Kafka
source: broker * 65536 + number, which can be turned back into both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rebalance.errors import InvalidName
from rebalance.subscription import check_topic
from simpleconsumer.types import MAX_INT64, TopicPartition

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


EARLIEST_OFFSET: Final = -2
"""In place of an offset: the start of the log."""
LATEST_OFFSET: Final = -1
"""In place of an offset: the end of the log."""
_MAX_PARTITION: Final = 2**31 - 1


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition; -2 and -1 stand for both ends of the log.

    >>> parse_offsets('{"clicks": {"0": 42, "1": -2}}') == {("clicks", 0): 42, ("clicks", 1): -2}
    True

    Raises:
        ValueError: Not JSON, or not of that shape; a clause that names the value.
    """
    return read_offsets(_object(text, '{"topic": {"0": 42}}'))


def parse_times(text: str) -> dict[TopicPartition, int]:
    """Return the time of each partition, in milliseconds since 1970.

    >>> parse_times('{"clicks": {"0": 1393632000000}}') == {("clicks", 0): 1393632000000}
    True

    Raises:
        ValueError: Not JSON, or not of that shape; a clause that names the value.
    """
    topics = _object(text, '{"topic": {"0": 1393632000000}}')
    return _each_partition(topics, 0, MAX_INT64, "it must be a time in milliseconds since 1970, from 0")


def read_offsets(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the same as `parse_offsets`, for JSON that is parsed already.

    Raises:
        ValueError: Not of that shape; a clause that names the value.
    """
    return _each_partition(topics, EARLIEST_OFFSET, MAX_INT64, "it must be an offset, -1 (latest) or -2 (earliest)")


def _each_partition(topics: Mapping[str, Any], least: int, most: int, needed: str) -> dict[TopicPartition, int]:
    """Return the numbers of nested objects, from `least` to `most`."""
    found: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"topic {topic!r} has {_shown(partitions)}, not an object of partitions")
        for text, number in partitions.items():
            name = TopicPartition(_topic(topic), _partition(topic, text))
            if name in found:
                raise ValueError(f"partition {name.partition} of {topic!r} is named twice")
            if not _is_integer(number) or not least <= number <= most:
                raise ValueError(f"{topic}/{text} has {_shown(number)}: {needed}")
            found[name] = number
    return _of_one_generation(found)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions of `{"clicks": [0, 1]}`, in order.

    Raises:
        ValueError: Not JSON, or not of that shape; a clause that names the value.
    """
    found: set[TopicPartition] = set()
    for topic, partitions in _object(text, '{"topic": [0, 1]}').items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"topic {topic!r} has {_shown(partitions)}, not a list of partitions")
        for number in partitions:
            is_number = _is_integer(number) and 0 <= number <= _MAX_PARTITION
            if not is_number and not (isinstance(number, str) and isinstance(parse_partition(number), str)):
                raise ValueError(
                    f"topic {topic!r} has partition {_shown(number)}, not a number from 0 (on Kafka 0.7: "
                    'text, such as "0-3")'
                )
            found.add(TopicPartition(_topic(topic), number))
    return tuple(sorted(_of_one_generation(dict.fromkeys(found, 0))))


def nested_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return the offsets as nested objects, topics as text and partitions as numbers in order.

    >>> nested_offsets({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3})
    {'a': {'0': 3}, 'b': {'9': 2, '10': 1}}
    """
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def _of_one_generation(found: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the same; numbers and names of Kafka 0.7 have no common order, and no cluster has both."""
    kinds = {type(name.partition): name for name in found}
    if len(kinds) > 1:
        one, other = (f"{name.topic}/{name.partition}" for name in kinds.values())
        raise ValueError(f"{one} and {other} are of two generations of Kafka, and no cluster has both")
    return found


def _object(text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError(f"{_shown(text)} is nested too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{_shown(text)} is not JSON ({error}); it looks like {example}") from None
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{_shown(text)} names no topic; it looks like {example}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is named twice")
    return found


def _topic(name: str) -> str:
    try:
        return check_topic(name)
    except InvalidName as error:
        raise ValueError(str(error)) from None


def _partition(topic: str, text: str) -> int | str:
    partition = parse_partition(text)
    if partition is None:
        raise ValueError(
            f"topic {topic!r} has partition {_shown(text)}, not a number from 0 (on Kafka 0.7: "
            "broker-partition, such as 0-3)"
        )
    return partition


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
