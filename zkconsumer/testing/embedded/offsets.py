"""Committed offsets in Kafka (offset commit and fetch of version 1): records in the topic `__consumer_offsets`.

Key: `int16 0, string group, string topic, int32 partition`; value: `int16 0, int64 offset, string metadata, int64
timestamp ms`, null for a deletion. The newest record of a key counts; the topic is never compacted here.

Source: kafka.server.OffsetManager (0.8.2.2).
"""

from __future__ import annotations

import threading
import time
from struct import Struct, pack
from typing import Final

from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.messages import ENTRY_OVERHEAD, deep_messages, key_of, plain_entry, value_of
from zkconsumer.testing.embedded.protocol import CommittedOffset

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_CONFIG: Final[dict[str, object]] = {"segment.bytes": 100 * 1024 * 1024, "cleanup.policy": "compact"}
_READ_BYTES = 1024 * 1024
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_VALUE = Struct(">hq")
_INT64 = Struct(">q")

Key = tuple[str, str, int]


class GroupOffsets:
    """The offsets in one log of the offsets topic, read once and kept up to date by `commit`.

    Threads: every method from any thread.
    """

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self._lock = threading.Lock()
        self._offsets: dict[Key, CommittedOffset] = {}
        position = log.start_offset
        while position < log.end_offset:
            with log.read(position, _READ_BYTES) as part:
                data = part.read()
            for message in deep_messages(data):
                self._take(message)
            position = _behind(data, log.end_offset)

    def _take(self, message: memoryview) -> None:
        key, value = key_of(message), value_of(message)
        if key is None or _INT16.unpack_from(key)[0] > 1:
            return
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        where = (group, topic, int(_INT32.unpack_from(key, at)[0]))
        if value is None:
            self._offsets.pop(where, None)
            return
        _, offset = _VALUE.unpack_from(value)
        metadata, at = _text(value, _VALUE.size)
        self._offsets[where] = CommittedOffset(offset, metadata, _INT64.unpack_from(value, at)[0])

    def commit(self, group: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        """Append a record.

        Raises:
            Refusal: the log refused it.
        """
        stamp = offset.timestamp_ms if offset.timestamp_ms >= 0 else time.time_ns() // 1_000_000
        key = pack(">h", 0) + _sized(group) + _sized(topic) + _INT32.pack(partition)
        value = _VALUE.pack(0, offset.offset) + _sized(offset.metadata) + _INT64.pack(stamp)
        with self._lock:
            self.log.append(plain_entry(0, key, value))
            self._offsets[group, topic, partition] = offset._replace(timestamp_ms=stamp)

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return what was committed last."""
        with self._lock:
            return self._offsets.get((group, topic, partition))

    def partitions(self, group: str) -> list[tuple[str, int]]:
        """Return the partitions of which a group has offsets."""
        with self._lock:
            return sorted((topic, partition) for owner, topic, partition in self._offsets if owner == group)


def _behind(message_set: bytes, end_offset: int) -> int:
    """Return the offset behind the last whole entry."""
    position, offset = 0, end_offset - 1
    while position + ENTRY_OVERHEAD <= len(message_set):
        (found,), (size,) = _INT64.unpack_from(message_set, position), _INT32.unpack_from(message_set, position + 8)
        if position + ENTRY_OVERHEAD + size > len(message_set):
            break
        offset = found
        position += ENTRY_OVERHEAD + size
    return int(offset) + 1


def _text(view: memoryview, at: int) -> tuple[str, int]:
    end = at + 2 + int(_INT16.unpack_from(view, at)[0])
    return str(view[at + 2 : end], "utf-8", "replace"), end


def _sized(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data
