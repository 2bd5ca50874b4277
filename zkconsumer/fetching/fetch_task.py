"""A partition to fetch, as it is passed from the coordinator to a fetcher, and from one fetcher to the next."""

from __future__ import annotations

from collections.abc import Callable

from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.fetching.fetch_meter import FetchMeter
from zkconsumer.fetching.fetch_state import FetchState, Need
from zkconsumer.fetching.partition_queue import PartitionQueue

__all__ = ["FetchTask"]


class FetchTask:
    """One partition to fetch, or whose log ends are asked for.

    Attributes:
        queue: Where the messages go; None if only ends of the log are asked for.
        policy: `smallest` or `largest`: which end of the log to ask for, and where to continue if the position is
            outside the log. With `stop` nothing is read any more then, and the reader gets the error `OutOfLog`.
        resolved: Called with the end, or the two ends, that were asked for.
        since_ms: Where a partition of Kafka 0.7 starts, instead of at an end of its log: with what was written to it
            since then (milliseconds since 1970); None: at the end that `policy` names.
        is_cancelled: True when the result is not needed any more.
        is_placed: True while a fetcher has it.
        refusal: Why nothing of it may be delivered; None if it may.
        meter: Counts what is fetched; None if nothing is delivered.
    """

    __slots__ = ("is_cancelled", "is_placed", "meter", "policy", "queue", "refusal", "resolved", "since_ms", "state")

    def __init__(
        self,
        state: FetchState,
        queue: PartitionQueue | None,
        policy: str,
        resolved: Callable[..., None] | None = None,
        since_ms: int | None = None,
    ) -> None:
        self.state = state
        self.queue = queue
        self.policy = policy
        self.resolved = resolved
        self.since_ms = since_ms
        self.is_cancelled = False
        self.is_placed = False
        self.refusal: str | None = None
        self.meter: FetchMeter | None = None

    @property
    def is_wanted(self) -> bool:
        """False once the ownership has ended, or the partition was given up."""
        return not self.is_cancelled and (self.queue is None or (self.queue.is_live and self.queue.failure is None))

    @property
    def ends_needed(self) -> tuple[int, ...]:
        """The ends of its log that must be known before it can be fetched, as times of an offset request."""
        match self.state.need:
            case Need.RESOLVE:
                return (EARLIEST,) if self.policy == "smallest" else (LATEST,)
            case Need.END_CHECK:
                return (LATEST,)
            case Need.BOUNDS | Need.RANGE_CHECK:
                return (EARLIEST, LATEST)
            case _:
                return ()
