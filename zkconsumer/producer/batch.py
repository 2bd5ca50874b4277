"""Batch: messages of one partition that are sent, tried again and reported together."""

from __future__ import annotations

from typing import Any, Final

from simpleconsumer.types import TopicPartition

__all__ = ["MESSAGE_OVERHEAD_BYTES", "Batch", "Pair", "message_size", "undecided_codes"]

Pair = tuple[bytes | None, bytes | None]
"""Key and value of a message, encoded."""

MESSAGE_OVERHEAD_BYTES: Final = 26
"""What an entry of a message set has beside key and value."""


def message_size(pair: Pair) -> int:
    """Return the bytes of a message in a message set."""
    key, value = pair
    return len(key or b"") + len(value or b"") + MESSAGE_OVERHEAD_BYTES


def undecided_codes(acks: int) -> tuple[int, ...]:
    """Return the errors after which the leader may have the messages: of an unknown kind, and of missing replicas.

    A leader that waits for its replicas and loses its leadership, or the partition, denies it (6, 3) when it has stored
    the messages already, and the next leader may have them.
    """
    return (-1, 3, 6, 7, 20) if acks == -1 else (-1, 7, 20)


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
        may_be_stored: A try ended without an answer.
        outcome: What the caller reports to; None until it sets it.
        encoded: Its message set, if that was made before its request; None when it is sent.
    """

    __slots__ = (
        "created_at", "encoded", "is_alone", "is_closed", "is_movable", "may_be_stored", "name", "outcome", "pairs",
        "searches", "size", "tries",
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
        self.encoded: bytes | None = None

    def parts(self, first_messages: int) -> tuple[Batch, Batch]:
        """Return two batches with the messages of this one, which has more than one; both are alone and closed."""
        return self._part(self.pairs[:first_messages]), self._part(self.pairs[first_messages:])

    def _part(self, pairs: list[Pair]) -> Batch:
        part = Batch(self.name, self.is_movable, self.created_at)
        part.pairs = pairs
        part.size = sum(map(message_size, pairs))
        part.is_closed = part.is_alone = True
        part.tries, part.may_be_stored = self.tries, self.may_be_stored
        return part
