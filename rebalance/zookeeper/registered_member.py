"""The identity and the settings of a member of a group that ZooKeeper coordinates. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalance.ports import Member
from rebalance.zookeeper.generation import ChosenGeneration
from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.waits import RebalanceTimes

__all__ = ["RegisteredMember"]


@dataclass(frozen=True, slots=True)
class RegisteredMember(Member):
    """A member that registers in ZooKeeper; times in seconds."""

    strategy: Strategy = field(default_factory=Strategy)
    chroot: str = ""
    blocked_after_s: float = 8.0
    blocked_audit_s: float = 10.0
    audit_s: float = 30.0
    times: RebalanceTimes = field(default_factory=RebalanceTimes)
    generation: ChosenGeneration = field(default_factory=ChosenGeneration)
