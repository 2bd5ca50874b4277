"""Fetch sessions: a client names its partitions once, and answers have those of which something is new.

A session begins with a fetch of epoch 0 and goes on with 1, 2, ...; epoch -1 ends it. An answer has a
partition when it has messages, another end or start, or an error, and once more when the error is over.

Source: kafka.server.FetchManager, FetchSession, CachedPartition (2.8), KIP-227.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer_error import ErrorCode

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = -1
_ANY_EPOCH: Final = -1
_LARGEST: Final = 0x7FFFFFFF
_UNKNOWN: Final = -1


class Position(NamedTuple):
    """Where to read a partition; the epoch of the leader as the client knows it, -1: not known."""

    offset: int
    max_bytes: int
    epoch: int = _ANY_EPOCH


class Seen(NamedTuple):
    """The state of a partition at its last read, as far as a session goes by it."""

    code: int
    high_watermark: int
    start_offset: int
    size_bytes: int


@dataclass
class _Partition:
    position: Position
    high_watermark: int = _UNKNOWN
    start_offset: int = _UNKNOWN

    def takes(self, seen: Seen) -> bool:
        """Return whether the answer has to have the partition, and remember what it reports."""
        reported = (self.high_watermark, self.start_offset)
        is_new = bool(seen.size_bytes or seen.code) or reported != (seen.high_watermark, seen.start_offset)
        # When an error is over, the partition is reported again.
        self.high_watermark = _UNKNOWN if seen.code else seen.high_watermark
        self.start_offset = seen.start_offset
        return is_new


@dataclass
class _Session:
    number: int
    partitions: dict[TopicPartition, _Partition]
    epoch: int
    used_s: float


class FetchContext(NamedTuple):
    """The partitions that a fetch asks for.

    Attributes:
        positions: of the partitions, in the order of the answer.
        code: 70 or 71 if there is no such session; nothing is read then.
        session: that goes on; None for a fetch that names everything.
        begins: whether a session begins with it.
    """

    positions: Mapping[TopicPartition, Position]
    code: int = 0
    session: _Session | None = None
    begins: bool = False


class FetchSessions:
    """The sessions of a broker.

    Threads: every method from any thread; each session is used by one client, which asks one thing at a time.
    """

    def __init__(self, slots: int, eviction_ms: int) -> None:
        """Have no session yet.

        Args:
            slots: how many there may be; further clients get none.
            eviction_ms: after which an unused one gives way to another.
        """
        self._slots = slots
        self._eviction_s = eviction_ms / 1000
        self._lock = threading.Lock()
        self._sessions: dict[int, _Session] = {}

    def clear(self) -> None:
        """Forget all sessions, as a broker does that ends."""
        with self._lock:
            self._sessions.clear()

    def begin(
        self,
        number: int,
        epoch: int,
        named: Mapping[TopicPartition, Position],
        forgotten: Collection[TopicPartition],
        now_s: float,
    ) -> FetchContext:
        """Return what a fetch asks for.

        Args:
            number: of the session, 0 for none.
            epoch: 0 begins a session, -1 ends one, or does without.
            named: partitions that the request names: all, or of a session partitions that are new or read elsewhere.
            forgotten: partitions that leave the session.
            now_s: monotonic.
        """
        with self._lock:
            if epoch in (_FIRST_EPOCH, _LAST_EPOCH):
                self._sessions.pop(number, None)
                return FetchContext(named, begins=epoch == _FIRST_EPOCH)
            session = self._sessions.get(number)
            if session is None:
                return FetchContext({}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != epoch:
                return FetchContext({}, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            for where, position in named.items():
                session.partitions.setdefault(where, _Partition(position)).position = position
            for where in forgotten:
                session.partitions.pop(where, None)
            if not session.partitions:
                del self._sessions[number]
                return FetchContext({})
            session.epoch = epoch % _LARGEST + 1
            session.used_s = now_s
            positions = {where: each.position for where, each in session.partitions.items()}
            return FetchContext(positions, session=session)

    def finish(
        self, context: FetchContext, seen: Mapping[TopicPartition, Seen], now_s: float
    ) -> tuple[int, set[TopicPartition]]:
        """Return the session of an answer (0: none), and the partitions that it has."""
        with self._lock:
            session = context.session
            if session is None:
                return self._begun(context, seen, now_s) if context.begins else NO_SESSION, set(seen)
            included = set()
            for where, each in seen.items():
                partition = session.partitions.get(where)
                if partition is None or not partition.takes(each):
                    continue
                included.add(where)
                if each.size_bytes:  # others come first next time
                    session.partitions[where] = session.partitions.pop(where)
            return session.number, included

    def _begun(self, context: FetchContext, seen: Mapping[TopicPartition, Seen], now_s: float) -> int:
        """The number of a new session; 0 if there is no room."""
        if len(self._sessions) >= self._slots and not self._evicted(now_s):
            return NO_SESSION
        number = random.randint(1, _LARGEST)
        while number in self._sessions:
            number = random.randint(1, _LARGEST)
        partitions = {where: _Partition(position) for where, position in context.positions.items()}
        for where, each in seen.items():
            partitions[where].takes(each)
        self._sessions[number] = _Session(number, partitions, _FIRST_EPOCH + 1, now_s)
        return number

    def _evicted(self, now_s: float) -> bool:
        oldest = min(self._sessions.values(), key=lambda each: each.used_s, default=None)
        if oldest is None or now_s - oldest.used_s <= self._eviction_s:
            return False
        del self._sessions[oldest.number]
        return True
