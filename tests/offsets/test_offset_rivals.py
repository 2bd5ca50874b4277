"""What becomes of an offset that somebody else writes, too, request by request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rebalance.zookeeper.port.requests import Fault, GetData, Multi, Stat
from tests.offsets.stepped_offsets import GROUP_PATH, P0, P1, P2, SteppedOffsets, path_of

LOG = "zkconsumer.offsets.zookeeper_offsets"
JAVA_OR_OPERATOR = "a suspended Java member, a broker's OffsetCommit or an operator wrote it"


@pytest.fixture
def steps(caplog: pytest.LogCaptureFixture) -> SteppedOffsets:
    caplog.set_level("INFO", LOG)
    return SteppedOffsets()


# -- what somebody else has stored -------------------------------------------------------------------------------------


def test_a_higher_offset_is_left_alone_and_named_once(steps: SteppedOffsets, caplog: pytest.LogCaptureFixture) -> None:
    steps.know(p0=10)
    steps.set(P0, b"50")
    assert steps.commit({P0: 40, P1: 1}) == {}
    assert len(steps.multis()) == 2, "one at the version that was seen last, and one without what is stored already"
    assert steps.commit({P0: 41}) == {}
    held = "offset of t-0: another client has stored 50; 40 does not overwrite it"
    assert caplog.messages == [held]
    steps.set(P0, b"60")
    assert steps.commit({P0: 55}) == {}
    assert caplog.messages == [held, "offset of t-0: another client has stored 60; 55 does not overwrite it"]
    assert steps.stored() == (b"60", 2)


def test_an_offset_that_this_member_has_stored_itself_is_left_alone_and_not_named(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """Two threads commit: one was asked for before the other one had stored its message in hand."""
    for own in (50, 60):
        steps.know(p0=own)
        assert steps.commit({P0: own - 1}) == {}
    assert steps.stored() == (b"60", 1)
    assert caplog.messages == []


def test_an_offset_that_was_passed_and_is_set_again_is_named_again(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    steps.know(p0=50)
    for position in (60, 30):
        steps.set(P0, b"100")
        assert steps.commit({P0: position}) == {}
        assert steps.commit({P0: 20}, explicit=True) == {}
    assert caplog.messages == [
        f"offset of t-0: another client has stored 100; {position} does not overwrite it" for position in (60, 30)
    ]


def test_an_explicit_commit_lowers_what_it_knows_of(steps: SteppedOffsets) -> None:
    steps.know(p0=50)
    assert steps.commit({P0: 20}, explicit=True) == {}
    assert steps.stored() == (b"20", 1)


@pytest.mark.parametrize(
    ("before", "meanwhile", "is_lowered"),
    [
        pytest.param(b"50", b"51", False, id="raised"),
        pytest.param(b"50", b"50", True, id="written again as it was"),
        pytest.param(b"50", b"30", True, id="lowered"),
        pytest.param(b"garbage", b"100", False, id="made readable"),
        pytest.param(None, b"100", False, id="created"),
    ],
)
def test_an_explicit_commit_lowers_nothing_that_was_raised_meanwhile(
    steps: SteppedOffsets, before: bytes | None, meanwhile: bytes, is_lowered: bool
) -> None:
    if before is not None:
        steps.set(P0, before)
    steps.load()
    steps.set(P0, meanwhile)
    failed = steps.commit({P0: 10, P1: 9}, explicit=True)
    assert steps.stored(P1) == (b"9", 0)
    if is_lowered:
        assert (failed, steps.stored()) == ({}, (b"10", 2))
    else:
        stored = steps.stored()
        assert stored is not None
        assert stored[0] == meanwhile
        assert failed == {P0: f"another client has stored {int(meanwhile)}, which is higher than 10"}


def test_a_lower_offset_under_a_live_owner_is_written_over_and_named(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    steps.know(p0=50)
    steps.set(P0, b"20")
    assert steps.commit({P0: 60}) == {}
    assert steps.stored() == (b"60", 2)
    assert caplog.messages == [f"offset of t-0 went from 50 to 20: {JAVA_OR_OPERATOR}; writing 60 again"]


def test_the_value_itself_written_by_somebody_else_is_no_write_of_mine(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    steps.know(p0=50)
    for data in (b"55", b"60"):
        steps.set(P0, data)
    steps.begin({P0: 60})
    steps.answer_all()
    assert steps.told[-1] == {}
    assert steps.stored() == (b"60", 2)
    assert caplog.messages == []
    steps.offsets.remember(P0, 70)
    steps.set(P0, b"55")
    assert steps.load() == 70, "55 is not below the 50 that this member wrote"


# -- where reading begins ----------------------------------------------------------------------------------------------


def test_a_start_is_stored_where_there_is_none_and_where_it_is_the_same(steps: SteppedOffsets) -> None:
    steps.set(P1, b"seven")
    steps.set(P2, b"100")
    for partition in (P0, P1, P2):
        steps.begin_start(partition, 100)
        steps.answer_all()
    assert steps.told == [{}] * 3
    assert [steps.stored(partition) for partition in (P0, P1, P2)] == [(b"100", 0), (b"100", 1), (b"100", 0)]


@pytest.mark.parametrize("other", [b"50", b"500"])
def test_a_start_is_not_written_over_what_is_stored(steps: SteppedOffsets, other: bytes) -> None:
    steps.load()
    steps.set(P0, other)
    steps.begin_start(P0, 100)
    steps.answer_all()
    assert steps.told == [{P0: f"another client has stored {other.decode()} in the meantime"}]
    assert steps.stored() == (other, 0)


def test_a_start_is_written_over_what_the_log_does_not_have(steps: SteppedOffsets) -> None:
    steps.set(P0, b"500")
    steps.load()
    steps.offsets.out_of_range(P0, range(401, 501), 100)
    steps.begin_start(P0, 100)
    steps.answer_all()
    assert steps.told == [{}]
    assert steps.stored() == (b"100", 1)


def test_two_starts_of_one_partition_are_compared_with_each_other(steps: SteppedOffsets) -> None:
    steps.know(p1=1)
    steps.begin({P1: 2})
    steps.begin_start(P0, 100)
    steps.begin_start(P0, 100)
    steps.begin_start(P0, 120)
    steps.answer_all()
    assert steps.told[-3:] == [{}, {}, {P0: "another client has stored 100 in the meantime"}]


def test_a_position_takes_the_place_of_a_start_that_waits_and_other_starts_stay_starts(steps: SteppedOffsets) -> None:
    steps.know(p2=1)
    steps.set(P0, b"50")
    steps.set(P1, b"50")
    steps.begin({P2: 2})
    steps.begin_start(P0, 100)
    steps.begin_start(P1, 100)
    steps.begin({P0: 120, ("t", 3): 1})
    steps.answer_all()
    assert len(steps.multis()) == 2
    assert steps.told[-3:] == [{}, {P1: "another client has stored 50 in the meantime"}, {}]
    assert [steps.stored(partition) for partition in (P0, P1)] == [(b"120", 1), (b"50", 0)]


def test_a_lost_start_is_not_written_over_a_lower_one(steps: SteppedOffsets, caplog: pytest.LogCaptureFixture) -> None:
    assert steps.commit({P1: 1}) == {}
    steps.begin_start(P0, 100)
    steps.answer()
    steps.lose(is_done=False)
    steps.set(P0, b"50")
    steps.pass_time()
    steps.answer_all()
    assert steps.told[-1] == {P0: "another client has stored 50 in the meantime"}
    assert caplog.messages == []


# -- lost races --------------------------------------------------------------------------------------------------------


def bad_version(steps: SteppedOffsets) -> None:
    steps.answer_parts([Fault.ROLLED_BACK, Fault.BAD_VERSION])


def no_parent(steps: SteppedOffsets) -> None:
    steps.delete(f"{GROUP_PATH}/offsets")
    steps.answer()


def node_exists(steps: SteppedOffsets) -> None:
    steps.set(P0, b"4")
    steps.answer()


@pytest.mark.parametrize("race", [bad_version, no_parent])
def test_a_lost_race_is_looked_at_and_tried_again(
    steps: SteppedOffsets, race: Callable[[SteppedOffsets], None]
) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    race(steps)
    assert steps.waiting == [GetData(path_of(P0))]
    steps.answer_all()
    assert steps.told[-1] == {}
    assert (steps.stored() or (b"", 0))[0] == b"6"


def test_a_node_that_somebody_creates_first_is_looked_at_and_written(steps: SteppedOffsets) -> None:
    steps.know(p1=5)
    steps.begin({P0: 6})
    steps.answer()
    node_exists(steps)
    steps.answer_all()
    assert steps.told[-1] == {}
    assert steps.stored() == (b"6", 1)


def test_eight_races_are_lost_before_somebody_else_is_said_to_keep_writing(steps: SteppedOffsets) -> None:
    steps.know(p0=5, p1=5)
    steps.begin({P0: 6, P1: 6})
    for lost in range(1, 10):
        assert isinstance(steps.waiting[0], Multi), lost
        steps.answer_parts([Fault.ROLLED_BACK, Fault.BAD_VERSION, Fault.ROLLED_BACK])
        while steps.waiting and isinstance(steps.waiting[0], GetData):
            steps.answer()
    steps.answer_all()
    assert steps.told[-1] == {P0: "another client writes it again and again (version moved)"}
    assert (steps.stored(P0), steps.stored(P1)) == ((b"5", 0), (b"6", 1))


def test_what_is_written_while_its_topic_is_forgotten_is_not_taken_for_mine(steps: SteppedOffsets) -> None:
    steps.know(p0=5)
    steps.begin({P0: 6})
    steps.offsets.forget_topic("t", 0)
    steps.answer_parts([True, Stat(1, 0, 0, 0, 0)])
    assert steps.offsets.committed() == {P0: 5}
