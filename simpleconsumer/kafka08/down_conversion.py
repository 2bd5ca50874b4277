"""Handles record batches of Kafka 0.11 and later that a broker could not convert to the older message format.

Pure. Brokers convert batches for clients of this protocol (down-conversion). Some have no older form:

    control batches of transactions, and batches that compaction has emptied
        1.x sends them as they are; later brokers send a filler, an entry at offset -1 without its bytes
    a batch that is cut off because it is larger than was asked for
        brokers up to 2.x send it as it is, later ones leave it out
    zstd
        an error code

If control batches are at the very position that is asked for, brokers from 2.0 on send the batch behind them twice.

Layout of a batch: `int64 first offset, int32 size, int32 epoch, int8 magic, uint32 crc, int16 attributes,
int32 last offset - first offset, 30 bytes of times and producer, int32 count`, then the records.

Source: org.apache.kafka.common.record.DefaultRecordBatch, AbstractRecords (1.1), LazyDownConversionRecords (2.8).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.kafka08.message_set import shallow_end
from simpleconsumer.types import Buffer

__all__ = ["behind_marks", "last_offset_of_batch", "repeated_bytes"]

_HEAD = Struct(">qi4xb4xhi30xi")
_PLACE = Struct(">qi4xb6xi")
_ENTRY = Struct(">qi")
_MAGIC: Final = 2
_IS_MARK: Final = 0x20
_OVERHEAD: Final = 12
_FILLER_OFFSET: Final = -1
_ATTRIBUTES_AT: Final = 17
_CODEC_MASK: Final = 7


def behind_marks(message_set: Buffer, position: int) -> int | None:
    """Return where to fetch next if a message set holds no messages; None if it may hold some.

    Args:
        position: The offset that was asked for.
    """
    if len(message_set) < _ENTRY.size:
        return None
    offset, size = _ENTRY.unpack_from(message_set)
    if offset == _FILLER_OFFSET and size + _OVERHEAD > len(message_set):
        return position + 1  # the batch at the position is whole, or the answer would be another one
    behind = None
    start = 0
    while start + _HEAD.size <= len(message_set):
        first, size, magic, attributes, last, count = _HEAD.unpack_from(message_set, start)
        if magic != _MAGIC or start + _OVERHEAD + size > len(message_set):
            return behind if magic == _MAGIC else None
        if size + _OVERHEAD < _HEAD.size or not (attributes & _IS_MARK or count == 0):
            return None
        behind = max(first + last, position) + 1
        start += _OVERHEAD + size
    return behind


def last_offset_of_batch(message_set: Buffer) -> int | None:
    """Return the last offset of the record batch that a set starts with, whole or not; None if it is no such batch."""
    if len(message_set) < _PLACE.size:
        return None
    first, _, magic, last = _PLACE.unpack_from(message_set)
    return first + last if magic == _MAGIC and first >= 0 and last >= 0 else None


def repeated_bytes(message_set: Buffer, position: int) -> int:
    """Return the size of the whole entries at the start of a set that come again right behind; it is usually 0.

    Args:
        position: The offset that was asked for.
    """
    if len(message_set) <= _ATTRIBUTES_AT:
        return 0
    offset, size = _ENTRY.unpack_from(message_set)
    end = _OVERHEAD + size
    if message_set[_ATTRIBUTES_AT] & _CODEC_MASK:
        return end if message_set[:end] == message_set[end : 2 * end] else 0
    if offset <= position:  # the batch at the position was sent, so no control batch is there
        return 0
    data = bytes(message_set)
    start = data.find(data[:end], end)
    return start if start > 0 and shallow_end(data[:start])[0] == start else 0
