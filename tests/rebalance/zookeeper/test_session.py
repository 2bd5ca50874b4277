"""The session of a member on a real ZooKeeper: registered, proved, given up when silent, and over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from asking import Asker, pipeline_to
from kazoo.client import KazooClient

from rebalance.lease import CONFIRM_FRACTION, LEASE_FRACTION, Lease, lease_clock
from rebalance.subscription import Subscription
from rebalance.zookeeper import events as e
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Claims, Fence
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.port.requests import Exists, Reply, Request, SessionChange
from rebalance.zookeeper.session import SessionKeeper
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer


class Kept:
    """A session keeper whose follower registers when a session opens, as the group's machine does, and writes down."""

    def __init__(self, connect: str, group: str, session_s: float = 3.0) -> None:
        self.told: list[str] = []
        self.events: list[e.Event] = []
        self.after_ask: Callable[[Request], None] = lambda request: None
        self.lease = Lease()
        self.registers = True
        self.asker = Asker(connect, session_s)
        member = RegisteredMember(group, "me", Subscription.static({"t": 1}))
        self.claims = Claims(self.ask, group, self.asker.loop.after_step)
        self.keeper = SessionKeeper(
            member, pipeline_to(self.ask, self.asker.port, self.asker.loop), self.lease, self.claims, self, lambda: 1
        )
        first = self.asker.connected()
        self.asker.port._on_session = lambda change: self.asker.loop.post(self.changed, change)
        self.asker.on_loop(lambda: self.changed(first))

    def changed(self, change: SessionChange) -> None:
        self.asker.changes.append(change)
        self.keeper.changed(change)

    def ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.asker.ask(request, handle)
        self.after_ask(request)

    # -- the follower

    def watches_forgotten(self) -> None:
        self.told.append("watches forgotten")

    def session_opened(self, fence: Fence) -> None:
        self.told.append("opened")

    def session_resumed(self) -> None:
        self.told.append("resumed")

    def session_over(self) -> None:
        assert self.claims.fence is None
        assert self.lease.until == -math.inf
        self.told.append("over")

    def group_event(self, event: e.Event) -> None:
        self.events.append(event)
        if isinstance(event, e.SessionOpened | e.RegistrationGone) and self.registers and self.claims.fence is None:
            self.keeper.register()

    def registered(self, count: int = 1) -> Kept:
        wait_until(
            lambda: sum(isinstance(event, e.Registered) for event in self.events) >= count,
            15.0,
            "the registration",
            state=lambda: self.events,
        )
        return self

    def close(self) -> None:
        self.asker.on_loop(self.keeper.close)
        self.asker.close()


@pytest.fixture
def kept(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[Kept]:
    made = Kept(zookeeper.connect, fresh_group).registered()
    yield made
    made.close()


def test_registering_gives_the_fence_and_the_first_lease(kept: Kept) -> None:
    assert kept.claims.fence == Fence(kept.claims.fence.path, 1, kept.keeper.session_id)  # type: ignore[union-attr]
    assert kept.told[-1] == "opened"
    assert lease_clock() < kept.lease.until <= lease_clock() + 3.0 * LEASE_FRACTION


def test_the_lease_is_renewed_again_and_again_and_never_beyond_its_share(kept: Kept) -> None:
    before = len([request for request in kept.asker.sent if isinstance(request, Exists)])
    seen = set()

    def renewed() -> bool:
        seen.add(kept.lease.until)
        assert kept.lease.until > lease_clock(), "the lease ran out while all was well"
        assert kept.lease.until <= lease_clock() + 3.0 * LEASE_FRACTION
        return len(seen) >= 4

    wait_until(renewed, 10.0, "three renewals")
    after = len([request for request in kept.asker.sent if isinstance(request, Exists)])
    assert after - before <= 6, "a question every quarter of the session, not more"


def test_a_lease_that_was_out_begins_again_with_a_second_answer(kept: Kept) -> None:
    def run_out() -> None:
        # As after a pause that the session has survived.
        kept.lease.renewed_at = lease_clock() - 3.0 * LEASE_FRACTION
        kept.lease.until = lease_clock()

    kept.asker.on_loop(run_out)
    out_at = kept.lease.until
    wait_until(lambda: kept.lease.until > lease_clock(), 15.0, "the lease")
    assert kept.lease.until >= out_at + 3.0 * (CONFIRM_FRACTION + LEASE_FRACTION)


def test_an_answer_that_took_its_time_counts_from_its_question(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        kept = Kept(proxy.address, fresh_group).registered()
        until = kept.lease.until
        proxy.delay(0.4)
        wait_until(lambda: kept.lease.until > until, 10.0, "a renewal")
        assert kept.lease.renewed_at <= lease_clock() - 0.4
        kept.close()


def test_a_frozen_server_renews_nothing_and_is_given_up_for_another(fresh_group: str) -> None:
    with ZooKeeperEnsemble(3) as ensemble:
        kept = Kept(ensemble.connect, fresh_group, session_s=6.0).registered()
        peer = kept.asker.port._peer()
        assert peer is not None
        session = kept.keeper.session_id
        silent = next(member for member in ensemble if member.port == peer[1])
        kept.asker.on_loop(kept.keeper.prove)
        silent.pause()
        until = kept.lease.until
        wait_until(lambda: kept.told.count("resumed") == 1, 12.0, "another server", state=lambda: kept.told)
        assert kept.keeper.session_id == session
        wait_until(lambda: kept.lease.until > until, 5.0, "the lease to be renewed there")
        silent.resume()
        kept.close()


def test_a_short_disconnection_resumes_the_same_session(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        kept = Kept(proxy.address, fresh_group).registered()
        fence = kept.claims.fence
        proxy.drop()
        wait_until(lambda: "resumed" in kept.told, 10.0, "the way back", state=lambda: kept.told)
        assert kept.claims.fence is fence
        assert "over" not in kept.told
        assert [type(event) for event in kept.events][-2:] == [e.SessionSuspended, e.SessionOpened]
        kept.close()


def test_each_session_registers_under_a_version_of_its_own(
    zookeeper: ZooKeeperServer, client: KazooClient, kept: Kept, fresh_group: str
) -> None:
    for number in range(1, 4):
        old = kept.keeper.session_id
        zookeeper.end_session(old)
        kept.registered(number + 1)
        assert kept.keeper.session_id != old
        assert kept.claims.fence is not None
        assert kept.claims.fence.version == number + 1
        assert client.exists(znodes.registration_path(fresh_group, "me")).version == number + 1
    assert kept.told.count("over") == 3


def test_a_new_session_without_word_of_the_end_of_the_old_one_ends_it(kept: Kept) -> None:
    kept.registers = False
    kept.asker.on_loop(lambda: kept.keeper.changed(SessionChange("connected", 0xABC, 3.0)))
    assert kept.told[-2:] == ["over", "watches forgotten"]
    assert kept.claims.fence is None
    assert kept.lease.until <= lease_clock()


def test_a_registration_that_is_gone_is_noticed_by_the_next_proof(
    client: KazooClient, kept: Kept, fresh_group: str
) -> None:
    client.delete(znodes.registration_path(fresh_group, "me"))
    wait_until(lambda: any(isinstance(event, e.RegistrationGone) for event in kept.events), 5.0, "the notice")


def test_each_registration_of_a_session_has_a_version_of_its_own(
    zookeeper: ZooKeeperServer, client: KazooClient, kept: Kept, fresh_group: str
) -> None:
    """The creation that was asked for under an ended session may be sent under the next one, and commits behind it."""
    path, session_id = znodes.registration_path(fresh_group, "me"), kept.keeper.session_id
    for number in (1, 2):
        client.delete(path)
        kept.asker.on_loop(kept.keeper.register)
        kept.registered(number + 1)
        assert kept.claims.fence == Fence(path, number + 1, session_id)
    zookeeper.end_session(session_id)
    kept.registered(4)
    assert kept.claims.fence == Fence(path, 4, kept.keeper.session_id)


def test_a_registration_that_another_session_holds_proves_nothing(
    client: KazooClient, kept: Kept, fresh_group: str
) -> None:
    path = znodes.registration_path(fresh_group, "me")
    swap = client.transaction()
    swap.delete(path)
    swap.create(path, b"{}", ephemeral=True)
    swap.commit()
    wait_until(lambda: any(isinstance(event, e.RegistrationGone) for event in kept.events), 5.0, "the notice")
    until = kept.lease.until
    wait_until(lambda: kept.lease.until <= lease_clock(), 5.0, "the lease to run out")
    assert kept.lease.until == until


def test_a_proof_that_a_new_registration_overtakes_leaves_no_question_open(
    client: KazooClient, kept: Kept, fresh_group: str
) -> None:
    path = znodes.registration_path(fresh_group, "me")

    def prove_behind_the_look(request: Request) -> None:
        if isinstance(request, Exists) and request.path == path and request.watch is not None:
            kept.keeper.prove()

    def begin() -> None:
        kept.keeper._asked_at = None
        kept.after_ask = prove_behind_the_look
        kept.keeper.register()

    kept.asker.on_loop(begin)
    kept.registered(2)
    wait_until(lambda: kept.asker.on_loop(lambda: kept.keeper._asked_at) is None, 0.9, "the question to be answered")
    until = kept.lease.until
    wait_until(lambda: kept.lease.until > until, 5.0, "the next renewal")
    assert not any(isinstance(event, e.SessionSuspended) for event in kept.events), "a good connection was dropped"


def test_refused_credentials_end_it(kept: Kept) -> None:
    kept.asker.on_loop(lambda: kept.keeper.changed(SessionChange("refused", reason="wrong password")))
    event = kept.events[-1]
    assert isinstance(event, e.RegistrationRefused)
    assert "wrong password" in str(event.error)


def test_after_close_nothing_is_told(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    kept = Kept(zookeeper.connect, fresh_group).registered()
    kept.asker.on_loop(kept.keeper.close)
    told = list(kept.told)
    kept.asker.on_loop(lambda: kept.keeper.changed(SessionChange("expired")))
    assert kept.told == told
    kept.asker.close()
