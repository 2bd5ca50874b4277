"""What is sent now, what waits for its turn, and who passes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rebalance.loop import Loop
from rebalance.zookeeper.port.pipeline import MOST_UNANSWERED, Pipeline
from rebalance.zookeeper.port.requests import Exists, Fault, GetData, Reply, Request, SessionChange


class HeldPort:
    """A port whose answers the test gives."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self._waiting: list[Callable[[Reply], None]] = []

    def start(self, on_session: Callable[[SessionChange], None]) -> None: ...

    def drop_connection(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        self.sent.append(request)
        self._waiting.append(done)

    def answer(self, fault: Fault | None = None) -> None:
        """Answer the oldest request."""
        self._waiting.pop(0)(Reply(None, fault, 0.0))


class Rig:
    def __init__(self) -> None:
        self.now = 100.0
        self.port = HeldPort()
        self.loop = Loop(lambda: self.now)
        self.pipeline = Pipeline(self.port, self.loop)
        self.answered: list[tuple[int, Fault | None]] = []

    def ask(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.pipeline.ask(question(number), self._handler(number))

    def _handler(self, number: int) -> Callable[[Reply], None]:
        return lambda reply: self.answered.append((number, reply.fault))

    def answer(self, times: int = 1, fault: Fault | None = None) -> None:
        for _ in range(times):
            self.port.answer(fault)
        self.loop.step()


def question(number: int) -> GetData:
    return GetData(f"/{number}")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_so_many_are_on_their_way_and_the_others_follow_in_their_order(rig: Rig) -> None:
    rig.ask(0, MOST_UNANSWERED + 50)
    assert rig.port.sent == [question(number) for number in range(MOST_UNANSWERED)]
    rig.answer(10)
    assert rig.port.sent == [question(number) for number in range(MOST_UNANSWERED + 10)]
    rig.answer(MOST_UNANSWERED)
    rig.answer(40)
    assert rig.answered == [(number, None) for number in range(MOST_UNANSWERED + 50)]


def test_what_an_answer_leads_to_queues_up_behind_what_waits(rig: Rig) -> None:
    rig.pipeline.ask(question(0), lambda reply: rig.ask(1000, 1001))
    rig.ask(1, MOST_UNANSWERED + 1)
    rig.answer(2)
    assert rig.port.sent[-2:] == [question(MOST_UNANSWERED), question(1000)]


def test_the_question_that_keeps_the_session_passes_all_that_waits(rig: Rig) -> None:
    rig.ask(0, MOST_UNANSWERED + 50)
    rig.pipeline.ask_first(Exists("/me"), lambda reply: None)
    assert rig.port.sent[-1] == Exists("/me")
    rig.answer(1)
    assert len(rig.port.sent) == MOST_UNANSWERED + 1, "it counts as one that is on its way"


def test_what_waits_when_the_session_ends_is_answered_and_never_sent(rig: Rig) -> None:
    rig.ask(0, MOST_UNANSWERED + 3)
    rig.pipeline.session_over()
    assert rig.answered == [], "answers come on the loop, after whatever ends the session"
    rig.loop.step()
    assert rig.answered == [(MOST_UNANSWERED + more, Fault.SESSION_EXPIRED) for more in range(3)]
    rig.answer(MOST_UNANSWERED, Fault.SESSION_EXPIRED)
    assert len(rig.port.sent) == len(rig.answered) - 3 == MOST_UNANSWERED


def test_the_time_of_a_request_runs_from_its_sending_or_the_last_connection(rig: Rig) -> None:
    assert rig.pipeline.waiting_since() is None
    rig.ask(0, MOST_UNANSWERED + 1)
    rig.now = 130.0
    assert rig.pipeline.waiting_since() == 100.0
    rig.answer(MOST_UNANSWERED)
    assert rig.pipeline.waiting_since() == 130.0, "it has waited for its turn, not for an answer"
    rig.now = 140.0
    rig.pipeline.reconnected()
    assert rig.pipeline.waiting_since() == 140.0


def test_once_closed_nothing_that_waits_is_sent(rig: Rig) -> None:
    rig.ask(0, MOST_UNANSWERED + 3)
    rig.pipeline.close()
    rig.answer(MOST_UNANSWERED)
    assert len(rig.port.sent) == MOST_UNANSWERED
