"""Checks of the arguments of KafkaConsumer: errors name the call, the value, and the valid values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.polling.records import OffsetAndMetadata

_OF_07: Final = re.compile(r"[0-9]+-[0-9]+")
_SHAPE: Final = "a partition is a TopicPartition, such as TopicPartition('clicks', 0)"
_MAX_PARTITION: Final = 2**31 - 1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_TEXT: Final = 2**15 - 1
"""Bytes of a text that fit into a request."""


def one_partition(call: str, value: object) -> TopicPartition:
    """Return a partition, which may be given as a plain pair.

    Raises:
        TypeError: It is none.
        ValueError: Its number is negative, or larger than any.
    """
    match value:
        case (str(topic), int(number)) if isinstance(value, tuple) and not isinstance(number, bool):
            if number < 0:
                raise ValueError(f"{call}: the number of partition {topic}-{number} is negative; it must be 0 or more")
            if number > _MAX_PARTITION:
                raise ValueError(f"{call}: partition {topic}-{number} cannot exist; numbers are 0 to {_MAX_PARTITION}")
            return TopicPartition(topic, number)
        case (str(topic), str(name)) if isinstance(value, tuple) and _OF_07.fullmatch(name):
            return TopicPartition(topic, name)
        case _:
            raise TypeError(f"{call}: {value!r} is not a partition; {_SHAPE}")


def several_partitions(call: str, *values: object) -> list[TopicPartition]:
    """Return partitions, each of which may be given by itself, or several in a collection.

    Raises:
        TypeError: One is none.
        ValueError: A number is negative, or larger than any.
    """
    found: dict[TopicPartition, None] = {}
    for value in values:
        if isinstance(value, tuple) and value and isinstance(value[0], str):
            found[one_partition(call, value)] = None
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            found |= dict.fromkeys(one_partition(call, each) for each in value)
        else:
            raise TypeError(f"{call}: {value!r} is neither a partition nor a collection of partitions; {_SHAPE}")
    return list(found)


def seconds_of(call: str, timeout_ms: object) -> float:
    """Return a time-out in seconds.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative.
    """
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise TypeError(f"{call}: timeout_ms is {timeout_ms!r}; it must be a number of milliseconds")
    if not timeout_ms >= 0:
        raise ValueError(f"{call}: timeout_ms is {timeout_ms!r}; it must be 0 or more milliseconds")
    return timeout_ms / 1000


def checked_offset(call: str, partition: TopicPartition, value: object) -> int:
    """Return an offset, or a time.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is negative, or larger than any.
    """
    shown = f"{partition.topic}-{partition.partition}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{call}: {value!r} of {shown} is not a whole number")
    if value < 0:
        raise ValueError(f"{call}: {value} of {shown} is negative; it must be 0 or more")
    if value > MAX_INT64:
        raise ValueError(f"{call}: {value} of {shown} is larger than the largest offset, 2^63-1")
    return value


def checked_offsets(call: str, offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit.

    Raises:
        TypeError: They are no mapping, or a key or value cannot be one.
        ValueError: An offset or a leader epoch is negative or larger than any, or no request can have a text.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"{call}: offsets is {offsets!r}; it must map partitions to offsets, such as "
            "{TopicPartition('clicks', 0): 42}"
        )
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, value in offsets.items():
        name = one_partition(call, key)
        if isinstance(value, OffsetAndMetadata):
            checked_offset(call, name, value.offset)
            _check_text(call, name, value.metadata)
            _check_epoch(call, name, value.leader_epoch)
            found[name] = value
        else:
            found[name] = OffsetAndMetadata(checked_offset(call, name, value))
    return found


def _check_text(call: str, partition: TopicPartition, text: object) -> None:
    """Refuse a text that no request can have: nobody could send it, and the thread that tries would end."""
    what = f"{call}: the metadata of {partition.topic}-{partition.partition}"
    if text is None:
        return
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r}; it must be text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be encoded as UTF-8: {error.reason}") from None
    if size > _MAX_TEXT:
        raise ValueError(f"{what} has {size} bytes; brokers accept 4096 by default, and a request can have {_MAX_TEXT}")


def _check_epoch(call: str, partition: TopicPartition, epoch: object) -> None:
    if epoch is None:
        return
    what = f"{call}: the leader epoch of {partition.topic}-{partition.partition} is {epoch!r}"
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TypeError(f"{what}; it must be a whole number, or None")
    if not -1 <= epoch <= _MAX_EPOCH:
        raise ValueError(f"{what}; it must be 0 to {_MAX_EPOCH}, or None (or -1) if it is not known")


def topics_of(call: str, topics: object) -> tuple[str, ...]:
    """Return names of topics.

    Raises:
        TypeError: It is no collection of texts.
    """
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"{call}: topics is {topics!r}; it must be a list of names, such as ['clicks']")
    found = tuple(topics)
    for topic in found:
        if not isinstance(topic, str):
            raise TypeError(f"{call}: {topic!r} is not the name of a topic, which is text")
    return found


def pattern_of(call: str, pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return a compiled pattern.

    Raises:
        TypeError: It is neither text nor a pattern.
        ValueError: It is no regular expression.
    """
    if not isinstance(pattern, str | re.Pattern):
        raise TypeError(f"{call}: pattern is {pattern!r}; it must be text, or the result of re.compile")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{call}: pattern {pattern!r:.200} is not a regular expression of Python: {error}") from None
