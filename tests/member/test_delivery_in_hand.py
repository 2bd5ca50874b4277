"""Messages in hand while everything ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rebalance.lease import lease_clock
from simpleconsumer.types import TopicPartition
from tests.fetching.feeding import ScriptedLog, take
from tests.member.delivering import DEADLINE_S, P0, Rig, rigged
from zkconsumer.errors import ConsumerTimeout

FOREVER = 1e9


@pytest.fixture
def rig() -> Iterator[Rig]:
    """One partition, and a clock that stands still: only what happens to the message in hand can end a wait."""
    with rigged(ScriptedLog(1000), clock=lambda: 100.0) as made:
        made.delivery.start(P0, "thread-0", 0)
        yield made


@contextmanager
def working(rig: Rig, *, puts_it_down: bool = True) -> Iterator[threading.Thread]:
    """A thread that has the first message in hand, and puts it down, or dies with it, when this ends."""
    has_it, go_on = threading.Event(), threading.Event()

    def work() -> None:
        next(rig.streams[0])
        has_it.set()
        go_on.wait(DEADLINE_S)
        if puts_it_down:
            list(rig.streams[0])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert has_it.wait(DEADLINE_S)
        yield worker
    finally:
        go_on.set()
        worker.join(DEADLINE_S)


class Leaver:
    """A thread that stops the delivery."""

    def __init__(self, rig: Rig, reader: int | None = None, in_hand_is_done: bool = True) -> None:
        self.final: list[dict[TopicPartition, int]] = []
        self.thread = threading.Thread(
            target=lambda: self.final.append(rig.delivery.stop(reader, FOREVER, in_hand_is_done))
        )
        self.thread.start()

    def left(self) -> dict[TopicPartition, int]:
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive(), "it waits"
        return self.final[0]


def test_what_is_in_hand_is_known(rig: Rig) -> None:
    assert rig.delivery.is_in_hand() is False
    take(rig.streams[0], 1)
    assert rig.delivery.is_in_hand() is True


def test_what_the_leaving_thread_has_in_hand_may_be_left_undone(rig: Rig) -> None:
    take(rig.streams[0], 3)
    assert rig.delivery.stop(threading.get_ident(), FOREVER, in_hand_is_done=False) == {P0: 2}


@pytest.mark.parametrize("in_hand_is_done", [True, False])
def test_what_another_thread_that_leaves_has_in_hand_is_not_waited_for(rig: Rig, in_hand_is_done: bool) -> None:
    with working(rig) as worker:
        assert Leaver(rig, worker.ident, in_hand_is_done).left() == {P0: 1 if in_hand_is_done else 0}


def test_what_is_committed_is_not_waited_for(rig: Rig) -> None:
    with working(rig):
        rig.delivery.mark_committed({P0: 1})
        assert Leaver(rig).left() == {P0: 1}


def test_a_commit_before_the_message_in_hand_does_not_end_the_wait_for_it(rig: Rig) -> None:
    with working(rig):
        rig.delivery.mark_committed({P0: 0})
        leaver = Leaver(rig)
        leaver.thread.join(0.3)
        assert leaver.thread.is_alive()
    assert leaver.left() == {P0: 1}


def test_a_thread_that_has_died_with_a_message_is_not_waited_for(rig: Rig) -> None:
    with working(rig, puts_it_down=False):
        pass
    assert Leaver(rig).left() == {P0: 0}


def test_a_thread_that_dies_with_its_message_during_the_wait_ends_it(rig: Rig) -> None:
    with working(rig, puts_it_down=False):
        leaver = Leaver(rig)
        leaver.thread.join(0.3)
        assert leaver.thread.is_alive()
    assert leaver.left() == {P0: 0}


def test_the_main_thread_is_waited_for_while_it_lives() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        final: list[dict[TopicPartition, int]] = []
        leaver = threading.Thread(target=lambda: final.append(rig.delivery.stop(None, lease_clock() + DEADLINE_S)))
        leaver.start()
        leaver.join(0.3)
        assert leaver.is_alive()
        with pytest.raises((StopIteration, ConsumerTimeout)):
            next(rig.streams[0])
        leaver.join(DEADLINE_S)
        assert final == [{P0: 1}]
