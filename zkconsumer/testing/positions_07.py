"""Finds where messages are stored in a log of Kafka 0.7, whose brokers acknowledge nothing.

A set is stored as it was sent, as a whole and in one segment. So the log is read from its end before the request, until
the same messages start at an entry: that is where they are, and by then consumers see them.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import Final

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import FetchRequest
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.waiting import Deadline

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
        position, self._end = self._find(start, data, _values(data) if is_compressed else None)
        if is_compressed:
            return [(position, number) for number in range(count)]
        return [(position + each, 0) for each in _entry_starts(data)]

    def _find(self, start: int, data: bytes, values: list[bytes | None] | None) -> tuple[int, int]:
        """Return where a set is and where it ends, from a position on at which an entry starts; see `_look`."""
        deadline, pause_s, at = Deadline(self._timeout_s), _SHORTEST_PAUSE_S, start
        place = f"{self._topic}/{self._partition}"
        while True:
            found, behind = self._look(at, data, values)
            if found is not None:
                return found, behind
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

    def _look(self, at: int, data: bytes, values: list[bytes | None] | None) -> tuple[int | None, int]:
        """Return where a set is in what can be read from `at` on, if it is, and its end, or where to look next.

        Args:
            data: Its bytes, as they are stored if it is not compressed.
            values: Of its messages, if it is compressed; the same messages do not always compress to the same bytes.
        """
        log = self._read(at, len(data) + _MORE_BYTES)
        inside = 0
        needed = len(data) if values is None else _SIZE.size
        while len(log) - inside >= needed:
            if values is None and log.startswith(data, inside):
                return at + inside, at + inside + len(data)
            (size,) = _SIZE.unpack_from(log, inside)
            end = inside + _SIZE.size + size
            if end > len(log):
                break
            if values is not None and _values(log[inside:end]) == values:
                return at + inside, at + end
            inside = end
        return None, at + inside

    def _read(self, at: int, max_bytes: int) -> bytes:
        request = FetchRequest(self._topic, self._partition, at, max_bytes)
        [answer] = self._broker.multifetch([request])
        place = f"{self._topic}/{self._partition}"
        if answer.error_code == _OUT_OF_RANGE:
            raise KitError(f"{place} has no position {at} any more: another log is there now")
        if answer.error_code:
            raise KitError(f"{place} cannot be read at {at}: error {answer.error_code}")
        return bytes(answer.message_set)

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()


def _values(entry: bytes) -> list[bytes | None] | None:
    """The values of the messages of one entry; None if it is damaged."""
    try:
        return [message.value for message in KAFKA07.decode_messages(entry, "", 0, 0)]
    except SimpleConsumerError:
        return None


def _entry_starts(data: bytes) -> list[int]:
    """Where each entry of a set starts."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += _SIZE.size + int(_SIZE.unpack_from(data, at)[0])
    return starts
