"""Records of `__consumer_offsets` that hold committed offsets: keys and values of each version. Pure.

Key: `int16 0 or 1, string group, string topic, int32 partition`. Values, each behind the `int16` of its version:

    0    int64 offset, string metadata, int64 time of the commit
    1    int64 offset, string metadata, int64 time of the commit, int64 time of its end
    2    as 0
    3    int64 offset, int32 leader epoch, string metadata, int64 time of the commit
    4    as 3 with compact lengths and tagged fields, of which number 0 is the id of the topic

Source: kafka.coordinator.group.GroupMetadataManager (0.9, 1.1, 2.8), OffsetCommitValue.json (4.3).
"""

from __future__ import annotations

from struct import error, pack
from typing import Final, NamedTuple

from simpleconsumer.messages.flexible import encode_compact_string, encode_uvarint
from simpleconsumer.primitives import encode_string
from zkconsumer.testing.embedded.reading import BadRequest, Reader

DAY_MS: Final = 24 * 60 * 60 * 1000
_WITH_END: Final = 1
_WITH_EPOCH: Final = 3
_FLEXIBLE: Final = 4
_NEWEST_KEY: Final = 1


class OffsetKey(NamedTuple):
    """Whose offset of which partition."""

    group: str
    topic: str
    partition: int


class StoredOffset(NamedTuple):
    """An offset as a group has committed it.

    Attributes:
        leader_epoch: of the message before it; -1 if the client did not say.
        commit_ms: when it was committed.
        retention_ms: for how long the client wants it kept; -1 for as long as the broker keeps offsets.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    commit_ms: int = -1
    retention_ms: int = -1


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the key of a record, as brokers from 0.9 on write it."""
    return pack(">h", _NEWEST_KEY) + encode_string(key.group) + encode_string(key.topic) + pack(">i", key.partition)


def decode_offset_key(data: bytes) -> OffsetKey | None:
    """Return a key; None for a key of another kind."""
    reader = Reader(data)
    try:
        if not 0 <= reader.int16() <= _NEWEST_KEY:
            return None
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    except (error, BadRequest):
        return None


def encode_offset(stored: StoredOffset, version: int, topic_id: bytes | None = None) -> bytes:
    """Return the value of a record.

    Args:
        version: that the broker writes; an offset with a retention of its own has version 1 before Kafka 4.
        topic_id: of its topic, which version 4 has.
    """
    if version == _FLEXIBLE:
        body = pack(">hqi", version, stored.offset, stored.leader_epoch) + encode_compact_string(stored.metadata)
        tags = b"\0" if topic_id is None else b"\1\0" + encode_uvarint(len(topic_id)) + topic_id
        return body + pack(">q", stored.commit_ms) + tags
    if version == _WITH_END or stored.retention_ms >= 0:
        ends_ms = stored.commit_ms + (stored.retention_ms if stored.retention_ms >= 0 else DAY_MS)
        head = pack(">hq", _WITH_END, stored.offset) + encode_string(stored.metadata)
        return head + pack(">qq", stored.commit_ms, ends_ms)
    epoch = pack(">i", stored.leader_epoch) if version >= _WITH_EPOCH else b""
    return pack(">hq", version, stored.offset) + epoch + encode_string(stored.metadata) + pack(">q", stored.commit_ms)


def decode_offset(data: bytes) -> StoredOffset | None:
    """Return a value; None if it cannot be read."""
    reader = Reader(data)
    try:
        version = reader.int16()
        offset = reader.int64()
        epoch = reader.int32() if version >= _WITH_EPOCH else -1
        reader.is_flexible = version >= _FLEXIBLE
        metadata, commit_ms = reader.string(), reader.int64()
        retention_ms = reader.int64() - commit_ms if version == _WITH_END else -1
    except (error, BadRequest):
        return None
    # What the broker has added by itself is no wish of the client.
    return StoredOffset(offset, metadata, epoch, commit_ms, -1 if retention_ms == DAY_MS else retention_ms)
