"""The state that a member keeps for one partition that it wants, holds or releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rebalance import partition as p
from rebalance.assignment import Partition
from rebalance.loop import Timer
from zkconsumer_error import first_few

__all__ = ["MemberPartition", "by_reason"]


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

    machine: p.PartitionMachine
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
        return self.machine.state is p.PartitionState.DRAINING and self.drain_timer is None

    @property
    def is_settled(self) -> bool:
        """Whether it is being delivered or blocked."""
        state = self.machine.state
        return self.started if state is p.PartitionState.OWNED else state is p.PartitionState.BLOCKED


def by_reason(reasons: Mapping[Partition, str], between: str = "-") -> list[tuple[str, str]]:
    """Return the names of the partitions that share each reason, and the reason: one log line for each.

    A request that fails does so for all of its partitions: a line for each of them would fill the log.

    Args:
        reasons: partition -> reason, a clause, which may begin with the name of the partition.
        between: what stands between topic and partition.
    """
    found: dict[str, list[str]] = {}
    for (topic, number), reason in reasons.items():
        reason = reason.removeprefix(f"{topic}/{number}: ")
        found.setdefault(reason, []).append(f"{topic}{between}{number}")
    return [(first_few(*names), reason) for reason, names in found.items()]
