"""What a run has to read, and what it refuses to pass over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.bounds import LogEnds
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.errors import OffsetsLost
from zkconsumer.spark.load.planning import plan_run

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
BORN = {"t": 7}


def log_of(earliest: int, latest: int) -> LogEnds:
    return LogEnds(earliest, latest, Broker(0, "broker", 9092))


def test_the_first_run_reads_whole_logs() -> None:
    plan = plan_run({T0: log_of(5, 9), T1: log_of(0, 0)}, BORN, {}, {}, {}, allow_loss=False)
    assert plan.asked == {T0: OffsetSpan(5, 9)}
    assert plan.ends == {"t": {0: 9, 1: 0}}
    assert not plan.lost


def test_the_first_run_may_begin_elsewhere_but_not_outside_of_the_log() -> None:
    logs = {T0: log_of(5, 9), T1: log_of(5, 9), TopicPartition("t", 2): log_of(5, 9)}
    plan = plan_run(logs, BORN, {}, {}, {T0: 7, T1: 0, TopicPartition("t", 2): 99}, allow_loss=False)
    assert plan.asked == {T0: OffsetSpan(7, 9), T1: OffsetSpan(5, 9)}
    assert plan.ends == {"t": {0: 9, 1: 9, 2: 9}}


def test_a_later_run_goes_on_where_the_last_one_ended_whatever_the_start_is() -> None:
    plan = plan_run({T0: log_of(0, 20), T1: log_of(0, 4)}, BORN, {"t": {0: 9}}, BORN, {T0: 3}, allow_loss=False)
    assert plan.asked == {T0: OffsetSpan(9, 20), T1: OffsetSpan(0, 4)}


def test_what_is_not_wanted_any_more_keeps_its_place() -> None:
    plan = plan_run({T0: log_of(0, 2)}, BORN, {"gone": {0: 5}}, {"gone": 1}, {}, allow_loss=False)
    assert plan.ends == {"gone": {0: 5}, "t": {0: 2}}


@pytest.mark.parametrize(
    ("log", "births", "span", "sentence"),
    [
        (log_of(12, 20), BORN, OffsetSpan(12, 20), "t/0: 9 to 11 .*retention"),
        (log_of(0, 6), BORN, OffsetSpan(0, 6), "t/0: 6 to 8 .*cut or lost"),
        (log_of(0, 50), {"t": 8}, OffsetSpan(0, 50), "t/0: from 9 on .*created anew"),
    ],
)
def test_what_is_lost_is_named_and_passed_over_only_when_asked_for(
    log: LogEnds, births: dict[str, int], span: OffsetSpan, sentence: str
) -> None:
    with pytest.raises(OffsetsLost, match=sentence):
        plan_run({T0: log}, births, {"t": {0: 9}}, BORN, {}, allow_loss=False)
    plan = plan_run({T0: log}, births, {"t": {0: 9}}, BORN, {}, allow_loss=True)
    assert plan.asked == {T0: span}
    assert [lost.place for lost in plan.lost] == [T0]


@given(st.lists(st.integers(0, 5), max_size=8))
def test_runs_one_after_the_other_read_each_offset_once_while_the_log_grows(steps: list[int]) -> None:
    ends: dict[str, dict[int, int]] = {}
    births: dict[str, int] = {}
    read: list[int] = []
    latest = 0
    for grown in steps:
        latest += grown
        plan = plan_run({T0: log_of(0, latest)}, BORN, ends, births, {}, allow_loss=False)
        for span in plan.asked.values():
            read += range(*span)
        ends, births = plan.ends, BORN
    assert read == list(range(latest))
