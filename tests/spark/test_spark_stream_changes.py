"""What a stream makes of logs that grew, shrank, were overtaken, went, came, or came back as others."""

from __future__ import annotations

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.streaming.log_changes import Logs, needing_log_start, next_step, remaining_ranges, shrunk
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

A, B, C = (TopicPartition("clicks", number) for number in range(3))
VIEWS = TopicPartition("views", 0)
CREATED = {"clicks": 100, "views": 200}


def start(offsets: dict[TopicPartition, int], created_zxids: dict[str, int] = CREATED) -> StreamOffsets:
    return StreamOffsets(offsets, created_zxids)


def logs(ends: dict[TopicPartition, int], *more: TopicPartition, created_zxids: dict[str, int] = CREATED) -> Logs:
    """Logs with their ends, and partitions whose leaders do not answer."""
    return Logs(frozenset([*ends, *more]), ends, created_zxids)


def test_news_are_read():
    step = next_step(start({A: 5, B: 7}), logs({A: 9, B: 7}), {A: 0})
    assert (step.positions, step.ends, step.losses) == ({A: 5, B: 7}, {A: 9, B: 7}, [])


def test_only_begins_that_matter_are_asked_for():
    seen = logs({A: 9, B: 7, C: 3, VIEWS: 1}, created_zxids={"clicks": 100, "views": 201})
    assert needing_log_start(start({A: 5, B: 7, VIEWS: 1}), seen) == [A, C, VIEWS]


def test_a_partition_without_a_leader_stays_where_it_is():
    step = next_step(start({A: 5}), logs({}, A), {})
    assert (step.positions, step.ends, step.losses) == ({A: 5}, {A: 5}, [])


def test_a_new_partition_only_has_its_beginning_written_down():
    step = next_step(start({A: 5}), logs({A: 5, B: 30}), {B: 0})
    assert (step.positions[B], step.ends[B], step.new_partitions, step.losses) == (0, 0, [B], [])


def test_a_new_partition_whose_leader_does_not_answer_waits():
    step = next_step(start({A: 5}), logs({A: 5}, B), {})
    assert (B in step.ends, step.new_partitions) == (False, [])


def test_a_new_partition_that_lost_messages_before_it_was_seen_is_a_loss():
    [loss] = next_step(start({A: 5}), logs({A: 5, B: 30}), {B: 12}).losses
    assert str(loss) == "clicks-1 from offset 0 to 12: deleted before this query knew the partition"
    assert loss.messages == 12


def test_a_topic_that_was_added_later_has_no_earlier_messages_to_lose():
    step = next_step(start({A: 5}), logs({A: 5, VIEWS: 30}), {VIEWS: 12})
    assert (step.ends[VIEWS], step.losses) == (12, [])


def test_messages_that_were_deleted_unread_are_a_loss_and_reading_goes_on_behind_them():
    step = next_step(start({A: 5}), logs({A: 90}), {A: 40})
    assert (step.positions[A], step.ends[A]) == (40, 90)
    assert [str(loss) for loss in step.losses] == ["clicks-0 from offset 5 to 40: deleted before it was read"]


def test_a_log_that_was_cut_goes_on_at_its_end():
    seen = logs({A: 30})
    assert shrunk(start({A: 50}), seen) == [A]
    step = next_step(start({A: 50}), seen, {})
    assert (step.positions[A], step.ends[A]) == (30, 30)
    assert [str(loss) for loss in step.losses] == [
        "clicks-0 from offset 30 to 50: its log was truncated and now ends there"
    ]


def test_a_partition_that_is_gone_keeps_its_position_and_is_a_loss():
    step = next_step(start({A: 5, B: 7}), logs({A: 5}), {})
    assert (step.ends[B], [str(loss) for loss in step.losses]) == (
        7,
        ["clicks-1 from offset 7 on: it no longer exists"],
    )


def test_a_topic_that_was_taken_from_the_subscription_is_no_loss():
    step = next_step(start({A: 5, VIEWS: 7}), logs({A: 5}), {}, selects=lambda name: name.topic == "clicks")
    assert (step.ends[VIEWS], step.losses) == (7, [])


def test_a_topic_created_anew_begins_at_its_beginning_however_long_it_is():
    seen = logs({A: 1_000}, created_zxids={"clicks": 101})
    assert shrunk(start({A: 50}), seen) == []
    step = next_step(start({A: 50, B: 60}), seen, {A: 3})
    assert (step.positions, step.ends) == ({A: 3}, {A: 3})
    assert [loss.reason for loss in step.losses] == ["its topic was deleted and created again"] * 2


def test_a_target_is_not_passed_and_a_partition_that_came_after_it_is_left_alone():
    step = next_step(start({A: 5, B: 7}), logs({A: 90, B: 8, C: 4}), {A: 0, B: 0, C: 0}, target={A: 20, B: 8})
    assert (step.ends, step.new_partitions) == ({A: 20, B: 8}, [])


def test_a_target_is_kept_although_the_leader_does_not_answer_just_now():
    assert next_step(start({A: 5}), logs({}, A), {}, target={A: 20}).ends == {A: 20}


def test_the_ranges_of_a_planned_batch_are_read_as_they_were_planned():
    ranges, losses = remaining_ranges(start({A: 5, B: 7}), start({A: 20, B: 7}), logs({A: 90, B: 90}), {A: 0})
    assert (ranges, losses) == ({A: (5, 20)}, [])


def test_a_partition_without_a_start_was_only_written_down_and_has_nothing_to_read():
    assert remaining_ranges(start({A: 5}), start({A: 5, B: 3}), logs({A: 9, B: 9}), {}) == ({}, [])


def test_a_start_whose_birth_is_not_known_is_that_of_the_same_topic():
    assert remaining_ranges(start({A: 5}, {}), start({A: 20}), logs({A: 90}), {A: 0}) == ({A: (5, 20)}, [])


def test_what_was_deleted_or_cut_since_the_plan_is_a_loss():
    ranges, losses = remaining_ranges(start({A: 5, B: 7}), start({A: 20, B: 30}), logs({A: 90, B: 10}), {A: 12, B: 0})
    assert ranges == {A: (12, 20), B: (7, 10)}
    assert [str(loss) for loss in losses] == [
        "clicks-0 from offset 5 to 12: deleted before it was read",
        "clicks-1 from offset 10 to 30: its log was truncated and ends before",
    ]


def test_what_the_query_does_not_read_any_more_is_still_part_of_a_planned_batch():
    planned = start({A: 5, B: 7}), start({A: 20, B: 30})
    ranges, losses = remaining_ranges(*planned, logs({A: 90}), {A: 0}, lambda name: name == A)
    assert (ranges, losses) == ({A: (5, 20), B: (7, 30)}, [])


def test_a_range_that_was_deleted_as_a_whole_is_lost_once():
    ranges, [loss] = remaining_ranges(start({A: 5}), start({A: 20}), logs({A: 90}), {A: 40})
    assert (ranges, loss.begin, loss.end) == ({}, 5, 20)


def test_nothing_of_a_topic_that_was_created_anew_since_the_plan_is_read():
    seen = logs({A: 90}, created_zxids={"clicks": 101})
    ranges, [loss] = remaining_ranges(start({A: 5}), start({A: 20}), seen, {A: 0})
    assert (ranges, loss.messages) == ({}, 15)


def test_a_step_to_the_beginning_of_a_topic_created_anew_has_nothing_to_read():
    anew = start({A: 0}, {"clicks": 101})
    assert remaining_ranges(start({A: 50}), anew, logs({A: 90}, created_zxids={"clicks": 101}), {A: 0}) == ({}, [])
