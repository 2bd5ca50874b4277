"""The machine of a lane, event by event: what it sends when, and what stops it."""

from __future__ import annotations

import math

import pytest

from simpleconsumer.types import ActiveProducer, ProducerId, TopicPartition
from zkconsumer.mirror.errors import AnotherWriter, BatchRefused, BelowRun, LaneStopped, Misplaced, NumberRefused
from zkconsumer.mirror.lanes.lane import FRESH_S, LEASE_WAIT_S, REFUSED_S, LaneMachine, LaneState
from zkconsumer.mirror.lanes.lane_events import (
    Action,
    Answered,
    Cause,
    Connect,
    Connected,
    EndRead,
    Event,
    GoOn,
    Lost,
    Moment,
    Offered,
    PutOff,
    ReadEnd,
    ReadRefused,
    Run,
    Send,
    Stop,
    Stored,
    Tail,
)

NAME = TopicPartition("t", 0)
PRODUCER = ProducerId(7, 1)
RUN = Run(PRODUCER, 100, 40)
NOW_MS, DAY_MS = 1_800_000_000_000, 86_400_000


class Lane:
    """A machine whose time a test sets."""

    def __init__(self, *, follows_others: bool = False) -> None:
        self.machine = LaneMachine(NAME, RUN, follows_others=follows_others)
        self.now_s = 1000.0
        self.leased_s = math.inf
        assert self.machine.start() == [Connect(0.0)]

    def take(self, event: Event, after_s: float = 0.0) -> list[Action]:
        self.now_s += after_s
        return self.machine.take(event, Moment(self.now_s, NOW_MS, self.leased_s))

    def offer(self, records: int = 10, newest_ms: int = NOW_MS) -> list[Action]:
        return self.take(Offered(records, newest_ms))

    def stopped_by(self, event: Event, after_s: float = 0.0) -> LaneStopped:
        [action] = self.take(event, after_s)
        assert isinstance(action, Stop)
        assert self.machine.state is LaneState.STOPPED
        return action.error


def read(end: int, *, newest_ms: int = NOW_MS, appended: int | None = None, known: int | None = None) -> EndRead:
    """The end of a log in which all is as it should be."""
    tail = Tail(PRODUCER, RUN.sequence_at(end - 1), end - 1, newest_ms) if end > RUN.first_offset else None
    producer = None if known is None else ActiveProducer(7, 1, known, newest_ms, None)
    return EndRead(end, end if appended is None else appended, tail, producer)


def ready(end: int = 110, **more: bool) -> Lane:
    """A lane that has read the end of the log."""
    lane = Lane(**more)
    assert lane.take(Connected()) == [ReadEnd()]
    assert lane.take(read(end)) == [GoOn(end, Cause.START)]
    return lane


def flowing() -> Lane:
    """A lane with five requests under way, from offset 120 to 170, after the first one was answered."""
    lane = ready()
    assert lane.offer() == [Send(110)]
    assert [lane.offer() for _ in range(4)] == [[]] * 4, "the first one goes alone"
    assert not lane.machine.is_ready
    assert lane.take(Answered(0, 110)) == [Stored(110, 120), *(Send(offset) for offset in (120, 130, 140, 150))]
    assert lane.offer() == [Send(160)]
    return lane


def test_after_the_answer_to_the_first_request_five_are_under_way() -> None:
    lane = flowing()
    assert (lane.machine.stored, lane.machine.position, lane.machine.is_ready) == (120, 170, False)
    assert lane.take(Answered(0, 120)) == [Stored(120, 130)]
    assert lane.machine.is_ready


def test_after_a_lost_connection_the_end_says_what_is_stored_and_the_rest_goes_again_the_first_alone() -> None:
    lane = flowing()
    [connect] = lane.take(Lost("gone"))
    assert isinstance(connect, Connect)
    assert lane.take(Connected()) == [ReadEnd()]
    assert lane.take(read(140)) == [Stored(120, 140), Send(140)]
    assert lane.take(Answered(0, 140)) == [Stored(140, 150), Send(150), Send(160)]


def test_what_the_leader_has_and_replicas_lack_is_waited_for_and_not_sent_again() -> None:
    lane = flowing()
    lane.take(Lost("gone"))
    lane.take(Connected())
    for event in (read(120, appended=170), read(120, known=RUN.sequence_at(169))):
        [again] = lane.take(event)
        assert isinstance(again, ReadEnd)
        assert again.lag == "replicas have the offsets before 120, the leader those before 170"
    assert lane.take(read(170, known=RUN.sequence_at(169))) == [Stored(120, 170)]
    assert lane.machine.is_settled


def test_an_end_that_was_cut_off_is_where_the_lane_goes_on() -> None:
    lane = flowing()
    lane.take(Lost("gone"))
    lane.take(Connected())
    assert lane.take(read(105)) == [GoOn(105, Cause.CUT)]
    assert lane.machine.position == 105


@pytest.mark.parametrize("code", [7, 19, 20, -1, 45])
def test_after_an_error_nothing_is_sent_before_all_answers_have_come_and_the_end_was_read(code: int) -> None:
    lane = flowing()
    assert lane.take(Answered(code, -1)) == []
    for _ in range(3):
        assert lane.take(Answered(45, -1)) == []
    [again] = lane.take(Answered(45, -1))
    assert isinstance(again, ReadEnd)
    assert again.after_s > 0
    assert lane.take(read(120)) == [Send(120)]


def test_a_broker_that_does_not_lead_is_left_once_all_answers_have_come() -> None:
    lane = flowing()
    answers = [lane.take(Answered(6, -1)) for _ in range(5)]
    assert answers[:4] == [[]] * 4
    assert isinstance(answers[4][0], Connect)
    assert answers[4][0].is_denied


def test_an_answer_with_another_offset_stops_the_lane_and_all_misplaced_batches_are_named() -> None:
    lane = flowing()
    for base_offset in (121, 131, 141, 151):
        assert lane.take(Answered(0, base_offset)) == []
    error = lane.stopped_by(Answered(0, 161))
    assert isinstance(error, Misplaced)
    assert [each[:2] for each in error.batches] == [(offset, offset + 1) for offset in (120, 130, 140, 150, 160)]
    assert str(error).startswith(
        "t/0: the broker has stored batches at other offsets: 10 records expected at 120, found"
    )


def test_a_misplaced_batch_is_named_also_if_the_connection_is_lost_before_the_last_answer() -> None:
    lane = flowing()
    lane.take(Answered(0, 121))
    assert isinstance(lane.stopped_by(Lost("gone")), Misplaced)


def test_what_the_refused_first_of_several_leaves_behind_is_found() -> None:
    """A leader that has forgotten the producer refuses the first, and stores the others: with a hole before them."""
    lane = flowing()
    lane.take(Answered(19, -1))
    for base_offset in (120, 130, 140):
        lane.take(Answered(0, base_offset))
    assert isinstance(lane.stopped_by(Answered(0, 150)), Misplaced)


def test_nothing_is_sent_on_what_was_known_a_minute_ago() -> None:
    lane = ready()
    lane.now_s += FRESH_S + 1
    assert lane.offer() == [ReadEnd()]
    assert lane.take(read(110)) == [Send(110)]
    lane.now_s += FRESH_S + 1
    assert lane.take(Answered(0, 110)) == [Stored(110, 120)]
    assert lane.offer() == [ReadEnd()], "the answer may have waited here since the request"


def test_what_a_throttle_has_put_off_is_sent_upon_a_new_read_if_that_took_a_minute() -> None:
    lane = ready()
    assert lane.offer() == [Send(110)]
    assert lane.take(PutOff(110), 5) == [Send(110)]
    assert not lane.machine.may_send(Moment(lane.now_s + FRESH_S, NOW_MS))
    assert lane.take(PutOff(110), FRESH_S) == [ReadEnd()]
    assert lane.take(PutOff(), FRESH_S + 1) == [ReadEnd()], "the read itself may be put off"
    assert lane.take(read(110)) == [Send(110)], "it counts from when it was asked for"


def test_the_answers_to_what_was_sent_before_a_batch_that_is_put_off_are_received_first() -> None:
    lane = flowing()
    assert lane.take(Answered(0, 120)) == [Stored(120, 130)]
    assert lane.offer() == [Send(170)]
    assert lane.take(PutOff(170), FRESH_S + 1) == []
    for offset in (130, 140, 150):
        assert lane.take(Answered(0, offset)) == [Stored(offset, offset + 10)]
    assert lane.take(Answered(0, 160)) == [Stored(160, 170), ReadEnd()]
    assert lane.take(read(170)) == [Send(170)]


@pytest.mark.parametrize("answered", [3, 4])
def test_a_batch_that_is_put_off_while_others_are_drained_gets_no_answer(answered: int) -> None:
    lane = flowing()
    actions = [action for _ in range(answered) for action in lane.take(Answered(19, -1))]
    actions += lane.take(PutOff(160))
    actions += [action for _ in range(4 - answered) for action in lane.take(Answered(45, -1))]
    [again] = actions
    assert isinstance(again, ReadEnd)
    assert lane.take(read(120)) == [Send(120)]


def test_old_records_go_one_request_at_a_time() -> None:
    old_ms = NOW_MS - 40 * DAY_MS
    lane = ready()
    assert lane.offer(newest_ms=old_ms) == [Send(110)]
    lane.offer(newest_ms=old_ms)
    assert not lane.machine.is_guarded
    assert lane.take(Answered(0, 110)) == [Stored(110, 120), Send(120)]
    assert lane.offer(newest_ms=old_ms) == []
    assert lane.take(Answered(0, 120)) == [Stored(120, 130), Send(130)]
    assert lane.offer() == [], "the last batch with which the leader knows the producer is old"


FOREIGN_ENDS = [
    (EndRead(110, 110, Tail(ProducerId(9, 0), 49, 109, NOW_MS)), "producer 9"),
    (EndRead(110, 110, Tail(ProducerId(7, 2), 49, 109, NOW_MS)), "in epoch 2"),
    (EndRead(110, 110, Tail(PRODUCER, 48, 109, NOW_MS)), "with sequence 48"),
    (EndRead(110, 110, Tail(ProducerId(-1, -1), -1, 109, -1)), "without a producer id"),
    (EndRead(110, 110, None, ActiveProducer(7, 2, 0, NOW_MS, None)), "it in epoch 2"),
    (EndRead(110, 110, None, ActiveProducer(7, 1, 20, NOW_MS, None)), "it at 20"),
]


@pytest.mark.parametrize(("event", "found"), FOREIGN_ENDS, ids=[found for _, found in FOREIGN_ENDS])
@pytest.mark.parametrize("follows", [False, True])
def test_a_tail_that_does_not_agree_with_the_run_is_another_writer(event: EndRead, found: str, follows: bool) -> None:
    lane = Lane(follows_others=follows)
    lane.take(Connected())
    error = lane.stopped_by(event)
    assert isinstance(error, AnotherWriter)
    assert str(error).startswith("t/0: another writer: expected ")
    assert found in error.found


def test_an_end_that_moved_without_this_lane_is_another_writer_or_is_followed() -> None:
    for follows in (False, True):
        lane = ready(follows_others=follows)
        lane.offer()
        lane.take(Answered(45, -1))
        if follows:
            assert lane.take(read(137)) == [Stored(110, 137), GoOn(137, Cause.MOVED)]
        else:
            error = lane.stopped_by(read(137))
            assert "the log at 120 or before, found it at 137" in str(error)


def test_a_later_epoch_stops_the_lane() -> None:
    for code in (47, 90):
        lane = ready()
        lane.offer()
        assert isinstance(lane.stopped_by(Answered(code, -1)), AnotherWriter)


@pytest.mark.parametrize(("code", "wait_s"), [(59, 0.1), (45, REFUSED_S / 2)])
def test_the_right_number_that_is_refused_again_and_again_is_named_with_the_way_on(code: int, wait_s: float) -> None:
    lane = ready()
    lane.offer()
    for _ in range(2):
        lane.take(Answered(code, -1))
        assert lane.take(read(110), wait_s) == [Send(110)]
    lane.take(Answered(code, -1))
    error = lane.stopped_by(read(110), wait_s)
    assert isinstance(error, NumberRefused)
    assert (error.code, error.offset, error.sequence) == (code, 110, 50)
    assert RUN.next_epoch(error.offset) == Run(ProducerId(7, 2), 110, 0)


def test_a_number_that_is_refused_counts_again_from_the_start_once_the_log_has_moved() -> None:
    lane = ready(follows_others=True)
    lane.offer()
    for _ in range(2):
        lane.take(Answered(59, -1))
        lane.take(read(110))
    lane.take(Answered(59, -1))
    assert lane.take(read(115)) == [Stored(110, 115), GoOn(115, Cause.MOVED)]
    lane.offer()
    lane.take(Answered(59, -1))
    assert lane.take(read(115)) == [Send(115)]


def test_a_batch_that_is_refused_for_good_is_named_after_all_answers() -> None:
    lane = flowing()
    lane.take(Answered(10, -1))
    for _ in range(3):
        lane.take(Answered(45, -1))
    error = lane.stopped_by(Answered(45, -1))
    assert isinstance(error, BatchRefused)
    assert (error.code, error.offset) == (10, 120)


@pytest.mark.parametrize("code", [2, -1])
def test_a_broker_that_says_that_a_batch_is_damaged_gets_it_three_times(code: int) -> None:
    lane = ready()
    lane.offer()
    for _ in range(2):
        lane.take(Answered(code, -1))
        assert lane.take(read(110)) == [Send(110)]
    assert isinstance(lane.stopped_by(Answered(code, -1)), BatchRefused)


def test_a_refused_question_for_the_end_is_asked_again_elsewhere_or_final() -> None:
    lane = Lane()
    lane.take(Connected())
    [again] = lane.take(ReadRefused(78))
    assert isinstance(again, ReadEnd)
    [elsewhere] = lane.take(ReadRefused(6))
    assert isinstance(elsewhere, Connect)
    assert elsewhere.is_denied
    lane.take(Connected())
    assert isinstance(lane.stopped_by(ReadRefused(29)), BatchRefused)


def test_a_log_that_ends_before_the_run_is_named() -> None:
    lane = Lane()
    lane.take(Connected())
    error = lane.stopped_by(read(99))
    assert isinstance(error, BelowRun)
    assert str(error) == "t/0: the log ends at 99, before offset 100, where the run starts"


def test_numbers_begin_at_0_again_after_the_last_one() -> None:
    run = Run(PRODUCER, 5, 2**31 - 3)
    assert [run.sequence_at(offset) for offset in (5, 7, 8, 9)] == [2**31 - 3, 2**31 - 1, 0, 1]


def test_what_cannot_happen_raises() -> None:
    lane = Lane()
    with pytest.raises(LookupError, match="no transition for Answered in state away"):
        lane.take(Answered(0, 0))
    lane = ready()
    with pytest.raises(LookupError, match="no request is under way"):
        lane.take(Answered(0, 110))
    lane = flowing()
    with pytest.raises(LookupError, match="a batch was offered to a lane that holds 5"):
        lane.offer()


def test_where_the_leader_may_have_forgotten_the_producer_only_the_owner_of_the_lane_writes() -> None:
    """Of two processes, one would repeat what the other has written."""
    lane = ready()
    lane.leased_s = lane.now_s + 4.0
    assert lane.offer(newest_ms=NOW_MS - 40 * DAY_MS) == [Send(110)]
    assert lane.take(Answered(0, 110), 5.0) == [Stored(110, 120)]
    [again] = lane.offer()
    assert again == ReadEnd(LEASE_WAIT_S, "another process of the mirror may have the lane now")
    [again] = lane.take(read(120, newest_ms=NOW_MS - 40 * DAY_MS))
    assert isinstance(again, ReadEnd), "it is no owner yet"
    lane.leased_s = lane.now_s + 4.0
    assert lane.take(read(120, newest_ms=NOW_MS - 40 * DAY_MS)) == [Send(120)]
    lane.take(Answered(0, 120), 5.0)
    assert lane.offer(newest_ms=NOW_MS) == [Send(130)], "the last batch was recent: the leader knows the producer"
    lane.take(Answered(0, 130))
    [again] = lane.offer(newest_ms=-1)
    assert isinstance(again, ReadEnd), "while this one is sent again and again, it is forgotten"
