"""Exact and inexact handovers, the member that caused an inexact one, and the table of versions."""

from __future__ import annotations

import pytest
from mixed_handovers import handovers, wrong_handovers
from mixed_versions import BEGIN, END, HEAD, rows_of, with_rows

from zkconsumer.testing.history import Event

JAVA = {"j"}


def deliver(time_ns: int, member: str, offset: int) -> Event:
    return Event(time_ns, "deliver", member, "t", 0, offset)


def stored(time_ns: int, offset: int) -> Event:
    return Event(time_ns, "offset_node", "", "t", 0, offset)


def test_a_handover_is_exact_at_the_very_next_message() -> None:
    [there, back] = handovers([deliver(1, "a", 4), deliver(2, "j", 5), deliver(3, "a", 7)], before_ns=9)
    assert (there.giver, there.taker, there.is_exact) == ("a", "j", True)
    assert (back.giver, back.taker, back.is_exact) == ("j", "a", False)


def test_what_comes_after_the_first_death_is_no_handover_in_order() -> None:
    assert handovers([deliver(1, "a", 4), deliver(2, "j", 5)], before_ns=2) == []


@pytest.mark.parametrize(
    ("events", "is_wrong"),
    [
        pytest.param([deliver(1, "a", 4), deliver(2, "j", 5)], False, id="exact"),
        pytest.param([deliver(1, "a", 4), stored(2, 5), deliver(3, "j", 3)], False, id="Java read before it claimed"),
        pytest.param([deliver(1, "a", 4), stored(2, 4), deliver(3, "j", 3)], True, id="ours stored too little"),
        pytest.param([deliver(1, "a", 4), stored(2, 5), deliver(3, "j", 6)], True, id="one left out"),
        pytest.param([deliver(1, "j", 4), deliver(2, "a", 4)], False, id="in Java's hand"),
        pytest.param([deliver(1, "j", 4), deliver(2, "a", 3)], True, id="more than what was in Java's hand"),
        pytest.param([deliver(1, "a", 4), stored(2, 5), deliver(3, "b", 4)], True, id="ours to ours"),
        pytest.param([deliver(1, "j", 4), deliver(2, "j", 2)], False, id="the same Java member"),
    ],
)
def test_ours_answer_for_what_java_does_not_explain(events: list[Event], is_wrong: bool) -> None:
    assert bool(wrong_handovers(handovers(events, 9), events, JAVA)) == is_wrong


def test_rows_of_one_version_leave_those_of_others_in_place() -> None:
    document = f"before\n\n{BEGIN}\n{END}\n\nafter\n"
    first = with_rows(document, {("0.10.2.2", "range"): "| 0.10.2.2 | range | x |"})
    both = with_rows(first, {("0.8.0", "filters"): "| 0.8.0 | filters | y |", ("0.8.0", "range"): "| 0.8.0 | range |"})
    assert list(rows_of(both)) == [("0.8.0", "range"), ("0.8.0", "filters"), ("0.10.2.2", "range")]
    assert both.startswith(f"before\n\n{BEGIN}\n\n{HEAD}\n")
    assert both.endswith(f"{END}\n\nafter\n")
    assert with_rows(both, {}) == both


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        with_rows("text", {})
