"""Owner nodes on a real ZooKeeper: claimed behind the fence, and never anybody else's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asking import Asker
from kazoo.client import KazooClient
from kazoo.security import make_acl

from rebalance import partition as p
from rebalance.subscription import Partition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import MOST_WRITES, Claims, Fence, create_parents
from rebalance.zookeeper.port.requests import Create, Fault, Multi, WatchEvent
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

PARTITION = ("t", 3)


class Claimer:
    """Claims of a registered session, one question at a time."""

    def __init__(self, connect: str, group: str) -> None:
        self.group = group
        self.asker = Asker(connect)
        self.claims = Claims(self.asker.ask, group, self.asker.loop.after_step)
        self.path = znodes.owner_path(group, *PARTITION)
        registration = znodes.registration_path(group, "me")
        for parent in (znodes.CONSUMERS, znodes.group_path(group), znodes.ids_path(group)):
            self.asker.call(Create(parent))
        assert self.asker.call(Create(registration, b"{}", ephemeral=True)).fault is None
        self.claims.fence = Fence(registration, 0, self.asker.session_id)

    def claim(self, thread_id: str = "me-0") -> p.Event:
        return self.asker.outcome(lambda told: self.claims.claim(PARTITION, thread_id, told))  # type: ignore[no-any-return]

    def inspect(self, sync: bool = False) -> p.Event:
        return self.asker.outcome(lambda told: self.claims.inspect(PARTITION, told, sync=sync))  # type: ignore[no-any-return]

    def release(self) -> p.Event:
        return self.asker.outcome(lambda told: self.claims.release(PARTITION, told))  # type: ignore[no-any-return]

    def move_to_thread(self, thread_id: str, version: int) -> p.Event:
        return self.asker.outcome(  # type: ignore[no-any-return]
            lambda told: self.claims.move_to_thread(PARTITION, thread_id, version, told)
        )


@pytest.fixture
def mine(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[Claimer]:
    made = Claimer(zookeeper.connect, fresh_group)
    yield made
    made.asker.close()


def test_a_claim_makes_the_parents_and_an_ephemeral_node_that_holds_the_thread(
    client: KazooClient, mine: Claimer
) -> None:
    assert mine.claim() == p.Claimed("me-0", 0)
    data, stat = client.get(mine.path)
    assert (data, stat.ephemeralOwner) == (b"me-0", mine.asker.session_id)
    assert mine.inspect() == p.OwnerRead("me-0", True, 0, mine.asker.session_id)


def test_a_node_that_is_there_refuses_the_claim_also_when_it_is_mine(client: KazooClient, mine: Claimer) -> None:
    mine.claim()
    assert mine.claim() == p.ClaimRefused()


def test_looking_names_the_owner(client: KazooClient, mine: Claimer) -> None:
    assert mine.inspect() == p.OwnerGone()
    client.create(mine.path, b"other-0", ephemeral=True, makepath=True)
    assert mine.inspect(sync=True) == p.OwnerRead("other-0", False, 0, client.client_id[0])


def test_looking_with_a_watch_hears_of_the_end(client: KazooClient, mine: Claimer) -> None:
    client.create(mine.path, b"other-0", makepath=True)
    events: list[WatchEvent] = []
    mine.asker.outcome(lambda told: mine.claims.inspect(PARTITION, told, events.append))
    client.delete(mine.path)
    wait_until(lambda: events == [WatchEvent(mine.path)], 5.0, "the event")


def test_a_release_deletes_what_is_mine(client: KazooClient, mine: Claimer) -> None:
    mine.claim()
    assert mine.release() == p.Released()
    assert client.exists(mine.path) is None
    assert mine.release() == p.Released(), "what is gone is released"


@pytest.mark.catalogue("B3")
@pytest.mark.parametrize("ephemeral", [True, False])
def test_what_another_owns_survives_a_release_and_a_change_of_thread(
    client: KazooClient, mine: Claimer, ephemeral: bool
) -> None:
    mine.claim()
    client.delete(mine.path)
    client.create(mine.path, b"me-0", ephemeral=ephemeral)
    before = client.get(mine.path)
    assert mine.release() == p.ReleaseRefused()
    assert client.get(mine.path) == before


def test_a_node_of_mine_that_somebody_wrote_into_is_deleted_all_the_same(client: KazooClient, mine: Claimer) -> None:
    mine.claim()
    client.set(mine.path, b"scribble")
    assert mine.release() == p.Released()
    assert client.exists(mine.path) is None


def test_a_change_of_thread_sets_the_data_in_place(client: KazooClient, mine: Claimer) -> None:
    mine.claim()
    before = client.exists(mine.path).czxid
    assert mine.move_to_thread("me-1", 0) == p.MovedToThread("me-1", 1)
    data, stat = client.get(mine.path)
    assert (data, stat.czxid, stat.version) == (b"me-1", before, 1)
    assert mine.move_to_thread("me-2", 0) == p.ReleaseRefused(), "at the version last seen only"


def test_without_the_registration_nothing_is_written(client: KazooClient, mine: Claimer) -> None:
    mine.claim()
    fence = mine.claims.fence
    assert fence is not None
    client.delete(fence.path)
    assert mine.release() == p.Fenced()
    assert mine.move_to_thread("me-1", 0) == p.Fenced()
    assert client.get(mine.path)[0] == b"me-0"
    client.delete(mine.path)
    assert mine.claim() == p.Fenced()
    assert client.exists(mine.path) is None


def test_another_version_of_the_registration_is_another_session(client: KazooClient, mine: Claimer) -> None:
    fence = mine.claims.fence
    assert fence is not None
    client.ensure_path(mine.path.rsplit("/", 1)[0])
    mine.claims.fence = Fence(fence.path, 1, fence.session_id)
    assert mine.claim() == p.Fenced()
    mine.claims.fence = None
    assert mine.claim() == p.Fenced()


def test_a_claim_that_has_to_make_parents_does_not_go_on_under_a_later_session(
    client: KazooClient, mine: Claimer
) -> None:
    old = mine.claims.fence
    assert old is not None

    def begin_and_change(told: object) -> None:
        mine.claims.claim(PARTITION, "me-0", told)  # type: ignore[arg-type]
        # The registration of the next session, before the parents are made.
        mine.asker.ask(Multi((old.check(),)), lambda reply: None)
        mine.claims.fence = Fence(old.path, 1, old.session_id)
        client.set(old.path, b"{}")

    assert mine.asker.outcome(begin_and_change) == p.Fenced()
    assert client.exists(mine.path) is None


def claim_all(claimer: Claimer, partitions: list[Partition]) -> dict[Partition, p.Event]:
    """What becomes of claims that are made in one step."""
    told: dict[Partition, p.Event] = {}

    def begin() -> None:
        for partition in partitions:
            claimer.claims.claim(partition, "me-0", lambda event, partition=partition: note(partition, event))  # type: ignore[misc]

    def note(partition: Partition, event: p.Event) -> None:
        assert partition not in told
        told[partition] = event

    claimer.asker.loop.post(begin)
    wait_until(lambda: len(told) == len(partitions), 15.0, "all to be told", state=lambda: told)
    return told


def multis(claimer: Claimer) -> list[int]:
    """How many writes each multi had."""
    return [len(request.operations) - 1 for request in claimer.asker.sent if isinstance(request, Multi)]


def test_the_claims_of_a_step_share_a_few_multis_and_the_making_of_their_parents(
    client: KazooClient, mine: Claimer
) -> None:
    partitions: list[Partition] = [("t", number) for number in range(2 * MOST_WRITES + 50)]
    told = claim_all(mine, partitions)
    assert set(told.values()) == {p.Claimed("me-0", 0)}
    assert multis(mine) == [MOST_WRITES, MOST_WRITES, 50] * 2, "once without their parents, once with them"
    assert len([request for request in mine.asker.sent if isinstance(request, Create)]) == 3 * 4
    owners = mine.path.rsplit("/", 1)[0]
    assert len(client.get_children(owners)) == len(partitions)
    mine.asker.sent.clear()
    more = claim_all(mine, [("t", number) for number in range(1000, 1010)])
    assert set(more.values()) == {p.Claimed("me-0", 0)}
    assert multis(mine) == [10]


@pytest.mark.catalogue("B2")
def test_nodes_that_are_there_refuse_their_claims_and_no_other(client: KazooClient, mine: Claimer) -> None:
    taken = {3, 4, 17}
    for number in taken:
        client.create(znodes.owner_path(mine.group, "t", number), b"other-0", ephemeral=True, makepath=True)
    told = claim_all(mine, [("t", number) for number in range(30)])
    assert {number for (_, number), event in told.items() if event == p.ClaimRefused()} == taken
    assert {event for (_, number), event in told.items() if number not in taken} == {p.Claimed("me-0", 0)}
    assert {client.get(znodes.owner_path(mine.group, "t", number))[0] for number in taken} == {b"other-0"}


def test_nodes_that_are_let_go_of_together_are_deleted_by_one_multi_though_each_is_read(
    client: KazooClient, mine: Claimer
) -> None:
    partitions: list[Partition] = [("t", number) for number in range(30)]
    claim_all(mine, partitions)
    client.delete(znodes.owner_path(mine.group, "t", 7))
    client.delete(znodes.owner_path(mine.group, "t", 8))
    client.create(znodes.owner_path(mine.group, "t", 8), b"other-0", ephemeral=True)
    mine.asker.sent.clear()
    told: dict[Partition, p.Event] = {}

    def begin() -> None:
        for partition in partitions:
            mine.claims.release(partition, lambda event, at=partition: told.update({at: event}))  # type: ignore[misc]

    mine.asker.loop.post(begin)
    wait_until(lambda: len(told) == len(partitions), 15.0, "all to be told", state=lambda: told)
    assert {number for (_, number), event in told.items() if event == p.ReleaseRefused()} == {8}
    assert {event for (_, number), event in told.items() if number != 8} == {p.Released()}
    assert multis(mine) == [28]
    assert client.get_children(mine.path.rsplit("/", 1)[0]) == ["8"]


def test_the_owner_nodes_of_topics_are_listed(client: KazooClient, mine: Claimer) -> None:
    client.create(znodes.owner_path(mine.group, "t", 3), b"other-0", ephemeral=True, makepath=True)
    client.create(znodes.owners_path(mine.group, "shut"), acl=[make_acl("world", "anyone", write=True)])
    is_owned = mine.asker.outcome(lambda told: mine.claims.list_owned(["t", "none", "shut"], told))
    places: list[Partition] = [("t", 3), ("t", 4), ("none", 0), ("shut", 0)]
    assert [is_owned(place) for place in places] == [True, False, False, None]


def test_a_topic_that_may_not_be_written_keeps_no_other_from_its_claims(client: KazooClient, mine: Claimer) -> None:
    client.ensure_path(f"{znodes.group_path(mine.group)}/owners")
    client.create(znodes.owners_path(mine.group, "shut"), acl=[make_acl("world", "anyone", read=True)])
    told = claim_all(mine, [("shut", 0), ("new", 0), ("shut", 1), ("new", 1)])
    assert {partition: type(event) for partition, event in told.items()} == {
        ("shut", 0): p.Fenced,
        ("shut", 1): p.Fenced,
        ("new", 0): p.Claimed,
        ("new", 1): p.Claimed,
    }


def test_without_the_registration_all_claims_of_a_step_are_fenced(client: KazooClient, mine: Claimer) -> None:
    claim_all(mine, [("t", 99)])
    fence = mine.claims.fence
    assert fence is not None
    client.delete(fence.path)
    told = claim_all(mine, [("t", number) for number in range(20)])
    assert set(told.values()) == {p.Fenced()}
    assert client.get_children(mine.path.rsplit("/", 1)[0]) == ["99"]


def test_writes_of_one_step_go_under_the_fence_they_were_decided_under(client: KazooClient, mine: Claimer) -> None:
    claim_all(mine, [("t", 99)])
    old = mine.claims.fence
    assert old is not None
    told: list[p.Event] = []

    def begin() -> None:
        mine.claims.fence = Fence(old.path, 1, old.session_id)  # not what stands there: an older or a later session
        mine.claims.claim(("t", 0), "me-0", told.append)
        mine.claims.fence = old
        mine.claims.claim(("t", 1), "me-0", told.append)

    mine.asker.loop.post(begin)
    wait_until(lambda: len(told) == 2, 15.0, "both to be told")
    assert told == [p.Fenced(), p.Claimed("me-0", 0)]
    assert sorted(client.get_children(mine.path.rsplit("/", 1)[0])) == ["1", "99"]


def test_a_place_that_may_not_be_written_refuses_and_is_no_endless_loop(client: KazooClient, mine: Claimer) -> None:
    owners = mine.path.rsplit("/", 1)[0]
    client.ensure_path(owners.rsplit("/", 1)[0])
    client.create(owners, acl=[make_acl("world", "anyone", read=True)])
    sent = len(mine.asker.sent)
    assert mine.claim() == p.Fenced()
    assert len(mine.asker.sent) - sent == 1


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_lost_answer_is_unknown_and_a_look_tells(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, landed: bool
) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        claimer = Claimer(proxy.address, fresh_group)
        claimer.claim()
        claimer.release()
        proxy.stall("down" if landed else "up")
        told: list[p.Event] = []
        sent = len(claimer.asker.sent)
        claimer.asker.loop.post(lambda: claimer.claims.claim(PARTITION, "me-0", told.append))
        if landed:
            wait_until(lambda: client.exists(claimer.path), 5.0, "the claim to land")
        else:
            wait_until(lambda: len(claimer.asker.sent) > sent, 5.0, "the claim to be sent")
        proxy.drop()
        proxy.clear()
        wait_until(lambda: told, 10.0, "word")
        assert told == [p.ResultUnknown()]
        claimer.asker.connected()
        expected = p.OwnerRead("me-0", True, 0, claimer.asker.session_id) if landed else p.OwnerGone()
        assert claimer.inspect(sync=True) == expected
        claimer.asker.close()


def test_parents_are_made_in_order_and_those_that_are_there_are_fine(
    client: KazooClient, mine: Claimer, fresh_group: str
) -> None:
    root = f"/{fresh_group}-tree"
    paths = [root, f"{root}/a", f"{root}/a/b"]
    for _ in range(2):
        mine.asker.outcome(lambda told: create_parents(mine.asker.ask, paths, told))
        assert client.exists(paths[-1])


def test_the_first_parent_that_cannot_be_made_is_named(client: KazooClient, mine: Claimer, fresh_group: str) -> None:
    root = f"/{fresh_group}-shut"
    client.create(root, acl=[make_acl("world", "anyone", read=True)])
    reply = mine.asker.outcome(lambda told: create_parents(mine.asker.ask, [root, f"{root}/a", f"{root}/a/b"], told))
    assert reply == (None, Fault.NO_AUTH, *reply[2:])
    assert reply.path == f"{root}/a"


def test_a_parent_that_is_there_is_fine_also_where_it_could_not_be_made(
    client: KazooClient, mine: Claimer, fresh_group: str
) -> None:
    """ZooKeeper looks at the rights above it before it looks whether it is there."""
    root = f"/{fresh_group}-shut"
    client.create(root)
    client.create(f"{root}/open")
    client.set_acls(root, [make_acl("world", "anyone", read=True)])
    paths = [f"{root}/open", f"{root}/open/made"]
    reply = mine.asker.outcome(lambda told: create_parents(mine.asker.ask, paths, told))
    assert reply[1] is None
    assert client.exists(paths[-1])
