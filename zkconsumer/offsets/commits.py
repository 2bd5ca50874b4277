"""Which positions of a member are committed, and when: by the clock, at the application's word, and at the end.

Knows who holds what (the coordinator) and how far the application is (the delivery). Writes nothing itself, and waits
for nothing: `zkconsumer.offsets.zookeeper_offsets` writes and reports. Rule: only what is held is committed.

Source: docs/SEMANTICS.md, "Delivery" and "The rebalance listener".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.coordinator import Coordinator
from rebalance.loop import Loop
from rebalance.ports import Offsets
from simpleconsumer.types import TopicPartition

__all__ = ["Commits"]

log = logging.getLogger(__name__)

Positions = Mapping[TopicPartition, int]
Failed = Mapping[Partition, str]


class _Asked(NamedTuple):
    """What the application wants to be stored of a partition, and why the last attempt failed, if it did."""

    position: int
    explicit: bool
    reason: str | None = None


class Commits:
    """The commits of one member.

    Args:
        coordinator: who holds what.
        offsets: writes them.
        positions: how far the application is with all that was started and not ended.
        loop: the coordinator's.

    Threads: the coordinator's alone, but for `not_stored`.
    """

    def __init__(
        self, coordinator: Coordinator, offsets: Offsets, positions: Callable[[], Positions], loop: Loop
    ) -> None:
        self._coordinator = coordinator
        self._offsets = offsets
        self._positions = positions
        self._loop = loop
        self._auto_commit_enable = coordinator.member.auto_commit
        self._is_committing = False
        self._given_back: dict[Partition, int] = {}
        self._asked: dict[Partition, _Asked] = {}

    # -- by the clock -------------------------------------------------------------------------------------------------

    def start_auto_commit(self, interval_s: float) -> None:
        """Commit what is done every `interval_s` seconds."""
        self._loop.call_later(interval_s, self._auto_commit, interval_s)

    def _auto_commit(self, interval_s: float) -> None:
        self.start_auto_commit(interval_s)
        self.commit_done()

    def commit_done(self) -> None:
        """Commit what is done by now, unless that is under way."""
        if self._is_committing:
            return
        positions: dict[Partition, int] = {
            partition: position for partition, position in self._positions().items() if self.holds(partition)
        }
        self._is_committing = True
        self._offsets.commit(positions, self._auto_committed)

    def _auto_committed(self, failed: Failed) -> None:
        self._is_committing = False
        for partition, reason in failed.items():
            log.warning("offset of %s-%s is not committed: %s", *partition, reason)

    # -- at the application's word -----------------------------------------------------------------------------------

    def choose(
        self, explicit: Mapping[Partition, int] | None, in_hand: Positions
    ) -> tuple[dict[Partition, int], dict[Partition, str]]:
        """What a call of `commit_offsets` commits, and which partitions it may not commit, with the reason.

        Args:
            explicit: what the application has named, None for all that counts.
            in_hand: positions that count the message in hand; for a call without a map.
        """
        if explicit is not None:
            wanted = dict(explicit)
        else:
            wanted = self._drained()
            wanted.update((partition, at) for partition, at in in_hand.items() if self.holds(partition))
        refused = {partition: "this member does not own it" for partition in wanted if not self.holds(partition)}
        return {partition: at for partition, at in wanted.items() if partition not in refused}, refused

    def commit(self, positions: Mapping[Partition, int], done: Callable[[Failed], None], *, explicit: bool) -> None:
        """Commit what the application wants to be stored, and remember it until it is."""
        asked = {partition: _Asked(at, explicit) for partition, at in positions.items()}
        self._asked.update(asked)

        def committed(failed: Failed) -> None:
            for partition, mine in asked.items():
                if self._asked.get(partition) is not mine:
                    continue  # asked for anew meanwhile
                if partition in failed:
                    self._asked[partition] = mine._replace(reason=failed[partition])
                else:
                    del self._asked[partition]
            done(failed)

        self._offsets.commit(positions, committed, explicit=explicit)

    def holds(self, partition: Partition) -> bool:
        """Whether the member owns a partition, or has not given it back yet."""
        entry = self._coordinator.partitions.get(partition)
        return entry is not None and entry.machine.state in (p.PartitionState.OWNED, p.PartitionState.DRAINING)

    def _drained(self) -> dict[Partition, int]:
        """Partitions between drain and release: the listener may still commit what was done of them."""
        draining = {
            partition: entry.position
            for partition, entry in list(self._coordinator.partitions.items())
            if entry.machine.state is p.PartitionState.DRAINING and entry.position is not None
        }
        return {**self._given_back, **draining}

    # -- at the end ----------------------------------------------------------------------------------------------------

    def give_back(self, positions: Positions, leave: Callable[[], None]) -> None:
        """Call `leave`, which tells the listener what is given back: from now on its commits count these as final."""

        def tell() -> None:
            # A drain that has ended knows better.
            self._given_back = {partition: at for partition, at in positions.items() if self.holds(partition)}
            leave()

        # Behind what this very step still has to tell: the callbacks of drains that end just now.
        self._loop.after_step(tell)

    def commit_last(self, positions: Positions, done: Callable[[Failed], None]) -> None:
        """Commit what is done when delivery has ended."""
        self._offsets.commit(self._last(positions), done)

    def _last(self, positions: Positions) -> dict[Partition, int]:
        held = self._drained()
        held.update((partition, at) for partition, at in positions.items() if self.holds(partition))
        return held

    def not_stored(self, positions: Positions, reason: str) -> dict[Partition, str]:
        """Partition -> why what should be stored of it is not known to be; `reason` where nothing better is known.

        Without auto-commit that is what the application has asked for, and is not stored. Threads: any.
        """
        asked = dict(self._asked)
        if self._auto_commit_enable:
            wanted = {partition: _Asked(at, explicit=False) for partition, at in self._last(positions).items()}
        else:
            wanted = {partition: one for partition, one in asked.items() if self.holds(partition)}
        return {
            partition: (asked.get(partition, one).reason or reason)
            for partition, one in wanted.items()
            if not self._offsets.is_stored(partition, one.position, one.explicit)
        }
