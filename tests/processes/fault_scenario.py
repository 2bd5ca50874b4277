"""A fault scenario: its name, what it does, which members it hits, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from fault_players import CASTS
from fault_servers import OF_TODAY, SERVERS, Servers
from fault_stage import UNGRACEFUL, Setup, Stage
from group_members import RECONNECTED_S

SESSION_ENDED = replace(UNGRACEFUL, zombie_slack_s=RECONNECTED_S)


@dataclass(frozen=True)
class Scenario:
    """One fault: its name, what it does, what it needs, which members it hits, and on which servers.

    Attributes:
        is_for_today: Whether brokers of Kafka 2 and later can have it.
    """

    name: str
    act: Callable[[Stage], None]
    setup: Setup = field(default_factory=Setup)
    casts: Collection[str] = tuple(CASTS)
    generations: Collection[str] = ("0.8", "0.7")
    kinds: Collection[str] = ("real", "embedded")
    is_for_today: bool = True

    def servers(self) -> list[tuple[Servers, str]]:
        """On which servers it runs, with which group on each."""
        return [(each, cast) for each in SERVERS
                if each.generation.name in self.generations and each.kind in self.kinds
                and (self.is_for_today or each not in OF_TODAY)
                for cast in self.casts if cast in each.casts]  # fmt: skip
