"""What `zkconsumer verify` finds: one thing that is wrong, where, and what would mend it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Finding", "Verdict", "session_text"]


@dataclass(frozen=True)
class Finding:
    """One thing.

    Attributes:
        kind: a word for scripts, such as `unowned`; docs/OPERATIONS.md lists them.
        path: the node in ZooKeeper that is wrong or missing.
        sentence: what is wrong.
        remedy: what would mend it.
        passing: a rebalance under way looks the same for a while.
        fault: it keeps the group, or a member, from its work; what is none is worth knowing.
    """

    kind: str
    path: str
    sentence: str
    remedy: str
    passing: bool = False
    fault: bool = True


@dataclass(frozen=True)
class Verdict:
    """All that was found at one look.

    Attributes:
        members: how many are registered.
        partitions: how many there are of the subscribed topics.
        strategy: how they are dealt, as far as the owners tell.
        wakeable: members that lack partitions which nothing else keeps from them.
    """

    group: str
    members: int
    partitions: int
    strategy: str | None
    findings: tuple[Finding, ...]
    wakeable: tuple[str, ...] = ()

    @property
    def faults(self) -> Sequence[Finding]:
        """The findings without those that are only worth knowing."""
        return [finding for finding in self.findings if finding.fault]

    @property
    def is_passing(self) -> bool:
        """Whether there is a fault that a rebalance under way would explain."""
        return any(finding.passing for finding in self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists with the same names."""
        return {**asdict(self), "fine": not self.faults}


def session_text(session: int) -> str:
    """A session's id as ZooKeeper's own log writes it."""
    return f"0x{session % 2**64:x}"
