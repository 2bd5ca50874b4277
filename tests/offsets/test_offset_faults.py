"""What becomes of an offset whose write is lost or refused, request by request."""

from __future__ import annotations

import pytest

from rebalance.errors import refusal_of
from rebalance.zookeeper.port.requests import Create, Fault, GetData, Multi, SetData, Sync
from tests.offsets.stepped_offsets import FENCE, GROUP_PATH, P0, P1, P2, PARENTS, SESSION_OVER, SteppedOffsets, path_of
from zkconsumer.offsets.commit_batch import MAX_OPERATIONS

LOG = "zkconsumer.offsets.zookeeper_offsets"


@pytest.fixture
def steps(caplog: pytest.LogCaptureFixture) -> SteppedOffsets:
    caplog.set_level("INFO", LOG)
    return SteppedOffsets()


# -- answers that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [True, False])
def test_what_became_of_a_lost_write_is_read_from_a_server_that_has_caught_up(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture, is_done: bool
) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6, P1: 7})
    steps.answer()
    steps.lose(is_done)
    assert steps.waiting == []
    assert steps.pass_time() == 0.2
    assert steps.waiting == [Sync(GROUP_PATH), GetData(path_of(P0)), GetData(path_of(P1))]
    steps.answer_all()
    assert steps.told[-1] == {}
    assert [steps.stored(partition) for partition in (P0, P1)] == [(b"6", 1), (b"7", 0)], "written exactly once"
    assert steps.offsets.committed() == {P0: 6, P1: 7}
    assert caplog.messages == []
    steps.asked.clear()
    assert steps.commit({P0: 8}) == {}
    assert steps.asked == [Multi((FENCE.check(), SetData(path_of(P0), b"8", 1)))]


def test_what_a_lost_write_has_done_does_not_fail_with_the_rest(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({("t", number): 6 for number in range(MAX_OPERATIONS)})
    while not isinstance(steps.waiting[0], Multi):
        steps.answer()
    steps.lose(is_done=True)
    steps.pass_time()
    while not isinstance(steps.waiting[0], Multi):
        steps.answer()
    steps.answer(Fault.OTHER, "no room")
    assert steps.told == [{("t", MAX_OPERATIONS - 1): "no room"}]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_lost_write_that_was_done_is_what_others_may_have_lowered_since(
    steps: SteppedOffsets, is_there: bool
) -> None:
    steps.know(p0=5, p1=5)
    if not is_there:
        steps.delete(path_of(P0))
        steps.load()
    steps.begin({P0: 50})
    steps.lose(is_done=True)
    steps.pass_time()
    steps.answer_all()
    steps.offsets.remember(P0, 57)
    steps.set(P0, b"20")
    assert steps.load() == 20


def test_of_several_looks_those_that_are_lost_are_taken_again_before_anything_is_written(
    steps: SteppedOffsets,
) -> None:
    steps.set(P0, b"90")
    steps.begin({P0: 6, P1: 7}, explicit=True)
    steps.lose(is_done=True)
    steps.answer()
    assert steps.waiting == []
    assert steps.pass_time() == 0.2
    assert steps.waiting == [Sync(GROUP_PATH), GetData(path_of(P0)), GetData(path_of(P1))]
    steps.answer_all()
    assert steps.told == [{}]
    assert [steps.stored(partition) for partition in (P0, P1)] == [(b"6", 1), (b"7", 0)]


def test_parents_whose_fate_is_unknown_are_made_again(steps: SteppedOffsets) -> None:
    steps.begin({P0: 6})
    steps.answer()
    steps.lose(is_done=True)
    for _ in PARENTS[1:]:
        steps.answer()
    assert (steps.waiting, steps.pass_time()) == ([], 0.2)
    steps.answer_all()
    assert steps.told == [{}]
    assert steps.stored() == (b"6", 0)


def test_what_is_known_to_be_done_does_not_fail_with_the_session(steps: SteppedOffsets) -> None:
    steps.know(p0=5, p1=5)
    steps.begin({P0: 6, P1: 6})
    steps.lose(is_done=True)
    steps.pass_time()
    for _ in (Sync, P0):
        steps.answer()
    steps.answer(Fault.CONNECTION_LOSS)
    steps.end()
    assert steps.told == [{P1: SESSION_OVER}]


def test_nothing_is_asked_after_the_end_of_the_session_that_a_lost_answer_waits_for(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.lose(is_done=False)
    steps.end()
    steps.pass_time()
    assert steps.waiting == []
    assert steps.told[-1] == {P0: SESSION_OVER}


def test_late_looks_after_the_end_of_the_session_change_nothing(steps: SteppedOffsets) -> None:
    steps.set(P0, b"5")
    steps.begin({P0: 6})
    steps.end()
    steps.answer_all()
    assert steps.told == [{P0: SESSION_OVER}]
    assert steps.offsets.committed() == {}
    assert steps.asked == [GetData(path_of(P0))]


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_session_that_has_expired_ends_the_commit(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.answer(Fault.SESSION_EXPIRED)
    assert steps.told[-1] == {P0: SESSION_OVER}


@pytest.mark.parametrize(("reason", "said"), [("quota exceeded", "quota exceeded"), ("", "refused by ZooKeeper")])
def test_a_commit_that_is_refused_as_a_whole_says_why(steps: SteppedOffsets, reason: str, said: str) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.answer(Fault.OTHER, reason)
    assert steps.told[-1] == {P0: said}
    assert steps.waiting == []


@pytest.mark.parametrize(("fault", "reason"), [(Fault.NO_AUTH, ""), (Fault.OTHER, "closed")])
def test_a_registration_that_its_own_member_may_not_read_fences_everything_off(
    steps: SteppedOffsets, fault: Fault, reason: str
) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.answer_parts([fault, Fault.ROLLED_BACK], reason)
    assert steps.told == [{P0: f"the registration cannot be checked: {refusal_of('read', FENCE.path, fault, reason)}"}]


@pytest.mark.parametrize("check", [Fault.NO_NODE, Fault.BAD_VERSION])
def test_who_is_not_registered_writes_nothing(steps: SteppedOffsets, check: Fault) -> None:
    steps.know(p0=5, p1=5)
    steps.begin({P0: 6, P1: 6})
    steps.answer_parts([check, Fault.ROLLED_BACK, Fault.ROLLED_BACK])
    reason = "this session no longer has the registration"
    assert steps.told[-1] == {P0: reason, P1: reason}


def test_one_node_that_may_not_be_written_is_left_out_and_the_others_are_looked_at_and_written(
    steps: SteppedOffsets,
) -> None:
    steps.know(p0=5, p1=5)
    steps.begin({P0: 6, P1: 6, P2: 6})
    steps.answer()
    steps.answer_parts([Fault.ROLLED_BACK, Fault.ROLLED_BACK, Fault.NO_AUTH, Fault.ROLLED_BACK])
    assert steps.waiting == [GetData(path_of(P0)), GetData(path_of(P2))]
    steps.answer_all()
    assert steps.told[-1] == {P1: refusal_of("write", path_of(P1), Fault.NO_AUTH)}
    assert [steps.stored(partition) for partition in (P0, P1, P2)] == [(b"6", 1), (b"5", 0), (b"6", 0)]


def test_a_node_that_may_not_be_created_is_said_to_be_so_in_zookeepers_words(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({P1: 6})
    steps.answer()
    steps.answer_parts([Fault.ROLLED_BACK, Fault.OTHER], "no room")
    assert steps.told[-1] == {P1: f"ZooKeeper did not create {path_of(P1)}: no room"}


@pytest.mark.parametrize(("fault", "reason"), [(Fault.NO_AUTH, ""), (Fault.OTHER, "no room")])
@pytest.mark.parametrize("path", PARENTS[2:])
def test_parents_that_may_not_be_made_are_named(steps: SteppedOffsets, path: str, fault: Fault, reason: str) -> None:
    steps.begin({P0: 6})
    while steps.waiting[0] != Create(path):
        steps.answer()
    steps.answer(fault, reason)
    steps.answer_all()
    assert steps.told == [{P0: refusal_of("create", path, fault, reason)}]


@pytest.mark.parametrize("fault", [Fault.NO_AUTH, Fault.OTHER])
def test_an_offset_that_may_not_be_read_is_not_written_and_the_others_are(steps: SteppedOffsets, fault: Fault) -> None:
    steps.begin({P0: 6, P1: 7})
    steps.answer(fault, "closed")
    steps.answer_all()
    assert steps.told == [{P0: refusal_of("read", path_of(P0), fault, "closed")}]
    assert [steps.stored(partition) for partition in (P0, P1)] == [None, (b"7", 0)]


def test_looks_that_end_with_the_session_fail_what_they_were_for(steps: SteppedOffsets) -> None:
    steps.begin({P0: 6})
    steps.answer(Fault.SESSION_EXPIRED, "")
    assert steps.told == [{P0: refusal_of("read", path_of(P0), Fault.SESSION_EXPIRED)}]
