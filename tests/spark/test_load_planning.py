"""What a run has to read, and what it refuses to pass over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.failures import OffsetsLost
from zkconsumer.spark.load.manifest import LastMessage, LoadState
from zkconsumer.spark.load.planning import ClusterState, RunPlan, plan_run
from zkconsumer.spark.streaming.log_changes import Logs
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0 = TopicPartition("u", 0)
CREATED = {"t": 7}
TAIL = LastMessage(8, None, 1)


def cluster(
    spans: dict[TopicPartition, tuple[int, int]], created_zxids: dict[str, int] = CREATED, **more: object
) -> ClusterState:
    """A cluster with these logs, each with its begin and its end; (-1, -1) has no leader."""
    ends = {name: end for name, (_, end) in spans.items() if end >= 0}
    log_starts = {name: begin for name, (begin, _) in spans.items() if begin >= 0}
    return ClusterState(Logs(frozenset(spans), ends, created_zxids), log_starts, topics_seen=100, **more)  # type: ignore[arg-type]


def state(ends: dict[TopicPartition, int], created_zxids: dict[str, int] = CREATED, **more: object) -> LoadState:
    return replace(LoadState(StreamOffsets(ends, created_zxids), topics_seen=50), **more)  # type: ignore[arg-type]


def plan(before: LoadState, now: ClusterState, allow_loss: bool = False) -> RunPlan:
    return plan_run(before, now, allow_loss=allow_loss)


def ends_of(plan: RunPlan) -> dict[TopicPartition, int]:
    return dict(plan.state.offsets.offsets)


# -- beginning and going on --------------------------------------------------------------------------------------------


def test_the_first_run_reads_whole_logs() -> None:
    first = plan(LoadState(), cluster({T0: (5, 9), T1: (0, 0)}))
    assert first.asked == {T0: OffsetSpan(5, 9)}
    assert ends_of(first) == {T0: 9, T1: 0}
    assert (first.state.offsets.created_zxids, first.state.topics_seen, first.lost) == (CREATED, 100, ())


def test_the_first_run_may_begin_elsewhere_but_not_outside_of_the_log() -> None:
    logs = {T0: (5, 9), T1: (5, 9), T2: (5, 9)}
    first = plan(LoadState(), cluster(logs, starts={T0: 7, T1: 0, T2: 99}))
    assert first.asked == {T0: OffsetSpan(7, 9), T1: OffsetSpan(5, 9)}
    assert ends_of(first) == {T0: 9, T1: 9, T2: 9}


def test_a_later_run_goes_on_where_the_last_one_ended_whatever_the_start_is() -> None:
    later = plan(state({T0: 9}), cluster({T0: (0, 20), T1: (0, 4)}, starts={T0: 3}))
    assert later.asked == {T0: OffsetSpan(9, 20), T1: OffsetSpan(0, 4)}


def test_what_is_not_wanted_any_more_keeps_its_place() -> None:
    before = state({U0: 5}, {"u": 1}, last_messages={U0: TAIL._replace(offset=4)})
    later = plan_run(before, cluster({T0: (0, 2)}), allow_loss=False, selects=lambda name: name.topic == "t")
    assert ends_of(later) == {U0: 5, T0: 2}
    assert later.state.offsets.created_zxids == {"t": 7, "u": 1}
    assert later.state.last_messages == before.last_messages


@pytest.mark.parametrize(
    ("known", "created_zxid", "is_latest"),
    [({}, 50, True), ({}, 51, False), ({T1: 0}, 7, False)],
    ids=["older than the last run", "created since", "another partition of a loaded topic"],
)
def test_latest_is_for_what_was_there_when_it_was_asked_for(
    known: dict[TopicPartition, int], created_zxid: int, is_latest: bool
) -> None:
    created_zxids = {"t": created_zxid} if known else {}
    assert state(known, created_zxids).starts_at_latest(T0, created_zxid) is is_latest


@given(st.lists(st.integers(0, 5), max_size=8))
def test_runs_one_after_the_other_read_each_offset_once_while_the_log_grows(steps: list[int]) -> None:
    before = LoadState()
    read: list[int] = []
    latest = 0
    for grown in steps:
        latest += grown
        next_run = plan(before, cluster({T0: (0, latest)}))
        for span in next_run.asked.values():
            read += range(*span)
        before = next_run.state
    assert read == list(range(latest))


def test_a_run_takes_no_more_than_it_may_and_the_next_one_goes_on() -> None:
    now = cluster({T0: (0, 90), T1: (0, 10), T2: (5, 5)})
    first = plan_run(LoadState(), now, allow_loss=False, most=10)
    assert (first.asked, first.left) == ({T0: OffsetSpan(0, 9), T1: OffsetSpan(0, 1)}, 90)
    assert ends_of(first) == {T0: 9, T1: 1, T2: 5}
    second = plan_run(first.state, now, allow_loss=False, most=1000)
    assert (second.asked, second.left) == ({T0: OffsetSpan(9, 90), T1: OffsetSpan(1, 10)}, 0)


# -- what is lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "created_zxids", "kept_ends", "asked", "end", "sentence"),
    [
        ((12, 20), CREATED, {}, OffsetSpan(12, 20), 20, "t-0 from offset 9 to 12: deleted before it was read"),
        ((0, 6), CREATED, {}, None, 6, "t-0 from offset 6 to 9: its log was truncated and now ends there"),
        ((0, 6), CREATED, {T0: 4}, None, 6, "t-0 from offset 4 to 9: its log was truncated and now ends at 6"),
        ((0, 20), CREATED, {T0: 4}, OffsetSpan(9, 20), 20, "t-0 from offset 4 to 9: .*has since grown past the end"),
        ((0, 50), {"t": 8}, {}, OffsetSpan(0, 50), 50, "t-0 from offset 9 on: .*created again"),
    ],
    ids=["retention", "cut", "cut, and some of it stayed", "cut and grown", "created anew"],
)
def test_what_is_lost_is_named_and_passed_over_only_when_asked_for(
    log: tuple[int, int],
    created_zxids: dict[str, int],
    kept_ends: dict[TopicPartition, int],
    asked: OffsetSpan | None,
    end: int,
    sentence: str,
) -> None:
    now = cluster({T0: log}, created_zxids, kept_ends=kept_ends)
    with pytest.raises(OffsetsLost, match=sentence):
        plan(state({T0: 9}), now)
    allowed = plan(state({T0: 9}), now, allow_loss=True)
    assert allowed.asked == ({} if asked is None else {T0: asked})
    assert ends_of(allowed) == {T0: end}
    assert [loss.partition for loss in allowed.lost] == [T0]
    assert plan(allowed.state, replace(now, kept_ends={})).lost == ()


def test_old_ends_go_with_the_old_topic() -> None:
    anew = plan(state({T0: 50, T1: 50}), cluster({T0: (0, 3)}, {"t": 8}), allow_loss=True)
    assert ends_of(anew) == {T0: 3}
    grown = plan(anew.state, cluster({T0: (0, 3), T1: (0, 60)}, {"t": 8}))
    assert grown.asked == {T1: OffsetSpan(0, 60)}


def test_a_topic_that_vanishes_is_a_loss_once_and_new_when_it_comes_again() -> None:
    before = state({T0: 9, U0: 5}, {"t": 7, "u": 8}, last_messages={U0: TAIL._replace(offset=4)})
    with pytest.raises(OffsetsLost, match="u-0 from offset 5 on: it no longer exists"):
        plan(before, cluster({T0: (0, 9)}))
    without = plan(before, cluster({T0: (0, 9)}), allow_loss=True)
    after = without.state
    assert (ends_of(without), after.offsets.created_zxids, after.last_messages) == ({T0: 9}, CREATED, {})
    assert plan(without.state, cluster({T0: (0, 9)})).lost == ()
    again = plan(without.state, cluster({T0: (0, 9), U0: (0, 2)}, {"t": 7, "u": 99}))
    assert again.asked == {U0: OffsetSpan(0, 2)}


# -- leaders that do not answer ----------------------------------------------------------------------------------------


def test_a_partition_without_a_leader_stays_where_it_is() -> None:
    now = plan(state({T0: 4, T1: 5}), cluster({T0: (0, 9), T1: (-1, -1)}))
    assert now.asked == {T0: OffsetSpan(4, 9)}
    assert ends_of(now) == {T0: 9, T1: 5}
    assert plan(now.state, cluster({T0: (0, 9), T1: (0, 7)})).asked == {T1: OffsetSpan(5, 7)}


def test_one_that_was_never_read_waits_and_what_its_log_has_lost_before_is_no_loss() -> None:
    first = plan(LoadState(), cluster({T0: (0, 9), T1: (-1, -1)}))
    assert (ends_of(first), first.state.waiting) == ({T0: 9}, {T1})
    second = plan(first.state, cluster({T0: (0, 9), T1: (-1, -1)}))
    assert second.state.equals(first.state)
    third = plan(second.state, cluster({T0: (0, 9), T1: (3, 7)}))
    assert (third.asked, third.lost, third.state.waiting) == ({T1: OffsetSpan(3, 7)}, (), frozenset())


def test_a_partition_that_is_new_and_has_lost_its_first_messages_is_a_loss() -> None:
    with pytest.raises(OffsetsLost, match="t-1 from offset 0 to 3"):
        plan(state({T0: 9}), cluster({T0: (0, 9), T1: (3, 7)}))


# -- last messages -----------------------------------------------------------------------------------------------------


def test_the_last_message_is_kept_while_the_log_is_the_one_that_was_read() -> None:
    before = state({T0: 9, T1: 9}, last_messages={T0: TAIL, T1: TAIL})
    now = plan(before, cluster({T0: (0, 9), T1: (-1, -1)}))
    assert now.state.last_messages == before.last_messages


@pytest.mark.parametrize(
    "now",
    [
        cluster({T0: (0, 20)}, kept_ends={T0: 4}),
        cluster({T0: (0, 20)}, {"t": 8}),
        cluster({T0: (0, 6)}, kept_ends={T0: 4}),
    ],
    ids=["cut and grown", "created anew", "cut"],
)
def test_the_last_message_of_another_log_is_forgotten(now: ClusterState) -> None:
    before = state({T0: 9}, last_messages={T0: TAIL})
    assert plan(before, now, allow_loss=True).state.last_messages == {}
    stays = LastMessage(5, 1, 2)
    assert plan(before, replace(now, last_messages={T0: stays}), allow_loss=True).state.last_messages == {T0: stays}
