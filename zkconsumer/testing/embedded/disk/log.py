"""The log of one partition: segments on disk, appended to at the end, read from any offset, dropped at the start.

Source: kafka.log.Log, kafka.log.LogManager, kafka.server.KafkaApis (0.8.2.2).

Settings of the log of a partition, under the names of Kafka's topic settings.

Source: kafka.log.LogConfig (0.8.2.2).
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from zkconsumer.testing.embedded.disk.messages import UNKNOWN, Bytes, Refusal, assign_offsets, check
from zkconsumer.testing.embedded.disk.segment import LogSlice, Segment, segment_files
from zkconsumer_error import ErrorCode

_NEVER: Final = (1 << 63) - 1
_WEEK_MS: Final = 7 * 24 * 3600 * 1000
TIMESTAMP_TYPE: Final = "message.timestamp.type"
_NUMBERS: Final = {
    "segment.bytes": "INT", "segment.ms": "LONG", "segment.jitter.ms": "LONG", "segment.index.bytes": "INT",
    "flush.messages": "LONG", "flush.ms": "LONG", "retention.bytes": "LONG", "retention.ms": "LONG",
    "max.message.bytes": "INT", "index.interval.bytes": "INT", "delete.retention.ms": "LONG",
    "file.delete.delay.ms": "LONG", "min.compaction.lag.ms": "LONG", "max.compaction.lag.ms": "LONG",
    "message.timestamp.difference.max.ms": "LONG", "message.timestamp.before.max.ms": "LONG",
    "message.timestamp.after.max.ms": "LONG", "min.insync.replicas": "INT", "local.retention.ms": "LONG",
    "local.retention.bytes": "LONG",
}  # fmt: skip
_OTHERS: Final = {
    "cleanup.policy": "delete", "compression.type": "producer", "preallocate": "false",
    "unclean.leader.election.enable": "false", TIMESTAMP_TYPE: "CreateTime",
    "message.format.version": "3.0-IV1", "message.downconversion.enable": "true", "min.cleanable.dirty.ratio": "0.5",
    "remote.storage.enable": "false", "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
}  # fmt: skip
"""Settings that are no numbers, with Kafka's defaults."""


@dataclass(frozen=True)
class LogSettings:
    """Settings of a log, by the names and with the defaults of Kafka's topic settings (`.` for `_`).

    Attributes:
        segment_bytes, segment_ms: a new segment starts when the old one is as large or as old.
        retention_bytes, retention_ms: whole segments are deleted while the log is larger (-1: never) or they are older
            (-1: never).
        flush_messages, flush_ms: fsync after as many messages or milliseconds; Kafka leaves both to the system.
        max_message_bytes: largest entry (message or wrapper), its 12 bytes of offset and size included.
        index_interval_bytes: bytes between two pairs of the index.
        message_timestamp_type: `LogAppendTime`: messages get the time of the broker, from Kafka 0.10 on.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = _WEEK_MS
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    max_message_bytes: int = 1_000_012
    index_interval_bytes: int = 4096
    message_timestamp_type: str = "CreateTime"

    def with_topic(self, config: Mapping[str, object]) -> LogSettings:
        """Return these settings changed by those of a topic; keys that mean nothing here are passed over.

        A compacted topic (`cleanup.policy=compact`) is never compacted here, but kept for ever.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(self)}
        changed: dict[str, Any] = {
            known[key]: str(value) if key == TIMESTAMP_TYPE else int(str(value))
            for key, value in config.items()
            if key in known
        }
        if config.get("cleanup.policy") == "compact":
            changed |= {"retention_ms": -1, "retention_bytes": -1}
        return replace(self, **changed)


def refused_setting(name: str, value: str | None) -> str | None:
    """Return what brokers say of a setting that no topic can have; None for one that it can."""
    if name not in _NUMBERS and name not in _OTHERS:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    if name in _NUMBERS:
        try:
            int(value)
        except ValueError:
            return f"Invalid value {value} for configuration {name}: Not a number of type {_NUMBERS[name]}"
    return None


def settings_in_force(log: LogSettings, config: Mapping[str, object]) -> dict[str, str]:
    """Return all settings of a topic by name, as far as embedded brokers have them.

    Args:
        log: Those of its broker.
        config: Those of the topic itself.
    """
    own = {field.name.replace("_", "."): str(getattr(log, field.name)) for field in fields(log)}
    return {
        **own,
        **_OTHERS,
        TIMESTAMP_TYPE: log.message_timestamp_type,
        **{name: str(value) for name, value in config.items()},
    }


LATEST: Final = -1
EARLIEST: Final = -2


class Numbered(NamedTuple):
    """Entries that got their offsets.

    Attributes:
        data: the bytes to store.
        next_offset: the offset after their last message.
        positions: where each entry starts.
        offsets: of the first message of each entry.
    """

    data: Bytes
    next_offset: int
    positions: Sequence[int]
    offsets: Sequence[int]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class PartitionLog:
    """One partition on disk, in `<folder>/<topic>-<partition>/`.

    Old segments are on the disk before a new one starts, so only the last one can be damaged by a crash.

    Threads: every method from any thread.
    """

    def __init__(
        self,
        folder: Path,
        topic: str,
        partition: int,
        settings: LogSettings | None = None,
        *,
        clean: bool = False,
        clock: Callable[[], int] = _now_ms,
    ) -> None:
        """Open a log, or make a new one.

        Args:
            folder: the data folder that holds the partition's own.
            clean: the log was closed in order; else its last segment is checked and cut at the first bad entry.
            clock: wall clock in milliseconds.
        """
        self.topic = topic
        self.partition = partition
        self.settings = settings or LogSettings()
        self.folder = folder / f"{topic}-{partition}"
        self._clock = clock
        self._lock = threading.RLock()
        self._waiters: set[threading.Event] = set()
        self._closed = False
        self.folder.mkdir(parents=True, exist_ok=True)
        self._segments = [self._segment(int(path.stem)) for path in segment_files(self.folder)] or [self._segment(0)]
        for segment in self._segments[:-1]:
            segment.load()
        self._end_offset = self._active.load() if clean else self._active.recover()
        self._unflushed = 0
        self._flushed_ms = clock()

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}/{self.partition}, {self.start_offset}..{self.end_offset})"

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self.folder, base_offset, self._clock(), self.settings.index_interval_bytes)

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    # ---- state

    @property
    def start_offset(self) -> int:
        """Smallest offset that can be read."""
        with self._lock:
            return self._segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """Offset that the next message gets; with all replicas in sync also the high watermark."""
        return self._end_offset

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        with self._lock:
            return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_paths(self) -> list[Path]:
        """The files, oldest first."""
        with self._lock:
            return [segment.path for segment in self._segments]

    # ---- writing

    def append(self, message_set: Bytes) -> int:
        """Return the offset of the first message, once the set is in the file; -1 if it holds no whole message.

        Raises:
            Refusal: 2 bad checksum or size, 6 the log was closed, 10 an entry is too large, 18 the set is larger than a
                segment, -1 compressed data that cannot be read.
        """
        checked = check(message_set, self.settings.max_message_bytes)
        if not checked.positions:
            return -1

        def number(first: int) -> Numbered:
            data, next_offset, positions = assign_offsets(checked, first)
            return Numbered(data, next_offset, positions, range(first, first + len(positions)))

        return self._append(number)

    def _append(self, number: Callable[[int], Numbered]) -> int:
        """Return the offset that the next message had, once entries are in the file.

        Args:
            number: makes the entries, given the offset of the first one; called with the log locked.
        """
        with self._lock:
            self._require_open()
            first = self._end_offset
            data, next_offset, positions, offsets = number(first)
            self._check_sizes(len(data), positions)
            if self._must_roll(len(data)):
                self._roll()
            self._active.append(offsets, data, positions)
            self._end_offset = next_offset
            self._unflushed += next_offset - first
            if self._unflushed >= self.settings.flush_messages:
                self.flush()
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.set()
        return first

    def _check_sizes(self, size_bytes: int, positions: Sequence[int]) -> None:
        """Recompressed wrappers may have grown, so they are measured again."""
        if len(positions) == 1 and size_bytes > self.settings.max_message_bytes:
            limit = f"at most {self.settings.max_message_bytes} are stored"
            raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{self!r}: entry of {size_bytes} bytes, {limit}")
        if size_bytes > self.settings.segment_bytes:
            limit = f"a segment holds {self.settings.segment_bytes}"
            raise Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, f"{self!r}: message set of {size_bytes} bytes, {limit}")

    def _must_roll(self, size_bytes: int) -> bool:
        active = self._active
        if active.size_bytes > self.settings.segment_bytes - size_bytes:
            return True
        return active.size_bytes > 0 and self._clock() - active.created_ms > self.settings.segment_ms

    def _roll(self) -> None:
        self.flush()
        self._active.save_index()
        self._segments.append(self._segment(self._end_offset))

    def roll(self) -> None:
        """Start a new segment, unless the active one is empty."""
        with self._lock:
            self._require_open()
            if self._active.size_bytes:
                self._roll()

    def flush(self) -> None:
        """Return when everything appended is on the disk."""
        with self._lock:
            self._require_open()
            self._active.flush()
            self._unflushed = 0
            self._flushed_ms = self._clock()

    def flush_if_due(self) -> None:
        """Flush if unflushed messages are older than `flush_ms`."""
        with self._lock:
            if not self._closed and self._unflushed and self._clock() - self._flushed_ms >= self.settings.flush_ms:
                self.flush()

    # ---- reading

    def read(self, offset: int, max_bytes: int) -> LogSlice:
        """Return the stored bytes from the entry that holds an offset on, within one segment; empty at the end.

        The last entry may be cut, even if it is the only one.

        Raises:
            Refusal: 1 the offset is beyond the end or before the start, 6 the log was closed, -1 negative size.
        """
        with self._lock:
            self._require_open()
            if offset == self._end_offset:
                return LogSlice()
            first = self._index_of(offset)
            if offset > self._end_offset or first < 0:
                raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self!r}: offset {offset}")
            if max_bytes < 0:
                raise Refusal(UNKNOWN, f"{self!r}: fetch size {max_bytes}")
            for segment in self._segments[first:]:
                position = segment.find(offset)
                if position is not None:
                    return segment.slice(position, max_bytes)
            return LogSlice()

    def _index_of(self, offset: int) -> int:
        """Index of the segment in whose range an offset lies; -1 before the first one."""
        return bisect.bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def offsets_before(self, time_ms: int, max_offsets: int) -> list[int]:
        """Return offsets at which segments start, and the end, newest first, that were written by a time.

        Args:
            time_ms: milliseconds since 1970 of the last write to a segment, -1 for the end, -2 for the start.

        Raises:
            Refusal: -1, a negative number of offsets; 6, the log was closed.
        """
        if max_offsets < 0:
            raise Refusal(UNKNOWN, f"{self!r}: {max_offsets} offsets")
        with self._lock:
            self._require_open()
            known = [
                (max(segment.base_offset, self.start_offset), segment.last_modified_ms) for segment in self._segments
            ]
            if self._active.size_bytes:
                known.append((self._end_offset, self._clock()))
            if time_ms == EARLIEST:
                known = known[:1]
            elif time_ms != LATEST:
                last = max((n for n, (_, written_ms) in enumerate(known) if written_ms <= time_ms), default=-1)
                known = known[: last + 1]
            return [offset for offset, _ in reversed(known)][:max_offsets]

    # ---- waiting

    def add_waiter(self, waiter: threading.Event) -> None:
        """Set this event whenever something was appended, and when the log is closed."""
        with self._lock:
            self._waiters.add(waiter)
            if self._closed:
                waiter.set()

    def remove_waiter(self, waiter: threading.Event) -> None:
        """Undo `add_waiter`."""
        with self._lock:
            self._waiters.discard(waiter)

    # ---- shrinking

    def apply_retention(self) -> int:
        """Return how many segments were deleted, by age first, then by size; the active one only if it is too old."""
        with self._lock:
            if self._closed:
                return 0
            return self._delete_while(self._too_old) + self._delete_while(self._too_many())

    def _too_old(self, segment: Segment) -> bool:
        age_ms = self._clock() - segment.last_modified_ms
        return 0 <= self.settings.retention_ms < age_ms

    def _too_many(self) -> Callable[[Segment], bool]:
        limit = self.settings.retention_bytes
        surplus = self.size_bytes - limit if limit >= 0 else 0

        def dispensable(segment: Segment) -> bool:
            nonlocal surplus
            surplus -= segment.size_bytes
            return limit >= 0 and surplus >= 0

        return dispensable

    def _delete_while(self, deletable: Callable[[Segment], bool]) -> int:
        count = 0
        for segment in self._segments:
            if not deletable(segment) or (segment is self._active and segment.size_bytes == 0):
                break
            count += 1
        if count == len(self._segments):
            self._roll()  # a log always has a segment, and it starts at the end offset
        for segment in self._segments[:count]:
            segment.delete()
        del self._segments[:count]
        return count

    def truncate(self, offset: int) -> None:
        """Drop this offset and all later ones, as an unclean leader election does."""
        with self._lock:
            self._require_open()
            while len(self._segments) > 1 and self._active.base_offset > offset:
                self._segments.pop().delete()
            self._active.truncate(offset)
            self._end_offset = min(self._end_offset, max(offset, self._segments[0].base_offset))

    def delete_head(self, offset: int) -> int:
        """Return the new start after whole segments before an offset were deleted, as retention does."""
        with self._lock:
            self._require_open()
            while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
                self._segments.pop(0).delete()
            return self.start_offset

    # ---- surgery

    def corrupt(self, offset: int) -> None:
        """Damage the stored entry that holds an offset: its checksum is wrong from now on.

        Raises:
            ValueError: the log does not hold that offset.
        """
        with self._lock:
            if not self._segment_of(offset).corrupt(offset):
                raise ValueError(f"{self!r} does not hold offset {offset}")

    def damage_offset(self, offset: int, found: int) -> None:
        """Change the offset field of the stored entry that holds an offset, which no checksum covers.

        Raises:
            ValueError: the log does not hold that offset, or `found` does not fit into 64 bits.
        """
        if not -(2**63) <= found < 2**63:
            raise ValueError(f"offset {found} does not fit into 64 bits")
        with self._lock:
            if not self._segment_of(offset).write_offset(offset, found):
                raise ValueError(f"{self!r} does not hold offset {offset}")

    def _segment_of(self, offset: int) -> Segment:
        self._require_open()
        first = self._index_of(offset)
        if first < 0 or offset >= self._end_offset:
            raise ValueError(f"{self!r} does not hold offset {offset}")
        return self._segments[first]

    def remove(self, offsets: Collection[int]) -> None:
        """Take the entries with these offsets out, as compaction does: a gap that is no loss.

        Raises:
            ValueError: the last offset is among them, which compaction never takes.
        """
        with self._lock:
            self._require_open()
            if self._end_offset - 1 in offsets:
                raise ValueError(f"{self!r}: offset {self._end_offset - 1} is the last one, and stays")
            for segment in self._segments:
                segment.remove(offsets)

    # ---- end

    def close(self, *, flush: bool = True) -> None:
        """Close the files and wake all that wait; without `flush` as a crash leaves them. Then calls do nothing."""
        with self._lock:
            if self._closed:
                return
            if flush:
                self.flush()
                self._active.save_index()
            self._closed = True
            for segment in self._segments:
                segment.close()
            for waiter in self._waiters:
                waiter.set()

    def _require_open(self) -> None:
        if self._closed:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}/{self.partition} is not led here any more")
