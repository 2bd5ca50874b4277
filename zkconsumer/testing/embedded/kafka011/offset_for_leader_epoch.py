"""OffsetForLeaderEpoch: where an epoch of a partition's leader ended.

Source: kafka.server.KafkaApis.handleOffsetForLeaderEpochRequest (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.kafka011.epochs import UNKNOWN_EPOCH
from zkconsumer.testing.embedded.kafka011.writing import by_topic
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader, TopicPartition

__all__ = ["API"]


class Wanted(NamedTuple):
    """The epoch of the leader as the client knows it (-1: not known), and the one that is asked for."""

    current: int
    epoch: int


def _read(reader: Reader, version: int) -> dict[TopicPartition, Wanted]:
    if version >= 3:
        reader.int32()  # replica id
    return reader.partitions(lambda: Wanted(reader.int32() if version >= 2 else UNKNOWN_EPOCH, reader.int32()))


def _answer(asked: Asked[dict[TopicPartition, Wanted]]) -> list[Part]:
    throttle = pack(">i", 0) if asked.version >= 2 else b""
    return [throttle + by_topic((where, _row(asked, where, wanted)) for where, wanted in asked.body.items())]


def _row(asked: Asked[dict[TopicPartition, Wanted]], where: TopicPartition, wanted: Wanted) -> bytes:
    code, epoch, end = 0, UNKNOWN_EPOCH, -1
    try:
        refuse(asked.errors, where)
        log = asked.host.log(*where)
        log.require_epoch(wanted.current)
        epoch, end = log.epoch_end(wanted.epoch)
    except Refusal as refusal:
        code = refusal.code
    return pack(">hi", code, where[1]) + (pack(">i", epoch) if asked.version >= 1 else b"") + pack(">q", end)


API: Final = ServedApi(apis.OFFSET_FOR_LEADER_EPOCH, "offset_for_leader_epoch", range(4), _read, _answer, list)
