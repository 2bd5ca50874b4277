"""Topics in requests about offsets: by name, in the newest versions by id alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from zkconsumer.testing.embedded.kafka011.api import Host011
from zkconsumer.testing.embedded.kafka011.writing import Encoding, by_topic
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["NAMELESS", "answered_by_topic", "read_by_topic", "with_names"]

NAMELESS: Final = "\0"
"""What stands before the id of a topic, in hex, where there is no name for it."""
_ID_BYTES: Final = 16

T = TypeVar("T")


def read_by_topic(reader: Reader, read: Callable[[], T], *, has_ids: bool) -> dict[TopicPartition, T]:
    """Return what stands behind each partition of `[topic [int32 partition, ...]]`."""

    def topic() -> str:
        return NAMELESS + bytes(reader.raw(_ID_BYTES)).hex() if has_ids else reader.string()

    return reader.partitions(read, topic)


def with_names(host: Host011, partitions: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
    """Return the same with the names of topics that there are."""
    names = {NAMELESS + each.hex(): name for name, each in host.cluster.image.topic_ids.items()}
    return {(names.get(topic, topic), number): each for (topic, number), each in partitions.items()}


def answered_by_topic(
    host: Host011, rows: Iterable[tuple[TopicPartition, bytes]], encoding: Encoding, *, has_ids: bool
) -> bytes:
    """Return `[topic [partition]]` of encoded partitions, which have no end of their struct yet."""
    ids = host.cluster.image.topic_ids

    def topic(name: str) -> bytes:
        if not has_ids:
            return encoding.string(name)
        is_nameless = name.startswith(NAMELESS)
        return bytes.fromhex(name[1:]) if is_nameless else ids.get(name, bytes(_ID_BYTES))

    return by_topic(rows, encoding, topic)
