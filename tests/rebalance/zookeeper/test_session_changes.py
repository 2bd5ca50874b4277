"""What a session keeper tells of connections that come and go, step by step, without a ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asking import pipeline_to

from rebalance.lease import Lease
from rebalance.loop import Loop
from rebalance.subscription import Subscription
from rebalance.zookeeper import events as e
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.port.requests import Check, Delete, Exists, Fault, Multi, Reply, Request, SessionChange, Stat
from rebalance.zookeeper.session import SessionKeeper

FENCE = Fence("/consumers/g/ids/me", 0, 1)
STAT = Stat(version=0, cversion=0, ephemeral_owner=1, czxid=1, pzxid=1, mzxid=1)
DELETE = Multi((Check(FENCE.path, 0), Delete(FENCE.path, 0)))


class SilentPort:
    """Nobody is there."""

    def start(self, on_session: Callable[[SessionChange], None]) -> None: ...

    def send(self, request: Request, done: Callable[[Reply], None]) -> None: ...

    def drop_connection(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...


class Kept:
    """A keeper on a clock that the test sets; it records the requests, and the events of the group's machine."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = Loop(lambda: self.now)
        self.asked: list[tuple[Request, Callable[[Reply], None]]] = []
        self.told: list[type] = []
        self.claims = Claims(self.ask, "g", self.loop.after_step)
        member = RegisteredMember("g", "me", Subscription.static({"t": 1}))
        self.keeper = SessionKeeper(
            member, pipeline_to(self.ask, SilentPort(), self.loop), Lease(), self.claims, self, lambda: 1
        )

    def ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.asked.append((request, handle))

    def answer(self, value: object = None, fault: Fault | None = None) -> None:
        self.asked.pop(0)[1](Reply(value, fault, self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.loop.step()

    def deletes(self) -> list[Request]:
        return [request for request, _ in self.asked if isinstance(request, Multi)]

    # -- the follower

    def watches_forgotten(self) -> None: ...

    def session_opened(self, fence: Fence) -> None: ...

    def session_resumed(self) -> None: ...

    def session_over(self) -> None: ...

    def group_event(self, event: e.Event) -> None:
        self.told.append(type(event))


def test_between_two_connections_there_was_none_also_when_nobody_said_so() -> None:
    kept = Kept()
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    assert kept.told == [e.SessionOpened, e.SessionSuspended, e.SessionOpened]


def test_a_session_that_is_over_has_lost_its_connection_first() -> None:
    kept = Kept()
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    kept.keeper.changed(SessionChange("expired"))
    assert kept.told == [e.SessionOpened, e.SessionSuspended, e.SessionExpired]


def test_what_was_said_is_told_once() -> None:
    kept = Kept()
    for what in ("connected", "suspended", "expired", "connected"):
        kept.keeper.changed(SessionChange(what, 1, 6.0))
    assert kept.told == [e.SessionOpened, e.SessionSuspended, e.SessionExpired, e.SessionOpened]


def test_a_second_try_to_unregister_leaves_a_registration_alone_that_was_made_meanwhile() -> None:
    kept = Kept()
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    kept.claims.fence = FENCE
    kept.keeper.unregister()
    kept.answer(STAT)
    kept.answer(fault=Fault.CONNECTION_LOSS)
    kept.keeper.changed(SessionChange("suspended"))
    kept.keeper.changed(SessionChange("expired"))
    kept.keeper.changed(SessionChange("connected", 2, 6.0))
    kept.claims.fence = Fence(FENCE.path, 1, 2)
    kept.pass_time(1.0)
    assert kept.deletes() == []


def test_a_registration_that_stays_is_deleted_again() -> None:
    kept = Kept()
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    kept.claims.fence = FENCE
    kept.keeper.unregister()
    kept.answer(STAT)
    assert kept.deletes() == [DELETE]
    kept.answer(fault=Fault.CONNECTION_LOSS)
    kept.pass_time(1.0)
    kept.answer(STAT)
    assert kept.deletes() == [DELETE]
    kept.answer([True, True])
    assert kept.told[-1] is e.Unregistered


@pytest.mark.parametrize("found", [None, STAT._replace(ephemeral_owner=2)])
def test_a_registration_that_is_gone_or_somebody_elses_by_now_is_left_alone(found: Stat | None) -> None:
    kept = Kept()
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    kept.claims.fence = FENCE
    kept.keeper.unregister()
    kept.answer(found)
    assert kept.deletes() == []
    assert kept.told[-1] is e.Unregistered


def test_an_answer_of_a_lost_connection_says_nothing_of_the_registration() -> None:
    kept = Kept()
    kept.keeper.changed(SessionChange("connected", 1, 6.0))
    kept.claims.fence = FENCE
    kept.keeper.prove()
    assert [request for request, _ in kept.asked] == [Exists(FENCE.path)]
    kept.keeper.changed(SessionChange("suspended"))
    kept.answer(None)
    assert e.RegistrationGone not in kept.told
