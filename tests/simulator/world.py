"""A simulated world, built from a plan and a seed, in which the steps of the plan are done.

It runs in three parts. While faults last, steps of the plan are done. Then everything is healed, and the group has a
bounded time to converge: every partition is owned by the member that the rule names, all messages are delivered. Last
comes a calm, in which nothing may change any more.
"""

from __future__ import annotations

from typing import Final

from tests.simulator import faults
from tests.simulator.java_member import JavaMember
from tests.simulator.plan import Plan, Step
from tests.simulator.position_repairs import PositionRepairs
from tests.simulator.stage import ActorBuilder, Stage
from tests.simulator.store_repairs import StoreRepairs
from tests.simulator.waiting_steps import WaitingSteps

__all__ = ["World"]

_SETTLE_S: Final = 2.0


class World(Stage):
    """A stage on which a plan is carried out.

    Args:
        plan: who and what.
        seed: of the random numbers; together with the plan it determines the whole run.
        java: builds a Java member.
    """

    def __init__(self, plan: Plan, seed: int | str, java: ActorBuilder = JavaMember) -> None:
        super().__init__(plan, seed, java)
        self._waiting_steps = WaitingSteps(
            self.all_living, self._do_now, self.rng, self.schedule.after, self.brokers.partition
        )
        self.when_joined = self._waiting_steps.watch
        self._store_repairs = StoreRepairs(self)

    def start(self) -> None:
        """Bring up the brokers, let messages come, and have the steps done in their time."""
        for topic, partitions in self.plan.topics:
            self.brokers.create_topic(topic, partitions)
        self.schedule.run_until(lambda: self.controller.is_idle, _SETTLE_S)
        self._started_s = self.schedule.now
        for step in self.plan.steps:
            self.schedule.after(step.at_s, self.do, step)
        self._produce(self.rng("producer"))
        self._watch_over()
        if any(each.intent == "refuse" for each in self.plan.members):
            self._store_repairs.start()
        if self.plan.generation == "0.7" and any(each.kind == "java" for each in self.plan.members):
            PositionRepairs(self).start()

    def do(self, step: Step) -> None:
        """Do a step of the plan, at once or when a member is in the state that it waits for."""
        if step.when:
            self._waiting_steps.wait_for(step)
        else:
            self._do_now(step)

    def _do_now(self, step: Step) -> None:
        if self._is_healed:
            return
        if self.listener is not None:
            self.listener.step(step)
        self.done_kinds[step.kind] = self.done_kinds.get(step.kind, 0) + 1
        faults.do(self, step)

    def heal(self) -> None:
        """Undo all faults that are not undone yet; no more faults happen."""
        super().heal()
        self._waiting_steps.forget()
