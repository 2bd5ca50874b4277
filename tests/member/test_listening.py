"""What a rebalance listener is told comes in pairs: what was assigned is revoked or lost, once, and nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.member.listening import ListenerThread

PATIENCE_S = 10.0
A, B, C = (TopicPartition("clicks", number) for number in range(3))


class Notes:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self.heard.append(("assigned", sorted(positions)))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("lost", partitions))


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def listening(notes: Notes) -> Iterator[ListenerThread]:
    thread = ListenerThread(notes)
    yield thread
    thread.close(PATIENCE_S)


def tell(call: Any, *arguments: Any) -> None:
    """Make a call of `ListenerThread` and wait until the listener has heard it."""
    done = threading.Event()
    call(*arguments, lambda *_: done.set())
    assert done.wait(PATIENCE_S)


def test_what_was_assigned_is_revoked(listening: ListenerThread, notes: Notes) -> None:
    tell(listening.assigned, {A: 0, B: 7})
    tell(listening.revoked, [B])
    tell(listening.assigned, {B: 9})
    assert notes.heard == [("assigned", [A, B]), ("revoked", [B]), ("assigned", [B])]


def test_what_was_never_assigned_is_neither_revoked_nor_lost(listening: ListenerThread, notes: Notes) -> None:
    tell(listening.assigned, {A: 0})
    tell(listening.revoked, [A, B])
    tell(listening.revoked, [B])
    listening.lost([A, B, C])
    listening.close(PATIENCE_S)
    assert notes.heard == [("assigned", [A]), ("revoked", [A])]


def test_leaving_revokes_all_that_was_assigned(listening: ListenerThread, notes: Notes) -> None:
    tell(listening.assigned, {B: 7, A: 0})
    tell(listening.assigned, {C: 1})
    tell(listening.revoked, [B])
    tell(listening.leave)
    assert notes.heard[-1] == ("revoked", [A, C])


def test_a_release_waits_for_what_the_listener_does_at_the_end() -> None:
    """A drain that ends just then would be released before the listener has committed it."""
    inside, may_return, returned = threading.Event(), threading.Event(), threading.Event()
    heard: list[str] = []

    class Slow:
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            inside.set()
            may_return.wait(PATIENCE_S)
            heard.append("committed")

    def released() -> None:
        heard.append("released")
        returned.set()

    listening = ListenerThread(Slow())
    tell(listening.assigned, {A: 0})
    listening.leave(lambda: heard.append("left"))
    assert inside.wait(PATIENCE_S)
    listening.revoked([A], released)
    assert heard == []
    may_return.set()
    assert returned.wait(PATIENCE_S)
    assert heard == ["committed", "left", "released"]
    tell(listening.revoked, [A])  # later ones wait for nothing
    listening.close(PATIENCE_S)


def test_leaving_without_partitions_holds_nothing_up(listening: ListenerThread) -> None:
    tell(listening.leave)
    tell(listening.revoked, [A])


def test_nothing_is_assigned_after_leaving(listening: ListenerThread, notes: Notes) -> None:
    tell(listening.leave)
    tell(listening.assigned, {A: 0})
    tell(listening.revoked, [A])
    tell(listening.leave)
    listening.lost([A])
    listening.close(PATIENCE_S)
    assert notes.heard == []
