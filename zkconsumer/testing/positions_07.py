"""Finds where messages are stored in a log of Kafka 0.7, whose brokers acknowledge nothing.

A set is stored as it was sent, as a whole and in one segment. So the log is read from its end before the request, until
the same bytes start at an entry: that is where they are, and by then consumers see them.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import Final

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import FetchRequest
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.waiting import Deadline

__all__ = ["PositionFinder07"]

_SIZE: Final = Struct(">i")
_OUT_OF_RANGE: Final = 1
_MORE_BYTES: Final = 2 * 1024 * 1024
"""Read beyond the length of a set: room for the largest entry of another producer before it."""
_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05


class PositionFinder07:
    """Finds sets in the log of one partition.

    Threads: one at a time.
    """

    def __init__(self, port: int, topic: str, partition: int | str, timeout_s: float) -> None:
        """Prepare; the connection is made when it is needed.

        Args:
            port: of the partition's broker.
            timeout_s: Longest time until a set is seen.
        """
        self._broker = SimpleConsumer("127.0.0.1", port, timeout_s=timeout_s, dialect=KAFKA07)
        self._topic = topic
        self._partition = partition
        self._timeout_s = timeout_s
        self._end: int | None = None

    def prepare(self) -> None:
        """Note where the log ends; call it before messages are sent."""
        if self._end is None:
            [self._end] = self._broker.get_offsets_before(self._topic, self._partition, LATEST)

    def places(self, data: bytes, is_compressed: bool, count: int) -> list[tuple[int, int]]:
        """Return position of its entry, and number in the entry, of each message of a set, once consumers see them.

        Args:
            data: The set as it was sent.
            is_compressed: It is one entry.
            count: How many messages it has.

        Raises:
            KitError: They are not seen in time: the broker has dropped them, because one is too large, or has died.
            simpleconsumer's errors: The broker did not answer; the messages may be stored or not.
        """
        start, self._end = self._end, None
        assert start is not None
        position = self._find(start, data)
        self._end = position + len(data)
        if is_compressed:
            return [(position, number) for number in range(count)]
        return [(position + each, 0) for each in _entry_starts(data)]

    def _find(self, start: int, data: bytes) -> int:
        """Return where these bytes are, from a position on at which an entry starts."""
        deadline, pause_s, at = Deadline(self._timeout_s), _SHORTEST_PAUSE_S, start
        place = f"{self._topic}/{self._partition}"
        while True:
            found, behind = self._look(at, data)
            if found is not None:
                return found
            if behind > at:
                at = behind
                continue
            if deadline.expired:
                raise KitError(
                    f"{len(data)} bytes for {place} are not seen {self._timeout_s:g} s after they were sent: a broker "
                    "of Kafka 0.7 drops a message above max.message.size without an answer, and one that dies loses "
                    "what it has not flushed"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _look(self, at: int, data: bytes) -> tuple[int | None, int]:
        """Return where the bytes are in what can be read from `at` on, if they are, and where to look next."""
        request = FetchRequest(self._topic, self._partition, at, len(data) + _MORE_BYTES)
        [answer] = self._broker.multifetch([request])
        place = f"{self._topic}/{self._partition}"
        if answer.error_code == _OUT_OF_RANGE:
            raise KitError(f"{place} has no position {at} any more: another log is there now")
        if answer.error_code:
            raise KitError(f"{place} cannot be read at {at}: error {answer.error_code}")
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


def _entry_starts(data: bytes) -> list[int]:
    """Where each entry of a set starts."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += _SIZE.size + int(_SIZE.unpack_from(data, at)[0])
    return starts
