"""Histories of Kafka 0.7 with messages counted one by one."""

from __future__ import annotations

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.checks import Limits, check_history
from zkconsumer.testing.history.message_numbers import by_message_number

NAME = "0-1"


def event(time: int, kind: str, offset: int = -1, partition: int | str = NAME) -> Event:
    return Event(time, kind, "ann", "clicks", partition, offset)


def test_positions_become_the_numbers_of_the_messages_that_start_there() -> None:
    history = [
        event(1, "acked", 0), event(2, "acked", 15), event(3, "acked", 16), event(4, "acked", 90),
        event(5, "assigned", 0), event(6, "deliver", 0), event(7, "done", 0), event(8, "commit", 15),
        event(9, "deliver", 15), event(10, "deliver", 16), event(11, "commit", 90), event(12, "commit", 120),
        event(13, "revoked"),
    ]  # fmt: skip
    found = [(each.kind, each.offset) for each in by_message_number(history)]
    assert found == [
        ("acked", 0), ("acked", 1), ("acked", 2), ("acked", 3),
        ("assigned", 0), ("deliver", 0), ("done", 0), ("commit", 1),
        ("deliver", 1), ("deliver", 2), ("commit", 3), ("commit", 4),
        ("revoked", -1),
    ]  # fmt: skip


def test_other_generations_stay_as_they_are() -> None:
    history = [event(1, "acked", 5, 0), event(2, "deliver", 5, 0), event(3, "commit", 6, 0)]
    assert by_message_number(history) == history


def test_an_early_commit_is_found_and_a_right_one_is_not() -> None:
    def history(commit: int) -> list[Event]:
        return [
            event(1, "acked", 0), event(2, "acked", 15), event(3, "assigned", 0), event(4, "deliver", 0),
            event(5, "done", 0), event(6, "deliver", 15), event(7, "commit", commit), event(8, "done", 15),
        ]  # fmt: skip

    assert not check_history(by_message_number(history(15)), Limits())
    assert [each.check for each in check_history(by_message_number(history(30)), Limits())] == ["early commit"]
