"""The outcome of a demonstration: counts of its whole history, and violations of the promises. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.checks import Finding, Limits, check_history, count_allowed_repeats

__all__ = ["Outcome", "outcome_of"]


@dataclass(frozen=True)
class Outcome:
    """The end of a demonstration.

    Attributes:
        produced: Messages that a broker has acknowledged.
        delivered: How many of them were delivered.
        lost: How many were not.
        repeated: Deliveries beyond the first, for whatever reason.
        explained: Those of them that have an explanation: their first owner was killed, or lost the partition.
        findings: What must not have happened.
    """

    produced: int
    delivered: int
    lost: int
    repeated: int
    explained: int
    findings: tuple[Finding, ...]

    @property
    def last_line(self) -> str:
        """`produced=N delivered=N lost=N repeated=N`."""
        return f"produced={self.produced} delivered={self.delivered} lost={self.lost} repeated={self.repeated}"

    @property
    def failed(self) -> bool:
        """Whether something happened that must not happen."""
        return bool(self.findings) or self.lost > 0 or self.repeated > self.explained

    def sentences(self, start_ns: int) -> list[str]:
        """Return the findings, each once, with the events that prove it and their seconds since `start_ns`."""
        found: dict[tuple[str, str], str] = {}
        for finding in self.findings:
            events = (replace(event, time_ns=event.time_ns - start_ns) for event in finding.events)
            found.setdefault((finding.check, finding.sentence), str(replace(finding, events=tuple(events))))
        return list(found.values())


def outcome_of(events: Iterable[Event], auto_commit_s: float) -> Outcome:
    """Return the outcome of a history.

    Args:
        auto_commit_s: How often members commit, in seconds. A death may repeat what was delivered since the last
            commit, and what was delivered in one more second, for the commit that was under way.
    """
    history = list(events)
    limits = Limits(repeat_before_end_s=auto_commit_s + 1.0)
    produced = {(event.place, event.offset) for event in history if event.kind == "acked"}
    deliveries = [(event.place, event.offset) for event in history if event.kind == "deliver"]
    delivered = set(deliveries)
    return Outcome(
        produced=len(produced),
        delivered=len(produced & delivered),
        lost=len(produced - delivered),
        repeated=len(deliveries) - len(delivered),
        explained=count_allowed_repeats(history, limits),
        findings=tuple(check_history(history, limits)),
    )
