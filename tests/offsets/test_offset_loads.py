"""Where a claim goes on, answer by answer."""

from __future__ import annotations

import pytest

from rebalance.errors import refusal_of
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.port.requests import Fault, GetData
from tests.offsets.stepped_offsets import FENCE, P0, P1, P2, SteppedOffsets, path_of

LOG = "zkconsumer.offsets.member_offsets"


@pytest.fixture
def steps(caplog: pytest.LogCaptureFixture) -> SteppedOffsets:
    caplog.set_level("INFO", LOG)
    return SteppedOffsets()


# -- what is found -----------------------------------------------------------------------------------------------------


def test_an_offset_that_nobody_has_written_is_none(steps: SteppedOffsets) -> None:
    assert steps.load() is None
    assert steps.asked == [GetData(path_of(P0))]
    assert steps.offsets.committed() == {}


def test_what_was_seen_last_is_told_as_committed(steps: SteppedOffsets) -> None:
    steps.set(P0, b"0")
    steps.set(P1, b"7")
    assert [steps.load(partition) for partition in (P0, P1, P2)] == [0, 7, None]
    assert steps.offsets.committed() == {P0: 0, P1: 7}


def test_what_is_no_offset_counts_as_none_and_is_named(steps: SteppedOffsets, caplog: pytest.LogCaptureFixture) -> None:
    steps.set(P0, b"seven")
    assert steps.load() is None
    assert steps.offsets.committed() == {}
    [line] = caplog.messages
    assert line.startswith(f"{path_of(P0)}: ")
    assert line.endswith("; treated as missing")


# -- what was done here before -----------------------------------------------------------------------------------------


def test_what_was_done_here_before_counts_and_says_so(steps: SteppedOffsets, caplog: pytest.LogCaptureFixture) -> None:
    steps.set(P0, b"50")
    assert steps.load() == 50
    steps.offsets.remember(P0, 50)
    assert steps.load() == 50
    assert caplog.messages == []
    steps.offsets.remember(P0, 57)
    assert steps.load() == 57
    assert caplog.messages == ["offset of t-0: continuing from 57, up to which this member had read; stored is 50"]


def test_what_was_done_here_counts_where_nothing_is_stored(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    steps.offsets.remember(P0, 57)
    assert steps.load() == 57
    assert caplog.messages == []


def test_an_offset_that_somebody_has_lowered_is_obeyed_once_and_for_all(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    steps.set(P0, b"50")
    steps.load()
    steps.offsets.remember(P0, 57)
    steps.set(P0, b"10")
    assert steps.load() == 10
    assert caplog.messages == ["offset of t-0 was set to 10 by another client, below 50; continuing from there"]
    assert steps.load() == 10, "what was done before is forgotten"


def test_what_was_done_and_is_not_stored_is_behind(steps: SteppedOffsets) -> None:
    for partition, data in ((P0, b"49"), (P1, b"50")):
        steps.set(partition, data)
        steps.load(partition)
    for partition in (P0, P1, P2):
        steps.offsets.remember(partition, 50)
    steps.load(("other", 0))
    assert steps.offsets.behind() == {P0: 50, P2: 50}


def test_a_start_that_the_application_chose_comes_before_what_is_stored_or_was_done(steps: SteppedOffsets) -> None:
    steps.set(P0, b"50")
    steps.load()
    steps.offsets.remember(P0, 57)
    steps.offsets.start_at(P0, 20)
    assert steps.offsets.behind() == {}
    assert steps.commit({P0: 21}) == {}
    assert steps.stored() == (b"21", 1)


def test_work_behind_a_chosen_start_counts_although_the_offset_was_lowered_before(steps: SteppedOffsets) -> None:
    assert steps.commit({P0: 50}) == {}
    assert steps.commit({P0: 20}, explicit=True) == {}
    steps.offsets.start_at(P0, 30)
    steps.offsets.remember(P0, 35)
    assert steps.load() == 35


def test_a_position_outside_the_log_may_be_written_over_with_less(steps: SteppedOffsets) -> None:
    steps.set(P0, b"50")
    steps.load()
    steps.offsets.out_of_range(P0, range(8, 51), 5)
    assert steps.commit({P0: 7}) == {}
    assert steps.stored() == (b"7", 1)


def test_the_next_claim_starts_where_reading_went_on_if_nothing_was_committed_since(steps: SteppedOffsets) -> None:
    steps.set(P0, b"50")
    assert steps.load() == 50
    steps.offsets.out_of_range(P0, range(8, 51), 5)
    assert [steps.load(), steps.load()] == [5, 5]
    steps.set(P0, b"50")
    assert steps.load() == 50, "somebody has stored it since"


def test_what_was_done_behind_a_reset_counts_at_the_next_claim(steps: SteppedOffsets) -> None:
    steps.set(P0, b"50")
    steps.load()
    steps.offsets.out_of_range(P0, range(8, 51), 5)
    steps.offsets.remember(P0, 6)
    assert steps.load() == 6


# -- another incarnation of the topic ----------------------------------------------------------------------------------


def test_an_offset_from_before_the_creation_of_its_topic_is_none_and_may_be_written_over(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    created_zxid = steps.set(P0, b"50")
    assert steps.load(created_zxid=created_zxid) == 50
    assert steps.load(created_zxid=created_zxid + 1) is None
    assert caplog.messages == ["offset 50 of t-0 was stored before the topic was created again, and does not count"]
    assert steps.commit({P0: 3}) == {}
    assert steps.stored() == (b"3", 1)


def test_what_was_stored_before_the_creation_is_what_others_may_have_lowered_since(steps: SteppedOffsets) -> None:
    created_zxid = steps.set(P0, b"50") + 1
    assert steps.load(created_zxid=created_zxid) is None
    steps.offsets.remember(P0, 57)
    steps.set(P0, b"10")
    assert steps.load(created_zxid=created_zxid) == 10


def test_what_is_no_offset_and_younger_than_its_topic_says_nothing_against_what_was_done_here(
    steps: SteppedOffsets,
) -> None:
    zxid = steps.set(P0, b"seven")
    steps.offsets.remember(P0, 57)
    assert steps.load(created_zxid=zxid) == 57
    assert steps.load(created_zxid=zxid + 1) is None


def test_a_topic_that_nothing_is_known_of_is_forgotten_in_silence(steps: SteppedOffsets) -> None:
    steps.offsets.forget_topic("t", 0)
    assert steps.load() is None


def test_what_was_on_its_way_when_the_topic_was_created_anew_is_of_its_earlier_life(steps: SteppedOffsets) -> None:
    steps.set(P0, b"50")
    steps.load()
    steps.offsets.remember(P0, 57)
    steps.begin({P0: 60})
    steps.begin({P0: 61, ("other", 0): 5})
    steps.offsets.forget_topic("t", 0)
    steps.answer_all()
    assert steps.told == [{P0: "the topic was created again"}] * 2
    assert steps.stored() == (b"60", 1)
    assert steps.stored(("other", 0)) == (b"5", 0)
    assert steps.load() is None
    assert steps.load(("other", 0)) == 5


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_an_offset_that_may_not_be_read_is_asked_for_ever_more_rarely_until_it_may(
    steps: SteppedOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    steps.set(P0, b"50")
    steps.begin_load()
    waits_s = []
    for _ in range(7):
        steps.answer(Fault.NO_AUTH)
        assert steps.waiting == []
        waits_s.append(steps.pass_time())
    assert waits_s == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    refusal = refusal_of("read", path_of(P0), Fault.NO_AUTH)
    assert steps.offsets.refused == {P0: f"its offset cannot be read: {refusal}"}
    assert caplog.messages == [f"offset of t-0 cannot be read: {refusal}"]
    steps.answer()
    assert steps.loaded == [50]
    assert steps.offsets.refused == {}


def test_why_an_offset_may_not_be_read_is_told_in_zookeepers_words(steps: SteppedOffsets) -> None:
    steps.begin_load()
    steps.answer(Fault.OTHER, "node is on fire")
    assert steps.offsets.refused == {
        P0: f"its offset cannot be read: ZooKeeper did not read {path_of(P0)}: node is on fire"
    }


def test_a_lost_answer_is_asked_for_soon_however_often_and_after_however_many_refusals(steps: SteppedOffsets) -> None:
    steps.begin_load()
    waits_s = []
    for fault in (Fault.CONNECTION_LOSS, Fault.CONNECTION_LOSS, *[Fault.NO_AUTH] * 3, *[Fault.CONNECTION_LOSS] * 2):
        steps.answer(fault)
        waits_s.append(steps.pass_time())
    assert waits_s == [0.2, 0.2, 0.2, 0.4, 0.8, 1.6, 0.2]
    assert steps.loaded == []


def test_what_is_asked_for_again_is_of_the_same_life(steps: SteppedOffsets) -> None:
    created_zxid = steps.set(P0, b"50") + 1
    steps.recreate("t", created_zxid)
    steps.begin_load()
    steps.answer(Fault.CONNECTION_LOSS)
    steps.pass_time()
    steps.answer()
    assert steps.loaded == [None]


@pytest.mark.parametrize("is_first_lost", [False, True])
def test_a_load_falls_silent_with_its_session(steps: SteppedOffsets, is_first_lost: bool) -> None:
    steps.set(P0, b"50")
    steps.begin_load()
    if is_first_lost:
        steps.answer(Fault.CONNECTION_LOSS)
        steps.pass_time()
    steps.end()
    steps.open(Fence(FENCE.path, 0, FENCE.session_id + 1))
    steps.answer_all()
    assert steps.loaded == []
    assert steps.loop.next_due() is None
    assert steps.offsets.committed() == {}


def test_a_load_goes_on_when_its_session_registers_anew(steps: SteppedOffsets) -> None:
    steps.set(P0, b"50")
    steps.begin_load()
    steps.open(Fence(FENCE.path, 1, FENCE.session_id))
    steps.answer_all()
    assert steps.loaded == [50]
