"""Writes messages to brokers of Kafka 0.7, which acknowledge nothing: each set is looked for in the log behind it.

A set is stored as it was sent, as a whole and in one segment. So the log is read from its end before the request, until
the same bytes start at an entry: that is where they are, and by then consumers see them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from struct import Struct
from types import TracebackType
from typing import Final, Self

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import FetchRequest
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.waiting import Deadline

__all__ = ["Producer07", "Stored"]

_SIZE: Final = Struct(">i")
_OUT_OF_RANGE: Final = 1
_MORE_BYTES: Final = 2 * 1024 * 1024
"""Read beyond the length of a set: room for the largest entry of another producer before it."""
_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05

KeyValue = tuple[bytes | None, bytes | None]


class Stored(list[tuple[int, int]]):
    """Position of its entry, and number within the entry, of each message that was stored."""


class Producer07:
    """Produces to one broker of Kafka 0.7, and says where messages are stored.

    Threads: one at a time.
    """

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        """Prepare; the connection is made when it is needed.

        Args:
            timeout_s: Longest time until a set is seen.
        """
        self._broker = SimpleConsumer("127.0.0.1", port, timeout_s=timeout_s, dialect=KAFKA07)
        self._timeout_s = timeout_s
        self._ends: dict[tuple[str, int | str], int] = {}

    def store(
        self, topic: str, partition: int | str, messages: Sequence[bytes | KeyValue], codec: str = "none"
    ) -> Stored:
        """Return where messages are stored, once consumers see them.

        Raises:
            KitError: They are not seen in time: the broker has dropped them, because one is too large, or has died.
            simpleconsumer's errors: The broker did not answer; the messages may be stored or not.
        """
        place = (topic, partition)
        data = bytes(KAFKA07.encode_messages(messages, codec, None, None))
        start = self._ends.get(place)
        if start is None:
            [start] = self._broker.get_offsets_before(topic, partition, LATEST)
        self._ends.pop(place, None)
        self._broker.produce(topic, partition, messages, codec=codec)
        position = self._find(topic, partition, start, data)
        self._ends[place] = position + len(data)
        starts = _entry_starts(data)
        if codec != "none":
            return Stored((position, number) for number in range(len(messages)))
        return Stored((position + start, 0) for start in starts)

    def produce(
        self, topic: str, partition: int | str, messages: Sequence[bytes | KeyValue], *, codec: str = "none",
        acks: int = 1,
    ) -> int:  # fmt: skip
        """Return the position of the first message, as `SimpleConsumer.produce` does; `acks` means nothing here."""
        return self.store(topic, partition, messages, codec)[0][0]

    def _find(self, topic: str, partition: int | str, start: int, data: bytes) -> int:
        """Return where these bytes are, from a position on at which an entry starts."""
        deadline, pause_s, at = Deadline(self._timeout_s), _SHORTEST_PAUSE_S, start
        while True:
            found, behind = self._look(topic, partition, at, data)
            if found is not None:
                return found
            if behind > at:
                at = behind
                continue
            if deadline.expired:
                raise KitError(
                    f"{len(data)} bytes for {topic}/{partition} are not seen {self._timeout_s:g} s after they were "
                    "sent: a broker of Kafka 0.7 drops a message above max.message.size without an answer, and one "
                    "that dies loses what it has not flushed"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _look(self, topic: str, partition: int | str, at: int, data: bytes) -> tuple[int | None, int]:
        """Return where the bytes are in what can be read from `at` on, if they are, and where to look next."""
        [answer] = self._broker.multifetch([FetchRequest(topic, partition, at, len(data) + _MORE_BYTES)])
        if answer.error_code == _OUT_OF_RANGE:
            raise KitError(f"{topic}/{partition} has no position {at} any more: another log is there now")
        if answer.error_code:
            raise KitError(f"{topic}/{partition} cannot be read at {at}: error {answer.error_code}")
        log = bytes(answer.message_set)
        inside = 0
        while len(log) - inside >= len(data):
            if log.startswith(data, inside):
                return at + inside, at + inside
            (size,) = _SIZE.unpack_from(log, inside)
            if inside + _SIZE.size + size > len(log):
                break
            inside += _SIZE.size + size
        return None, at + inside

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _entry_starts(data: bytes) -> list[int]:
    """Where each entry of a set starts."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += _SIZE.size + int(_SIZE.unpack_from(data, at)[0])
    return starts
