"""The machine of a position, read as a specification, and attacked with random events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.polling import partition_position as p
from zkconsumer.polling.partition_position import FetchPosition as At
from zkconsumer.polling.partition_position import OffsetReset
from zkconsumer.polling.partition_position import PositionState as S

EARLIEST = p.ResetRequest(OffsetReset.EARLIEST, 1)
LATEST = p.ResetRequest(OffsetReset.LATEST, 2)
LATER = p.ResetRequest(OffsetReset.LATEST, 3)


def machine(state: S, *, epoch: int | None = None, retry_at: float | None = None) -> p.PartitionPosition:
    """Return a machine in a state: at offset 5, whose record before has epoch 2, or awaiting a reset to the end."""
    made = p.PartitionPosition()
    made.state, made.leader_epoch, made.retry_at = state, epoch, retry_at
    if state in (S.FETCHING, S.AWAITING_VALIDATION):
        made.position = At(5, 2, epoch)
    if state is S.AWAITING_RESET:
        made.reset = LATEST
    return made


# state, epoch of the leader, event -> counts, state, position, reset
ROWS: list[tuple[S, int | None, p.Event, bool, S, At | None, p.ResetRequest | None]] = [
    # initializing
    (S.INITIALIZING, None, p.CommittedFound(7), True, S.FETCHING, At(7), None),
    (S.INITIALIZING, 3, p.CommittedFound(7), True, S.FETCHING, At(7, None, 3), None),
    (S.INITIALIZING, None, p.CommittedFound(7, 2), True, S.FETCHING, At(7, 2), None),
    (S.INITIALIZING, 3, p.CommittedFound(7, 2), True, S.AWAITING_VALIDATION, At(7, 2, 3), None),
    (S.INITIALIZING, None, p.CommittedMissing(EARLIEST), True, S.AWAITING_RESET, None, EARLIEST),
    (S.INITIALIZING, None, p.CommittedMissing(None), True, S.INITIALIZING, None, None),
    (S.INITIALIZING, None, p.Seek(9), True, S.FETCHING, At(9), None),
    (S.INITIALIZING, None, p.ResetRequested(LATEST), True, S.AWAITING_RESET, None, LATEST),
    (S.INITIALIZING, None, p.LeaderEpochKnown(3), True, S.INITIALIZING, None, None),
    (S.INITIALIZING, None, p.ResetAnswered(LATEST, 9), False, S.INITIALIZING, None, None),
    (S.INITIALIZING, None, p.OutOfRange(5, LATEST), False, S.INITIALIZING, None, None),
    (S.INITIALIZING, None, p.Validated(At(5)), False, S.INITIALIZING, None, None),
    (S.INITIALIZING, None, p.Truncated(At(5), None, LATEST), False, S.INITIALIZING, None, None),
    (S.INITIALIZING, None, p.Postponed(9.0), False, S.INITIALIZING, None, None),
    # fetching, at 5
    (S.FETCHING, None, p.Advanced(8), True, S.FETCHING, At(8), None),
    (S.FETCHING, 3, p.Advanced(8, 3), True, S.FETCHING, At(8, 3, 3), None),
    (S.FETCHING, None, p.Seek(0), True, S.FETCHING, At(0), None),
    (S.FETCHING, 3, p.Seek(0, 1), True, S.AWAITING_VALIDATION, At(0, 1, 3), None),
    (S.FETCHING, None, p.ResetRequested(EARLIEST), True, S.AWAITING_RESET, None, EARLIEST),
    (S.FETCHING, None, p.OutOfRange(5, LATEST), True, S.AWAITING_RESET, None, LATEST),
    (S.FETCHING, None, p.OutOfRange(5, None), True, S.FETCHING, At(5, 2), None),
    (S.FETCHING, None, p.OutOfRange(4, LATEST), False, S.FETCHING, At(5, 2), None),
    (S.FETCHING, 3, p.LeaderEpochKnown(3), False, S.FETCHING, At(5, 2, 3), None),
    (S.FETCHING, 3, p.LeaderEpochKnown(4), True, S.AWAITING_VALIDATION, At(5, 2, 4), None),
    (S.FETCHING, None, p.LeaderEpochKnown(4), True, S.AWAITING_VALIDATION, At(5, 2, 4), None),
    (S.FETCHING, None, p.CommittedFound(1), False, S.FETCHING, At(5, 2), None),
    (S.FETCHING, None, p.CommittedMissing(LATEST), False, S.FETCHING, At(5, 2), None),
    (S.FETCHING, None, p.ResetAnswered(LATEST, 1), False, S.FETCHING, At(5, 2), None),
    (S.FETCHING, None, p.Validated(At(5, 2)), False, S.FETCHING, At(5, 2), None),
    (S.FETCHING, None, p.Truncated(At(5, 2), None, LATEST), False, S.FETCHING, At(5, 2), None),
    (S.FETCHING, None, p.Postponed(9.0), False, S.FETCHING, At(5, 2), None),
    # awaiting the reset to the end
    (S.AWAITING_RESET, None, p.ResetAnswered(LATEST, 90), True, S.FETCHING, At(90), None),
    (S.AWAITING_RESET, 3, p.ResetAnswered(LATEST, 90), True, S.FETCHING, At(90, None, 3), None),
    (S.AWAITING_RESET, None, p.ResetAnswered(EARLIEST, 0), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.ResetAnswered(LATER, 91), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.ResetRequested(LATER), True, S.AWAITING_RESET, None, LATER),
    (S.AWAITING_RESET, None, p.Seek(9), True, S.FETCHING, At(9), None),
    (S.AWAITING_RESET, 3, p.Seek(9, 2), True, S.AWAITING_VALIDATION, At(9, 2, 3), None),
    (S.AWAITING_RESET, None, p.Postponed(9.0), True, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.LeaderEpochKnown(4), True, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.CommittedFound(1), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.CommittedMissing(EARLIEST), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.OutOfRange(5, EARLIEST), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.Validated(At(5, 2)), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, None, p.Truncated(At(5, 2), None, EARLIEST), False, S.AWAITING_RESET, None, LATEST),
    # awaiting validation, at 5
    (S.AWAITING_VALIDATION, 3, p.Validated(At(5, 2, 3)), True, S.FETCHING, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.Validated(At(5, 2, 2)), False, S.AWAITING_VALIDATION, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.Truncated(At(5, 2, 3), At(4, 1), LATEST), True, S.FETCHING, At(4, 1, 3), None),
    (S.AWAITING_VALIDATION, 3, p.Truncated(At(5, 2, 3), None, LATEST), True, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_VALIDATION, 3, p.Truncated(At(5, 2, 3), At(4, 1), None), True, S.AWAITING_VALIDATION, At(5, 2, 3),
     None),
    (S.AWAITING_VALIDATION, 3, p.Truncated(At(6, 2, 3), At(4, 1), LATEST), False, S.AWAITING_VALIDATION,
     At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.LeaderEpochKnown(4), True, S.AWAITING_VALIDATION, At(5, 2, 4), None),
    (S.AWAITING_VALIDATION, 3, p.LeaderEpochKnown(3), False, S.AWAITING_VALIDATION, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.Seek(9), True, S.FETCHING, At(9, None, 3), None),
    (S.AWAITING_VALIDATION, 3, p.ResetRequested(EARLIEST), True, S.AWAITING_RESET, None, EARLIEST),
    (S.AWAITING_VALIDATION, 3, p.Postponed(9.0), True, S.AWAITING_VALIDATION, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.CommittedFound(1), False, S.AWAITING_VALIDATION, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.CommittedMissing(LATEST), False, S.AWAITING_VALIDATION, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.ResetAnswered(LATEST, 1), False, S.AWAITING_VALIDATION, At(5, 2, 3), None),
    (S.AWAITING_VALIDATION, 3, p.OutOfRange(5, LATEST), False, S.AWAITING_VALIDATION, At(5, 2, 3), None),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].value}, {row[2]}")
def test_each_event_in_each_state(
    row: tuple[S, int | None, p.Event, bool, S, At | None, p.ResetRequest | None],
) -> None:
    state, epoch, event, counts, reached, position, reset = row
    tested = machine(state, epoch=epoch)
    assert tested.handle(event) is counts
    assert (tested.state, tested.position, tested.reset) == (reached, position, reset)


def test_every_row_of_the_table_is_tested_here() -> None:
    assert {(state, type(event)) for state, _, event, *_ in ROWS} == set(p._TABLE)


@pytest.mark.parametrize("state", [S.INITIALIZING, S.AWAITING_RESET, S.AWAITING_VALIDATION])
def test_records_are_returned_of_a_fetched_partition_alone(state: S) -> None:
    with pytest.raises(LookupError, match=f"no transition for Advanced in state {state.value}"):
        machine(state).handle(p.Advanced(6))


def test_a_request_that_is_postponed_is_due_at_its_time_and_after_a_change_at_once() -> None:
    tested = machine(S.AWAITING_RESET)
    assert tested.is_due(0.0)
    tested.handle(p.Postponed(9.0))
    assert [tested.is_due(now) for now in (8.9, 9.0)] == [False, True]
    tested.handle(p.ResetRequested(LATER))
    assert tested.is_due(0.0)


def test_a_new_epoch_without_an_epoch_of_the_position_needs_no_validation() -> None:
    tested = machine(S.FETCHING)
    tested.handle(p.Seek(9))
    assert tested.handle(p.LeaderEpochKnown(4))
    assert (tested.state, tested.position) == (S.FETCHING, At(9, None, 4))


def test_the_epoch_that_was_reported_before_a_position_counts_for_it() -> None:
    tested = machine(S.INITIALIZING)
    tested.handle(p.LeaderEpochKnown(4))
    tested.handle(p.CommittedFound(7, 2))
    assert (tested.state, tested.position) == (S.AWAITING_VALIDATION, At(7, 2, 4))


OFFSETS = st.integers(0, 3)
EPOCHS = st.none() | st.integers(0, 2)
POSITIONS = st.builds(At, OFFSETS, EPOCHS, EPOCHS)
REQUESTS = st.builds(p.ResetRequest, st.sampled_from(OffsetReset), st.integers(1, 3))
EVENTS = st.one_of(
    st.builds(p.Seek, OFFSETS, EPOCHS), st.builds(p.ResetRequested, REQUESTS),
    st.builds(p.CommittedFound, OFFSETS, EPOCHS), st.builds(p.CommittedMissing, st.none() | REQUESTS),
    st.builds(p.ResetAnswered, REQUESTS, OFFSETS), st.builds(p.OutOfRange, OFFSETS, st.none() | REQUESTS),
    st.builds(p.LeaderEpochKnown, st.integers(0, 2)), st.builds(p.Validated, POSITIONS),
    st.builds(p.Truncated, POSITIONS, st.none() | POSITIONS, st.none() | REQUESTS),
    st.builds(p.Postponed, st.floats(0, 10)), st.builds(p.Advanced, OFFSETS, EPOCHS),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=30))
def test_whatever_happens_a_state_has_what_it_needs(events: list[p.Event]) -> None:
    tested = p.PartitionPosition()
    for event in events:
        before = tested.state, tested.position, tested.reset
        if isinstance(event, p.Advanced) and tested.state is not S.FETCHING:
            with pytest.raises(LookupError):
                tested.handle(event)
            continue
        counted = tested.handle(event)
        assert counted or before == (tested.state, tested.position, tested.reset)
        assert (tested.position is not None) == (tested.state in (S.FETCHING, S.AWAITING_VALIDATION))
        assert (tested.reset is not None) == (tested.state is S.AWAITING_RESET)
        assert tested.retry_at is None or tested.state in (S.AWAITING_RESET, S.AWAITING_VALIDATION)
        if tested.position is not None:
            assert tested.position.leader_epoch == tested.leader_epoch
        if tested.state is S.AWAITING_VALIDATION:
            assert tested.position is not None
            assert None not in tested.position
