"""What the answer to a fetch means for one partition, in Kafka 0.8 and later.

Pure. Rules, and which failure each prevents:
- A position moves by a message set only, and in it by offsets only that can be right (`offset_order`): a damaged one
  would lead out of the log.
- "Out of range" moves no position: a broker that has just become leader, or is restarting, reports it for positions
  that are good.
- A message that does not fit is asked for with its own size, up to the limit.

Source: kafka.consumer.ConsumerFetcherThread, kafka.server.AbstractFetcherThread (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import Final

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import BrokenFraming, broker_error
from simpleconsumer.kafka08.down_conversion import behind_marks, last_offset_of_batch, repeated_bytes
from simpleconsumer.kafka08.offset_order import begins_again, begins_below, end_in_order, is_sole_trusted, trusted_end
from simpleconsumer.kafka08.shallow import Walk, walk_entries
from simpleconsumer.types import FetchedPartition
from zkconsumer_error import ErrorCode

__all__ = ["NOT_LEADER_CODES", "classify", "classify_error"]

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
            (`down_conversion`).
    """
    may_be_converted = version > 0
    code = answer.error_code
    if code:
        return classify_error(code, NOT_LEADER_CODES)
    if not answer.message_set:
        return _nothing_came(answer, position, asked_bytes, largest_bytes, may_be_converted)
    behind = behind_marks(answer.message_set, position) if may_be_converted else None
    if behind is not None:
        return FetchResult(Outcome.CHUNK, next_offset=behind)
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
    behind = end_in_order(message_set, walk, answer.high_watermark) if walk.tail >= first else None
    if behind is not None:
        return FetchResult(Outcome.CHUNK, walk.end, behind, first_byte=first)
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
