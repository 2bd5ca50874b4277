"""The partitions that are assigned to a consumer: their positions, and which of them may be fetched, in which order.

Pure. Rules, and which failure each prevents:
- A call that names several partitions changes all of them or, where one is not assigned, none.
- Answers may come after a partition is gone: they are dropped, and never make it assigned again.
- A partition that has delivered records goes behind the others: a full one must not starve them.
- A position never goes back by delivery: records would be delivered twice without a seek.

Source: SubscriptionState (Kafka 3.9).

Threads: One at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.assigned_partition import AssignedPartition
from zkconsumer.polling.errors import LogTruncated, NoOffsetForPartition, NotAssigned, OffsetOutOfRange, shown
from zkconsumer.polling.partition_position import (
    Advanced,
    CommittedFound,
    CommittedMissing,
    Event,
    FetchPosition,
    LeaderEpochKnown,
    OffsetReset,
    OutOfRange,
    PartitionPosition,
    PositionState,
    Postponed,
    ResetAnswered,
    ResetRequest,
    ResetRequested,
    Seek,
    Truncated,
    Validated,
)
from zkconsumer.polling.records import OffsetAndMetadata

__all__ = ["AssignedPartitions", "AssignmentChange"]


class AssignmentChange(NamedTuple):
    """What an assignment has changed.

    Attributes:
        added: Partitions that have no position yet, in the order of the assignment.
        removed: Partitions whose positions are gone.
    """

    added: tuple[TopicPartition, ...]
    removed: tuple[TopicPartition, ...]


class AssignedPartitions:
    """The partitions of a consumer, in the order in which they are fetched next.

    Args:
        reset: Where a partition without a valid position starts; None raises an error instead.
        read_committed: Whether a log ends at its first open transaction, as readers of committed records see it.

    Attributes:
        assignment_id: Changes with each change of the assignment; answers to OffsetFetch name it.
    """

    def __init__(self, reset: OffsetReset | None, *, read_committed: bool = False) -> None:
        self._policy = reset
        self._read_committed = read_committed
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._resets = 0
        self.assignment_id = 0

    def __contains__(self, partition: object) -> bool:
        return partition in self._partitions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._partitions))

    def __len__(self) -> int:
        return len(self._partitions)

    # -- assignment ----------------------------------------------------------------------------------------------------

    def change_to(self, partitions: Iterable[TopicPartition], *, keep: bool) -> AssignmentChange:
        """Assign these partitions and no others.

        Args:
            partitions: All of them.
            keep: Whether those that are assigned already keep position and pause; else they start anew.
        """
        before = self._partitions
        wanted = dict.fromkeys(partitions)
        kept = {each: state for each, state in before.items() if each in wanted} if keep else {}
        added = tuple(each for each in wanted if each not in kept)
        removed = tuple(each for each in before if each not in kept)
        if added or removed:
            self._partitions = {**kept, **{each: AssignedPartition() for each in added}}
            self.assignment_id += 1
        return AssignmentChange(added, removed)

    # -- the application -----------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int, offset_epoch: int | None = None) -> None:
        """Set a position; what was fetched before it is of no use then.

        Args:
            partition: An assigned partition.
            offset: 0 or more.
            offset_epoch: The leader epoch of the record before; None when it is not known.

        Raises:
            NotAssigned: The partition is not assigned.
            ValueError: The offset is negative.
        """
        [assigned] = self._all("seek", [partition])
        if offset < 0:
            raise ValueError(f"seek: offset {offset} of {shown([partition])} is negative; it must be 0 or more")
        assigned.machine.handle(Seek(offset, offset_epoch))

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Reset positions to the first offset; without partitions, all of them.

        Raises:
            NotAssigned: A partition is not assigned; no position was changed.
        """
        self._request_reset("seek_to_beginning", partitions, OffsetReset.EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Reset positions to the end of the log; see `seek_to_beginning`."""
        self._request_reset("seek_to_end", partitions, OffsetReset.LATEST)

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Return a position, None while it is looked for or being validated.

        Raises:
            NotAssigned: The partition is not assigned.
        """
        [assigned] = self._all("position", [partition])
        return assigned.machine.position if assigned.machine.state is PositionState.FETCHING else None

    def state(self, partition: TopicPartition) -> PositionState:
        """Return what is done about a position.

        Raises:
            NotAssigned: The partition is not assigned.
        """
        [assigned] = self._all("state", [partition])
        return assigned.machine.state

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a commit of all positions stores; partitions without a valid position are left out."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, assigned in self._partitions.items():
            position = assigned.machine.position
            if position is not None and assigned.machine.state is PositionState.FETCHING:
                found[partition] = OffsetAndMetadata(position.offset, "", position.offset_epoch)
        return found

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing of partitions until they are resumed.

        Raises:
            NotAssigned: A partition is not assigned; none was paused.
        """
        for assigned in self._all("pause", partitions):
            assigned.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End a pause.

        Raises:
            NotAssigned: A partition is not assigned; none was resumed.
        """
        for assigned in self._all("resume", partitions):
            assigned.is_paused = False

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {partition for partition, assigned in self._partitions.items() if assigned.is_paused}

    # -- positions that are looked for ---------------------------------------------------------------------------------

    @property
    def has_all_positions(self) -> bool:
        """Whether every partition has a position that is valid or being validated."""
        return all(assigned.machine.position is not None for assigned in self._partitions.values())

    def initializing(self) -> list[TopicPartition]:
        """Return the partitions whose committed offsets are wanted."""
        return [
            partition for partition, assigned in self._partitions.items()
            if assigned.machine.state is PositionState.INITIALIZING
        ]  # fmt: skip

    def take_committed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None], assignment_id: int
    ) -> bool:
        """Take committed offsets; return False for an answer about an earlier assignment, which is dropped.

        Args:
            offsets: By partition; None where nothing is committed.
            assignment_id: As it was when the offsets were asked for: another member may have committed since.

        Raises:
            NoOffsetForPartition: Nothing is committed for some, and there is no policy; the others have their offsets.
        """
        if assignment_id != self.assignment_id:
            return False
        without: list[TopicPartition] = []
        for partition, committed in offsets.items():
            if committed is not None:
                self._report(partition, CommittedFound(committed.offset, committed.leader_epoch))
            elif self._report(partition, CommittedMissing(self._reset())) and self._policy is None:
                without.append(partition)
        if without:
            raise NoOffsetForPartition(without)
        return True

    def awaiting_reset(self, now: float) -> dict[TopicPartition, ResetRequest]:
        """Return the resets that are to be asked for now, by partition."""
        waiting = self._due(PositionState.AWAITING_RESET, now)
        return {each: machine.reset for each, machine in waiting.items() if machine.reset is not None}

    def reset_answered(self, partition: TopicPartition, request: ResetRequest, offset: int) -> bool:
        """Take the offset of a reset; return whether it was still waited for."""
        return self._report(partition, ResetAnswered(request, offset))

    def out_of_range(self, partition: TopicPartition, offset: int) -> bool:
        """Reset a position that the log does not have; return whether it was still the position.

        Args:
            partition: Of which partition.
            offset: The offset that was fetched from.

        Raises:
            OffsetOutOfRange: It is still the position, and there is no policy.
        """
        counted = self._report(partition, OutOfRange(offset, self._reset()))
        if counted and self._policy is None:
            known = self._partitions[partition]
            raise OffsetOutOfRange(partition, offset, known.log_start, self.log_end(partition))
        return counted

    def leader_epoch_known(self, partition: TopicPartition, epoch: int) -> bool:
        """Take the epoch of a leader; return whether it was news. Only for leaders that validate positions."""
        return self._report(partition, LeaderEpochKnown(epoch))

    def awaiting_validation(self, now: float) -> dict[TopicPartition, FetchPosition]:
        """Return the positions that are to be validated now, by partition."""
        waiting = self._due(PositionState.AWAITING_VALIDATION, now)
        return {each: machine.position for each, machine in waiting.items() if machine.position is not None}

    def validation_answered(
        self, partition: TopicPartition, position: FetchPosition, end_offset: int | None, end_epoch: int | None
    ) -> bool:
        """Take where the epoch of a position ends in the leader's log; return whether it was still waited for.

        A log that ends before the position was truncated: the position is set to that end, or reset as the policy says
        where the end is not known.

        Args:
            partition: Of which partition.
            position: What was asked about.
            end_offset: Where the epoch ends; None when the leader does not know.
            end_epoch: The largest epoch up to that of the position that the leader knows; None when it knows none.

        Raises:
            LogTruncated: The log was truncated, and there is no policy.
        """
        if end_offset is not None and end_epoch is not None and end_offset >= position.offset:
            return self._report(partition, Validated(position))
        is_known = end_offset is not None and end_epoch is not None
        end = FetchPosition(end_offset or 0, end_epoch) if is_known else None
        counted = self._report(partition, Truncated(position, end, self._reset()))
        if counted and self._policy is None:
            divergent = end_offset if is_known else None
            raise LogTruncated(partition, position.offset, position.offset_epoch, divergent)
        return counted

    def postpone(self, partitions: Iterable[TopicPartition], until: float) -> None:
        """Ask nothing about positions before a time: a request is under way, or has failed."""
        for partition in partitions:
            self._report(partition, Postponed(until))

    def next_retry(self) -> float | None:
        """Return the first time at which something postponed may be asked again; None without any."""
        times = (assigned.machine.retry_at for assigned in self._partitions.values())
        return min((each for each in times if each is not None), default=None)

    # -- fetching ------------------------------------------------------------------------------------------------------

    def fetchable(self) -> list[TopicPartition]:
        """Return the partitions to fetch, and to return records of, in the order of their turns."""
        return [partition for partition, assigned in self._partitions.items() if assigned.is_fetchable]

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Return whether a partition is assigned, has a position, and is neither paused nor about to be revoked."""
        assigned = self._partitions.get(partition)
        return assigned is not None and assigned.is_fetchable

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing of partitions that are kept until the listener has been called.

        Raises:
            NotAssigned: A partition is not assigned; none was marked.
        """
        for assigned in self._all("mark_pending_revocation", partitions):
            assigned.is_pending_revocation = True

    def advance(self, partition: TopicPartition, offset: int, offset_epoch: int | None = None) -> None:
        """Move a position behind the records that were returned, and the partition behind the others.

        Args:
            partition: A partition that is fetched.
            offset: The next offset.
            offset_epoch: The leader epoch of the last record; None when it is not known.

        Raises:
            NotAssigned: The partition is not assigned.
            LookupError: It has no valid position.
            ValueError: The offset is before the position.
        """
        [assigned] = self._all("advance", [partition])
        position = assigned.machine.position
        if assigned.machine.state is PositionState.FETCHING and position is not None and offset < position.offset:
            raise ValueError(f"advance: offset {offset} of {shown([partition])} is before position {position.offset}")
        assigned.machine.handle(Advanced(offset, offset_epoch))
        self.move_to_end(partition)

    def move_to_end(self, partition: TopicPartition) -> None:
        """Move a partition behind the others, as after an answer that failed."""
        assigned = self._partitions.pop(partition, None)
        if assigned is not None:
            self._partitions[partition] = assigned

    # -- metrics -------------------------------------------------------------------------------------------------------

    def log_known(
        self,
        partition: TopicPartition,
        *,
        log_start: int | None = None,
        high_watermark: int | None = None,
        last_stable: int | None = None,
    ) -> None:
        """Keep what an answer says of a log; None and negative numbers stand for what it does not say."""
        assigned = self._partitions.get(partition)
        if assigned is not None:
            assigned.log_known(log_start, high_watermark, last_stable)

    def log_end_known(self, partition: TopicPartition, end: int | None) -> None:
        """Keep the offset behind the last record that this reader may see; None stands for what is not known."""
        if self._read_committed:
            self.log_known(partition, last_stable=end)
        else:
            self.log_known(partition, high_watermark=end)

    def log_end(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last record that this reader may see; None while it is not known."""
        assigned = self._partitions.get(partition)
        return None if assigned is None else assigned.log_end(read_committed=self._read_committed)

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the log end, never less than 0; None: not known."""
        assigned = self._partitions.get(partition)
        return None if assigned is None else assigned.lag(read_committed=self._read_committed)

    def lead(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the log start and the position, never less than 0; None: not known."""
        assigned = self._partitions.get(partition)
        return None if assigned is None else assigned.lead()

    # ------------------------------------------------------------------------------------------------------------------

    def _all(self, call: str, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        named = list(dict.fromkeys(partitions))
        missing = [each for each in named if each not in self._partitions]
        if missing:
            raise NotAssigned(call, missing, self._partitions)
        return [self._partitions[each] for each in named]

    def _request_reset(self, call: str, partitions: Collection[TopicPartition], policy: OffsetReset) -> None:
        for assigned in self._all(call, partitions or self._partitions):
            assigned.machine.handle(ResetRequested(self._new_reset(policy)))

    def _reset(self) -> ResetRequest | None:
        """Return a reset as the policy says; None without one."""
        return None if self._policy is None else self._new_reset(self._policy)

    def _new_reset(self, policy: OffsetReset) -> ResetRequest:
        self._resets += 1
        return ResetRequest(policy, self._resets)

    def _report(self, partition: TopicPartition, event: Event) -> bool:
        assigned = self._partitions.get(partition)
        return assigned is not None and assigned.machine.handle(event)

    def _due(self, state: PositionState, now: float) -> dict[TopicPartition, PartitionPosition]:
        machines = {partition: assigned.machine for partition, assigned in self._partitions.items()}
        return {each: machine for each, machine in machines.items() if machine.state is state and machine.is_due(now)}
