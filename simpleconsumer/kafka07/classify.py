"""What the answer to a fetch means for one partition, in Kafka 0.7.

Pure. Rules, and which failure each prevents:
- A position moves by whole entries only, by the bytes that they take: nobody could fetch from any other position.
- "Out of range" moves no position: a broker that comes back with another log reports it for positions that are good.
- A first entry that is cut off is asked for with the size that it names; while that size itself is cut off, with twice
  as much. At the end of a set a cut off entry is no error.
- A broker sends as many bytes as it is asked for, unless its segment ends, and segments end with an entry. So an entry
  that is cut off in an answer that is shorter shows that the position is not the start of an entry, or that the log is
  damaged. Asking for more would never end.
- A head that no message can have is reported as such, and not taken for a huge message: with `skip`, a consumer would
  move its position by the size that it names, out of the log.

Source: kafka.consumer.FetcherRunnable, PartitionTopicInfo, kafka.message.ByteBufferMessageSet, FileMessageSet,
kafka.server.KafkaRequestHandlers (0.7.2).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.entry_walk import walk_entries
from simpleconsumer.errors import BrokenFraming, broker_error
from simpleconsumer.kafka07.message_set import LAYOUT, with_positions
from simpleconsumer.primitives import MAX_FRAME_BYTES
from simpleconsumer.types import Buffer, FetchedPartition

__all__ = ["NOT_LEADER_CODES", "classify"]

_OUT_OF_RANGE: Final = 1
_WRONG_PARTITION: Final = 3
NOT_LEADER_CODES: Final = frozenset((_WRONG_PARTITION,))
"""Error codes of a broker that does not have the partition."""
_NEWEST_MAGIC: Final = 1
_MISPLACED: Final = "the position is not the start of an entry, or the log is damaged"


def classify(answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int) -> FetchResult:
    """Return what the answer to a fetch of one partition means.

    Args:
        position: The position that was asked for.
        asked_bytes: The size that was asked for.
        largest_bytes: The largest size that may ever be asked for.
    """
    code = answer.error_code
    if code == _WRONG_PARTITION:
        return FetchResult(Outcome.FIND_LEADER, reason=_no_partition(answer))
    if code:
        row = broker_error(code)
        outcome = Outcome.CHECK_RANGE if code == _OUT_OF_RANGE else Outcome.BACK_OFF
        return FetchResult(outcome, reason=f"{row.name} (code {code}): {row.meaning}")
    data = with_positions(answer.message_set, position)
    if not len(data):
        return FetchResult(Outcome.NOTHING)
    try:
        walk = walk_entries(data, LAYOUT)
    except BrokenFraming as error:
        return FetchResult(Outcome.BROKEN, reason=f"{error}: {_MISPLACED}")
    if not walk.entries:
        return _does_not_fit(data, position, asked_bytes, largest_bytes)
    return FetchResult(Outcome.CHUNK, walk.end, position + walk.end, last_byte=walk.last, entries=walk.entries)


def _no_partition(answer: FetchedPartition) -> str:
    """Return that a broker does not have a partition; of a name `broker-partition`, which broker, and what names it."""
    reason = f"WrongPartition (code {answer.error_code})"
    if isinstance(answer.partition, int):
        return f"{reason}: the broker has no partition {answer.partition} of the topic"
    broker, _, number = answer.partition.partition("-")
    node = f"/brokers/topics/{answer.topic}/{broker}"
    return f"{reason}: broker {broker} has no partition {number} of the topic, although {node} counts it"


def _does_not_fit(data: Buffer, position: int, asked_bytes: int, largest_bytes: int) -> FetchResult:
    """Return the result of a set without any whole entry."""
    size_is_known = len(data) >= LAYOUT.overhead
    needed = LAYOUT.size.unpack_from(data)[0] + LAYOUT.overhead if size_is_known else 2 * asked_bytes
    broken = _why_broken(data, asked_bytes, needed)
    if broken is not None:
        return FetchResult(Outcome.BROKEN, reason=f"{broken}: {_MISPLACED}")
    size = f"it takes {needed} bytes" if size_is_known else f"its size is not within the {len(data)} bytes that came"
    reason = f"the entry at {position} does not fit into {asked_bytes} bytes: {size}"
    if needed <= largest_bytes or (not size_is_known and asked_bytes < largest_bytes):
        return FetchResult(Outcome.GROW, size_bytes=min(needed, largest_bytes), reason=reason)
    reason += f", and the limit is {largest_bytes}"
    behind = position + needed if size_is_known else position
    return FetchResult(Outcome.TOO_LARGE, next_offset=behind, offset=position, size_bytes=needed, reason=reason)


def _why_broken(data: Buffer, asked_bytes: int, needed: int) -> str | None:
    """Return why the only entry of a set, which is cut off, can be none; None if it can be one."""
    if len(data) < asked_bytes:
        return f"{len(data)} bytes of {asked_bytes} came, in the middle of an entry"
    if len(data) > LAYOUT.overhead and data[LAYOUT.overhead] > _NEWEST_MAGIC:
        return f"the entry has magic {data[LAYOUT.overhead]} (0 and 1 are known)"
    if needed > MAX_FRAME_BYTES:
        return f"the entry takes {needed} bytes, more than any answer can have"
    return None
