"""Takes a claimed partition into delivery: finds its start offset, notifies the listener, starts fetching.

Order: load the stored offset. Without one, ask the leader for a start offset and store it at once if auto-commit is on.
Notify the listener, which may choose another start. Have the leader confirm that its log holds the chosen offset.
Start delivery. Rules, and which failure each prevents:
- Nothing here blocks: the coordinator must renew its lease in time.
- An answer that comes after the partition was revoked or lost is dropped: it would start delivery without ownership.
- A consumer that is polled hears of a partition that has no start before it is refused: it may keep its offsets itself.
- An offset that the listener chose is used or refused, never replaced: an application that keeps its offsets with
  its data must not be moved on by `auto.offset.reset`.

Source: docs/REBALANCE.md, "Step by step"; docs/SEMANTICS.md, "The rebalance listener".

The state that a member keeps for one partition that it wants, holds or releases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rebalance import partition as steps
from rebalance.known_topics import SINCE_START
from rebalance.loop import Loop, Timer
from rebalance.ports import NO_START, Fence, Member, MemberParts, Starts
from rebalance.subscription import Partition
from zkconsumer_error import first_few


@dataclass(slots=True)
class MemberPartition:
    """One partition that this member wants, holds or releases.

    Attributes:
        since: when the machine entered its state.
        turn: number of the step that waits for an answer during a takeover or a release, 0 if none does.
        asked: number of the last request to ZooKeeper; only its answer counts.
        looked_at: when the owner node was last read.
        position: where delivery starts, or where it ended.
        started: whether delivery runs.
        is_blocked_reported: whether the listener was notified that the claim has waited for long.
        uncommitted: whether the commit of the drained position has failed; it is tried again before the release.
    """

    machine: steps.PartitionMachine
    since: float
    turn: int = 0
    asked: int = 0
    looked_at: float = 0.0
    position: int | None = None
    started: bool = False
    drain_timer: Timer | None = None
    is_blocked_reported: bool = False
    uncommitted: bool = False

    @property
    def is_drained(self) -> bool:
        """Whether its delivery has ended, and its last position is not committed yet."""
        return self.machine.state is steps.PartitionState.DRAINING and self.drain_timer is None

    @property
    def is_settled(self) -> bool:
        """Whether it is being delivered or blocked."""
        state = self.machine.state
        return self.started if state is steps.PartitionState.OWNED else state is steps.PartitionState.BLOCKED


def by_reason(reasons: Mapping[Partition, str], between: str = "-") -> list[tuple[str, str]]:
    """Return the names of the partitions that share each reason, and the reason: one log line for each.

    A request that fails does so for all of its partitions: a line for each of them would fill the log.

    Args:
        reasons: partition -> reason, a clause, which may begin with the name of the partition.
        between: the text between topic and partition.
    """
    found: dict[str, list[str]] = {}
    for (topic, number), reason in reasons.items():
        reason = reason.removeprefix(f"{topic}/{number}: ")
        found.setdefault(reason, []).append(f"{topic}{between}{number}")
    return [(first_few(*names), reason) for reason, names in found.items()]


log = logging.getLogger(__name__)
RESETS = ("smallest", "largest")
"""The ends of a log at which a partition may start."""


class _Taken(NamedTuple):
    """A partition whose start offset is known by now, or that has none.

    Attributes:
        turn: under which it was asked for.
        fence: the registration under which the partition was claimed.
        has_start: whether it has one.
    """

    turn: int
    fence: Fence | None
    has_start: bool


class Takeover:
    """Takes claimed partitions into delivery; claims that come together are reported together.

    Args:
        member: whose partitions.
        loop: the queue.
        parts: delivery, offsets and listener.
        partitions: all partitions of the member; the turn of each says whether it still waits for an answer.
        moved: called when delivery of some partitions has started.

    Threads: the coordinator's alone.
    """

    def __init__(
        self,
        member: Member,
        loop: Loop,
        parts: MemberParts,
        partitions: Mapping[Partition, MemberPartition],
        moved: Callable[[], None],
    ) -> None:
        self._member = member
        self._loop = loop
        self._delivery = parts.delivery
        self._offsets = parts.offsets
        self._listener = parts.listener
        self._partitions = partitions
        self._moved = moved
        self._assigned: dict[Partition, _Taken] = {}
        self._refused: dict[Partition, str] = {}
        self._failed: dict[Partition, str] = {}

    def take(self, partition: Partition, entry: MemberPartition, policy: str, fence: Fence | None) -> None:
        """Find the start offset of a partition that was just claimed, under the present turn of its entry.

        Args:
            policy: the end of the log at which delivery starts without a stored offset, `smallest` or `largest`, or
                `SINCE_START`; any other word, which Kafka 0.7 has, refuses the partition then.
            fence: the registration under which the partition was claimed.
        """
        turn = entry.turn
        entry.position, entry.started = None, False

        def loaded(offset: int | None) -> None:
            if not self._is_current(partition, turn):
                return
            if offset is not None:
                positioned(offset)
            elif policy in (*RESETS, SINCE_START):
                self._delivery.resolve(partition, policy, lambda found: self._loop.post(resolved, found))
            elif self._member.resets_later_ones:
                positioned(None)
            else:
                self._refuse(partition, turn, _no_start(policy), has_start=False)
                self._moved()

        def resolved(offset: int) -> None:
            if not self._is_current(partition, turn):
                return
            if not self._member.auto_commit:
                positioned(offset)
                return

            def stored(failed: Mapping[Partition, str]) -> None:
                self._note_failed(failed)
                if failed and self._is_current(partition, turn):
                    # Another member may have stored a lower offset meanwhile; the messages in between must not be
                    # skipped.
                    self._offsets.load(
                        fence, partition, lambda found: agreed(offset if found is None else min(found, offset))
                    )
                else:
                    agreed(offset)

            # Without a stored start a successor would choose a start of its own and skip what lies between.
            self._offsets.commit_start(fence, partition, offset, stored)

        def agreed(offset: int) -> None:
            if self._is_current(partition, turn):
                positioned(offset)

        def positioned(offset: int | None) -> None:
            entry.position = offset
            self._assigned[partition] = _Taken(turn, fence, offset is not None)
            self._loop.after_step(self._notify_assigned)

        self._offsets.load(fence, partition, loaded)

    def _is_current(self, partition: Partition, turn: int) -> bool:
        entry = self._partitions.get(partition)
        return entry is not None and entry.turn == turn

    def _note_failed(self, failed: Mapping[Partition, str]) -> None:
        """Have failed commits logged together: one request stores the starts of many partitions."""
        if failed and not self._failed:
            self._loop.after_step(self._log_failed)
        self._failed.update(failed)

    def _log_failed(self) -> None:
        failed, self._failed = self._failed, {}
        for names, reason in by_reason(failed):
            log.warning("offset of %s is not committed: %s", names, reason)

    # -- the listener ----------------------------------------------------------------------------------------------

    def _notify_assigned(self) -> None:
        batch, self._assigned = self._assigned, {}
        live = {partition: taken for partition, taken in batch.items() if self._is_current(partition, taken.turn)}
        if live:
            positions = {
                partition: (self._partitions[partition].position or 0) if taken.has_start else NO_START
                for partition, taken in live.items()
            }
            self._listener.assigned(positions, lambda starts: self._loop.post(self._answered, live, starts))

    def _answered(self, taken: Mapping[Partition, _Taken], starts: Starts) -> None:
        for partition, (turn, fence, has_start) in taken.items():
            if partition in starts.refused:
                self._refuse(partition, turn, starts.refused[partition])
            elif partition in starts.chosen:
                self._check_chosen(partition, turn, fence, starts.chosen[partition])
            elif has_start:
                self._start(partition, turn)
            else:
                self._refuse(partition, turn, _no_start(self._member.reset_policy), has_start=False)
        self._moved()

    def _check_chosen(self, partition: Partition, turn: int, fence: Fence | None, offset: int) -> None:
        """Start at an offset that the listener chose, if the log holds it."""
        if not self._is_current(partition, turn):
            return

        def answered(earliest: int, latest: int) -> None:
            if not self._is_current(partition, turn):
                return
            if earliest <= offset <= latest:
                self._offsets.start_at(partition, offset)
                self._partitions[partition].position = offset
                # A successor without such a listener would continue after messages that are to be read again.
                self._store_chosen(partition, turn, fence, offset)
                return
            self._refuse(
                partition,
                turn,
                f"on_partitions_assigned returned offset {offset}, and the log has {earliest} to {latest}",
            )
            self._moved()

        self._delivery.bounds(partition, lambda earliest, latest: self._loop.post(answered, earliest, latest))

    def _store_chosen(self, partition: Partition, turn: int, fence: Fence | None, offset: int) -> None:
        """Commit a chosen start if auto-commit is on, and start delivery whether that succeeds or not."""

        def committed(failed: Mapping[Partition, str]) -> None:
            self._note_failed(failed)
            self._start(partition, turn)
            self._moved()

        if self._member.auto_commit:
            self._offsets.commit(fence, {partition: offset}, committed)
        else:
            committed({})

    # -- delivery --------------------------------------------------------------------------------------------------

    def _start(self, partition: Partition, turn: int) -> None:
        entry = self._mark_started(partition, turn)
        if entry is not None:
            self._delivery.start(partition, entry.machine.held or "", entry.position or 0)

    def _refuse(self, partition: Partition, turn: int, reason: str, *, has_start: bool = True) -> None:
        entry = self._mark_started(partition, turn)
        if entry is not None:
            if has_start or not self._member.resets_later_ones:  # else polls raise it, or the application seeks
                if not self._refused:
                    self._loop.after_step(self._log_refused)
                self._refused[partition] = reason
            position = (entry.position or 0) if has_start else NO_START
            self._delivery.refuse(partition, entry.machine.held or "", position, reason)

    def _log_refused(self) -> None:
        refused, self._refused = self._refused, {}
        for names, reason in by_reason(refused):
            log.error("%s is not delivered: %s", names, reason)

    def _mark_started(self, partition: Partition, turn: int) -> MemberPartition | None:
        """The entry, now started, of a partition that waits for its start; `None` if it no longer does."""
        entry = self._partitions.get(partition)
        if entry is None or entry.turn != turn or entry.machine.state is not steps.PartitionState.OWNED:
            return None
        entry.started = True
        return entry


def _no_start(policy: str) -> str:
    return (f"no offset is stored, and auto.offset.reset is {policy!r}, which names no end of the log: set an offset "
            "for the group, or change auto.offset.reset")  # fmt: skip
