"""Checks of what applications pass to a connector. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rebalance.subscription import Partition, check_topic
from simpleconsumer.types import MAX_INT64
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigError

log = logging.getLogger(__name__)


def check_config(config: object) -> None:
    """Refuse what is no configuration."""
    if not isinstance(config, ConsumerConfig):
        raise TypeError(f"config is {config!r}; it must be a ConsumerConfig(zookeeper_connect, group_id, ...)")


def check_topic_counts(topic_counts: object) -> None:
    """Refuse what does not map names of topics to numbers of streams."""
    if not isinstance(topic_counts, Mapping):
        raise TypeError(
            f"topic_counts is {topic_counts!r}; it must map topics to numbers of streams, such as {{'clicks': 2}}"
        )
    for topic in topic_counts:
        check_topic(topic)


def check_statistics(config: ConsumerConfig, on_statistics: object) -> None:
    """Refuse a callback that is none, and one without `statistics.interval.ms`."""
    if on_statistics is not None and not callable(on_statistics):
        raise TypeError(f"on_statistics is {on_statistics!r}; it must be callable with the statistics")
    if on_statistics is not None and config.statistics_interval_ms is None:
        raise ConfigError("statistics.interval.ms", None, "a time, because on_statistics is given")
    if on_statistics is None and config.statistics_interval_ms is not None:
        log.warning("statistics.interval.ms is %d, but on_statistics is not given", config.statistics_interval_ms)


def checked_timeout(timeout: object) -> float:
    """Return a time-out in seconds.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative, or not a number that can be waited for.
    """
    if not isinstance(timeout, int | float) or isinstance(timeout, bool):
        raise TypeError(f"timeout is {timeout!r}; it must be a number of seconds, or None")
    if not timeout >= 0:
        raise ValueError(f"timeout is {timeout!r}; it must be 0 or more seconds, or None")
    return timeout


def checked_offsets(offsets: object) -> dict[Partition, int]:
    """Return the offsets of a commit.

    Raises:
        TypeError: It is no mapping, or a key is no partition.
        ValueError: An offset is no integer from 0 to 2^63-1.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets is {offsets!r}; it must map partitions to offsets, as {{TopicPartition('clicks', 0): 42}}"
        )
    for partition, offset in offsets.items():
        if not isinstance(partition, tuple) or len(partition) != 2:
            raise TypeError(
                f"offsets has {partition!r}; a partition is a TopicPartition, such as TopicPartition('clicks', 0)"
            )
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_INT64:
            raise ValueError(
                f"offset of {partition[0]}-{partition[1]} is {offset!r}; it must be an integer from 0 to 2^63-1"
            )
    return {(partition[0], partition[1]): offset for partition, offset in offsets.items()}
