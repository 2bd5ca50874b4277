"""The status of one partition in delivery: position, queue, leader, rates."""

from __future__ import annotations

from dataclasses import dataclass

from simpleconsumer.types import Broker
from zkconsumer.fetching.fetch_meter import FetchMeter
from zkconsumer.fetching.fetch_task import FetchTask
from zkconsumer.fetching.partition_queue import PartitionQueue

__all__ = ["PartitionStatus", "status_of"]


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The state of the delivery of one partition.

    Attributes:
        position: Next offset that is not done.
        fetch_offset: Next offset to fetch.
        high_watermark: Log end as the leader last reported it, None before.
        queued_chunks, queued_bytes: Waiting for the stream, the chunk that is being read included.
        leader: Broker that it is fetched from; None while the leader is unknown.
        last_error: What prevents fetching, None when nothing does.
        answer_age_s: Seconds since the last good answer of a leader, None before the first.
        is_paused: Whether the application paused it.
        lost: The offsets behind which its log was cut off, in this ownership, and up to which it had been read.
        fetched_messages, fetched_bytes: By this member so far, in all ownerships.
        messages_per_s, bytes_per_s: Fetched lately.
    """

    position: int
    fetch_offset: int
    high_watermark: int | None
    queued_chunks: int
    queued_bytes: int
    leader: Broker | None
    last_error: str | None
    answer_age_s: float | None
    is_paused: bool = False
    lost: range = range(0)
    fetched_messages: int = 0
    fetched_bytes: int = 0
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0


def status_of(
    task: FetchTask, queue: PartitionQueue, meter: FetchMeter, now: float, is_paused: bool
) -> PartitionStatus:
    """Return the status of a partition.

    Args:
        task, queue, meter: What fetches it, its queue, and its rates.
        now: The clock.
        is_paused: Whether the application paused it.
    """
    state, rates = task.state, meter.rates(now)
    chunks = list(queue.chunks)
    return PartitionStatus(
        position=queue.done_position(),
        fetch_offset=state.offset,
        high_watermark=state.high_watermark if state.high_watermark >= 0 else None,
        queued_chunks=len(chunks),
        queued_bytes=sum(chunk.size_bytes for chunk in chunks),
        leader=state.leader if task.is_placed else None,
        last_error=queue.failure or state.holds_up(now),
        answer_age_s=None if state.answered_at is None else now - state.answered_at,
        is_paused=is_paused,
        lost=state.lost,
        fetched_messages=meter.messages,
        fetched_bytes=meter.size_bytes,
        messages_per_s=round(rates[0], 3),
        bytes_per_s=round(rates[1], 3),
    )
