"""SubscriptionState: what a consumer subscribes to, and which partitions follow from that. Pure.

There are four kinds of subscription: none, topics, a pattern, and partitions that the application has assigned. They
exclude each other: a consumer that changes from one to the other unsubscribes in between.

Source: SubscriptionState (Kafka 3.9).

The partitions that are assigned to a consumer: their positions, and which of them may be fetched. Rules, and which
failure each prevents:
- A call that names several partitions changes all of them or, where one is not assigned, none.
- Answers may come after a partition is gone: they are dropped, and never make it assigned again.
- A position never goes back by delivery: records would be delivered twice without a seek.

Source: SubscriptionState (Kafka 3.9).

Threads: One at a time.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from rebalance.subscription import check_topic
from simpleconsumer.types import TopicPartition
from zkconsumer.polling.errors import NotAssigned, NotSubscribed, SubscriptionConflict, shown
from zkconsumer.polling.partition_position import (
    Advanced,
    CommittedFound,
    Event,
    OffsetReset,
    PartitionPosition,
    PositionState,
    Postponed,
    ResetAnswered,
    ResetRequest,
    ResetRequested,
    Seek,
)
from zkconsumer.polling.records import OffsetAndMetadata


class AssignmentChange(NamedTuple):
    """The changes by an assignment.

    Attributes:
        added: Partitions that have no position yet, in the order of the assignment.
        removed: Partitions whose positions are gone.
    """

    added: tuple[TopicPartition, ...]
    removed: tuple[TopicPartition, ...]


class AssignedPartition:
    """One assigned partition.

    Attributes:
        machine: Its position.
        is_paused: The application has paused it.
        log_end: The offset after the last record that this reader may see; None while it is not known.
    """

    __slots__ = ("is_paused", "log_end", "machine")

    def __init__(self) -> None:
        self.machine = PartitionPosition()
        self.is_paused = False
        self.log_end: int | None = None


class AssignedPartitions:
    """The partitions of a consumer, in the order of the assignment."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._resets = 0

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
            keep: Whether partitions that are assigned already keep position and pause; else they start anew.
        """
        before = self._partitions
        wanted = dict.fromkeys(partitions)
        kept = {each: state for each, state in before.items() if each in wanted} if keep else {}
        added = tuple(each for each in wanted if each not in kept)
        removed = tuple(each for each in before if each not in kept)
        if added or removed:
            self._partitions = {**kept, **{each: AssignedPartition() for each in added}}
        return AssignmentChange(added, removed)

    # -- the application -----------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set a position; earlier fetched records are of no use then.

        Args:
            partition: An assigned partition.
            offset: 0 or more.

        Raises:
            NotAssigned: The partition is not assigned.
            ValueError: The offset is negative.
        """
        [assigned] = self._all("seek", [partition])
        if offset < 0:
            raise ValueError(f"seek: offset {offset} of {shown([partition])} is negative; it must be 0 or more")
        assigned.machine.handle(Seek(offset))

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Reset positions to the first offset; without partitions, all of them.

        Raises:
            NotAssigned: A partition is not assigned; no position was changed.
        """
        self._request_reset("seek_to_beginning", partitions, OffsetReset.EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Reset positions to the end of the log; see `seek_to_beginning`."""
        self._request_reset("seek_to_end", partitions, OffsetReset.LATEST)

    def position(self, partition: TopicPartition) -> int | None:
        """Return a position, None while it is looked for.

        Raises:
            NotAssigned: The partition is not assigned.
        """
        [assigned] = self._all("position", [partition])
        return assigned.machine.position

    def state(self, partition: TopicPartition) -> PositionState:
        """Return what is done about a position.

        Raises:
            NotAssigned: The partition is not assigned.
        """
        [assigned] = self._all("state", [partition])
        return assigned.machine.state

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a commit of all positions stores; partitions without a valid position are left out."""
        return {
            partition: OffsetAndMetadata(position) for partition, assigned in self._partitions.items()
            if (position := assigned.machine.position) is not None
        }  # fmt: skip

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

    def initializing(self) -> list[TopicPartition]:
        """Return the partitions whose committed offsets are wanted."""
        return [
            partition for partition, assigned in self._partitions.items()
            if assigned.machine.state is PositionState.INITIALIZING
        ]  # fmt: skip

    def take_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Start partitions at committed offsets; partitions that were sought meanwhile stay where they are."""
        for partition, offset in offsets.items():
            self._report(partition, CommittedFound(offset))

    def awaiting_reset(self, now: float) -> dict[TopicPartition, ResetRequest]:
        """Return the resets that are to be asked for now, by partition."""
        machines = {partition: assigned.machine for partition, assigned in self._partitions.items()}
        return {each: machine.reset for each, machine in machines.items() if machine.reset and machine.is_due(now)}

    def reset_answered(self, partition: TopicPartition, request: ResetRequest, offset: int) -> bool:
        """Take the offset of a reset; return whether it was still waited for."""
        return self._report(partition, ResetAnswered(request, offset))

    def postpone(self, partitions: Iterable[TopicPartition], until: float) -> None:
        """Ask nothing about positions before a time: a request is under way, or has failed."""
        for partition in partitions:
            self._report(partition, Postponed(until))

    # -- fetching ------------------------------------------------------------------------------------------------------

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Return whether a partition is assigned, has a position, and is not paused."""
        assigned = self._partitions.get(partition)
        return assigned is not None and assigned.machine.position is not None and not assigned.is_paused

    def advance(self, partition: TopicPartition, offset: int) -> None:
        """Move a position after the records that were returned.

        Args:
            partition: A partition that is fetched.
            offset: The next offset.

        Raises:
            NotAssigned: The partition is not assigned.
            LookupError: It has no valid position.
            ValueError: The offset is before the position.
        """
        [assigned] = self._all("advance", [partition])
        position = assigned.machine.position
        if position is not None and offset < position:
            raise ValueError(f"advance: offset {offset} of {shown([partition])} is before position {position}")
        assigned.machine.handle(Advanced(offset))

    # -- metrics -------------------------------------------------------------------------------------------------------

    def log_end_known(self, partition: TopicPartition, end: int | None) -> None:
        """Keep the offset after the last record that this reader may see; None if it is not known."""
        assigned = self._partitions.get(partition)
        if assigned is not None and end is not None and end >= 0:
            assigned.log_end = end

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the log end, never less than 0; None: not known."""
        assigned = self._partitions.get(partition)
        if assigned is None or assigned.log_end is None or assigned.machine.position is None:
            return None
        return max(assigned.log_end - assigned.machine.position, 0)

    # ------------------------------------------------------------------------------------------------------------------

    def _all(self, call: str, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        named = list(dict.fromkeys(partitions))
        missing = [each for each in named if each not in self._partitions]
        if missing:
            raise NotAssigned(call, missing, self._partitions)
        return [self._partitions[each] for each in named]

    def _request_reset(self, call: str, partitions: Collection[TopicPartition], policy: OffsetReset) -> None:
        for assigned in self._all(call, partitions or self._partitions):
            self._resets += 1
            assigned.machine.handle(ResetRequested(ResetRequest(policy, self._resets)))

    def _report(self, partition: TopicPartition, event: Event) -> bool:
        assigned = self._partitions.get(partition)
        return assigned is not None and assigned.machine.handle(event)


class SubscriptionKind(enum.Enum):
    """The kinds of subscription."""

    NONE = "there is no subscription"
    TOPICS = "topics are subscribed to"
    PATTERN = "a pattern is subscribed to"
    PARTITIONS = "partitions are assigned by the application"


class SubscriptionState:
    """The subscription of one consumer, and its assigned partitions.

    Attributes:
        kind: The kind of the subscription.
        pattern: The pattern; None for other kinds.
        assigned: The assigned partitions with their positions.
    """

    def __init__(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.pattern: re.Pattern[str] | None = None
        self.assigned = AssignedPartitions()
        self._topics: frozenset[str] = frozenset()

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are subscribed to; none for a pattern, and for assigned partitions."""
        return self._topics

    @property
    def is_of_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)

    # -- subscription --------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to topics instead of the earlier ones; return whether that is a change. No topics: `unsubscribe`.

        The assignment stays until the group is assigned anew.

        Raises:
            SubscriptionConflict: A pattern is subscribed to, or partitions are assigned.
            InvalidName: A name that no topic can have.
            TypeError: Text instead of a list of topics.
        """
        self._may_be(SubscriptionKind.TOPICS, "subscribe to topics")
        if isinstance(topics, str):
            raise TypeError(f"subscribe: {topics!r} is text; topics must be a list of names: [{topics!r}]")
        wanted = frozenset(map(check_topic, topics))
        if not wanted:
            return self.unsubscribe()
        is_change = self.kind is SubscriptionKind.NONE or wanted != self._topics
        self.kind, self._topics = SubscriptionKind.TOPICS, wanted
        return is_change

    def subscribe_to_pattern(self, pattern: re.Pattern[str]) -> bool:
        """Subscribe to the topics whose whole name matches; return whether that is a change.

        Raises:
            SubscriptionConflict: Topics are subscribed to, or partitions are assigned.
        """
        self._may_be(SubscriptionKind.PATTERN, "subscribe to a pattern")
        is_change = pattern != self.pattern
        self.kind, self.pattern = SubscriptionKind.PATTERN, pattern
        return is_change

    def assign(self, partitions: Iterable[TopicPartition]) -> AssignmentChange:
        """Assign partitions without a group; partitions that are assigned already keep their positions.

        No partitions: `unsubscribe`.

        Raises:
            SubscriptionConflict: Topics or a pattern are subscribed to.
            InvalidName: A topic has a name that no topic can have.
        """
        self._may_be(SubscriptionKind.PARTITIONS, "assign partitions")
        wanted = list(dict.fromkeys(partitions))
        for topic, _ in wanted:
            check_topic(topic)
        if not wanted:
            before = tuple(self.assigned)
            self.unsubscribe()
            return AssignmentChange((), before)
        self.kind = SubscriptionKind.PARTITIONS
        return self.assigned.change_to(wanted, keep=True)

    def unsubscribe(self) -> bool:
        """End the subscription and drop all partitions; return whether there was one."""
        was_there = self.kind is not SubscriptionKind.NONE
        self.kind, self.pattern = SubscriptionKind.NONE, None
        self._topics = frozenset()
        self.assigned.change_to((), keep=False)
        return was_there

    # -- the group -----------------------------------------------------------------------------------------------------

    def assigned_from_group(self, partitions: Iterable[TopicPartition], *, cooperative: bool) -> AssignmentChange:
        """Take the assignment of the group.

        Args:
            partitions: All that are assigned now.
            cooperative: Whether partitions that were assigned before keep position and pause. Otherwise all of them
                were given back before, and start anew.

        Raises:
            NotSubscribed: Neither topics nor a pattern are subscribed to.
        """
        if not self.is_of_group:
            raise NotSubscribed("take an assignment of the group", self.kind.value)
        return self.assigned.change_to(partitions, keep=cooperative)

    def _may_be(self, kind: SubscriptionKind, wanted: str) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise SubscriptionConflict(wanted, self.kind.value)
