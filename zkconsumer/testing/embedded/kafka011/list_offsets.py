"""ListOffsets: ends of logs, and the first message at or after a time; version 0 lists the starts of segments.

Source: kafka.server.KafkaApis.handleListOffsetRequest, kafka.log.Log.fetchOffsetByTimestamp,
kafka.cluster.Partition.fetchOffsetForTimestamp (2.8): what is found behind the end for the client counts as not found.
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.epochs import UNKNOWN_EPOCH
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.log import EARLIEST, LATEST
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]

_ANY_EPOCH: Final = -1


class Wanted(NamedTuple):
    """What is asked of a partition.

    Attributes:
        time_ms: milliseconds since 1970, -1 for the end, -2 for the start.
        most: of version 0, how many offsets.
        epoch: of the leader as the client knows it; -1: not known.
    """

    time_ms: int
    most: int = 1
    epoch: int = _ANY_EPOCH


class ListOffsets(NamedTuple):
    """By partition; `is_committed`: the log ends for the client where the first open transaction begins."""

    wanted: dict[TopicPartition, Wanted]
    is_committed: bool


def _read(reader: Reader, version: int) -> ListOffsets:
    def wanted() -> Wanted:
        epoch = reader.int32() if version >= 4 else _ANY_EPOCH
        time_ms = reader.int64()
        return Wanted(time_ms, reader.int32() if version == 0 else 1, epoch)

    reader.int32()  # replica id
    is_committed = bool(reader.int8()) if version >= 2 else False
    return ListOffsets(reader.partitions(wanted), is_committed)


def _answer(asked: Asked[ListOffsets]) -> list[Part]:
    rows = ((where, _row(asked, where, wanted)) for where, wanted in asked.body.wanted.items())
    throttle = pack(">i", 0) if asked.version >= 2 else b""
    return [throttle + by_topic(rows)]


def _row(asked: Asked[ListOffsets], where: TopicPartition, wanted: Wanted) -> bytes:
    code, stamp, offset, epoch = 0, -1, -1, UNKNOWN_EPOCH
    offsets: list[int] = []
    try:
        refuse(asked.errors, where)
        if asked.version == 0:
            offsets = asked.host.log(*where).offsets_before(wanted.time_ms, wanted.most)
        else:
            stamp, offset, epoch = _found(asked, where, wanted)
    except Refusal as refusal:
        code = refusal.code
    if asked.version == 0:
        return pack(f">ihi{len(offsets)}q", where[1], code, len(offsets), *offsets)
    row = pack(">ihqq", where[1], code, stamp, offset)
    return row + pack(">i", epoch) if asked.version >= 4 else row


def _found(asked: Asked[ListOffsets], where: TopicPartition, wanted: Wanted) -> tuple[int, int, int]:
    """Timestamp, offset and epoch."""
    log = asked.host.log(*where)
    log.require_epoch(wanted.epoch)
    if wanted.time_ms == LATEST:
        end = log.last_stable_offset if asked.body.is_committed else log.end_offset
        return -1, end, log.leader_epoch
    if wanted.time_ms == EARLIEST:
        return -1, log.start_offset, log.epoch_at(log.start_offset)
    found = log.at_time(wanted.time_ms)
    if found is None or (asked.body.is_committed and found.offset >= log.last_stable_offset):
        return -1, -1, UNKNOWN_EPOCH
    return found.timestamp_ms, found.offset, log.epoch_at(found.offset)


API: Final = ServedApi(
    apis.LIST_OFFSETS, "offsets", range(6), _read, _answer, lambda body: list(body.wanted)
)
