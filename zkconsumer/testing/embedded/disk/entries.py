"""Offsets of the entries of a log: messages and wrappers of magic 0 and 1, record batches of magic 2. Pure.

A message or wrapper has the offset of its last message, a batch that of its first one and how many more it takes. The
magic stands at the same place in all of them.

Source: org.apache.kafka.common.record.RecordBatch, DefaultRecordBatch (2.8).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.kafka011.batch_head import MAGIC, MAGIC_AT
from zkconsumer.testing.embedded.disk.messages import Bytes

OFFSETS_BYTES: Final = 27
"""From how many bytes of an entry its offsets are known, whatever its magic."""
_OFFSET = Struct(">q")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23


def last_offset(data: Bytes, at: int) -> int:
    """Return the last offset of the entry at a position, of which `OFFSETS_BYTES` are there, or all."""
    offset = int(_OFFSET.unpack_from(data, at)[0])
    if at + OFFSETS_BYTES <= len(data) and data[at + MAGIC_AT] == MAGIC:
        return offset + int(_LAST_DELTA.unpack_from(data, at + _LAST_DELTA_AT)[0])
    return offset
