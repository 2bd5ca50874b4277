"""Writes answers in both encodings of Kafka's messages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages.flexible import encode_compact_array, encode_compact_string, encode_uvarint
from simpleconsumer.primitives import encode_array, encode_bytes, encode_nullable_string
from zkconsumer.testing.embedded.reading import TopicPartition

__all__ = ["CLASSIC", "FLEXIBLE", "NULL_ARRAY", "Encoding", "by_topic", "runs_of_topics"]

NULL_ARRAY: Final = b"\xff\xff\xff\xff"


class Encoding(NamedTuple):
    """One of the two encodings.

    Attributes:
        is_flexible: whether lengths are compact, and structs end with tagged fields.
    """

    is_flexible: bool

    @property
    def end(self) -> bytes:
        """What stands at the end of a struct: no tagged fields, or nothing."""
        return b"\0" if self.is_flexible else b""

    def string(self, text: str | None) -> bytes:
        """A string, or null."""
        return encode_compact_string(text) if self.is_flexible else encode_nullable_string(text)

    def sized(self, data: bytes) -> bytes:
        """Bytes behind their length."""
        return encode_uvarint(len(data) + 1) + data if self.is_flexible else encode_bytes(data)

    def array(self, items: Iterable[bytes]) -> bytes:
        """An array of encoded items, each with the end of its struct."""
        return encode_compact_array(items) if self.is_flexible else encode_array(list(items))

    def numbers(self, numbers: Sequence[int]) -> bytes:
        """An array of `int32`."""
        return self.array(pack(">i", number) for number in numbers)


CLASSIC: Final = Encoding(False)
FLEXIBLE: Final = Encoding(True)


def runs_of_topics(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Return partitions by topic; a topic stands as often as it is interrupted by others, as brokers answer."""
    runs: list[tuple[str, list[TopicPartition]]] = []
    for where in partitions:
        if not runs or runs[-1][0] != where[0]:
            runs.append((where[0], []))
        runs[-1][1].append(where)
    return runs


def by_topic(
    rows: Iterable[tuple[TopicPartition, bytes]],
    encoding: Encoding = CLASSIC,
    encode_topic: Callable[[str], bytes] | None = None,
) -> bytes:
    """Return `[topic [partition]]` of encoded partitions, which have no end of their struct yet.

    Args:
        encode_topic: encodes a topic that is not named by a string.
    """
    encode_topic = encode_topic or encoding.string
    listed = dict(rows)
    topics: dict[str, list[bytes]] = {}
    for (topic, _), row in listed.items():
        topics.setdefault(topic, []).append(row + encoding.end)
    return encoding.array(
        encode_topic(topic) + encoding.array(each) + encoding.end for topic, each in topics.items()
    )
