"""What the demonstration counts and concludes: a count that cannot show a loss would show nothing."""

from __future__ import annotations

from dataclasses import replace

from zkconsumer.cli.demo.scene import Counters, outcome_of
from zkconsumer.testing.history import Event

S = 1_000_000_000


def event(at_s: float, kind: str, offset: int = -1, member: str = "", partition: int = 0) -> Event:
    return Event(int(at_s * S), kind, member, "demo", partition, offset)


def acked(*offsets: int) -> list[Event]:
    return [event(1 + offset / 100, "acked", offset) for offset in offsets]


def delivered(at_s: float, member: str, *offsets: int) -> list[Event]:
    return [
        event(at_s + offset / 100 + later_s, kind, offset, member)
        for offset in offsets for kind, later_s in (("deliver", 0.0), ("done", 0.001))
    ]  # fmt: skip


def killed(at_s: float, member: str) -> Event:
    return Event(int(at_s * S), "killed", member)


def test_all_there_once() -> None:
    outcome = outcome_of([*acked(0, 1, 2), event(0, "assigned", 0, "ann"), *delivered(2, "ann", 0, 1, 2)], 1.0)
    assert outcome.last_line == "produced=3 delivered=3 lost=0 repeated=0"
    assert not outcome.findings


def test_a_lost_message_is_counted_and_found() -> None:
    outcome = outcome_of([*acked(0, 1, 2), event(0, "assigned", 0, "ann"), *delivered(2, "ann", 0, 2)], 1.0)
    assert outcome.last_line == "produced=3 delivered=2 lost=1 repeated=0"
    assert {finding.check for finding in outcome.findings} == {"lost", "skipped"}


def test_what_a_death_explains_is_repeated_and_no_fault() -> None:
    history = [
        *acked(0, 1, 2), event(0, "assigned", 0, "cleo"), *delivered(2, "cleo", 0, 1), killed(2.5, "cleo"),
        event(6, "assigned", 1, "ann"), *delivered(6, "ann", 1, 2),
    ]  # fmt: skip
    outcome = outcome_of(history, 1.0)
    assert (outcome.last_line, outcome.explained) == ("produced=3 delivered=3 lost=0 repeated=1", 1)
    assert not outcome.findings


def test_a_death_does_not_explain_repeats_of_messages_delivered_long_before() -> None:
    history = [
        *acked(0, 1), event(0, "assigned", 0, "cleo"), *delivered(2, "cleo", 0, 1), killed(8, "cleo"),
        event(12, "assigned", 0, "ann"), *delivered(12, "ann", 0, 1),
    ]  # fmt: skip
    outcome = outcome_of(history, 1.0)
    assert (outcome.repeated, outcome.explained) == (2, 0)
    assert [finding.check for finding in outcome.findings] == ["repeated", "repeated"]


def test_a_repeat_after_an_orderly_end_is_a_fault() -> None:
    history = [
        *acked(0), event(0, "assigned", 0, "bob"), *delivered(2, "bob", 0), event(3, "revoked", -1, "bob"),
        event(3, "assigned", 0, "ann"), *delivered(3.1, "ann", 0),
    ]  # fmt: skip
    outcome = outcome_of(history, 1.0)
    assert outcome.last_line == "produced=1 delivered=1 lost=0 repeated=1"
    assert [finding.check for finding in outcome.findings] == ["repeated"]


def test_the_counters_give_counts_lag_and_rates() -> None:
    counters = Counters(0)
    counters.take([*acked(0, 1, 2), *delivered(2, "ann", 0, 1), event(3.2, "deliver", 1, "bob")])
    assert (counters.produced, counters.delivered, counters.repeated) == (3, 2, 1)
    assert (counters.lag(0), counters.lag(1)) == (1, 0)
    assert counters.delivered_by == {"ann": 2, "bob": 1}
    assert counters.rates("ann", now_s=4.9, seconds=3) == (0, 2, 0)
    assert counters.rates("bob", now_s=4.9, seconds=3) == (0, 0, 1)


def test_a_delivery_may_be_known_before_its_acknowledgement() -> None:
    counters = Counters(0)
    counters.take(delivered(2, "ann", 0))
    assert counters.lag(0) == 0
    counters.take(acked(0))
    assert (counters.produced, counters.delivered, counters.lag(0)) == (1, 1, 0)


def test_the_outcome_names_each_finding_once_with_its_time() -> None:
    outcome = outcome_of([*acked(0, 1, 2), event(0, "assigned", 0, "ann"), *delivered(2, "ann", 0, 2)], 1.0)
    doubled = replace(outcome, findings=(*outcome.findings, *outcome.findings))
    sentences = doubled.sentences(S // 2)
    assert len(sentences) == len(outcome.findings) == 2
    assert any("0.510" in sentence for sentence in sentences), sentences
    assert doubled.failed


def test_a_loss_or_an_unexplained_repeat_fails_without_any_finding() -> None:
    outcome = outcome_of([*acked(0), event(0, "assigned", 0, "ann"), *delivered(2, "ann", 0)], 1.0)
    assert not outcome.failed
    assert replace(outcome, lost=1).failed
    assert replace(outcome, repeated=1).failed
    assert not replace(outcome, repeated=1, explained=1).failed
