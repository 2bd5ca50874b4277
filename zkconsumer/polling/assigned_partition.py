"""One assigned partition: the machine of its position, whether it may be fetched, and what is known of its log.

Pure.
"""

from __future__ import annotations

from zkconsumer.polling.partition_position import PartitionPosition, PositionState

__all__ = ["AssignedPartition"]


class AssignedPartition:
    """One assigned partition.

    Attributes:
        machine: Its position.
        is_paused: The application has paused it.
        is_pending_revocation: It is kept until the listener has been called, and fetched no more.
        log_start: First offset of its log; None while it is not known.
        high_watermark: The offset behind the last record that all replicas have; None while it is not known.
        last_stable: The offset of the first record of an open transaction, or `high_watermark`; None likewise.
    """

    __slots__ = ("high_watermark", "is_paused", "is_pending_revocation", "last_stable", "log_start", "machine")

    def __init__(self) -> None:
        self.machine = PartitionPosition()
        self.is_paused = False
        self.is_pending_revocation = False
        self.log_start: int | None = None
        self.high_watermark: int | None = None
        self.last_stable: int | None = None

    @property
    def is_fetchable(self) -> bool:
        """Whether it has a valid position, and nothing keeps it from being fetched."""
        return self.machine.state is PositionState.FETCHING and not self.is_paused and not self.is_pending_revocation

    def log_known(self, log_start: int | None, high_watermark: int | None, last_stable: int | None) -> None:
        """Keep what an answer says of the log; None and negative numbers stand for what it does not say."""
        if log_start is not None and log_start >= 0:
            self.log_start = log_start
        if high_watermark is not None and high_watermark >= 0:
            self.high_watermark = high_watermark
        if last_stable is not None and last_stable >= 0:
            self.last_stable = last_stable

    def log_end(self, *, read_committed: bool) -> int | None:
        """Return the offset behind the last record that the reader may see; None while it is not known.

        Brokers before Kafka 0.11 have no transactions, and name no last stable offset.
        """
        return self.last_stable if read_committed and self.last_stable is not None else self.high_watermark

    def lag(self, *, read_committed: bool) -> int | None:
        """Return how many offsets are between the position and the log end, never less than 0; None: not known."""
        end, position = self.log_end(read_committed=read_committed), self.machine.position
        return None if end is None or position is None else max(end - position.offset, 0)

    def lead(self) -> int | None:
        """Return how many offsets are between the log start and the position, never less than 0; None: not known."""
        start, position = self.log_start, self.machine.position
        return None if start is None or position is None else max(position.offset - start, 0)
