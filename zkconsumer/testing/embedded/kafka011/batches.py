"""Handles produced record batches as a broker does: checks them, and gives them their offsets. Pure.

The records of a batch stay as they are, compressed or not: base offset and leader epoch stand outside of its checksum.

Source: kafka.log.LogValidator, org.apache.kafka.common.requests.ProduceRequest (2.8).
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from simpleconsumer import codecs
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.batch_head import (
    CODEC_MASK,
    HEAD_BYTES,
    IS_CONTROL,
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    SMALLEST_SIZE,
    BatchHead,
    has_batch_checksum,
    read_head,
)
from simpleconsumer.kafka011.varints import read_varint, read_varlong
from zkconsumer.testing.embedded.disk.messages import Bytes, Refusal
from zkconsumer_error import ErrorCode

UNSUPPORTED_CODEC: Final = 76
_MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_EPOCH_AT: Final = 12
_MARKER = Struct(">hh")
_ABORT: Final = 0
ZSTD: Final = 4


def check_batch(data: Bytes, max_message_bytes: int) -> BatchHead:
    """Return the head of the only batch of a produced set, whose checksum is right and whose records are whole.

    Raises:
        Refusal: 2 it is cut off, or its checksum is wrong; 10 it is too large; 87 it is no single batch, or holds
            something that no producer sends.
    """
    if len(data) < HEAD_BYTES:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE if data else ErrorCode.INVALID_RECORD, f"a batch of {len(data)} bytes")
    if data[MAGIC_AT] != MAGIC:
        raise Refusal(
            ErrorCode.INVALID_RECORD, f"magic {data[MAGIC_AT]}: from version 3 on Produce takes record batches alone"
        )
    head = read_head(data, 0)
    end = head.size + OVERHEAD
    if head.size < SMALLEST_SIZE or end > len(data):
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch says {end} bytes, and {len(data)} came")
    if end < len(data):
        raise Refusal(ErrorCode.INVALID_RECORD, "more than one batch in a set")
    if end > max_message_bytes:
        raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {end} bytes, at most {max_message_bytes} are stored")
    if not has_batch_checksum(data, 0, end):
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    if head.attributes & IS_CONTROL or head.records < 1 or head.records != head.last_delta + 1:
        raise Refusal(
            ErrorCode.INVALID_RECORD, f"{head.records} records up to {head.last_delta}, attributes {head.attributes}"
        )
    _check_records(head, memoryview(data)[HEAD_BYTES:end])
    return head


def _check_records(head: BatchHead, area: Bytes) -> None:
    """Return if the records of a batch are as many as it says, one offset each.

    Raises:
        Refusal: 87.
    """
    codec = head.attributes & CODEC_MASK
    if codec > ZSTD:
        raise Refusal(ErrorCode.INVALID_RECORD, f"codec {codec} is unknown")
    try:
        records = codecs.decompress(codec, area, _MAX_INFLATED_BYTES) if codec else bytes(area)
        position = 0
        for number in range(head.records):
            size, start = read_varint(records, position)
            _, behind = read_varlong(records, start + 1)
            delta, _ = read_varint(records, behind)
            position = start + size
            if size < 0 or position > len(records) or delta != number:
                raise Refusal(ErrorCode.INVALID_RECORD, f"record {number} of {head.records} has offset delta {delta}")
    except (DecodeError, IndexError) as reason:
        raise Refusal(ErrorCode.INVALID_RECORD, f"the records of the batch cannot be read: {reason}") from reason
    if position != len(records):
        raise Refusal(ErrorCode.INVALID_RECORD, f"{len(records) - position} bytes behind the last record")


def numbered(data: Bytes, base_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch with the offset of its first record, and the epoch of the leader that stores it."""
    stored = bytearray(data)
    _OFFSET.pack_into(stored, 0, base_offset)
    _EPOCH.pack_into(stored, _EPOCH_AT, leader_epoch)
    return stored


def is_abort(batch: Bytes) -> bool:
    """Return whether a control batch is the marker of an aborted transaction."""
    try:
        _, position = read_varint(batch, HEAD_BYTES)
        _, position = read_varlong(batch, position + 1)
        _, position = read_varint(batch, position)
        _, position = read_varint(batch, position)
        return bool(_MARKER.unpack_from(batch, position)[1] == _ABORT)
    except (DecodeError, IndexError, error):
        return False
