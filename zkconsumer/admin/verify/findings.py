"""The findings of the verification of a group: the fault, its place, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zkconsumer.admin.values import JsonValue, typed


@dataclass(frozen=True)
class Finding:
    """One finding: the fault and its place.

    Attributes:
        kind: A word for scripts, such as `unowned`; docs/OPERATIONS.md lists them.
        path: The node in ZooKeeper that is wrong or missing; `__consumer_offsets` for an offset in Kafka.
        sentence: The fault.
        remedy: How to fix it.
        passing: A rebalance under way looks the same for a while.
        fault: It keeps the group, or a member, from its work; otherwise it is only worth knowing.
    """

    kind: str
    path: str
    sentence: str
    remedy: str
    passing: bool = False
    fault: bool = True


@dataclass(frozen=True)
class Verification(JsonValue):
    """Everything that was found in one look at a group.

    Attributes:
        group: Its name.
        members: Number of registered consumers; None if ZooKeeper does not let this client read it.
        partitions: Number of partitions of the subscribed topics; None if the members may not be read.
        strategy: How they are assigned, as far as the owners show it; None when they do not.
        findings: The findings.
        wakeable: Members that lack partitions and would get them by another rebalance.
        triggered_for: The members for which a rebalance was triggered; empty when none was.
    """

    group: str
    members: int | None
    partitions: int | None
    strategy: str | None
    findings: tuple[Finding, ...]
    wakeable: tuple[str, ...] = ()
    triggered_for: tuple[str, ...] = ()

    @property
    def faults(self) -> Sequence[Finding]:
        """The findings that are faults."""
        return [finding for finding in self.findings if finding.fault]

    @property
    def is_passing(self) -> bool:
        """Whether there is a fault that a rebalance under way would explain."""
        return any(finding.passing for finding in self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer verify --json`."""
        entries = asdict(self)
        triggered_for = entries.pop("triggered_for")
        counts = {"member_count": entries.pop("members"), "partition_count": entries.pop("partitions")}
        return {"group": entries.pop("group"), **counts, **typed(entries), "fine": not self.faults,
                "nudged": list(triggered_for)}  # fmt: skip


def session_text(session: int) -> str:
    """Return a session's id as ZooKeeper's own log writes it."""
    return f"0x{session % 2**64:x}"
