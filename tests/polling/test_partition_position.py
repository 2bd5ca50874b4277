"""The machine of a position, read as a specification, and attacked with random events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.polling import partition_position as p
from zkconsumer.polling.partition_position import OffsetReset
from zkconsumer.polling.partition_position import PositionState as S

EARLIEST = p.ResetRequest(OffsetReset.EARLIEST, 1)
LATEST = p.ResetRequest(OffsetReset.LATEST, 2)
LATER = p.ResetRequest(OffsetReset.LATEST, 3)


def machine(state: S) -> p.PartitionPosition:
    """Return a machine in a state: at offset 5, or awaiting a reset to the end."""
    made = p.PartitionPosition()
    made.state = state
    made.position = 5 if state is S.FETCHING else None
    made.reset = LATEST if state is S.AWAITING_RESET else None
    return made


# state, event -> counts, state, position, reset
ROWS: list[tuple[S, p.Event, bool, S, int | None, p.ResetRequest | None]] = [
    # initializing
    (S.INITIALIZING, p.CommittedFound(7), True, S.FETCHING, 7, None),
    (S.INITIALIZING, p.Seek(9), True, S.FETCHING, 9, None),
    (S.INITIALIZING, p.ResetRequested(LATEST), True, S.AWAITING_RESET, None, LATEST),
    (S.INITIALIZING, p.ResetAnswered(LATEST, 9), False, S.INITIALIZING, None, None),
    (S.INITIALIZING, p.Postponed(9.0), False, S.INITIALIZING, None, None),
    # fetching, at 5
    (S.FETCHING, p.Advanced(8), True, S.FETCHING, 8, None),
    (S.FETCHING, p.Seek(0), True, S.FETCHING, 0, None),
    (S.FETCHING, p.ResetRequested(EARLIEST), True, S.AWAITING_RESET, None, EARLIEST),
    (S.FETCHING, p.CommittedFound(1), False, S.FETCHING, 5, None),
    (S.FETCHING, p.ResetAnswered(LATEST, 1), False, S.FETCHING, 5, None),
    (S.FETCHING, p.Postponed(9.0), False, S.FETCHING, 5, None),
    # awaiting the reset to the end
    (S.AWAITING_RESET, p.ResetAnswered(LATEST, 90), True, S.FETCHING, 90, None),
    (S.AWAITING_RESET, p.ResetAnswered(EARLIEST, 0), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, p.ResetAnswered(LATER, 91), False, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, p.ResetRequested(LATER), True, S.AWAITING_RESET, None, LATER),
    (S.AWAITING_RESET, p.Seek(9), True, S.FETCHING, 9, None),
    (S.AWAITING_RESET, p.Postponed(9.0), True, S.AWAITING_RESET, None, LATEST),
    (S.AWAITING_RESET, p.CommittedFound(1), False, S.AWAITING_RESET, None, LATEST),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].value}, {row[1]}")
def test_each_event_in_each_state(row: tuple[S, p.Event, bool, S, int | None, p.ResetRequest | None]) -> None:
    state, event, counts, reached, position, reset = row
    tested = machine(state)
    assert tested.handle(event) is counts
    assert (tested.state, tested.position, tested.reset) == (reached, position, reset)


def test_every_row_of_the_table_is_tested_here() -> None:
    assert {(state, type(event)) for state, event, *_ in ROWS} == set(p._TABLE)


@pytest.mark.parametrize("state", [S.INITIALIZING, S.AWAITING_RESET])
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


OFFSETS = st.integers(0, 3)
REQUESTS = st.builds(p.ResetRequest, st.sampled_from(OffsetReset), st.integers(1, 3))
EVENTS = st.one_of(
    st.builds(p.Seek, OFFSETS), st.builds(p.ResetRequested, REQUESTS), st.builds(p.CommittedFound, OFFSETS),
    st.builds(p.ResetAnswered, REQUESTS, OFFSETS), st.builds(p.Postponed, st.floats(0, 10)),
    st.builds(p.Advanced, OFFSETS),
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
        assert (tested.position is not None) == (tested.state is S.FETCHING)
        assert (tested.reset is not None) == (tested.state is S.AWAITING_RESET)
        assert tested.retry_at is None or tested.state is S.AWAITING_RESET
