"""What was decided in one session is never sent in the next: commits, starts and loads carry their fence."""

from __future__ import annotations

import pytest
from stepped_offsets import FENCE, P0, P1, SESSION_OVER, SteppedOffsets

from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.port.requests import Check, Multi, SetData

NEXT_SESSION = Fence(FENCE.path, 1, FENCE.session_id + 1)
AGAIN = Fence(FENCE.path, 1, FENCE.session_id)


@pytest.fixture
def steps() -> SteppedOffsets:
    made = SteppedOffsets()
    made.know(p0=5)
    return made


def next_session(steps: SteppedOffsets) -> None:
    """The session ends, and the next one is registered; who decided before still has the old fence."""
    steps.offsets.session_over()
    steps._do(SetData(FENCE.path, b""))  # so that the version is that of the next registration
    steps.offsets.session_opened(NEXT_SESSION)


def test_a_commit_that_was_decided_in_a_session_that_ended_is_not_sent_in_the_next(steps: SteppedOffsets) -> None:
    next_session(steps)
    assert steps.commit({P0: 9}) == {P0: SESSION_OVER}
    assert steps.multis() == []
    assert steps.stored() == (b"5", 0)


def test_nor_is_an_explicit_one_or_a_start(steps: SteppedOffsets) -> None:
    next_session(steps)
    assert steps.commit({P0: 2}, explicit=True) == {P0: SESSION_OVER}
    steps.begin_start(P1, 100)
    steps.answer_all()
    assert steps.told[-1] == {P1: SESSION_OVER}
    assert steps.stored(P1) is None


def test_a_commit_of_the_present_session_does_not_join_one_of_an_earlier_session(steps: SteppedOffsets) -> None:
    next_session(steps)
    steps.begin({("u", 0): 1})  # reads first, for nothing is known of the node
    steps.begin({P0: 9})
    steps.fence = NEXT_SESSION
    steps.begin({P0: 7})
    steps.answer_all()
    assert sorted(map(len, steps.told)) == [0, 1, 1]
    assert steps.stored() == (b"7", 1)
    assert all(multi.operations[0] == NEXT_SESSION.check() for multi in steps.multis())


def test_a_load_of_a_session_that_ended_falls_silent_however_late_it_is_asked_for(steps: SteppedOffsets) -> None:
    next_session(steps)
    steps.begin_load()
    steps.answer_all()
    assert steps.loaded == []


def test_what_waits_while_the_same_session_registers_again_is_written_under_the_new_registration(
    steps: SteppedOffsets,
) -> None:
    steps.begin({("u", 0): 1})
    steps.begin({P0: 9})
    steps.offsets.session_opened(AGAIN)
    while steps.waiting and not isinstance(steps.waiting[0], Multi):
        steps.answer()
    sent = steps.multis()[-1]
    assert sent.operations[0] == Check(FENCE.path, AGAIN.version)


def test_what_was_decided_before_the_same_session_registered_again_still_counts(steps: SteppedOffsets) -> None:
    steps.offsets.session_opened(AGAIN)
    steps.begin({P0: 9})
    assert steps.multis()[-1].operations[0] == Check(FENCE.path, AGAIN.version)


def test_a_fence_is_over_with_the_registration_also_where_the_session_goes_on(steps: SteppedOffsets) -> None:
    """A member that has left its group for a while owns nothing of what it had."""
    steps.offsets.session_over()
    steps.offsets.session_opened(AGAIN)
    assert steps.commit({P0: 9}) == {P0: SESSION_OVER}
