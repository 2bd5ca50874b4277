"""Whichever call of a coordinator fails, other members take over at once, and nothing is lost or needlessly repeated.

One scene in which most of what a coordinator does is done by one member; then the same scene again for each of its
calls, which fails the first time that it is made: before it has done anything, or behind what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rebalance.zookeeper.port.pipeline import Pipeline
from rebalance.zookeeper.port.requests import Reply, Request
from tests.simulator.actor import MemberSpec
from tests.simulator.member import OurMember
from tests.simulator.plan import Plan, Step
from tests.simulator.run import simulate
from tests.simulator.stepping import PlannedFault, SteppedLoop

VICTIM = "a"
SETTINGS: dict[str, Any] = {
    "topics": (("t", 2),), "session_s": 4.0, "auto_commit_s": 0.5, "drain_s": 0.5, "max_processing_s": 2.0,
}  # fmt: skip
SCENE = Plan(
    members=(MemberSpec(VICTIM, **SETTINGS), MemberSpec("b", **SETTINGS), MemberSpec("c", **SETTINGS)),
    topics=(("t", 6),),
    steps=(
        Step(0.0, "join", VICTIM), Step(0.2, "join", "b"), Step(1.5, "owner deleted", "t", 0),
        Step(2.0, "owner replaced", "t", 1, for_s=0.5), Step(3.5, "unregistered", VICTIM), Step(4.0, "join", "c"),
        Step(4.5, "leave", "c"), Step(5.0, "cut", VICTIM, for_s=0.3), Step(6.0, "retention", "t", amount=100),
        Step(7.0, "end session", VICTIM), Step(9.0, "slow", VICTIM, amount=3000, for_s=0.5),
        Step(14.0, "join", "c"), Step(14.2, "poison", for_s=0.5, word="empty"), Step(15.0, "grow", "t", amount=2),
        Step(15.5, "offset set", "t", 0, amount=-3, word="lower"), Step(16.0, "lost reply", VICTIM, word="set"),
        Step(17.0, "delete topic", "t", for_s=0.5), Step(18.5, "crash", "b"),
    ),
    message_every_s=0.3,
    faults_s=20.0,
)  # fmt: skip
SEED = 1


class Handlers:
    """The calls that the victim's coordinator makes, by name; the one that is chosen fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.chosen, self.where = "", ""
        self.failed = 0
        handlers = self

        def run_through(loop: SteppedLoop, call: Callable[..., None], *arguments: Any) -> None:
            handlers.call(loop, call, arguments)

        right = Pipeline.ask_first

        def ask_first(pipeline: Pipeline, request: Request, handle: Callable[[Reply], None]) -> None:
            loop: Any = pipeline.loop
            right(pipeline, request, lambda reply: handlers.call(loop, handle, (reply,)))

        monkeypatch.setattr(SteppedLoop, "run_through", run_through)
        monkeypatch.setattr(Pipeline, "ask_first", ask_first)

    def call(self, loop: SteppedLoop, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        function = getattr(call, "func", call)  # what a partial stands for
        name = f"{function.__module__}.{function.__qualname__}"
        if loop._process.name != VICTIM:  # not one that was started again
            call(*arguments)
            return
        if name not in self.seen:
            self.seen.append(name)
        is_chosen = name == self.chosen and not self.failed
        if is_chosen and self.where == "before":
            self.failed += 1
            raise PlannedFault(call)
        call(*arguments)
        if is_chosen and not self.failed:
            self.failed += 1
            raise PlannedFault(call)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Handlers:
    return Handlers(monkeypatch)


def test_the_scene_is_sound_and_has_most_of_what_a_coordinator_does(handlers: Handlers) -> None:
    run = simulate(SCENE, SEED)
    assert not run.findings
    modules = {part for name in handlers.seen for part in name.split(".")}
    assert modules >= {
        "owner_audit", "claims", "commits", "coordinator", "member_partitions", "pipeline", "session", "takeover",
        "group_reader", "zookeeper_offsets", "commit_batch",
    }  # fmt: skip
    assert len(handlers.seen) > 40, handlers.seen


@pytest.mark.catalogue("B18")
@pytest.mark.parametrize(
    ("where", "part"),
    [("before", 0), ("behind", 1), *(pytest.param(*rest, marks=pytest.mark.slow) for rest in (("before", 1),
                                                                                           ("behind", 0)))],
)  # fmt: skip
def test_others_take_over_whichever_call_fails(handlers: Handlers, where: str, part: int) -> None:
    """Each call fails; every other one before its work, and those between them behind it. The rest is slow."""
    simulate(SCENE, SEED)
    names = handlers.seen[part::2]
    assert len(names) > 20
    found = []
    for name in names:
        handlers.chosen, handlers.where, handlers.failed = name, where, 0
        run = simulate(SCENE, SEED)
        assert handlers.failed == 1, name
        found += [f"{where} {name}: {finding}" for finding in run.findings]
    assert not found, "\n".join(found[:10])


def test_a_member_that_receives_nothing_more_has_failed(handlers: Handlers) -> None:
    """Its lease is over, its streams have failed with the cause, and its listener was called for the loss of all."""
    members: list[OurMember] = []
    right = OurMember._failed

    def failed(member: OurMember, error: Exception) -> None:
        right(member, error)
        members.append(member)
        assert member.lease.until <= member._process.clock()
        assert all(stream._error is member.coordinator.error for stream in member.streams.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OurMember, "_failed", failed)
        # an owner node was deleted
        handlers.chosen, handlers.where = "rebalance.member_partitions.MemberPartitions.handle", "before"
        run = simulate(SCENE, SEED)
    assert len(members) == 1
    assert any(event.kind == "lost" and event.member == VICTIM for event in run.history)
