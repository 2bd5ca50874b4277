"""The registration on a real ZooKeeper: whose it is, which session its version names, and who has to wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asking import Asker
from kazoo.client import KazooClient

from rebalance.errors import AccessRefused, ConsumerIdInUse, NamespaceMissing
from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.session import REGISTRATIONS_MODULO, Attempt, Registrar
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

DATA = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'


@pytest.fixture
def asker(zookeeper: ZooKeeperServer) -> Iterator[Asker]:
    made = Asker(zookeeper.connect)
    yield made
    made.close()


def registrar_of(asker: Asker, group: str, chroot: str = "") -> Registrar:
    member = RegisteredMember(group, "me", Subscription.static({"t": 1}), chroot=chroot)
    return Registrar(asker.ask, asker.loop, member)


def register(
    asker: Asker,
    group: str,
    number: int = 0,
    old: frozenset[int] = frozenset(),
    patience_s: float = 5.0,
    registrar: Registrar | None = None,
    chroot: str = "",
    standing: int | None = None,
) -> object:
    made = registrar or registrar_of(asker, group, chroot)
    outcome = asker.outcome(
        lambda told: made.register(Attempt(asker.session_id, number, DATA, patience_s, old, standing), told),
        timeout_s=patience_s + 15,
    )
    return outcome[0]


def path(group: str) -> str:
    return znodes.registration_path(group, "me")


def test_the_first_member_of_a_new_group_makes_all_parents(asker: Asker, client: KazooClient, fresh_group: str) -> None:
    assert register(asker, fresh_group) == Fence(path(fresh_group), 1, asker.session_id)
    assert sorted(client.get_children(znodes.group_path(fresh_group))) == ["ids", "offsets", "owners"]
    data, stat = client.get(path(fresh_group))
    assert (data, stat.ephemeralOwner) == (DATA, asker.session_id)


@pytest.mark.parametrize("number", [0, 1, 5, *(REGISTRATIONS_MODULO + more for more in (-1, 0, 3))])
def test_the_version_of_the_node_is_the_number_of_the_registration(
    asker: Asker, client: KazooClient, fresh_group: str, number: int
) -> None:
    fence = register(asker, fresh_group, number)
    assert isinstance(fence, Fence)
    assert fence.version == client.exists(path(fresh_group)).version == number % REGISTRATIONS_MODULO + 1 > 0
    assert client.get(path(fresh_group))[0] == DATA


def test_my_own_node_of_this_very_session_is_good_as_it_is(asker: Asker, client: KazooClient, fresh_group: str) -> None:
    register(asker, fresh_group, 2)
    before = client.exists(path(fresh_group))
    register(asker, fresh_group, 2)
    assert client.exists(path(fresh_group)) == before


def test_my_own_node_with_another_version_is_made_anew(asker: Asker, client: KazooClient, fresh_group: str) -> None:
    register(asker, fresh_group, 2)
    client.set(path(fresh_group), b"scribble")
    fence = register(asker, fresh_group, 2)
    assert isinstance(fence, Fence)
    data, stat = client.get(path(fresh_group))
    assert (data, stat.version, stat.ephemeralOwner) == (DATA, 3, asker.session_id)


def test_a_registration_that_had_never_gone_stays_and_keeps_its_number(
    asker: Asker, client: KazooClient, fresh_group: str
) -> None:
    first = register(asker, fresh_group, 2)
    before = client.exists(path(fresh_group))
    assert register(asker, fresh_group, 3, standing=3) == first
    assert client.exists(path(fresh_group)) == before


def test_what_somebody_wrote_into_my_node_is_not_taken_for_my_next_registration(
    asker: Asker, client: KazooClient, fresh_group: str
) -> None:
    register(asker, fresh_group, 2)
    client.set(path(fresh_group), b"scribble")
    fence = register(asker, fresh_group, 3, standing=3)
    assert fence == Fence(path(fresh_group), 4, asker.session_id)
    data, stat = client.get(path(fresh_group))
    assert (data, stat.version) == (DATA, 4)


def test_a_foreign_session_that_lives_is_waited_for_and_then_named(
    asker: Asker, client: KazooClient, fresh_group: str
) -> None:
    client.create(path(fresh_group), b"theirs", ephemeral=True, makepath=True)
    error = register(asker, fresh_group, patience_s=0.8)
    assert isinstance(error, ConsumerIdInUse)
    assert error.args == (path(fresh_group), client.client_id[0])
    assert client.get(path(fresh_group))[0] == b"theirs"


@pytest.mark.catalogue("A1")
def test_a_foreign_session_that_ends_in_time_makes_room(
    zookeeper: ZooKeeperServer, asker: Asker, client: KazooClient, fresh_group: str
) -> None:
    client.ensure_path(znodes.ids_path(fresh_group))
    other = KazooClient(zookeeper.connect)
    other.start()
    other.create(path(fresh_group), b"theirs", ephemeral=True)
    outcomes: list[tuple[object, float]] = []
    registrar = registrar_of(asker, fresh_group)
    asker.loop.post(
        lambda: registrar.register(
            Attempt(asker.session_id, 0, DATA, 20.0, frozenset()), lambda *outcome: outcomes.append(outcome)
        )
    )
    wait_until(lambda: asker.on_loop(lambda: registrar._run is not None and registrar._run._waiting), 5.0, "the wait")
    other.stop()
    other.close()
    wait_until(lambda: outcomes, 5.0, "the registration")
    assert isinstance(outcomes[0][0], Fence)
    assert client.exists(path(fresh_group)).ephemeralOwner == asker.session_id


def test_an_older_session_of_my_own_is_waited_for_as_long_as_it_takes(
    asker: Asker, client: KazooClient, fresh_group: str
) -> None:
    client.create(path(fresh_group), b"mine, of before", ephemeral=True, makepath=True)
    old = client.client_id[0]
    outcomes: list[tuple[object, float]] = []
    registrar = registrar_of(asker, fresh_group)
    asker.loop.post(
        lambda: registrar.register(
            Attempt(asker.session_id, 1, DATA, 0.2, frozenset({old})), lambda *outcome: outcomes.append(outcome)
        )
    )
    wait_until(
        lambda: sum(1 for request in asker.sent if getattr(request, "path", "") == path(fresh_group)) >= 6,
        10.0,
        "several looks, beyond the patience",
    )
    assert outcomes == []
    client.delete(path(fresh_group))
    wait_until(lambda: outcomes, 5.0, "the registration")
    assert isinstance(outcomes[0][0], Fence)


def test_a_chroot_that_does_not_exist_is_named_and_never_created(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    asker = Asker(f"{zookeeper.connect}/nowhere")
    error = register(asker, fresh_group, chroot="/nowhere")
    assert isinstance(error, NamespaceMissing)
    assert "/nowhere" in str(error)
    assert client.exists("/nowhere") is None
    asker.close()


def test_a_group_that_may_not_be_written_is_a_refusal_with_the_reason(
    asker: Asker, client: KazooClient, fresh_group: str
) -> None:
    from kazoo.security import make_acl

    client.ensure_path(znodes.group_path(fresh_group))
    client.create(znodes.ids_path(fresh_group), acl=[make_acl("world", "anyone", read=True)])
    error = register(asker, fresh_group)
    assert isinstance(error, AccessRefused)
    assert isinstance(error, PermissionError)
    assert str(error).startswith(
        f"ZooKeeper does not let this client create {path(fresh_group)} (NoAuth): the "
        f"access list of {znodes.ids_path(fresh_group)} does not name its credentials; set "
        "zookeeper.auth"
    )


def test_a_later_call_makes_the_earlier_one_fall_silent(asker: Asker, client: KazooClient, fresh_group: str) -> None:
    registrar = registrar_of(asker, fresh_group)
    first: list[object] = []
    second: list[object] = []

    def both() -> None:
        registrar.register(Attempt(asker.session_id, 3, DATA, 5.0), lambda *outcome: first.append(outcome))
        registrar.register(Attempt(asker.session_id, 4, DATA, 5.0), lambda *outcome: second.append(outcome))

    asker.on_loop(both)
    wait_until(lambda: second, 5.0, "the second")
    assert first == []
    assert client.exists(path(fresh_group)).version == 5


def test_two_registrations_in_flight_end_in_the_later_one(asker: Asker, client: KazooClient, fresh_group: str) -> None:
    register(asker, fresh_group, 0)
    client.delete(path(fresh_group))
    registrar = registrar_of(asker, fresh_group)
    silent: list[object] = []
    asker.on_loop(
        lambda: registrar.register(
            Attempt(asker.session_id, 7, DATA, 5.0, frozenset()), lambda *outcome: silent.append(outcome)
        )
    )
    wait_until(lambda: client.exists(path(fresh_group)), 5.0, "the first to land")
    fence = register(asker, fresh_group, 8, registrar=registrar)
    assert isinstance(fence, Fence)
    assert client.exists(path(fresh_group)).version == fence.version == 9


def test_a_connection_that_breaks_is_told_and_the_next_call_makes_it_good(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        asker = Asker(proxy.address)
        registrar = registrar_of(asker, fresh_group)
        proxy.stall("down")
        outcomes: list[tuple[object, float]] = []
        asker.on_loop(
            lambda: registrar.register(
                Attempt(asker.session_id, 1, DATA, 5.0, frozenset()), lambda *outcome: outcomes.append(outcome)
            )
        )
        proxy.drop()
        proxy.clear()
        wait_until(lambda: outcomes, 10.0, "word")
        assert outcomes[0][0] is None
        fence = register(asker, fresh_group, 1, registrar=registrar)
        assert fence == Fence(path(fresh_group), 2, asker.session_id)
        asker.close()
