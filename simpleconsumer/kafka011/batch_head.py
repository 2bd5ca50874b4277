"""The head of a record batch: what is known of its records before any of them is read.

    at   0  int64   base offset: that of the first record, also when compaction has removed it
         8  int32   size of what follows
        12  int32   leader epoch, which the broker sets
        16  int8    magic: 2. It is at the same place in the entries of magic 0 and 1
        17  uint32  CRC-32C of everything behind it
        21  int16   attributes: codec in bits 0 to 2; 3: log append time; 4: transactional; 5: control
        23  int32   last offset - base offset, also when compaction has removed that record
        27  int64   base timestamp
        35  int64   largest timestamp; with log append time, that of all records
        43  int64   producer id; int16 producer epoch; int32 base sequence; -1 each without idempotence
        57  int32   number of records, 0 in a batch that compaction has emptied
        61          the records; with a codec these alone are compressed, as one stream

Neither base offset, size, epoch nor magic is covered by the checksum.

Source: org.apache.kafka.common.record.DefaultRecordBatch (1.1, 3.9).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from simpleconsumer.crc32c import crc32c
from simpleconsumer.types import Buffer

__all__ = [
    "CODEC_MASK",
    "CRC_BODY_AT",
    "HEAD",
    "HEAD_BYTES",
    "IS_CONTROL",
    "IS_TRANSACTIONAL",
    "LOG_APPEND_TIME",
    "MAGIC",
    "MAGIC_AT",
    "OVERHEAD",
    "SMALLEST_SIZE",
    "BatchHead",
    "has_batch_checksum",
    "read_head",
]

MAGIC: Final = 2
MAGIC_AT: Final = 16
OVERHEAD: Final = 12
"""How many bytes of a batch its size does not count."""
CRC_BODY_AT: Final = 21
HEAD: Final = Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = HEAD.size
SMALLEST_SIZE: Final = HEAD_BYTES - OVERHEAD
CODEC_MASK: Final = 7
LOG_APPEND_TIME: Final = 8
IS_TRANSACTIONAL: Final = 16
IS_CONTROL: Final = 32
_CRC = Struct(">I")
_CRC_AT: Final = 17


class BatchHead(NamedTuple):
    """The fields of the head, in their order."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_delta


def read_head(buffer: Buffer, position: int) -> BatchHead:
    """Return the head at a position; raises struct.error if it is not whole."""
    return BatchHead._make(HEAD.unpack_from(buffer, position))


def has_batch_checksum(buffer: Buffer, position: int, end: int) -> bool:
    """Return whether an entry has the checksum of a record batch; if so it is one, whatever its magic says."""
    if end - position < HEAD_BYTES:
        return False
    stated = _CRC.unpack_from(buffer, position + _CRC_AT)[0]
    return bool(crc32c(memoryview(buffer)[position + CRC_BODY_AT : end]) == stated)
