"""What the lanes of a mirror have in common, and what each of them has done.

Threads: figures are written by the thread of their lane, and read by any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.lanes.lane import FRESH_S
from zkconsumer.mirror.pieces import BatchLimits
from zkconsumer_error import ZkConsumerError

SETTLE_S: Final = FRESH_S + 10.0
"""A process that was frozen sends nothing after a minute without an answer, and what it sent before arrives by then."""


def _no_id(lane: Lane) -> str:
    raise LookupError(f"lane {lane.place} has no transactional id")


def _cuts_nothing(name: TopicPartition, offset: int) -> None:
    """Leave the start of a log where it is."""


@dataclass(frozen=True)
class LaneSettings:
    """What the lanes of a mirror have in common.

    Attributes:
        source, target: The two clusters.
        new_producer_id: Returns a producer id of the target.
        limits: How large batches become.
        skips_losses: Goes on after what the source has lost, instead of stopping the lane.
        incarnations: Topic of the source -> which topic of this name it is.
        forgotten_after_ms: As for `LaneMachine`.
        settle_s: See `SETTLE_S`.
        has_numbers: Whether the target keeps sequence numbers, as Kafka 0.11 and later do.
        compacted: Topics of the source that are compacted.
        transactional_id: Returns the one of a lane.
        preserves_offsets: Records get the offsets of the source; otherwise the next ones of the target.
        pins_producers: Batches belong to transactions.
        cut: Has the log of a partition of the target start at an offset.
        take_bytes: Waits until so many bytes may be copied, as the rate is limited; ends when the event is set.
    """

    source: Side
    target: Side
    new_producer_id: Callable[[], ProducerId]
    limits: BatchLimits
    skips_losses: bool
    incarnations: Mapping[str, str]
    forgotten_after_ms: int
    compacted: Collection[str]
    take_bytes: Callable[[int, threading.Event], None]
    transactional_id: Callable[[Lane], str] = _no_id
    preserves_offsets: bool = False
    pins_producers: bool = False
    cut: Callable[[TopicPartition, int], None] = _cuts_nothing
    settle_s: float = SETTLE_S
    has_numbers: bool = True


def lag_in_ms(lag: int | None, oldest_ms: int, now_s: float) -> int | None:
    """Return how old the oldest record is that is not copied yet, in milliseconds.

    Args:
        lag: How many offsets are to be copied; None if that is not known.
        oldest_ms: The time of that record; -1 if it has none, or is not known.
        now_s: Seconds since 1970.

    Returns:
        0 only if nothing is to be copied: a record with a time of the future is 1 ms old. None: not known.
    """
    if not lag:
        return lag
    return None if oldest_ms < 0 else max(1, int(now_s * 1000) - oldest_ms)


@dataclass
class LaneFigures:
    """What a lane has done since it was started, and how it is.

    Attributes:
        records, size_bytes: Copied, and stored on the target.
        whole_batches, encoded_batches: How they were copied.
        position: The next offset of the source; -1 before that is known.
        source_end: Where the source's log ends; -1 before that is known.
        oldest_ms: The time of the first record in hand that is not stored, or of the last batch that was, if none is in
            hand; -1 if it has none.
        is_guarded: Whether the target's brokers still know the producer, by the times of the last records.
        waits: How often an error has delayed it.
        trouble: What delays it now, a clause.
        failure: Why it copies no further; None while it does.
    """

    records: int = 0
    size_bytes: int = 0
    whole_batches: int = 0
    encoded_batches: int = 0
    position: int = -1
    source_end: int = -1
    oldest_ms: int = -1
    is_guarded: bool = True
    waits: int = 0
    trouble: str = ""
    failure: ZkConsumerError | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are to be copied; None if that is not known."""
        return max(0, self.source_end - self.position) if min(self.position, self.source_end) >= 0 else None

    @property
    def lag_ms(self) -> int | None:
        """How old the oldest record is that is not copied, at most; 0 only without a lag, None if it is not known."""
        return lag_in_ms(self.lag, self.oldest_ms, time.time())
