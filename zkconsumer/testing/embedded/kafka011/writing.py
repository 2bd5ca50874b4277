"""Writes rows of partitions by topic, for answers and records that have no schema. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simpleconsumer.primitives import encode_array, encode_string
from zkconsumer.testing.embedded.protocol import TopicPartition

NULL_ARRAY: Final = b"\xff\xff\xff\xff"


def runs_of_topics(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Return partitions by topic; a topic stands as often as it is interrupted by others, as brokers answer."""
    runs: list[tuple[str, list[TopicPartition]]] = []
    for where in partitions:
        if not runs or runs[-1][0] != where[0]:
            runs.append((where[0], []))
        runs[-1][1].append(where)
    return runs


def by_topic(rows: Iterable[tuple[TopicPartition, bytes]]) -> bytes:
    """Return `[topic [partition]]` of encoded partitions; of a partition that comes twice the last."""
    topics: dict[str, list[bytes]] = {}
    for (topic, _), row in dict(rows).items():
        topics.setdefault(topic, []).append(row)
    return encode_array([encode_string(topic) + encode_array(each) for topic, each in topics.items()])
