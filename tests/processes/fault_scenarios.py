"""What is done to members of a group, one function each; the stage counts what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fault_stage import Stage


@dataclass(frozen=True)
class Scenario:
    """One fault: what it is called, what it does, and the cluster it needs.

    cluster: `shared` by all that leave it as it is, or one of its `own`.
    """

    name: str
    act: Callable[[Stage], None]
    cluster: str = "shared"
    topic: dict[str, object] = field(default_factory=dict)


def killed(stage: Stage) -> None:
    """SIGKILL: the others take over when its session is over."""
    stage.mark()
    stage.hit.kill()
    stage.wait_full()


def leaves(stage: Stage) -> None:
    """SIGTERM: it leaves in order."""
    stage.mark()
    stage.hit.begin_to_leave()
    stage.wait_full()
    stage.hit.process.wait(30.0)


MEMBER_FAULTS = (
    Scenario("kill -9", killed),
    Scenario("SIGTERM", leaves),
)
