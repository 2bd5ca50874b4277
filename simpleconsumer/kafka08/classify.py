"""Classifies the answer to a fetch for one partition, Kafka 0.8 and later. Rules, and which failure each prevents:
- A position moves by a message set only, and in it by offsets only that can be right (`offset_order`): a damaged one
  would lead out of the log.
- "Out of range" moves no position: a broker that has just become leader, or is restarting, reports it for positions
  that are good.
- A message that does not fit is asked for with its own size, up to the limit.

Source: kafka.consumer.ConsumerFetcherThread, kafka.server.AbstractFetcherThread (0.8.2.2).

Also reads the heads of the entries of a message set, and no message.

Handles record batches of Kafka 0.11 and later that a broker could not convert to the older message format. Brokers
convert batches for clients of this protocol (down-conversion). Some have no older form:

    control batches of transactions, and batches that compaction has emptied
        1.x sends them as they are; later brokers send a filler, an entry at offset -1 without its bytes
    a batch that is cut off because it is larger than was asked for
        brokers up to 2.x send it as it is, later ones leave it out
    zstd
        an error code

If control batches are at the very position that is asked for, brokers from 2.0 on send the batch after them twice.

Layout of a batch: `int64 first offset, int32 size, int32 epoch, int8 magic, uint32 crc, int16 attributes,
int32 last offset - first offset, 30 bytes of times and producer, int32 count`, then the records.

Source: org.apache.kafka.common.record.DefaultRecordBatch, AbstractRecords (1.1), LazyDownConversionRecords (2.8).
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import Final

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import BrokenFraming, broker_error
from simpleconsumer.kafka08.offset_order import (
    CODEC_MASK,
    ENTRY_OVERHEAD,
    Walk,
    begins_again,
    begins_below,
    end_in_order,
    is_sole_trusted,
    shallow_end,
    trusted_end,
    walk_entries,
)
from simpleconsumer.types import Buffer, FetchedPartition
from zkconsumer_error import ErrorCode

_BATCH_HEAD = Struct(">qi4xb4xhi30xi")
_PLACE = Struct(">qi4xb6xi")
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
    after = None
    start = 0
    while start + _BATCH_HEAD.size <= len(message_set):
        first, size, magic, attributes, last, count = _BATCH_HEAD.unpack_from(message_set, start)
        if magic != _MAGIC or start + _OVERHEAD + size > len(message_set):
            return after if magic == _MAGIC else None
        if size + _OVERHEAD < _BATCH_HEAD.size or not (attributes & _IS_MARK or count == 0):
            return None
        after = max(first + last, position) + 1
        start += _OVERHEAD + size
    return after


def last_offset_of_batch(message_set: Buffer) -> int | None:
    """Return the last offset of the record batch that a set starts with, whole or not; None if it is no such batch."""
    if len(message_set) < _PLACE.size:
        return None
    first, _, magic, last = _PLACE.unpack_from(message_set)
    return first + last if magic == _MAGIC and first >= 0 and last >= 0 else None


def repeated_bytes(message_set: Buffer, position: int) -> int:
    """Return the size of the whole entries at the start of a set that come again right after them; it is usually 0.

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


NOT_LEADER_CODES: Final = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
)
"""Error codes of a broker that does not lead the partition."""
_TOO_FEW: Final = 2
"""With so few entries, a set cannot show whether its first one is the one that was asked for."""
_ENTRY = Struct(">qi")


def classify(
    answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
) -> FetchResult:
    """Return what the answer to a fetch of one partition means.

    Args:
        position: The offset that was asked for.
        asked_bytes: The size that was asked for.
        largest_bytes: The largest size that may ever be asked for.
        version: Of the fetch request. A broker that is asked with a version above 0 may convert its log for the answer
            (down-conversion).
    """
    may_be_converted = version > 0
    code = answer.error_code
    if code:
        return classify_error(code, NOT_LEADER_CODES)
    if not answer.message_set:
        return _nothing_came(answer, position, asked_bytes, largest_bytes, may_be_converted)
    after = behind_marks(answer.message_set, position) if may_be_converted else None
    if after is not None:
        return FetchResult(Outcome.CHUNK, next_offset=after)
    try:
        walk = walk_entries(answer.message_set)
    except BrokenFraming as error:
        return FetchResult(Outcome.BROKEN, reason=str(error))
    if not walk.entries:
        return _does_not_fit(answer, position, asked_bytes, largest_bytes)
    if not may_be_converted and asked_bytes < largest_bytes and _is_doubtful(answer, walk, position, asked_bytes):
        reason = f"the first entry does not have the offset {position}; the entries after it show whether it is damaged"
        return FetchResult(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    result = _usable(answer, walk, position, asked_bytes, may_be_converted)
    if result.outcome is not Outcome.CHUNK or result.next_offset > position:
        return result
    # The answer starts at an entry of damaged offset, far before the position: with more bytes it reaches it.
    reason = f"offset {position} was requested, and messages below {result.next_offset} came"
    if asked_bytes < largest_bytes:
        return FetchResult(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    return FetchResult(Outcome.BACK_OFF, reason=reason)


def classify_error(code: int, not_leader_codes: Collection[int]) -> FetchResult:
    """Return what an error code in the answer to a fetch means.

    Args:
        code: Of the partition; not 0.
        not_leader_codes: Those after which the leader is looked up.
    """
    row = broker_error(code)
    reason = f"{row.name} (code {code}): {row.meaning}"
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchResult(Outcome.CHECK_RANGE, reason=reason)
    return FetchResult(Outcome.FIND_LEADER if code in not_leader_codes else Outcome.BACK_OFF, reason=reason)


def _is_doubtful(answer: FetchedPartition, walk: Walk, position: int, asked_bytes: int) -> bool:
    """Return whether a set holds too few entries to show whether the offset of the first one is damaged."""
    message_set = answer.message_set
    if walk.entries == 1:
        is_cut = len(message_set) >= asked_bytes
        if not is_sole_trusted(message_set, walk.end, position, answer.high_watermark, is_cut=is_cut):
            return True
    return walk.entries <= _TOO_FEW and begins_again(message_set)


def _usable(
    answer: FetchedPartition, walk: Walk, position: int, asked_bytes: int, may_be_converted: bool
) -> FetchResult:
    """Return the result of a set that holds whole entries."""
    message_set, first = answer.message_set, 0
    if may_be_converted:
        first = repeated_bytes(message_set[: walk.end], position)
    elif begins_below(message_set, position):
        found = _ENTRY.unpack_from(message_set)[0]
        reason = f"offset {position} was requested, {found} came first, and {position} does not follow it"
        return FetchResult(Outcome.DAMAGED, next_offset=position + 1, offset=position, reason=reason)
    after = end_in_order(message_set, walk, answer.high_watermark) if walk.tail >= first else None
    if after is not None:
        return FetchResult(Outcome.CHUNK, walk.end, after, first_byte=first)
    end, next_offset = trusted_end(
        message_set, first, max(walk.tail, first), walk.end, position, answer.high_watermark,
        is_cut=not may_be_converted and len(message_set) >= asked_bytes,
    )  # fmt: skip
    if end == first:
        return FetchResult(Outcome.NOTHING)
    return FetchResult(Outcome.CHUNK, end, next_offset, first_byte=first)


def _nothing_came(
    answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, may_be_converted: bool
) -> FetchResult:
    """Return the result of an empty set; a broker of Kafka 3 also sends one where the next batch does not fit."""
    if not may_be_converted or answer.high_watermark <= position:
        return FetchResult(Outcome.NOTHING)
    reason = f"nothing came within {asked_bytes} bytes, though the log ends at {answer.high_watermark}"
    if asked_bytes < largest_bytes:
        return FetchResult(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    reason += ": the next message is larger than that, and it is the limit"
    # Or the log has grown after it was read and before its end was looked up; asking again shows which.
    return FetchResult(
        Outcome.LEFT_OUT, next_offset=position + 1, offset=position, size_bytes=asked_bytes, reason=reason
    )


def _does_not_fit(answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int) -> FetchResult:
    """Return the result of a set without any whole entry."""
    if len(answer.message_set) < _ENTRY.size:
        offset, needed = position, asked_bytes * 2
        size = f"its size is not within the {len(answer.message_set)} bytes that came"
    else:
        offset, value_bytes = _ENTRY.unpack_from(answer.message_set)
        needed = value_bytes + _ENTRY.size
        size = f"it takes {needed} bytes"
    if needed <= asked_bytes:
        # The answer is smaller than was asked for, and than one entry: the log ends in a cut-off message.
        return FetchResult(Outcome.BROKEN, reason=f"{len(answer.message_set)} bytes came of an entry of {needed}")
    reason = f"the message at {offset} does not fit into {asked_bytes} bytes: {size}"
    if needed > largest_bytes and (len(answer.message_set) >= _ENTRY.size or asked_bytes >= largest_bytes):
        reason += f", and the limit is {largest_bytes}"
        last = last_offset_of_batch(answer.message_set)
        offset = offset if last is None else last
        if offset < position or 0 <= answer.high_watermark <= offset:  # damaged
            offset = position
        return FetchResult(Outcome.TOO_LARGE, next_offset=offset + 1, offset=offset, size_bytes=needed, reason=reason)
    return FetchResult(Outcome.GROW, size_bytes=min(needed, largest_bytes), reason=reason)


_HEAD: Final = Struct(">qi5xB")


def bytes_an_offset(message_set: Buffer, offset: int) -> float | None:
    """Return how many bytes of a set one offset takes, None when the set does not show it.

    A set without a whole entry is measured by the head of its first entry.

    Args:
        offset: The requested offset; a wrapper that holds it starts before.
    """
    try:
        size_bytes, after, _ = shallow_end(message_set)
    except BrokenFraming:
        return None
    if after is None:
        if len(message_set) < _ENTRY.size:
            return None
        first, message_bytes = _ENTRY.unpack_from(message_set)
        size_bytes, after = message_bytes + _ENTRY.size, first + 1
        last = last_offset_of_batch(message_set)
        if last is not None:
            offset, after = first, last + 1
    return size_bytes / (after - offset) if after > offset else None


def first_offset_in(message_set: Buffer, offset: int, start: int) -> int:
    """Return the first offset that may be in the entry that holds `offset`.

    A wrapper carries its last offset only; its first one is somewhere after the entry before.

    Args:
        start: First offset that the set may hold.
    """
    position, first = 0, start
    while position + _HEAD.size <= len(message_set):
        last, size, attributes = _HEAD.unpack_from(message_set, position)
        if last >= offset:
            return first if attributes & CODEC_MASK else int(last)
        first = last + 1
        position += ENTRY_OVERHEAD + size
    return first
