"""How offsets are written, request by request."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rebalance.subscription import Partition
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.port.requests import Create, Fault, GetData, Multi, SetData
from tests.offsets.stepped_offsets import FENCE, GROUP_PATH, P0, P1, P2, PARENTS, SESSION_OVER, SteppedOffsets, path_of
from zkconsumer.offsets.commit_batch import MAX_BYTES, MAX_OPERATIONS

LOG = "zkconsumer.offsets.zookeeper_offsets"


@pytest.fixture
def steps(caplog: pytest.LogCaptureFixture) -> SteppedOffsets:
    caplog.set_level("INFO", LOG)
    return SteppedOffsets()


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_a_first_commit_reads_makes_the_parents_and_creates_behind_the_fence(steps: SteppedOffsets) -> None:
    assert steps.commit({P0: 5, P1: 0}) == {}
    assert steps.asked == [
        GetData(path_of(P0)),
        GetData(path_of(P1)),
        *(Create(path) for path in PARENTS),
        Multi((FENCE.check(), Create(path_of(P0), b"5"), Create(path_of(P1), b"0"))),
    ]
    assert steps.offsets.committed() == {P0: 5, P1: 0}
    assert steps.offsets.failures == 0


def test_a_later_commit_sets_at_the_version_last_seen_and_the_same_value_writes_nothing(steps: SteppedOffsets) -> None:
    steps.know(p0=5, p1=5)
    assert steps.commit({P0: 6, P1: 5}) == {}
    assert steps.commit({P0: 7}) == {}
    assert steps.asked == [
        Multi((FENCE.check(), SetData(path_of(P0), b"6", 0))),
        Multi((FENCE.check(), SetData(path_of(P0), b"7", 1))),
    ]


def test_the_parents_of_a_topic_are_made_once_and_again_when_they_are_deleted(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    assert steps.commit({P1: 5, ("u", 0): 5, ("s", 0): 5}) == {}
    made = [request.path for request in steps.asked if isinstance(request, Create)]
    assert made == [*PARENTS[:3], f"{GROUP_PATH}/offsets/s", f"{GROUP_PATH}/offsets/u"]
    steps.delete(f"{GROUP_PATH}/offsets/t")
    assert steps.commit({P0: 6, P1: 6}) == {}
    assert steps.stored(P0) == steps.stored(P1) == (b"6", 0)


def test_a_node_that_may_not_be_looked_up_before_is_not_read_twice(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    assert steps.commit({P0: 6, P1: 6}) == {}
    assert [request for request in steps.asked if isinstance(request, GetData)] == [GetData(path_of(P1))]


@pytest.mark.parametrize("count", [MAX_OPERATIONS - 1, MAX_OPERATIONS, 2 * MAX_OPERATIONS - 2])
def test_no_write_has_more_than_the_most_operations(steps: SteppedOffsets, count: int) -> None:
    assert steps.commit({("t", number): number for number in range(count)}) == {}
    sizes = [len(multi.operations) for multi in steps.multis()]
    assert sum(sizes) - len(sizes) == count
    assert sizes[0] == MAX_OPERATIONS
    assert len(sizes) == -(-count // (MAX_OPERATIONS - 1))


def test_no_write_has_more_than_the_most_bytes_unless_one_offset_alone_has(steps: SteppedOffsets) -> None:
    def topic(size: int) -> str:
        """Return a topic so long that the path and data of an offset of two digits have that size."""
        return "x" * (size - 2 - len(path_of(("x", 0))) + 1)

    half = MAX_BYTES // 2
    positions = {(topic(size), number): 10 + number for number, size in enumerate([half, half, half, half + 1])}
    assert steps.commit({**positions, (topic(MAX_BYTES + 1), 4): 14, ("t", 5): 15}) == {}
    assert [len(multi.operations) - 1 for multi in steps.multis()] == [2, 1, 1, 1, 1]


def test_a_position_that_no_node_can_hold_fails_alone(steps: SteppedOffsets) -> None:
    failed = steps.commit({P0: 7, P1: -1, P2: 9})
    assert failed == {P1: "offset -1 is not an integer from 0 to 2^63-1"}
    assert [steps.stored(partition) for partition in (P0, P1, P2)] == [(b"7", 0), None, (b"9", 0)]
    assert len(steps.multis()) == 1
    assert steps.offsets.failures == 1
    assert steps.commit({P1: -1, P2: -2}).keys() == {P1, P2}
    assert steps.offsets.failures == 3


def test_what_fails_is_what_was_not_stored_before_and_not_written_by_an_earlier_part(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({P0: 5, **{("t", number): 6 for number in range(1, MAX_OPERATIONS + 2)}})
    for _ in range(MAX_OPERATIONS + 1):
        assert isinstance(steps.answer(), GetData)
    steps.answer()
    steps.answer(Fault.OTHER, "no room")
    assert steps.told == [{("t", number): "no room" for number in (MAX_OPERATIONS, MAX_OPERATIONS + 1)}]


# -- one after the other -----------------------------------------------------------------------------------------------


def test_calls_that_wait_are_written_together_and_heard_of_in_their_order(steps: SteppedOffsets) -> None:
    steps.know(p0=5, p1=5, p2=5)
    for positions in ({P0: 6}, {P1: 6}, {P1: 7, P2: 7}, {}):
        steps.begin(positions)
    steps.answer_all()
    assert [len(multi.operations) - 1 for multi in steps.multis()] == [1, 2]
    assert steps.told == [{}] * 4
    assert steps.stored(P1) == (b"7", 1)


def test_thousands_of_calls_that_have_nothing_to_write_are_done_one_after_the_other(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    for _ in range(3000):
        steps.begin({P0: 6}, explicit=True)
    steps.answer_all()
    assert steps.told == [{}] * 3001
    assert len(steps.multis()) == 1


def test_a_session_may_end_in_the_middle_of_an_answer_which_is_told_once(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    told: list[dict[Partition, str]] = []

    def end(failed: Mapping[Partition, str]) -> None:
        told.append(dict(failed))
        steps.end()

    steps.offsets.commit(steps.fence, {P0: 6}, end)
    steps.begin({P0: 7})
    steps.answer()
    assert (told, steps.told) == ([{}], [{P0: SESSION_OVER}])


def test_a_topic_may_be_forgotten_in_the_middle_of_an_answer(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    told: list[dict[Partition, str]] = []

    def forget(failed: Mapping[Partition, str]) -> None:
        told.append(dict(failed))
        steps.offsets.forget_topic("t", 0)

    steps.offsets.commit(steps.fence, {P0: 6}, forget)
    steps.answer(Fault.SESSION_EXPIRED)
    assert told == [{P0: SESSION_OVER}]
    assert steps.commit({P0: 6}) == {}


def test_a_call_in_the_middle_of_an_answer_waits_for_its_turn(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    order: list[int] = []

    def again(_: object) -> None:
        order.append(6)
        steps.offsets.commit(steps.fence, {P0: 8}, lambda failed: order.append(8))

    steps.offsets.commit(steps.fence, {P0: 6}, again)
    steps.offsets.commit(steps.fence, {P0: 7}, lambda failed: order.append(7))
    steps.answer_all()
    assert order == [6, 7, 8]
    assert steps.stored() == (b"8", 2), "the last two were written together"


@pytest.mark.parametrize("later", [{P0: 5}, {P1: 6, P0: 6}], ids=["back", "among others"])
def test_a_position_that_goes_back_is_written_by_itself(steps: SteppedOffsets, later: dict[Partition, int]) -> None:
    steps.know(p0=1, p1=1)
    for positions in ({P1: 2}, {P0: 7}, later):
        steps.begin(positions)
    steps.answer_all()
    assert steps.told == [{}] * 3
    assert steps.stored() == (b"7", 1), "what goes back is not written over it"
    assert steps.stored(P1) == (b"%d" % later.get(P1, 2), 1 if P1 not in later else 2)


def test_the_same_position_again_is_written_together_with_the_first(steps: SteppedOffsets) -> None:
    steps.know(p0=1, p1=1)
    for positions in ({P1: 2}, {P0: 7}, {P0: 7, P1: 3}):
        steps.begin(positions)
    steps.answer_all()
    assert [len(multi.operations) - 1 for multi in steps.multis()] == [1, 2]


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
def test_an_explicit_commit_is_written_by_itself(steps: SteppedOffsets, first: bool, second: bool) -> None:
    steps.know(p0=1, p1=1)
    steps.begin({P1: 2})
    steps.begin({P0: 7}, explicit=first)
    steps.begin({P1: 8}, explicit=second)
    steps.answer_all()
    assert [len(multi.operations) - 1 for multi in steps.multis()] == [1, 1, 1]


def test_calls_that_wait_fail_with_the_session_and_are_told_in_their_order(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    told: list[tuple[int, dict[Partition, str]]] = []
    for number, positions in enumerate(({P0: 6}, {P0: 4}, {P1: 7})):
        steps.offsets.commit(steps.fence, positions, lambda failed, number=number: told.append((number, dict(failed))))  # type: ignore[misc]
    steps.end()
    assert told == [(0, {P0: SESSION_OVER}), (1, {P0: SESSION_OVER}), (2, {P1: SESSION_OVER})]
    assert steps.offsets.failures == 3
    steps.answer_all()
    assert len(told) == 3, "the late answer says nothing more"
    assert steps.offsets.committed() == {P0: 5}
    assert steps.commit({P0: 8}) == {P0: SESSION_OVER}
    assert len(steps.multis()) == 1


def test_before_the_first_registration_nothing_is_written() -> None:
    steps = SteppedOffsets(is_registered=False)
    assert steps.commit({P0: 8}) == {P0: SESSION_OVER}
    assert steps.multis() == []


def test_an_end_of_the_session_without_commits_is_silent(steps: SteppedOffsets) -> None:
    steps.end()
    assert steps.offsets.failures == 0
    steps.open(FENCE)
    assert steps.commit({P0: 8}) == {}


def test_the_fence_is_that_of_the_newest_registration(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    newer = Fence(FENCE.path, 3, FENCE.session_id)
    steps.begin({P0: 6})
    steps.open(newer)
    steps.begin({P0: 7})
    steps.answer_all()
    assert [multi.operations[0] for multi in steps.multis()] == [FENCE.check(), newer.check()]
    assert steps.told[-2:] == [{}, {P0: "this session no longer has the registration"}]


# -- another topic -----------------------------------------------------------------------------------------------------


def test_nothing_more_is_written_of_a_topic_that_was_created_anew(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.commit({("u", 0): 1})
    steps.begin({P0: 6})
    steps.begin({P0: 7, ("u", 0): 2})
    steps.offsets.forget_topic("t", 0)
    steps.answer_all()
    assert steps.told[-2:] == [{P0: "the topic was created again"}] * 2
    assert (steps.stored(), steps.stored(("u", 0))) == ((b"6", 1), (b"2", 1))
    assert steps.commit({P0: 8}) == {}, "its version is found out"
    assert steps.stored() == (b"8", 2)


@pytest.mark.parametrize("result", [Fault.NO_AUTH, Fault.BAD_VERSION])
def test_a_write_that_fails_while_its_topic_is_forgotten_is_not_tried_again(
    steps: SteppedOffsets, result: Fault
) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.offsets.forget_topic("t", 0)
    steps.answer_parts([Fault.ROLLED_BACK, result])
    assert [set(failed) for failed in steps.told] == [{P0}]
    assert steps.waiting == []


@pytest.mark.parametrize("fault", [None, Fault.NO_AUTH])
def test_a_look_at_a_node_whose_topic_is_forgotten_meanwhile_decides_nothing(
    steps: SteppedOffsets, fault: Fault | None
) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.lose(is_done=True)
    steps.pass_time()
    steps.answer()
    steps.offsets.forget_topic("t", 0)
    steps.answer(fault)
    assert [set(failed) for failed in steps.told] == [{P0}]
    assert steps.waiting == []


def test_a_commit_that_comes_behind_a_failed_one_is_written_by_itself(steps: SteppedOffsets) -> None:
    steps.know(p0=5, p1=5)
    steps.begin({P1: 6})
    steps.begin({P0: 100, P2: 7})
    steps.offsets.forget_topic("t", 0)
    steps.begin({P0: 3})
    steps.answer_all()
    assert [set(failed) for failed in steps.told[-3:]] == [{P1}, {P0, P2}, set()]


# -- what counts as stored ---------------------------------------------------------------------------------------------


def test_a_position_is_stored_when_it_or_a_higher_one_was_seen(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    assert [steps.offsets.is_stored(P0, position) for position in (4, 5, 6)] == [True, True, False]
    assert not steps.offsets.is_stored(P1, 0)


def test_a_position_that_was_named_to_lower_what_is_stored_is_not_stored_by_a_higher_one(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    assert [steps.offsets.is_stored(P0, position, explicit=True) for position in (4, 5, 6)] == [False, True, False]


def test_an_offset_that_the_log_does_not_have_stores_nothing_below_it(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.offsets.remember(P0, 4)
    assert steps.offsets.behind() == {}
    steps.offsets.out_of_range(P0, range(4, 6), 3)
    assert [steps.offsets.is_stored(P0, position) for position in (4, 5)] == [False, True]
    assert steps.offsets.behind() == {P0: 4}


@pytest.mark.parametrize("ending", ["answered", "answer lost", "sent again"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_decided_before_the_log_was_found_shorter_does_not_stop_the_commits_after_the_reset(
    steps: SteppedOffsets, ending: str, is_there: bool
) -> None:
    if is_there:
        steps.know(p0=100)
    else:
        assert steps.load() is None
    steps.begin({P0: 104})
    while not isinstance(steps.waiting[0], Multi):
        steps.answer()
    steps.offsets.out_of_range(P0, range(100, 111), 0)
    if ending != "answered":
        steps.lose(is_done=ending == "answer lost")
        steps.pass_time()
    steps.answer_all()
    assert steps.told[-1] == {}
    for position in (105, 0, 3):  # 105 was in hand
        assert steps.commit({P0: position}) == {}
        assert steps.stored() == (b"%d" % position, steps.offsets.record(P0).version)
    assert steps.commit({P0: 2}) == {}
    assert steps.offsets.committed() == {P0: 3}, "from here on it is an offset like any other"


def test_a_commit_decided_before_another_one_does_not_lower_it_after_a_reset(steps: SteppedOffsets) -> None:
    steps.know(p0=12)
    steps.offsets.out_of_range(P0, range(101, 13), 20)  # retention deleted what was to be read
    assert steps.commit({P0: 21}) == {}
    assert steps.commit({P0: 20}) == {}
    assert steps.stored() == (b"21", 1)


def test_an_explicit_commit_that_lowers_counts_as_such_when_its_answer_is_lost(steps: SteppedOffsets) -> None:
    steps.know(p0=50)
    steps.offsets.remember(P0, 57)
    steps.begin({P0: 20}, explicit=True)
    steps.lose(is_done=True)
    steps.pass_time()
    steps.answer_all()
    assert steps.told[-1] == {}
    assert steps.load() == 20
