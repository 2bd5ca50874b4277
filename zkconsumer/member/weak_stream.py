"""What the threads of a member know of a stream: nothing that keeps the stream, or its application, alive.

A consumer that is dropped without a close ends itself (`zkconsumer.member.leaving`). It could not if the threads that
fetch for it, or the queues of its partitions, referred to what the application holds.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from zkconsumer.fetching.partition_queue import InHand
from zkconsumer.member.delivery import DeliveredTo
from zkconsumer.streams.stream import SleepsUntilWoken

__all__ = ["MemberStream", "WeakStream"]


class MemberStream(DeliveredTo, Protocol):
    """What messages are delivered to, with what it has counted, and what wakes it."""

    @property
    def _failures(self) -> int: ...

    @property
    def _wakeup(self) -> SleepsUntilWoken: ...


class WeakStream:
    """Stands for a stream, with the interface of MemberStream.

    When the stream is gone nothing is in hand, and nobody reads.

    Args:
        stream: The stream; what wakes it and its list of queues are kept, and not itself.

    Threads: As the stream.
    """

    def __init__(self, stream: MemberStream) -> None:
        self._stream = weakref.ref(stream)
        self.thread_id = stream.thread_id
        self._ready = stream._ready
        self._wakeup = stream._wakeup

    @property
    def _reader(self) -> object:
        stream = self._stream()
        return None if stream is None else stream._reader

    @property
    def handed(self) -> InHand | None:
        """What the stream handed over last."""
        stream = self._stream()
        return None if stream is None else stream.handed

    @property
    def _failures(self) -> int:
        stream = self._stream()
        return 0 if stream is None else stream._failures

    def _wake(self) -> None:
        self._wakeup.wake()

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        stream = self._stream()
        return stream is not None and stream._has_in_hand(reader, hand)

    def _is_being_read(self) -> bool:
        stream = self._stream()
        return stream is not None and stream._is_being_read()

    def _end(self) -> None:
        stream = self._stream()
        if stream is not None:
            stream._end()

    def _fail(self, error: Exception) -> None:
        stream = self._stream()
        if stream is not None:
            stream._fail(error)
