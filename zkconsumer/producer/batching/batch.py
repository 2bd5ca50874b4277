"""Batch: messages of one partition that are sent, tried again and reported together.

A batch has its outcome, or goes on as two batches. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from simpleconsumer.producer_batches import BatchProducer
from simpleconsumer.types import Headers, TopicPartition
from zkconsumer.producer.errors import ProducerError

__all__ = [
    "Ahead",
    "Batch",
    "Effect",
    "Finished",
    "MESSAGE_OVERHEAD_BYTES",
    "Pair",
    "PlainPair",
    "Split",
    "by_partition",
    "has_headers",
    "message_size",
]


PlainPair = tuple[bytes | None, bytes | None]
"""Key and value of a message, encoded."""
Pair = PlainPair | tuple[bytes | None, bytes | None, Headers]
"""Key and value of a message, encoded; and its headers, if it has any."""

MESSAGE_OVERHEAD_BYTES: Final = 26
"""What an entry of a message set has beside key and value."""
_HEADER_OVERHEAD_BYTES: Final = 10
"""What a header has beside name and value, at most."""


def message_size(pair: Pair) -> int:
    """Return the bytes of a message in a message set."""
    size = len(pair[0] or b"") + len(pair[1] or b"") + MESSAGE_OVERHEAD_BYTES
    if len(pair) == 2:
        return size
    return size + sum(len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD_BYTES for name, content in pair[2])


def has_headers(pair: Pair) -> bool:
    """Return whether a message has headers."""
    return len(pair) > 2


class Ahead(NamedTuple):
    """What was encoded before its request.

    Attributes:
        data: The message set.
        batches: The batches that it has, all of one partition.
    """

    data: bytes
    batches: tuple[Batch, ...]


class Batch:
    """Messages of one partition.

    Attributes:
        name: The partition.
        pairs: Keys and values, in order.
        size: Their bytes in a message set, before compression.
        created_at: When its first message came, in seconds of the clock that the caller uses.
        is_closed: No further message is added, and it does not wait for any.
        is_movable: None of its messages has a key or was sent to a given partition, so any partition will do.
        is_alone: It is sent without other batches of the partition, as it is compressed, or one of them is too large.
        tries: How often it failed.
        searches: How often in a row no leader was found for it.
        may_be_stored: A try ended without an answer, or with one after which it may be stored (`produce_codes`).
        outcome: What the caller reports to; None until it sets it.
        encoded: Its message set, if that was made before its request, maybe with batches behind it; None when it is
            sent.
        times: When each of its messages came, on the same clock; empty: all of them with the first one.
        numbers: Under which producer and numbers it is sent, with idempotence; None before that, and without it.
    """

    __slots__ = (
        "created_at", "encoded", "is_alone", "is_closed", "is_movable", "may_be_stored", "name", "numbers", "outcome",
        "pairs", "searches", "size", "times", "tries",
    )  # fmt: skip

    def __init__(self, name: TopicPartition, is_movable: bool, created_at: float) -> None:
        self.name = name
        self.pairs: list[Pair] = []
        self.size = 0
        self.created_at = created_at
        self.is_closed = False
        self.is_movable = is_movable
        self.is_alone = False
        self.tries = 0
        self.searches = 0
        self.may_be_stored = False
        self.outcome: Any = None
        self.encoded: Ahead | None = None
        self.times: list[float] = []
        self.numbers: BatchProducer | None = None

    def parts(self, first_messages: int) -> tuple[Batch, Batch]:
        """Return two batches with the messages of this one, which has more than one; both are alone and closed."""
        return self._part(slice(first_messages)), self._part(slice(first_messages, None))

    def _part(self, rows: slice) -> Batch:
        part = Batch(self.name, self.is_movable, self.created_at)
        part.pairs = pairs = self.pairs[rows]
        part.times = self.times[rows]
        part.size = sum(map(message_size, pairs))
        part.is_closed = part.is_alone = True
        part.tries, part.may_be_stored = self.tries, self.may_be_stored
        return part


def by_partition(batches: Sequence[Batch]) -> dict[TopicPartition, list[Batch]]:
    """Return the batches of each partition, in their order."""
    found: dict[TopicPartition, list[Batch]] = {}
    for batch in batches:
        found.setdefault(batch.name, []).append(batch)
    return found


class Finished(NamedTuple):
    """A batch has its outcome.

    Attributes:
        batch: The batch.
        offset: Offset of its first message; -1 where the broker names none.
        error: Why it failed; None if it is acknowledged.
    """

    batch: Batch
    offset: int
    error: ProducerError | None


class Split(NamedTuple):
    """A batch goes on as two."""

    batch: Batch
    halves: tuple[Batch, Batch]


Effect = Finished | Split
