"""Assigned partitions: positions, pauses, lag; and a model that random calls are compared with."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.errors import LogTruncated, NoOffsetForPartition, NotAssigned, OffsetOutOfRange
from zkconsumer.polling.partition_position import OffsetReset, ResetRequest
from zkconsumer.polling.records import OffsetAndMetadata
from zkconsumer.polling.subscription_state import AssignedPartitions

A, B, C = (TopicPartition("clicks", number) for number in range(3))
EARLIEST, LATEST = OffsetReset.EARLIEST, OffsetReset.LATEST


def assigned(*partitions: TopicPartition, at: int | None = None) -> AssignedPartitions:
    """Return assigned partitions, each at an offset."""
    made = AssignedPartitions()
    made.change_to(partitions, keep=True)
    if at is not None:
        for each in partitions:
            made.seek(each, at)
    return made


# The assignment


def test_a_kept_partition_keeps_its_position_and_its_pause() -> None:
    tested = assigned(A, B, at=5)
    tested.pause([A])
    change = tested.change_to([C, A], keep=True)
    assert change == ((C,), (B,))
    assert tested.position(A) == 5
    assert tested.paused() == {A}
    assert tested.initializing() == [C]


def test_a_partition_that_is_not_kept_starts_anew() -> None:
    tested = assigned(A, B, at=5)
    tested.pause([A])
    assert tested.change_to([A], keep=False) == ((A,), (A, B))
    assert tested.initializing() == [A]
    assert tested.paused() == set()


def test_the_same_assignment_once_more_is_no_change() -> None:
    tested = assigned(A, B)
    assert tested.change_to([B, A], keep=True) == ((), ())


CALLS = {
    "seek": lambda tested: tested.seek(B, 1),
    "seek_to_beginning": lambda tested: tested.seek_to_beginning([A, B]),
    "seek_to_end": lambda tested: tested.seek_to_end([A, B]),
    "position": lambda tested: tested.position(B),
    "pause": lambda tested: tested.pause([A, B]),
    "resume": lambda tested: tested.resume([A, B]),
    "advance": lambda tested: tested.advance(B, 1),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_partition_that_is_not_assigned_is_named_and_nothing_is_changed(call: str) -> None:
    tested = assigned(A, at=5)
    with pytest.raises(NotAssigned, match=f"{call}: clicks/1 is not assigned to this consumer; assigned are clicks/0"):
        CALLS[call](tested)
    assert tested.position(A) == 5
    assert tested.paused() == set()


def test_an_error_names_five_partitions_and_counts_the_others() -> None:
    many = [TopicPartition("t", number) for number in range(8)]
    with pytest.raises(NotAssigned, match=r"t/0, t/1, t/2, t/3, t/4 and 3 more are not .* no partition is"):
        assigned().pause(many)


# Where a partition starts


def test_a_committed_offset_is_the_position() -> None:
    tested = assigned(A, B)
    assert tested.initializing() == [A, B]
    tested.take_committed({A: 7, B: 0})
    assert (tested.position(A), tested.position(B)) == (7, 0)
    assert tested.initializing() == []


def test_a_seek_before_the_answer_counts() -> None:
    tested = assigned(A)
    tested.seek(A, 3)
    tested.take_committed({A: 7})
    assert tested.position(A) == 3


# Resets


def test_a_second_seek_to_the_end_is_asked_for_anew() -> None:
    tested = assigned(A, at=5)
    tested.seek_to_end([A])
    first = tested.awaiting_reset(0.0)[A]
    tested.seek(A, 1)
    tested.seek_to_end()
    second = tested.awaiting_reset(0.0)[A]
    assert not tested.reset_answered(A, first, 40)
    assert tested.reset_answered(A, second, 50)
    assert tested.position(A) == 50


def test_without_partitions_all_are_reset() -> None:
    tested = assigned(A, B, at=5)
    tested.seek_to_beginning()
    assert {each: request.policy for each, request in tested.awaiting_reset(0.0).items()} == {A: EARLIEST, B: EARLIEST}


def test_a_reset_under_way_is_not_asked_for_again_before_its_time() -> None:
    tested = assigned(A, B, at=5)
    tested.seek_to_end()
    tested.postpone([A], 9.0)
    assert list(tested.awaiting_reset(8.9)) == [B]
    assert list(tested.awaiting_reset(9.0)) == [A, B]


@pytest.mark.parametrize("offset", [-1, -(2**40)])
def test_a_negative_offset_is_refused(offset: int) -> None:
    tested = assigned(A, at=5)
    with pytest.raises(ValueError, match=f"offset {offset} of clicks/0 is negative; it must be 0 or more"):
        tested.seek(A, offset)
    assert tested.position(A) == 5


# Fetching


def test_paused_partitions_are_not_fetched() -> None:
    tested = assigned(A, B, at=0)
    tested.pause([A])
    assert [tested.is_fetchable(each) for each in (A, B, TopicPartition("gone", 0))] == [False, True, False]
    tested.resume([A])
    assert tested.is_fetchable(A)
    assert tested.consumed().keys() == {A, B}


def test_a_position_never_goes_back_by_delivery() -> None:
    tested = assigned(A, at=5)
    with pytest.raises(ValueError, match="offset 4 of clicks/0 is before position 5"):
        tested.advance(A, 4)
    tested.advance(A, 5)
    tested.seek_to_end()
    with pytest.raises(LookupError, match="Advanced in state awaiting reset"):
        tested.advance(A, 6)


def test_a_commit_stores_valid_positions() -> None:
    tested = assigned(A, B, C)
    tested.seek(A, 5)
    tested.advance(A, 8)
    tested.seek(B, 9)
    assert tested.consumed() == {A: OffsetAndMetadata(8), B: OffsetAndMetadata(9)}


# Metrics


def test_lag_is_counted_from_the_position() -> None:
    tested = assigned(A, at=15)
    assert tested.lag(A) is None
    tested.log_end_known(A, 20)
    assert tested.lag(A) == 5
    for unknown in (-1, None):
        tested.log_end_known(A, unknown)
        assert tested.lag(A) == 5
    tested.seek(A, 30)
    assert tested.lag(A) == 0
    tested.seek_to_end()
    assert tested.lag(A) is None


def test_nothing_is_known_of_a_partition_that_is_gone() -> None:
    tested = assigned(A)
    tested.log_end_known(B, 7)
    assert tested.lag(B) is None
    assert not tested.reset_answered(B, ResetRequest(LATEST, 1), 7)
    assert B not in tested


@pytest.mark.parametrize(
    ("divergent", "said"),
    [(6, "it matches the read log up to 6"), (None, "the leader does not know this epoch")],
)
def test_the_error_about_a_truncated_log_says_up_to_where_it_is_the_same(divergent: int | None, said: str) -> None:
    error = LogTruncated(A, 8, 2, divergent)
    assert f"position 8 of leader epoch 2: {said}" in str(error)
    assert error.divergent_offset == divergent


@pytest.mark.parametrize(
    "error",
    [NotAssigned("seek", [A], [B]), NoOffsetForPartition([A]), OffsetOutOfRange(A, 1, 2, 3), LogTruncated(A, 1, 2, 3)],
)
def test_errors_can_be_sent_to_another_process(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


# Random calls


PARTITIONS = st.sampled_from([A, B, C])
SETS = st.sets(PARTITIONS)


class RandomCalls(RuleBasedStateMachine):
    """Calls and late answers in any order, beside a model: what is assigned, paused, and where positions are."""

    def __init__(self) -> None:
        super().__init__()
        self.tested = AssignedPartitions()
        self.paused: set[TopicPartition] = set()
        self.at: dict[TopicPartition, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.asked: list[tuple[TopicPartition, ResetRequest]] = []

    @rule(partitions=SETS, keep=st.booleans())
    def change(self, partitions: set[TopicPartition], keep: bool) -> None:
        kept = self.assigned & partitions if keep else set()
        change = self.tested.change_to(sorted(partitions), keep=keep)
        assert set(change.added) == partitions - kept
        assert set(change.removed) == self.assigned - kept
        self.paused &= kept
        self.at = {each: offset for each, offset in self.at.items() if each in kept}
        self.assigned = partitions

    @rule(partition=PARTITIONS, offset=st.integers(0, 9))
    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition in self.assigned:
            self.tested.seek(partition, offset)
            self.at[partition] = offset

    @rule(partition=PARTITIONS)
    def ask_for_the_start(self, partition: TopicPartition) -> None:
        if partition in self.assigned:
            self.tested.seek_to_beginning([partition])
            self.at.pop(partition, None)
            self.asked.append((partition, self.tested.awaiting_reset(0.0)[partition]))

    @rule(number=st.integers(0, 99), offset=st.integers(0, 9))
    def answer_some_reset(self, number: int, offset: int) -> None:
        if self.asked:
            partition, request = self.asked[number % len(self.asked)]
            was_waited_for = self.tested.awaiting_reset(0.0).get(partition) == request
            assert self.tested.reset_answered(partition, request, offset) == was_waited_for
            if was_waited_for:
                self.at[partition] = offset

    @rule(partition=PARTITIONS, records=st.integers(0, 3))
    def deliver(self, partition: TopicPartition, records: int) -> None:
        if self.tested.is_fetchable(partition):
            self.at[partition] += records
            self.tested.advance(partition, self.at[partition])

    @rule(partitions=SETS)
    def pause(self, partitions: set[TopicPartition]) -> None:
        if partitions <= self.assigned:
            self.tested.pause(partitions)
            self.paused |= partitions

    @rule(partitions=SETS)
    def resume(self, partitions: set[TopicPartition]) -> None:
        if partitions <= self.assigned:
            self.tested.resume(partitions)
            self.paused -= partitions

    @invariant()
    def it_is_as_in_the_model(self) -> None:
        assert set(self.tested) == self.assigned
        assert self.tested.paused() == self.paused
        assert {each: known.offset for each, known in self.tested.consumed().items()} == self.at
        assert set(filter(self.tested.is_fetchable, self.assigned)) == self.at.keys() - self.paused


TestRandomCalls = RandomCalls.TestCase
TestRandomCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
