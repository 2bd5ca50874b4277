"""From an owner node of mine to delivery: where reading begins.

Order: read the stored offset; where there is none ask the leader for a start, and store that at once with auto-commit
on; tell the listener, who may choose another start; have the leader confirm that its log has it; deliver. Rules:
nothing here blocks, and an answer that comes after the partition went another way is dropped. What the listener chose
is obeyed or refused, never replaced: who keeps offsets beside the data must not be moved on by `auto.offset.reset`.

Source: docs/REBALANCE.md, "Step by step"; docs/SEMANTICS.md, "The rebalance listener".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.loop import Loop
from rebalance.member_partition import MemberPartition
from rebalance.ports import Delivery, Listener, Member, Offsets, Starts

__all__ = ["Takeover"]

log = logging.getLogger(__name__)


class Takeover:
    """Takes claimed partitions into delivery, those together that come together.

    Args:
        member: what it is.
        loop: the queue.
        delivery, offsets, listener: the rest of the member.
        held: all partitions of the member; the turn of each says whether it still waits for an answer.
        moved: called when delivery of some has begun.

    Threads: the coordinator's alone.
    """

    def __init__(
        self,
        member: Member,
        loop: Loop,
        delivery: Delivery,
        offsets: Offsets,
        listener: Listener,
        held: Mapping[Partition, MemberPartition],
        moved: Callable[[], None],
    ) -> None:
        self._member = member
        self._loop = loop
        self._delivery = delivery
        self._offsets = offsets
        self._listener = listener
        self._held = held
        self._moved = moved
        self._assigned: dict[Partition, int] = {}

    def take(self, partition: Partition, entry: MemberPartition, policy: str, created_zxid: int) -> None:
        """Begin with a partition under its entry's turn.

        Args:
            policy: which end of its log to begin at without a stored offset.
            created_zxid: creation of its topic; an offset that was stored before it is none.
        """
        turn = entry.turn
        entry.position, entry.started = None, False

        def loaded(offset: int | None) -> None:
            if not self._is_current(partition, turn):
                return
            if offset is not None:
                positioned(offset)
            else:
                self._delivery.resolve(partition, policy, lambda found: self._loop.post(resolved, found))

        def resolved(offset: int) -> None:
            if not self._is_current(partition, turn):
                return
            if not self._member.auto_commit:
                positioned(offset)
                return

            def stored(failed: Mapping[Partition, str]) -> None:
                self._report(failed)
                if failed and self._is_current(partition, turn):
                    # Somebody may have stored a lower one meanwhile, and what lies between is not to be skipped.
                    self._offsets.load(partition, lambda found: agreed(offset if found is None else min(found, offset)),
                                       created_zxid)
                else:
                    agreed(offset)

            # Until it is written a successor would choose a start of its own, and skip what lies between.
            self._offsets.commit_start(partition, offset, stored)

        def agreed(offset: int) -> None:
            if self._is_current(partition, turn):
                positioned(offset)

        def positioned(offset: int) -> None:
            entry.position = offset
            self._assigned[partition] = turn
            self._loop.after_step(self._notify_assigned)

        self._offsets.load(partition, loaded, created_zxid)

    def _is_current(self, partition: Partition, turn: int) -> bool:
        entry = self._held.get(partition)
        return entry is not None and entry.turn == turn

    def _store(self, partition: Partition, turn: int, offset: int, then: Callable[[], None]) -> None:
        """Commit a chosen start, with auto-commit on, and go on whether that succeeds or not."""
        if not self._member.auto_commit:
            then()
            return

        def committed(failed: Mapping[Partition, str]) -> None:
            self._report(failed)
            if self._is_current(partition, turn):
                then()

        self._offsets.commit({partition: offset}, committed)

    def _report(self, failed: Mapping[Partition, str]) -> None:
        for name, reason in failed.items():
            log.warning("offset of %s-%s is not committed: %s", *name, reason)

    # -- the listener ----------------------------------------------------------------------------------------------

    def _notify_assigned(self) -> None:
        batch, self._assigned = self._assigned, {}
        live = {partition: turn for partition, turn in batch.items() if self._is_current(partition, turn)}
        if live:
            positions = {partition: self._held[partition].position or 0 for partition in live}
            self._listener.assigned(positions, lambda starts: self._loop.post(self._answered, live, starts))

    def _answered(self, turns: Mapping[Partition, int], starts: Starts) -> None:
        for partition, turn in turns.items():
            if partition in starts.refused:
                self._refuse(partition, turn, starts.refused[partition])
            elif partition in starts.chosen:
                self._check(partition, turn, starts.chosen[partition])
            else:
                self._begin(partition, turn)
        self._moved()

    def _check(self, partition: Partition, turn: int, offset: int) -> None:
        """Begin at an offset that the listener chose, if the log has it."""
        if not self._is_current(partition, turn):
            return

        def told(earliest: int, latest: int) -> None:
            if not self._is_current(partition, turn):
                return
            if earliest <= offset <= latest:
                self._offsets.start_at(partition, offset)
                self._held[partition].position = offset
                # A successor without such a listener would go on behind what is to be read again.
                self._store(partition, turn, offset, lambda: self._begin_later(partition, turn))
                return
            self._refuse(partition, turn, f"on_partitions_assigned returned offset {offset}, and the log reaches from "
                                          f"{earliest} to {latest}")
            self._moved()

        self._delivery.bounds(partition, lambda earliest, latest: self._loop.post(told, earliest, latest))

    def _begin_later(self, partition: Partition, turn: int) -> None:
        self._begin(partition, turn)
        self._moved()

    # -- delivery --------------------------------------------------------------------------------------------------

    def _begin(self, partition: Partition, turn: int) -> None:
        entry = self._ready(partition, turn)
        if entry is not None:
            self._delivery.start(partition, entry.machine.held or "", entry.position or 0)

    def _refuse(self, partition: Partition, turn: int, reason: str) -> None:
        entry = self._ready(partition, turn)
        if entry is not None:
            log.error("%s-%s is not delivered: %s", *partition, reason)
            self._delivery.refuse(partition, entry.machine.held or "", entry.position or 0, reason)

    def _ready(self, partition: Partition, turn: int) -> MemberPartition | None:
        """The entry, now started, of a partition that is still to begin."""
        entry = self._held.get(partition)
        if entry is None or entry.turn != turn or entry.machine.state is not p.PartitionState.OWNED:
            return None
        entry.started = True
        return entry
