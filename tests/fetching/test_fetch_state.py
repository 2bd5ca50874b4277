"""How far the fetching of a partition is, and what is asked next."""

from __future__ import annotations

import pytest

from simpleconsumer.types import Broker, EpochEnd, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.fetching.byte_shares import Candidate
from zkconsumer.fetching.fetch_state import (
    DOUBT_S,
    EMPTY_TRIES,
    WARN_AGAIN_S,
    FetchState,
    Need,
    check_range,
    poll_wait_ms,
    start_of_recent,
    truncated_at,
)

LIMIT = 1_000_000
SIZE = 1000


def state(offset: int = 5) -> FetchState:
    return FetchState(TopicPartition("t", 0), offset, SIZE)


# -- out of range ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["smallest", "largest"])
@pytest.mark.parametrize("position", [10, 15, 20])
def test_a_position_that_the_leader_has_is_kept(position: int, policy: str) -> None:
    assert check_range(position, 10, 20, policy) == (position, False)


@pytest.mark.parametrize("position", [9, 21])
def test_a_position_outside_is_reset_by_the_policy(position: int) -> None:
    assert check_range(position, 10, 20, "smallest") == (10, True)
    assert check_range(position, 10, 20, "largest") == (20, True)


def test_a_log_that_ends_before_a_position_that_was_never_read_is_not_doubted() -> None:
    """It was stored, or chosen, and may be any number."""
    assert not state(1000).is_doubtful(0.0)


def test_a_log_that_ends_before_what_was_read_of_it_is_doubted_for_some_seconds_and_asked_again_at_their_end() -> None:
    one = state(5)
    one.moved_on(25)
    assert one.is_doubtful(100.0)
    one.failed("too short", 100.0, Backoff(60.0, 60.0))
    one.doubted()
    assert one.retry_at == 100.0 + DOUBT_S
    assert one.is_doubtful(100.0 + DOUBT_S - 0.1)
    assert not one.is_doubtful(one.retry_at)
    one.answered(200.0)
    assert one.is_doubtful(200.0), "the log had the position again meanwhile"


def test_what_was_read_behind_the_end_of_a_log_that_became_shorter() -> None:
    one = state(30)
    assert one.behind_end(20) == range(30, 31)
    one.moved_on(40)
    assert (one.behind_end(20), one.behind_end(35)) == (range(30, 41), range(36, 41))
    assert not one.behind_end(60), "retention deleted it: the log did not become shorter"
    one.start_again(20)
    assert one.offset == 20
    one.moved_on(25)
    assert one.behind_end(10) == range(20, 26)


@pytest.mark.parametrize(
    ("now", "found", "cut_at"),
    [
        (7, EpochEnd(0, 5, 20), 20),  # epoch 5 ended below the position
        (7, EpochEnd(0, 4, 20), 20),  # the leader has nothing of epoch 5
        (-1, EpochEnd(0, 4, 20), 20),
        (7, EpochEnd(0, 5, 30), None),  # it ended at the position
        (7, EpochEnd(0, 5, 90), None),
        (5, EpochEnd(0, 5, 20), None),  # the log of a leader that still leads is not shorter: it is another log
        (-1, EpochEnd(0, 5, 20), None),  # it may be another log
        (7, EpochEnd(0, -1, -1), None),  # the leader does not know
        (7, EpochEnd(0, -1, 20), None),  # version 0 does not say of which epoch it is
        (7, EpochEnd(74, 5, 20), None),
    ],
)
def test_a_log_was_cut_off_where_the_epoch_ended_of_what_was_read_last(
    now: int, found: EpochEnd, cut_at: int | None
) -> None:
    one = state(30)
    one.read_epoch, one.leader_epoch = 5, now
    assert truncated_at(one, found) == cut_at


def test_the_epoch_of_what_was_read_is_not_that_of_another_position() -> None:
    one = state(30)
    one.read_epoch = 5
    one.start_again(20)
    assert one.read_epoch == -1


@pytest.mark.parametrize(
    ("segments", "before", "start"),
    [
        ([70, 50, 30, 0], [], 0),  # every segment was written since
        ([70, 50, 30, 0], [0], 30),
        ([70, 50, 30, 0], [30], 50),
        ([70, 50, 30, 0], [50], 70),  # none was: the end
        ([70, 50, 30, 0], [70], 70),  # the clock of the broker is slow
        ([50, 30, 0], [50], 50),  # the last segment is empty
        ([0], [], 0),
    ],
)
def test_the_start_of_what_was_written_since_a_time(segments: list[int], before: list[int], start: int) -> None:
    assert start_of_recent(segments, before) == start


# -- state -------------------------------------------------------------------------------------------------------------


def test_the_configured_size_is_asked_for_unless_another_is_given() -> None:
    assert state().size_bytes == SIZE
    assert FetchState(TopicPartition("t", 0), 5, SIZE, size_bytes=700).size_bytes == 700


def test_when_it_was_asked_for_and_when_a_good_answer_came_is_kept() -> None:
    one = state()
    assert (one.asked_at < 0, one.answered_at) == (True, None)
    one.asked(7.0)
    one.answered(8.0)
    assert (one.asked_at, one.answered_at) == (7.0, 8.0)
    one.nothing_came(9.0, 77)
    assert (one.answered_at, one.high_watermark) == (9.0, 77)


def test_failures_in_a_row_wait_ever_longer_up_to_a_limit_and_success_forgets_them() -> None:
    one, waits = state(), []
    for _ in range(12):
        one.failed("busy", 100.0, Backoff(0.2, 10.0))
        waits.append(one.retry_at - 100.0)
    assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])
    assert max(waits) == 10.0
    one.answered(200.0, 77)
    one.failed("busy", 300.0, Backoff(0.2, 10.0))
    assert one.retry_at == pytest.approx(300.2)
    assert one.high_watermark == 77


def test_a_new_leader_is_asked_at_once() -> None:
    one = state()
    one.failed("busy", 100.0, Backoff(5.0, 10.0))
    one.led_by(Broker(1, "a", 1))
    assert (one.leader, one.retry_at) == (Broker(1, "a", 1), 0.0)


@pytest.mark.catalogue("I8")
def test_only_the_first_of_equal_failures_is_news() -> None:
    one, backoff = state(), Backoff(1.0, 10.0)
    assert [one.failed(reason, 0.0, backoff) for reason in ("a", "a", "b", "b")] == [True, False, True, False]
    one.answered(1.0)
    assert one.failed("b", 2.0, backoff)


@pytest.mark.catalogue("I8")
def test_a_leader_that_denies_is_warned_of_when_that_lasts_and_then_rarely() -> None:
    one = state()
    assert [one.denied(float(now), 3) for now in range(6)] == [False, False, True, False, False, False]
    assert [one.denied(now, 3) for now in (2 + WARN_AGAIN_S - 1, 2 + WARN_AGAIN_S, 3 + WARN_AGAIN_S)] == [
        False, True, False
    ]  # fmt: skip
    one.answered(1000.0)
    assert one.denials == 0
    assert [one.denied(1001.0, 3) for _ in range(3)] == [False, False, True]
    assert state().denied(0.0, 1)


def test_a_grown_size_lasts_until_the_message_is_there() -> None:
    one = state()
    one.grow(5000)
    assert (one.size_bytes, one.is_single) == (5000, True)
    one.moved_on(6)
    assert (one.offset, one.size_bytes, one.is_single) == (6, SIZE, False)


def test_a_share_that_was_too_small_grows_to_the_configured_size_first() -> None:
    one = state()
    one.grow(SIZE // 2)
    assert (one.size_bytes, one.is_single) == (SIZE, True)


def test_the_size_of_a_message_that_did_not_fit_is_asked_for_until_smaller_ones_come() -> None:
    one = state()
    one.grow(5000)
    assert one.candidate("stream") == Candidate("stream", 5000, 5000, False)
    one.moved_on(6, 5000)
    assert one.candidate("stream") == Candidate("stream", SIZE, 5000, False)
    one.moved_on(7, 700)
    assert one.candidate("stream") == Candidate("stream", SIZE, 700, False)
    one.moved_on(8)
    assert one.candidate("stream") == Candidate("stream", SIZE, 0, False)


def test_a_partition_is_at_its_end_by_the_last_answer_and_never_while_a_message_did_not_fit() -> None:
    one = state()
    assert not one.candidate("stream").is_at_end
    one.answered(1.0, one.offset)
    assert one.candidate("stream").is_at_end
    one.grow(5000)
    assert not one.candidate("stream").is_at_end
    one.moved_on(6, 5000)
    one.answered(2.0, 7)
    assert not one.candidate("stream").is_at_end


def test_a_log_that_holds_nothing_yet_is_at_its_end() -> None:
    one = state(0)
    one.answered(1.0, 0)
    assert one.candidate("stream").is_at_end


def test_how_long_there_is_no_room_counts_from_the_first_time_until_it_is_asked_for() -> None:
    one = state()
    assert [one.waits_for_room(now) for now in (5.0, 6.5)] == [0.0, 1.5]
    one.asked(7.0)
    assert one.waits_for_room(8.0) == 0.0


def test_only_a_change_of_leader_asks_for_the_log_end() -> None:
    one = state()
    one.led_by(Broker(1, "a", 1))
    assert one.need is Need.FETCH
    one.led_by(Broker(2, "b", 2))
    assert one.need is Need.END_CHECK


def test_a_start_offset_is_still_asked_for_at_the_next_leader() -> None:
    one = FetchState(TopicPartition("t", 0), 0, SIZE, Need.RESOLVE)
    one.led_by(Broker(1, "a", 1))
    one.led_by(Broker(2, "b", 2))
    assert one.need is Need.RESOLVE


def test_that_nothing_comes_from_a_log_that_continues_is_logged_once_and_stays_in_the_status() -> None:
    of = state(5)
    said = [of.nothing_came(1.0, 9) for _ in range(EMPTY_TRIES + 2)]
    assert said == [*[False] * (EMPTY_TRIES - 1), True, False, False]
    assert of.error == (
        "the broker sends nothing from offset 5 on, although the log ends at 9: either compaction has removed the "
        "rest, "
        "or an entry has a damaged offset"
    )
    of.moved_on(6)
    of.answered(2.0, 9)
    assert of.error is None
    assert not any(of.nothing_came(3.0, 6) for _ in range(2 * EMPTY_TRIES))
    assert of.error is None


def test_empty_answers_count_in_a_row_from_the_first_one_before_the_end() -> None:
    for interrupt in (lambda of: of.nothing_came(1.0, of.offset), lambda of: of.moved_on(of.offset)):
        of = state(5)
        assert not any(of.nothing_came(1.0, 9) for _ in range(EMPTY_TRIES - 1))
        interrupt(of)
        assert not any(of.nothing_came(2.0, 9) for _ in range(EMPTY_TRIES - 1))
        assert of.error is None
        assert of.nothing_came(3.0, 9)
        assert of.error is not None


# -- the long poll -----------------------------------------------------------------------------------------------------


def test_the_long_poll_is_short_only_while_a_queue_has_just_run_full() -> None:
    assert poll_wait_ms(100, None) == 100
    assert poll_wait_ms(100, 0.0) == 5
    assert poll_wait_ms(100, 0.04) == 40
    assert poll_wait_ms(100, 3600.0) == 100
    assert poll_wait_ms(10_000, 2.0) == 2000
    assert poll_wait_ms(2, 0.0) == 2


def test_a_throttled_partition_is_held_up_until_the_time_is_over_or_an_answer_comes() -> None:
    state = FetchState(TopicPartition("t", 0), 5, 1000)
    assert state.holds_up(0.0) is None
    state.throttled("broker 1 throttles this client", 10.0)
    assert state.holds_up(9.9) == "broker 1 throttles this client"
    assert state.holds_up(10.0) is None
    assert state.error is None
    state.throttled("broker 1 throttles this client", 20.0)
    state.answered(12.0)
    assert state.holds_up(12.0) is None
