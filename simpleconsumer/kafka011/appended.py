"""How the records of a fetched set were appended: in which leader epoch, and whether the broker has set their time.

The heads of the entries say so, of any magic; nothing is decompressed. Pure.

Source: org.apache.kafka.common.record.DefaultRecordBatch, AbstractLegacyRecordBatch (3.9).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.dialect_types import Appended
from simpleconsumer.kafka011.batch_head import HEAD_BYTES, LOG_APPEND_TIME, MAGIC, OVERHEAD
from simpleconsumer.types import Buffer

__all__ = ["appended"]

_BATCH: Final = Struct(">qiibIhi").unpack_from
"""Base offset, size, leader epoch, magic, checksum, attributes, last offset less base offset."""
_MESSAGE: Final = Struct(">qi4xbB").unpack_from
"""Of the magic before: offset, size, magic, attributes."""
_MESSAGE_HEAD: Final = 18


def appended(data: Buffer) -> list[Appended]:
    """Return how the records of a set were appended, up to what is no whole head; neighbours that are alike are one."""
    found: list[Appended] = []
    position, end = 0, len(data)
    while position + _MESSAGE_HEAD <= end:
        epoch: int | None = None
        last, size, magic, attributes = _MESSAGE(data, position)
        if magic == MAGIC:
            if position + HEAD_BYTES > end:
                break
            base, size, leader_epoch, _, _, attributes, delta = _BATCH(data, position)
            last, epoch = base + delta, None if leader_epoch < 0 else leader_epoch
        has_append_time = magic > 0 and bool(attributes & LOG_APPEND_TIME)
        if found and found[-1][1:] == (epoch, has_append_time):
            found.pop()
        found.append(Appended(last, epoch, has_append_time))
        if size <= 0:
            break
        position += OVERHEAD + size
    return found
