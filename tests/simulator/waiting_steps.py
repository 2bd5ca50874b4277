"""Steps of a plan that wait until a member is in a given, short-lived state.

A coordinator's states last milliseconds, and a fault that comes at a random second seldom hits one. A step that names
a state of one of the two machines (`Step.when`) is done as soon as a member of ours has come into that state, or up to
some milliseconds later, so that what the member has asked for is on its way, done, or answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final

from rebalance.partition import PartitionState
from rebalance.zookeeper.machine import GroupState
from tests.simulator.participant import Participant
from tests.simulator.plan import Step

__all__ = ["PASSING_STATES", "WaitingSteps"]

_LASTING: Final = (GroupState.STABLE, GroupState.FAILED, PartitionState.OWNED)

PASSING_STATES: Final = tuple(state.value for state in (*GroupState, *PartitionState) if state not in _LASTING)
"""States that a step may wait for: those that do not last."""

_OF_A_PARTITION: Final = frozenset({"owner deleted", "owner replaced", "offset set"})
_LATEST_S: Final = (0.0, 0.002, 0.01, 0.01)


class WaitingSteps:
    """The steps of one world that wait.

    Args:
        living: the members whose processes are there.
        do: carries out a step now.
        rng: random numbers by name.
        later: runs a call after so many seconds.
        partition: the partition of a topic that a plan gives a number.
    """

    def __init__(
        self,
        living: Callable[[], Iterable[Participant]],
        do: Callable[[Step], None],
        rng: Callable[[str], random.Random],
        later: Callable[[float, Callable[[Step], None], Step], object],
        partition: Callable[[str, int], int | str] = lambda topic, number: number,
    ) -> None:
        self._partition = partition
        self._living = living
        self._do = do
        self._rng = rng
        self._later = later
        self._waiting: list[Step] = []

    def wait_for(self, step: Step) -> None:
        """Do the step when a member is in its state."""
        self._waiting.append(step)
        for each in self._living():
            self.watch(each)
            self._look(each)

    def watch(self, participant: Participant) -> None:
        """Look at a member after each step that its coordinator makes."""
        if self._waiting:
            participant.actor.when_moved(lambda: self._look(participant))

    def forget(self) -> None:
        """Drop the steps that have not been done by now."""
        self._waiting.clear()

    def _look(self, participant: Participant) -> None:
        for step in [each for each in self._waiting if self._has_come(each, participant)]:
            self._waiting.remove(step)
            moment = self._rng(f"moment {step}")
            self._later(moment.choice(_LATEST_S) * moment.random(), self._do, step)

    def _has_come(self, step: Step, participant: Participant) -> bool:
        if step.kind in _OF_A_PARTITION:
            partition = self._partition(step.target, step.number)
            return step.when in participant.actor.states((step.target, partition))
        if step.target == participant.spec.name or step.kind in _ON_THE_GROUP:
            return step.when in participant.actor.states()
        return False


_ON_THE_GROUP: Final = frozenset({
    "join", "outage", "stop server", "freeze", "isolate", "lag", "wipe", "grow", "create topic", "delete topic",
    "leader", "broker", "retention", "damaged offset", "poison",
})  # fmt: skip
"""Kinds without a member as their target: they wait for any member's state."""
