"""Rows of partitions in requests and answers: `[topic [partition]]`, written by topic and read in the order asked.

`check_numbers` checks that partitions can exist before a broker is asked for them.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from simpleconsumer.errors import DecodeError
from simpleconsumer.primitives import encode_array, encode_string, read_array, read_string
from simpleconsumer.types import Buffer

__all__ = ["check_numbers"]


Partition = tuple[str, int]
Values = dict[str, Any]
T = TypeVar("T")

_SMALLEST_TOPIC = 6  # string length, partition count


def by_topic(rows: Iterable[tuple[str, bytes]]) -> bytes:
    """Return `[topic [partition]]` of encoded partitions, topics in the order of first mention."""
    topics: dict[str, list[bytes]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return encode_array([encode_string(topic) + encode_array(parts) for topic, parts in topics.items()])


def read_topics(
    answer: Buffer, offset: int, read: Callable[[Buffer, int], tuple[tuple[int, T], int]], smallest_partition: int
) -> tuple[list[tuple[str, list[tuple[int, T]]]], int]:
    """Return `[topic [partition number and result]]` and the offset behind it."""

    def read_topic(buffer: Buffer, offset: int) -> tuple[tuple[str, list[tuple[int, T]]], int]:
        topic, offset = read_string(buffer, offset)
        partitions, offset = read_array(buffer, offset, read, smallest_partition)
        return (topic, partitions), offset

    return read_array(answer, offset, read_topic, _SMALLEST_TOPIC)


def in_order(what: str, topics: list[tuple[str, list[tuple[int, T]]]], asked: Sequence[Partition]) -> list[T]:
    """Return the results in the order asked, exactly one for each."""
    wanted = set(asked)
    results: dict[Partition, T] = {}
    for topic, partitions in topics:
        for number, result in partitions:
            if (topic, number) not in wanted:
                raise DecodeError(f"{what} response: {topic}/{number} was not requested")
            if (topic, number) in results:
                raise DecodeError(f"{what} response: {topic}/{number} appears twice")
            results[topic, number] = result
    missing = [partition for partition in asked if partition not in results]
    if missing:
        topic, number = missing[0]
        raise DecodeError(f"{what} response: {topic}/{number} and {len(missing) - 1} more are missing")
    return [results[partition] for partition in asked]


def topics_of(rows: Iterable[tuple[str, Any]]) -> list[Values]:
    """Return the topics of a request, in the order of first mention, each with its rows of partitions."""
    topics: dict[str, list[Any]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def results_of(
    what: str, topics: Iterable[Values], asked: Sequence[Partition], result: Callable[[Values], T]
) -> list[T]:
    """Return what the topics of an answer say of each partition, in the order asked.

    Args:
        result: Returns the result of a partition's row.

    Raises:
        DecodeError: A partition was not asked for, appears twice or is missing.
    """
    rows = [
        (topic["name"], [(row["partition_index"], result(row)) for row in topic["partitions"]]) for topic in topics
    ]
    return in_order(what, rows, asked)


_MAX_PARTITION: Final = 0x7FFFFFFF


def check_numbers(partitions: Iterable[tuple[str, int | str]]) -> None:
    """Raise for partitions that no broker can have; Kafka 0.7 names them by texts, which are not checked.

    Raises:
        ValueError: A number below 0 or above 2^31-1.
    """
    for topic, number in partitions:
        if isinstance(number, int) and not 0 <= number <= _MAX_PARTITION:
            raise ValueError(f"{topic}/{number}: partition numbers are 0 to {_MAX_PARTITION}")
