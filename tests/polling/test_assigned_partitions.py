"""Assigned partitions: positions, turns, pauses, lag; and a model that random calls are compared with."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.assigned_partitions import AssignedPartitions
from zkconsumer.polling.errors import LogTruncated, NoOffsetForPartition, NotAssigned, OffsetOutOfRange
from zkconsumer.polling.partition_position import FetchPosition as At
from zkconsumer.polling.partition_position import OffsetReset, ResetRequest
from zkconsumer.polling.partition_position import PositionState as S
from zkconsumer.polling.records import OffsetAndMetadata

A, B, C = (TopicPartition("clicks", number) for number in range(3))
EARLIEST, LATEST = OffsetReset.EARLIEST, OffsetReset.LATEST


def assigned(*partitions: TopicPartition, reset: OffsetReset | None = LATEST, committed: bool = False,
             at: int | None = None) -> AssignedPartitions:  # fmt: skip
    """Return assigned partitions, each at an offset."""
    made = AssignedPartitions(reset, read_committed=committed)
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
    assert tested.position(A) == At(5)
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
    number = tested.assignment_id
    assert tested.change_to([B, A], keep=True) == ((), ())
    assert tested.assignment_id == number


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
    assert tested.position(A) == At(5)
    assert tested.paused() == set()


def test_an_error_names_five_partitions_and_counts_the_others() -> None:
    many = [TopicPartition("t", number) for number in range(8)]
    with pytest.raises(NotAssigned, match=r"t/0, t/1, t/2, t/3, t/4 and 3 more are not .* no partition is"):
        assigned().pause(many)


# Where a partition starts


def test_a_committed_offset_is_the_position() -> None:
    tested = assigned(A, B)
    assert tested.initializing() == [A, B]
    assert not tested.has_all_positions
    assert tested.take_committed({A: OffsetAndMetadata(7, "note", 2), B: OffsetAndMetadata(0)}, tested.assignment_id)
    assert (tested.position(A), tested.position(B)) == (At(7, 2), At(0))
    assert tested.has_all_positions


def test_offsets_of_an_earlier_assignment_are_dropped() -> None:
    tested = assigned(A)
    asked_in = tested.assignment_id
    tested.change_to([], keep=False)
    tested.change_to([A], keep=False)
    assert not tested.take_committed({A: OffsetAndMetadata(7)}, asked_in)
    assert tested.initializing() == [A]


def test_a_seek_before_the_answer_counts() -> None:
    tested = assigned(A)
    tested.seek(A, 3)
    assert tested.take_committed({A: OffsetAndMetadata(7)}, tested.assignment_id)
    assert tested.position(A) == At(3)


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_without_a_commit_the_policy_says_where_to_start(policy: OffsetReset) -> None:
    tested = assigned(A, reset=policy)
    tested.take_committed({A: None}, tested.assignment_id)
    [(partition, request)] = tested.awaiting_reset(0.0).items()
    assert (partition, request.policy) == (A, policy)
    assert tested.reset_answered(A, request, 40)
    assert tested.position(A) == At(40)


def test_without_a_policy_all_partitions_without_a_commit_are_named_and_the_others_start() -> None:
    tested = assigned(A, B, C, reset=None)
    with pytest.raises(NoOffsetForPartition, match="no offset is committed for clicks/0, clicks/2") as refused:
        tested.take_committed({A: None, B: OffsetAndMetadata(7), C: None}, tested.assignment_id)
    assert refused.value.partitions == (A, C)
    assert tested.position(B) == At(7)
    assert tested.initializing() == [A, C]


def test_a_partition_that_was_sought_meanwhile_needs_no_commit() -> None:
    tested = assigned(A, reset=None)
    tested.seek(A, 3)
    assert tested.take_committed({A: None}, tested.assignment_id)


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
    assert tested.position(A) == At(50)


def test_without_partitions_all_are_reset() -> None:
    tested = assigned(A, B, at=5)
    tested.seek_to_beginning()
    assert {each: request.policy for each, request in tested.awaiting_reset(0.0).items()} == {A: EARLIEST, B: EARLIEST}


def test_a_reset_under_way_is_not_asked_for_again_before_its_time() -> None:
    tested = assigned(A, B, at=5)
    tested.seek_to_end()
    tested.postpone([A], 9.0)
    assert list(tested.awaiting_reset(8.9)) == [B]
    assert tested.next_retry() == 9.0
    assert list(tested.awaiting_reset(9.0)) == [A, B]


@pytest.mark.parametrize("offset", [-1, -(2**40)])
def test_a_negative_offset_is_refused(offset: int) -> None:
    tested = assigned(A, at=5)
    with pytest.raises(ValueError, match=f"offset {offset} of clicks/0 is negative; it must be 0 or more"):
        tested.seek(A, offset)
    assert tested.position(A) == At(5)


# Out of range


def test_a_position_out_of_range_is_reset_by_the_policy() -> None:
    tested = assigned(A, at=5, reset=EARLIEST)
    assert tested.out_of_range(A, 5)
    assert tested.awaiting_reset(0.0)[A].policy is EARLIEST


def test_only_the_present_position_is_out_of_range() -> None:
    tested = assigned(A, at=5, reset=None)
    tested.seek(A, 6)
    assert not tested.out_of_range(A, 5)
    assert not tested.out_of_range(B, 5)
    assert tested.position(A) == At(6)


def test_without_a_policy_the_position_and_the_log_are_named_each_time() -> None:
    tested = assigned(A, at=5, reset=None)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match="clicks/0: position 5 is out of range, and"):
            tested.out_of_range(A, 5)
    tested.log_known(A, log_start=10, high_watermark=20)
    with pytest.raises(OffsetOutOfRange, match="out of range: the log starts at 10 and ends at 20, and") as refused:
        tested.out_of_range(A, 5)
    assert (refused.value.log_start, refused.value.log_end) == (10, 20)


# Validation


def test_a_position_is_validated_when_the_leader_changes() -> None:
    tested = assigned(A, at=5)
    tested.advance(A, 8, 2)
    assert tested.leader_epoch_known(A, 3)
    assert tested.fetchable() == []
    assert tested.position(A) is None
    assert tested.has_all_positions
    [(partition, position)] = tested.awaiting_validation(0.0).items()
    assert (partition, position) == (A, At(8, 2, 3))
    assert tested.validation_answered(A, position, 8, 2)
    assert tested.position(A) == At(8, 2, 3)


def test_a_truncated_log_sets_the_position_to_where_it_is_the_same() -> None:
    tested = assigned(A, at=5)
    tested.advance(A, 8, 2)
    tested.leader_epoch_known(A, 3)
    assert tested.validation_answered(A, At(8, 2, 3), 6, 1)
    assert tested.position(A) == At(6, 1, 3)


@pytest.mark.parametrize(("end_offset", "end_epoch"), [(None, None), (None, 1), (9, None)])
def test_where_the_leader_knows_no_epoch_the_policy_counts(end_offset: int | None, end_epoch: int | None) -> None:
    tested = assigned(A, at=5)
    tested.advance(A, 8, 2)
    tested.leader_epoch_known(A, 3)
    assert tested.validation_answered(A, At(8, 2, 3), end_offset, end_epoch)
    assert tested.awaiting_reset(0.0)[A].policy is LATEST


@pytest.mark.parametrize(
    ("end", "divergent", "said"),
    [((6, 1), 6, "it is the one that was read up to 6"), ((None, None), None, "the leader does not know this epoch")],
)
def test_without_a_policy_a_truncated_log_is_an_error(
    end: tuple[int | None, int | None], divergent: int | None, said: str
) -> None:
    tested = assigned(A, at=5, reset=None)
    tested.advance(A, 8, 2)
    tested.leader_epoch_known(A, 3)
    for _ in range(2):
        with pytest.raises(LogTruncated, match=f"clicks/0: .* position 8 of leader epoch 2: {said}") as refused:
            tested.validation_answered(A, At(8, 2, 3), *end)
        assert refused.value.divergent_offset == divergent
    assert tested.state(A) is S.AWAITING_VALIDATION


def test_an_answer_about_an_earlier_epoch_does_not_count() -> None:
    tested = assigned(A, at=5, reset=None)
    tested.advance(A, 8, 2)
    tested.leader_epoch_known(A, 3)
    asked = tested.awaiting_validation(0.0)[A]
    tested.leader_epoch_known(A, 4)
    assert not tested.validation_answered(A, asked, 6, 1)
    assert tested.awaiting_validation(0.0)[A] == At(8, 2, 4)


# Fetching


def test_partitions_take_turns() -> None:
    tested = assigned(A, B, C, at=0)
    assert tested.fetchable() == [A, B, C]
    tested.advance(A, 1)
    assert tested.fetchable() == [B, C, A]
    tested.move_to_end(B)
    assert tested.fetchable() == [C, A, B]
    tested.move_to_end(TopicPartition("gone", 0))
    assert len(tested) == 3


def test_paused_partitions_and_those_about_to_be_revoked_are_not_fetched() -> None:
    tested = assigned(A, B, C, at=0)
    tested.pause([A])
    tested.mark_pending_revocation([B])
    assert tested.fetchable() == [C]
    assert [tested.is_fetchable(each) for each in (A, B, C, TopicPartition("gone", 0))] == [False, False, True, False]
    tested.resume([A])
    assert tested.fetchable() == [A, C]
    assert tested.consumed().keys() == {A, B, C}


def test_a_position_never_goes_back_by_delivery() -> None:
    tested = assigned(A, at=5)
    with pytest.raises(ValueError, match="offset 4 of clicks/0 is before position 5"):
        tested.advance(A, 4)
    tested.advance(A, 5)
    tested.seek_to_end()
    with pytest.raises(LookupError, match="Advanced in state awaiting reset"):
        tested.advance(A, 6)


def test_a_commit_stores_valid_positions_with_their_epochs() -> None:
    tested = assigned(A, B, C)
    tested.seek(A, 5)
    tested.advance(A, 8, 2)
    tested.seek(B, 9)
    assert tested.consumed() == {A: OffsetAndMetadata(8, "", 2), B: OffsetAndMetadata(9)}


# Metrics


def test_lag_and_lead_are_counted_from_the_position() -> None:
    tested = assigned(A, at=15)
    assert (tested.lag(A), tested.lead(A), tested.log_end(A)) == (None, None, None)
    tested.log_known(A, log_start=10, high_watermark=20, last_stable=18)
    assert (tested.lag(A), tested.lead(A), tested.log_end(A)) == (5, 5, 20)
    tested.log_known(A, log_start=-1, high_watermark=-1, last_stable=-1)
    assert (tested.lag(A), tested.lead(A)) == (5, 5)
    tested.seek(A, 30)
    assert (tested.lag(A), tested.lead(A)) == (0, 20)
    tested.seek(A, 3)
    assert (tested.lag(A), tested.lead(A)) == (17, 0)
    tested.seek_to_end()
    assert (tested.lag(A), tested.lead(A)) == (None, None)


def test_readers_of_committed_records_see_the_log_up_to_the_first_open_transaction() -> None:
    tested = assigned(A, at=15, committed=True)
    tested.log_known(A, high_watermark=20)
    assert tested.lag(A) == 5
    tested.log_known(A, last_stable=18)
    assert (tested.lag(A), tested.log_end(A)) == (3, 18)


def test_nothing_is_known_of_a_partition_that_is_gone() -> None:
    tested = assigned(A)
    tested.log_known(B, high_watermark=7)
    assert (tested.lag(B), tested.lead(B), tested.log_end(B)) == (None, None, None)
    assert not tested.reset_answered(B, ResetRequest(LATEST, 1), 7)
    assert not tested.leader_epoch_known(B, 1)
    assert B not in tested


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
        self.tested = AssignedPartitions(EARLIEST)
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

    @rule(partition=PARTITIONS, offset=st.integers(0, 9))
    def out_of_range(self, partition: TopicPartition, offset: int) -> None:
        counted = self.tested.out_of_range(partition, offset)
        assert counted == (self.at.get(partition) == offset)
        if counted:
            del self.at[partition]

    @rule(partition=PARTITIONS, records=st.integers(0, 3))
    def deliver(self, partition: TopicPartition, records: int) -> None:
        if self.tested.is_fetchable(partition):
            self.at[partition] += records
            self.tested.advance(partition, self.at[partition])
            assert self.tested.fetchable()[-1] == partition

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
        assert set(self.tested.fetchable()) == self.at.keys() - self.paused


TestRandomCalls = RandomCalls.TestCase
TestRandomCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
