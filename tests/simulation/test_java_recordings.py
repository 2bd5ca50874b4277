"""The recordings still hold: real Java members send the same requests again (`pytest -m slow`)."""

from __future__ import annotations

import pytest
from java_scenes import PARTITIONS, SCENES, SEVERAL_THREADS
from java_traces import Trace, difference, recorded
from real_java_stage import RealStage

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRIES = 3
"""A scene does not decide which of two members is faster: on a busy machine it may be the other one."""


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_a_real_member_says_what_was_recorded(scene: str) -> None:
    differences = []
    for _ in range(TRIES):
        differences.append(difference(open_order(scene, recorded(scene)), open_order(scene, played(scene))))
        if differences[-1] == "":
            return
    pytest.fail("\n\n".join(differences))


def played(scene: str) -> Trace:
    with RealStage(PARTITIONS.get(scene, 2)) as stage:
        SCENES[scene](stage)
    return stage.trace


def open_order(scene: str, trace: Trace) -> Trace:
    """The trace; in no order if several threads of a member send requests in the scene."""
    if scene not in SEVERAL_THREADS:
        return trace
    return {part: {member: sorted(lines) for member, lines in members.items()} for part, members in trace.items()}
