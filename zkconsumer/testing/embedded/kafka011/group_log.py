"""The groups and offsets in one log of `__consumer_offsets`: read once, then kept up to date by what is stored.

The newest record of a key counts, and one without a value deletes it; the topic is never compacted here.

Source: kafka.coordinator.group.GroupMetadataManager.loadGroupsAndOffsets (2.8).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from zkconsumer.testing.embedded.kafka011.group_records import (
    GroupRecord,
    OffsetKey,
    StoredOffset,
    decode_group,
    decode_group_key,
    decode_offset,
    decode_offset_key,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from zkconsumer.testing.embedded.kafka011.log import BatchLog, append_records, records_from
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import TopicPartition


class RecordFormats(NamedTuple):
    """The formats in which a version of Kafka writes.

    Attributes:
        magic: of entries.
        offset_version: of values of offsets.
        group_version: of values of groups.
    """

    magic: int
    offset_version: int
    group_version: int


def now_ms() -> int:
    """Return the time of now for records."""
    return time.time_ns() // 1_000_000


class GroupLog:
    """The groups and offsets in one log.

    Threads: one at a time.

    Attributes:
        log: the log.
        groups: the records of groups, by name.
    """

    def __init__(self, log: BatchLog, formats: RecordFormats) -> None:
        """Read a log.

        Raises:
            Refusal: 6 it was closed.
        """
        self.log = log
        self.groups: dict[str, GroupRecord] = {}
        self._formats = formats
        self._offsets: dict[str, dict[TopicPartition, StoredOffset]] = {}
        for message in records_from(log, OFFSETS_TOPIC, log.start_offset):
            self._take(bytes(message.key or b""), None if message.value is None else bytes(message.value))

    def _take(self, key: bytes, value: bytes | None) -> None:
        where, group = decode_offset_key(key), decode_group_key(key)
        if where is not None:
            found = None if value is None else decode_offset(value)
            self._remember(where, found)
        elif group is not None:
            record = None if value is None else decode_group(value)
            self._remember_group(group, record)

    def _remember(self, where: OffsetKey, stored: StoredOffset | None) -> None:
        offsets = self._offsets.setdefault(where.group, {})
        if stored is not None:
            offsets[where.topic, where.partition] = stored
            return
        offsets.pop((where.topic, where.partition), None)
        if not offsets:
            del self._offsets[where.group]

    def _remember_group(self, group: str, record: GroupRecord | None) -> None:
        if record is None:
            self.groups.pop(group, None)
        else:
            self.groups[group] = record

    # ---- what is stored

    @property
    def names(self) -> set[str]:
        """The groups of which there is anything."""
        return {*self.groups, *self._offsets}

    def offsets(self, group: str) -> Mapping[TopicPartition, StoredOffset]:
        """Return the offsets of a group."""
        return self._offsets.get(group, {})

    # ---- storing

    def store_offsets(
        self, group: str, offsets: Mapping[TopicPartition, StoredOffset], topic_ids: Mapping[str, bytes]
    ) -> None:
        """Append the offsets of a commit, which come into the log together.

        Args:
            topic_ids: of the topics that have one.

        Raises:
            Refusal: as for `append_records`.
        """
        stamped = {OffsetKey(group, *where): each._replace(commit_ms=now_ms()) for where, each in offsets.items()}
        version = self._formats.offset_version
        self._append([
            (encode_offset_key(where), encode_offset(each, version, topic_ids.get(where.topic)))
            for where, each in stamped.items()
        ])  # fmt: skip
        for where, each in stamped.items():
            self._remember(where, each)

    def store_group(self, group: str, record: GroupRecord) -> None:
        """Append the record of a group.

        Raises:
            Refusal: as for `append_records`.
        """
        self._append([(encode_group_key(group), encode_group(record, self._formats.group_version))])
        self.groups[group] = record

    def forget_group(self, group: str, *, offsets: Collection[TopicPartition] = ()) -> None:
        """Append what deletes the record of a group, if there is one, and offsets of it.

        Raises:
            Refusal: as for `append_records`.
        """
        records: list[tuple[bytes, bytes | None]] = [
            (encode_offset_key(OffsetKey(group, *where)), None) for where in offsets
        ]
        if group in self.groups:
            records.append((encode_group_key(group), None))
        if records:
            self._append(records)
        for key, _ in records:
            self._take(key, None)

    def _append(self, records: list[tuple[bytes, bytes | None]] | list[tuple[bytes, bytes]]) -> None:
        append_records(self.log, records, now_ms(), self._formats.magic)
