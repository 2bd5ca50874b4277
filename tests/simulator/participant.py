"""One process of the simulated world: its member, its ZooKeeper client and its wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulator.actor import Actor, MemberSpec
from tests.simulator.port import SimulatedPort
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.watched_port import WatchedPort

__all__ = ["Participant", "WallClock"]

_WALL_CLOCK_MS: Final = 1_400_000_000_000


@dataclass(slots=True)
class WallClock:
    """The wall clock of one machine, which operators may set."""

    schedule: Schedule
    jump_s: float = 0.0

    def __call__(self) -> int:
        return _WALL_CLOCK_MS + int((self.schedule.now + self.jump_s) * 1000)


@dataclass(slots=True)
class Participant:
    """One process with a member in it.

    Attributes:
        name: in the history: the member's, with a number behind it if it is not the first process of that member.
    """

    name: str
    spec: MemberSpec
    process: Process
    port: SimulatedPort
    watched: WatchedPort
    actor: Actor
    wall_clock: WallClock

    @property
    def is_well(self) -> bool:
        """Whether its process runs and its member takes part."""
        return not (self.process.is_gone or self.process.is_paused or self.actor.has_ended)
