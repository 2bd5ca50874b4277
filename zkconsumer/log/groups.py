"""Positions of groups, as the records of `__consumer_offsets` hold them. Pure.

Key: `int16 0 or 1, string group, string topic, int32 partition`. Value, behind the `int16` of its version:

    0, 2   int64 offset, string metadata, int64 time of the commit
    1      int64 offset, string metadata, int64 time of the commit, int64 time of its end
    3      int64 offset, int32 leader epoch, string metadata, int64 time of the commit
    4      as 3 with compact lengths and tagged fields

Keys of type 2 are those of groups, and larger ones those of the groups of Kafka 4; a null value deletes what is there.

Source: kafka.server.OffsetManager (0.8.2), kafka.coordinator.group.GroupMetadataManager (0.9 to 3.9),
OffsetCommitValue.json (4.3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simpleconsumer.errors import DecodeError
from simpleconsumer.messages.schema import read_nullable_compact_string
from simpleconsumer.primitives import read_int16, read_int32, read_int64, read_nullable_string, read_string

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_WITH_EPOCH: Final = 3
_FLEXIBLE: Final = 4


class StoredPosition(NamedTuple):
    """The position of a group in a partition.

    Attributes:
        partition: Its number; `broker-partition` for Kafka 0.7.
        offset: The next offset to read, in Kafka 0.7 a byte position.
        leader_epoch: Of the message before it; -1 if it is not known.
        metadata: What the client has stored with it.
        commit_ms: When it was committed.
        store: Where it was: `kafka` or `zookeeper`.
    """

    group: str
    topic: str
    partition: int | str
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    store: str = "kafka"


class GroupPositions:
    """The newest position of each group in each partition.

    Attributes:
        others: How many records were of another kind, by the type of their key.
        unreadable: How many records could not be read.
    """

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str, int], StoredPosition] = {}
        self.others: dict[int, int] = {}
        self.unreadable = 0

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; records come in the order of the log."""
        if key is None:
            self.unreadable += 1
            return
        try:
            kind, at = read_int16(key, 0)
            if kind not in _OFFSET_KEYS:
                self.others[kind] = self.others.get(kind, 0) + 1
                return
            group, at = read_string(key, at)
            topic, at = read_string(key, at)
            partition, _ = read_int32(key, at)
            if value is None:
                self._positions.pop((group, topic, partition), None)
                return
            offset, epoch, metadata, commit_ms = _value(value)
            self._positions[group, topic, partition] = StoredPosition(
                group, topic, partition, offset, epoch, metadata, commit_ms
            )
        except (DecodeError, UnicodeDecodeError, IndexError):
            self.unreadable += 1

    def rows(self) -> list[StoredPosition]:
        """Return the positions, by group, topic and partition."""
        return [self._positions[name] for name in sorted(self._positions)]


def _value(value: bytes) -> tuple[int, int, str, int]:
    """Return offset, leader epoch, metadata and time of a commit."""
    version, at = read_int16(value, 0)
    if not 0 <= version <= _FLEXIBLE:
        raise DecodeError(f"version {version} of a committed offset is not known")
    offset, at = read_int64(value, at)
    epoch = -1
    if version >= _WITH_EPOCH:
        epoch, at = read_int32(value, at)
    metadata, at = read_nullable_string(value, at) if version < _FLEXIBLE else read_nullable_compact_string(value, at)
    commit_ms, _ = read_int64(value, at)
    return offset, epoch, metadata or "", commit_ms
