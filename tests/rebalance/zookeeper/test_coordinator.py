"""Whole members of a group against a real ZooKeeper: who owns what, at any time, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl
from members import History, TestMember, create_topic, owners, share_is_complete, wait_for_share

from rebalance.errors import ConsumerIdInUse
from rebalance.lease import lease_clock
from rebalance.partition import PartitionState
from rebalance.subscription import Partition, Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.machine import GroupState
from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.requests import Fault, Multi, Reply, Request
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


class Group:
    """Makes members of one group and ends them all."""

    def __init__(self, connect: str, group: str, topic: str) -> None:
        self.connect, self.group, self.topic = connect, group, topic
        self.history = History()
        self.members: list[TestMember] = []

    def member(self, name: str, streams: int = 1, settle_s: float | None = 20.0, **settings: object) -> TestMember:
        subscription = settings.pop("subscription", None) or Subscription.static({self.topic: streams})
        connect = settings.pop("connect", self.connect)
        made = TestMember(connect, self.group, name, subscription, self.history, **settings)  # type: ignore[arg-type]
        self.members.append(made)
        return made.start(settle_s)

    def close(self) -> None:
        for member in self.members:
            member.stop()
        assert not [member.crash for member in self.members if member.crash]


@pytest.fixture
def group(zookeeper: ZooKeeperServer, fresh_group: str, fresh_topic: Callable[[], str]) -> Iterator[Group]:
    made = Group(zookeeper.connect, fresh_group, fresh_topic())
    yield made
    made.close()


# -- joins and leaves --------------------------------------------------------------------------------------------------


def test_members_come_and_go_and_each_partition_has_one_owner_at_any_time(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 8)
    a = group.member("a")
    wait_for_share([a], group.topic, 8)
    b, c = group.member("b"), group.member("c", settle_s=None)
    wait_for_share([a, b, c], group.topic, 8)
    a.stop()
    wait_for_share([b, c], group.topic, 8)
    c.stop()
    wait_for_share([b], group.topic, 8)
    assert group.history.overlaps() == []
    assert {thread for thread, _, _ in owners(client, group.group, group.topic).values()} == {f"{b.name}-0"}


def test_what_stays_is_not_touched_by_a_join(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 4)
    a = group.member("a")
    before = owners(client, group.group, group.topic)
    b = group.member("b")
    wait_for_share([a, b], group.topic, 4)
    after = owners(client, group.group, group.topic)
    assert [after[number] for number in (0, 1)] == [before[number] for number in (0, 1)]
    assert len(group.history.of(a.name, (group.topic, 0))) == 1


@pytest.mark.catalogue("E3")
def test_positions_are_handed_over_without_a_gap_or_a_repetition(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a")
    a.on_loop(lambda: a.delivery.consume(41))
    b = group.member("b")
    wait_for_share([a, b], group.topic, 2)
    (taken,) = group.history.of(b.name)
    assert taken.offset == 41


def test_a_partition_that_moves_between_my_threads_keeps_its_node(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 3)
    a, b = group.member("a", streams=2), group.member("b", streams=2)
    wait_for_share([a, b], group.topic, 3)
    before = owners(client, group.group, group.topic)
    mine = {number for number, (thread, _, _) in before.items() if thread.startswith(a.name)}
    b.stop()
    wait_for_share([a], group.topic, 3)
    after = owners(client, group.group, group.topic)
    assert {thread for thread, _, _ in after.values()} == {f"{a.name}-0", f"{a.name}-1"}
    assert [after[number][2] for number in mine] == [before[number][2] for number in mine]
    assert group.history.overlaps() == []


@pytest.mark.catalogue("B8")
def test_a_change_of_somebody_elses_topic_touches_nothing(
    client: KazooClient, group: Group, fresh_topic: Callable[[], str]
) -> None:
    create_topic(client, group.topic, 4)
    other = fresh_topic()
    create_topic(client, other, 4)
    a = group.member("a")
    before = owners(client, group.group, group.topic)
    for number in range(5):
        guest = group.member(f"guest{number}", subscription=Subscription.static({other: 1}))
        guest.stop()
    wait_for_share([a], group.topic, 4)
    assert owners(client, group.group, group.topic) == before
    assert len(group.history.of(a.name)) == 4
    assert [call for call, _ in a.listener.calls if call == "revoked"] == []


def test_a_spare_member_takes_over(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 1)
    a, b = group.member("a"), group.member("b")
    assert (a.owned(), b.owned()) == ({(group.topic, 0)}, set())
    a.stop()
    wait_for_share([b], group.topic, 1)


@pytest.mark.catalogue("A11", "B9")
def test_ten_first_members_at_once_of_a_group_that_does_not_exist(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 20)
    members = [group.member(f"m{number}", settle_s=None) for number in range(10)]
    wait_for_share(members, group.topic, 20, timeout_s=30.0)
    assert group.history.overlaps() == []


@pytest.mark.catalogue("B10", "J4")
def test_a_message_in_hand_is_waited_for_and_then_no_longer(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a", drain_timeout_s=0.6)
    stuck = (group.topic, 1)
    a.on_loop(lambda: a.delivery.in_hand.add(stuck))
    b = group.member("b", settle_s=None)
    wait_for_share([a, b], group.topic, 2)
    (first,) = group.history.of(a.name, stuck)
    (second,) = group.history.of(b.name, stuck)
    assert first.how == "drain expired"
    assert first.ended is not None
    assert second.began >= first.ended


def test_a_partition_wanted_back_while_it_is_drained_stays(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a", drain_timeout_s=10.0)
    stuck = (group.topic, 1)
    a.on_loop(lambda: a.delivery.in_hand.add(stuck))
    before = owners(client, group.group, group.topic)
    b = group.member("b", settle_s=None)
    wait_until(lambda: stuck in a.delivery.waiting, 10.0, "the drain to begin")
    b.stop()
    wait_until(lambda: a.coordinator.partitions[stuck].machine.wanted is not None, 10.0, "it to be wanted back")
    a.loop.post(a.delivery.finish_in_hand, stuck, 5)
    wait_for_share([a], group.topic, 2)
    assert owners(client, group.group, group.topic)[1] == before[1]
    assert group.history.of(a.name, stuck)[-1].offset == 5


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("A2")
def test_twenty_session_ends_in_a_row(zookeeper: ZooKeeperServer, client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 4)
    a, b = group.member("a"), group.member("b")
    for number in range(20):
        victim = (a, b)[number % 2]
        old = victim.session_id
        zookeeper.end_session(old)
        wait_until(lambda: victim.session_id not in (0, old), 40.0, "a new session")  # noqa: B023
        if number % 3 == 0:
            wait_for_share([a, b], group.topic, 4)
    wait_for_share([a, b], group.topic, 4)
    stat = client.exists(znodes.registration_path(group.group, a.name))
    assert stat is not None
    assert stat.version == 11, "the version of the registration names the session"


def test_after_a_lost_session_a_member_goes_on_from_what_it_has_done(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 1)
    a = group.member("a")
    partition = (group.topic, 0)
    a.on_loop(lambda: a.delivery.consume(30))
    zookeeper.end_session(a.session_id)
    wait_until(lambda: len(group.history.of(a.name, partition)) == 2, 10.0, "the partition to be claimed again")
    assert group.history.of(a.name, partition)[1].offset == 30
    assert ("lost", [partition]) in a.listener.calls


@pytest.mark.catalogue("K1")
def test_a_short_disconnection_changes_no_claim_and_no_flow(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 4)
    with TcpProxy(zookeeper.connect) as proxy:
        a = group.member("a", connect=proxy.address)
        before, session = owners(client, group.group, group.topic), a.session_id
        for _ in range(5):
            proxy.drop()
            wait_until(lambda: not a.coordinator.session.connected, 5.0, "the loss to be noticed")
            wait_until(lambda: a.coordinator.session.connected and a.state is GroupState.STABLE, 10.0, "to be back")
        assert a.session_id == session
        assert owners(client, group.group, group.topic) == before
        assert len(group.history.of(a.name)) == 4
        # The watches are there again.
        b = group.member("b")
        wait_for_share([a, b], group.topic, 4)
        a.stop()


def test_the_connection_breaks_again_and_again_while_members_come_and_go(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 12)
    with TcpProxy(zookeeper.connect) as proxy:
        a, b = group.member("a", connect=proxy.address), group.member("b", connect=proxy.address, streams=2)
        for number in range(8):
            guest = group.member(f"guest{number}", settle_s=None, streams=1 + number % 2)
            for _ in range(3):
                moved = proxy.moved_bytes("up")
                wait_until(lambda: proxy.moved_bytes("up") > moved + 150, 10.0, "traffic")  # noqa: B023
                proxy.drop()
            guest.stop()
        wait_for_share([a, b], group.topic, 12, timeout_s=30.0)
        assert group.history.overlaps() == []
        a.stop()
        b.stop()


def test_a_stalled_link_ends_delivery_before_another_member_begins(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 4)
    with TcpProxy(zookeeper.connect) as proxy:
        a = group.member("a", connect=proxy.address, session_s=2.0)
        b = group.member("b", session_s=2.0)
        wait_for_share([a, b], group.topic, 4)
        proxy.stall()
        wait_until(lambda: len(b.owned()) == 4, 15.0, "the other member to take over", state=b.describe)
        reached = a.lease.until
        assert all(own.began > reached for own in group.history.of(b.name)[-2:])
        proxy.clear()
        wait_for_share([a, b], group.topic, 4)
        assert group.history.overlaps() == []
        a.stop()


class PortToAServerCutOffFromItsLeader(KazooPort):
    """Swallows writes and answers reads, as a follower without its leader does, until the connection is dropped."""

    is_cut_off = False
    drops = 0

    def __init__(self, connect: str, session_s: float) -> None:
        super().__init__(connect, session_s)
        self.swallowed: list[Callable[[Reply], None]] = []

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self.is_cut_off and isinstance(request, Multi):
            self.swallowed.append(done)
        else:
            super().send(request, done)

    def drop_connection(self) -> None:
        self.is_cut_off = False
        self.drops += 1
        swallowed, self.swallowed = self.swallowed, []
        for done in swallowed:
            done(Reply(None, Fault.CONNECTION_LOSS, lease_clock()))
        super().drop_connection()


def test_a_server_that_leaves_writes_without_answer_is_given_up_for_another_and_the_release_goes_through(
    client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 2)
    port = PortToAServerCutOffFromItsLeader(group.connect, 3.0)
    a = group.member("a", port=port)
    port.is_cut_off = True
    b = group.member("b", settle_s=None)
    wait_for_share([a, b], group.topic, 2)
    assert port.drops == 1
    assert group.history.overlaps() == []


def test_zookeeper_is_killed_and_comes_back_nothing_moves(fresh_group: str) -> None:
    with ZooKeeperServer() as server:
        client = KazooClient(server.connect)
        client.start()
        create_topic(client, "t", 4)
        group = Group(server.connect, fresh_group, "t")
        a, b = group.member("a", session_s=40.0), group.member("b", session_s=40.0)
        wait_for_share([a, b], "t", 4)
        before = owners(client, fresh_group, "t")
        server.kill()
        wait_until(lambda: not (a.coordinator.session.connected or b.coordinator.session.connected), 5.0, "the loss")
        server.start()
        wait_for_share([a, b], "t", 4)
        assert owners(client, fresh_group, "t") == before
        assert len(group.history.of()) == len([own for own in group.history.of() if own.ended is None]) + 2
        c = group.member("c")
        wait_for_share([a, b, c], "t", 4)
        assert group.history.overlaps() == []
        group.close()
        client.stop()
        client.close()


@pytest.mark.catalogue("K3")
def test_a_frozen_zookeeper_ends_delivery_in_time_and_all_go_on_from_what_they_did(fresh_group: str) -> None:
    with ZooKeeperServer() as server:
        client = KazooClient(server.connect)
        client.start()
        create_topic(client, "t", 4)
        group = Group(server.connect, fresh_group, "t")
        a, b = group.member("a", session_s=1.5), group.member("b", session_s=1.5)
        wait_for_share([a, b], "t", 4)
        for member in (a, b):
            member.on_loop(lambda: member.delivery.consume(10))  # noqa: B023
        server.pause()
        reached = max(a.lease.until, b.lease.until)
        wait_until(lambda: lease_clock() > reached + 3.0, 10.0, "the sessions to be past their time")
        assert max(a.lease.until, b.lease.until) <= reached, "a server that answers nothing renewed a lease"
        server.resume()
        wait_for_share([a, b], "t", 4, timeout_s=30.0)
        assert group.history.overlaps() == []
        group.close()
        client.stop()
        client.close()


@pytest.mark.catalogue("A6", "K4")
@pytest.mark.slow
def test_zookeeper_loses_its_data_and_the_members_begin_anew(fresh_group: str) -> None:
    with ZooKeeperServer() as server:
        client = KazooClient(server.connect)
        client.start()
        create_topic(client, "t", 2)
        group = Group(server.connect, fresh_group, "t")
        a = group.member("a", session_s=2.0)
        for number in range(50):
            client.create(f"/filler-{number}")
        client.stop()
        client.close()
        server.wipe()
        fresh = KazooClient(server.connect)
        fresh.start()
        create_topic(fresh, "t", 2)
        wait_until(lambda: len(owners(fresh, fresh_group, "t")) == 2, 40.0, "the member to be back", state=a.describe)
        group.close()
        fresh.stop()
        fresh.close()


# -- manual edits in ZooKeeper -----------------------------------------------------------------------------------------


@pytest.mark.catalogue("B1", "D4")
def test_a_foreign_owner_node_blocks_one_partition_only_and_is_named(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 4)
    path = znodes.owner_path(group.group, group.topic, 2)
    client.create(path, b"stranger-0", makepath=True)
    a = group.member("a", blocked_after_s=0.5, blocked_audit_s=1.0)
    assert a.owned() == {(group.topic, number) for number in (0, 1, 3)}
    machine = a.coordinator.partitions[group.topic, 2].machine
    assert machine.state is PartitionState.BLOCKED
    wait_until(lambda: machine.holder == ("stranger-0", 0), 5.0, "the holder to be known")
    wait_until(lambda: ("blocked", [(group.topic, 2)]) in a.listener.calls, 5.0, "the listener to hear of it")
    client.delete(path)
    wait_for_share([a], group.topic, 4)


@pytest.mark.catalogue("B3")
def test_a_foreign_node_in_the_place_of_mine_survives_and_ends_my_delivery(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a")
    path = znodes.owner_path(group.group, group.topic, 1)
    swap = client.transaction()
    swap.delete(path)
    swap.create(path, b"stranger-0")
    swap.commit()
    wait_until(lambda: a.owned() == {(group.topic, 0)}, 5.0, "the partition to be given up", state=a.describe)
    b = group.member("b")
    wait_until(lambda: a.owned() == {(group.topic, 0)} and b.state is GroupState.STABLE, 10.0, "the new share")
    assert client.get(path)[0] == b"stranger-0"
    client.delete(path)
    wait_for_share([a, b], group.topic, 2)


@pytest.mark.catalogue("D3")
def test_a_deleted_owner_node_is_claimed_again(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 3)
    a = group.member("a")
    a.on_loop(lambda: a.delivery.consume(7))
    client.delete(znodes.owner_path(group.group, group.topic, 1))
    wait_until(lambda: len(group.history.of(a.name, (group.topic, 1))) == 2, 5.0, "the partition to be started again")
    wait_for_share([a], group.topic, 3)
    first, second = group.history.of(a.name, (group.topic, 1))
    assert (first.how, second.offset) == ("abandoned", 7)
    assert owners(client, group.group, group.topic)[1][0] == f"{a.name}-0"
    assert len(group.history.of(a.name, (group.topic, 0))) == 1, "the others flow on"


@pytest.mark.catalogue("D1")
def test_the_audit_finds_a_deleted_owner_node_whose_watch_was_lost(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 1)
    a = group.member("a", audit_s=0.5)
    a.on_loop(lambda: setattr(a.coordinator._partitions, "_owner_changed", lambda event: None))
    wait_until(lambda: a.coordinator.partitions[group.topic, 0].looked_at > 0, 5.0, "a round with the deaf watch")
    client.delete(znodes.owner_path(group.group, group.topic, 0))
    wait_until(lambda: len(group.history.of(a.name)) == 2, 5.0, "the partition to be claimed again")


def test_an_owner_node_that_somebody_wrote_into_is_still_let_go_of(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a")
    client.set(znodes.owner_path(group.group, group.topic, 1), b"scribble")
    b = group.member("b")
    wait_for_share([a, b], group.topic, 2)


def test_a_deleted_registration_is_made_again_under_the_same_session(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 4)
    a, b = group.member("a"), group.member("b")
    session = a.session_id
    for _ in range(5):
        path = znodes.registration_path(group.group, a.name)
        before = client.exists(path)
        client.delete(path)
        wait_until(lambda: (stat := client.exists(path)) is not None and stat.czxid != before.czxid, 5.0, "it")  # noqa: B023
    wait_for_share([a, b], group.topic, 4)
    assert a.session_id == session
    assert group.history.overlaps() == []


def test_a_registration_deleted_in_the_middle_of_a_handover_leaves_no_partition_behind(
    client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 6)
    a = group.member("a", drain_timeout_s=10.0)
    stuck = (group.topic, 5)
    path = znodes.registration_path(group.group, a.name)
    a.on_loop(lambda: a.delivery.in_hand.add(stuck))
    b = group.member("b", settle_s=None)
    wait_until(lambda: stuck in a.delivery.waiting, 10.0, "the drain to begin")

    def finish_behind_the_registration() -> None:
        # On the coordinator's thread: the node is gone before the release is asked for, and nobody has been told.
        client.delete(path)
        a.delivery.finish_in_hand(stuck, 3)

    a.loop.post(finish_behind_the_registration)
    wait_for_share([a, b], group.topic, 6, timeout_s=30.0)
    assert group.history.overlaps() == []


def _deleted_as_a_whole(client: KazooClient, root: str) -> bool:
    """One transaction, so that nobody puts anything back in between; False if a member was faster."""
    paths = [root]
    for path in paths:
        try:
            paths.extend(f"{path}/{child}" for child in client.get_children(path))
        except NoNodeError:
            return False
    deletion = client.transaction()
    for path in reversed(paths):
        deletion.delete(path)
    return not [result for result in deletion.commit() if isinstance(result, Exception)]


@pytest.mark.catalogue("I7")
def test_the_group_is_deleted_as_a_whole_and_comes_back(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 4)
    a, b = group.member("a"), group.member("b")
    wait_for_share([a, b], group.topic, 4)
    wait_until(lambda: _deleted_as_a_whole(client, znodes.group_path(group.group)), 10.0, "the group to be deleted")
    wait_until(lambda: len(owners(client, group.group, group.topic)) == 4, 15.0, "the owners to be back")
    wait_for_share([a, b], group.topic, 4)


@pytest.mark.catalogue("A7")
@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"topic1", b"{}", b'{"subscription":{"t":"2"}}', b"\xff\xfe", b"x" * 900_000],
    ids=["empty", "null", "bare name", "empty object", "count as text", "no UTF-8", "huge"],
)
def test_a_poison_registration_stops_nobody(client: KazooClient, group: Group, data: bytes) -> None:
    create_topic(client, group.topic, 4)
    a = group.member("a")
    poison = znodes.registration_path(group.group, "poison")
    client.create(poison, data, ephemeral=True)
    b = group.member("b")
    wait_for_share([a, b], group.topic, 4)
    client.delete(poison)


def test_a_filter_that_cannot_be_applied_keeps_what_is_held_and_claims_nothing(
    client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a")
    odd = znodes.registration_path(group.group, "odd")
    client.create(
        odd,
        b'{"version":1,"subscription":{"(?<=a)\\\\p{javaMirrored}++":1},"pattern":"white_list","timestamp":"1"}',
        ephemeral=True,
    )
    wait_until(
        lambda: any("odd" in warning for warning in a.coordinator.warnings),
        5.0,
        "the warning",
        state=lambda: (a.describe(), a.coordinator.warnings),
    )
    create_topic(client, group.topic, 4)
    wait_until(
        lambda: (
            a.state is GroupState.STABLE
            and a.coordinator.machine.snapshot is not None
            and len(a.coordinator.machine.snapshot.topics[group.topic].partitions) == 4
        ),
        5.0,
        "the new partitions",
    )
    assert a.owned() == {(group.topic, 0), (group.topic, 1)}
    client.delete(odd)
    wait_for_share([a], group.topic, 4)


def test_two_processes_with_one_id_the_second_is_refused_and_the_first_not_disturbed(
    client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a", session_s=2.0)
    before = owners(client, group.group, group.topic)
    second = group.member("a", session_s=2.0)
    assert isinstance(second.coordinator.error, ConsumerIdInUse)
    assert second.delivery.error is second.coordinator.error
    assert owners(client, group.group, group.topic) == before
    wait_for_share([a], group.topic, 2)


@pytest.mark.catalogue("E11")
def test_a_member_that_is_out_for_good_gives_back_what_it_holds(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    a = group.member("a", session_s=2.0)
    b = group.member("b", session_s=2.0)
    wait_for_share([a, b], group.topic, 2)
    path = znodes.registration_path(group.group, a.name)
    thief = client.transaction()
    data = client.get(path)[0]
    thief.delete(path)
    thief.create(path, data, ephemeral=True)
    thief.commit()
    wait_until(lambda: a.coordinator.error is not None, 20.0, "the member to be refused", state=a.describe)
    wait_until(
        lambda: (
            not any(thread.startswith(a.name) for thread, _, _ in owners(client, group.group, group.topic).values())
        ),
        10.0,
        "its nodes to be gone",
    )
    client.delete(path)
    wait_for_share([b], group.topic, 2)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_topic_created_later_and_partitions_added_later_are_read_from_their_beginning(
    client: KazooClient, group: Group
) -> None:
    a = group.member("a", reset_policy="largest")
    a.delivery.log_end = 500
    create_topic(client, group.topic, 1)
    wait_for_share([a], group.topic, 1)
    create_topic(client, group.topic, 3)
    wait_for_share([a], group.topic, 3)
    assert [own.offset for own in group.history.of(a.name)] == [0, 0, 0]
    path = znodes.offset_path(group.group, group.topic, 2)
    wait_until(lambda: client.exists(path) and client.get(path)[0] == b"0", 5.0, "the start position to be committed")


def test_what_was_there_at_the_start_follows_the_reset_policy(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 1)
    made = TestMember(group.connect, group.group, "a", Subscription.static({group.topic: 1}), group.history)
    made.delivery.log_end = 500
    group.members.append(made)
    made.start()
    assert [own.offset for own in group.history.of(made.name)] == [500]


def test_a_first_position_is_stored_before_anything_is_delivered_from_it(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    made = TestMember(group.connect, group.group, "a", Subscription.static({group.topic: 1}), group.history)
    group.members.append(made)
    answers: list[Callable[[], None]] = []
    commit_start = made.offsets.commit_start

    def held(fence: Fence | None, partition: Partition, offset: int, done: Callable[[Any], None]) -> None:
        commit_start(fence, partition, offset, lambda failed: answers.append(lambda: done(failed)))

    made.offsets.commit_start = held  # type: ignore[method-assign]
    made.start(settle_s=None)
    wait_until(lambda: len(answers) == 2, 10.0, "both to be stored")
    assert {client.get(znodes.offset_path(group.group, group.topic, number))[0] for number in (0, 1)} == {b"0"}
    assert group.history.of() == []
    made.on_loop(lambda: [answer() for answer in answers])
    wait_for_share([made], group.topic, 2)


@pytest.mark.parametrize(("other", "begins_at"), [(b"50", 50), (b"500", 100)])
def test_where_a_lower_start_was_stored_meanwhile_reading_begins_there(
    client: KazooClient, group: Group, other: bytes, begins_at: int
) -> None:
    create_topic(client, group.topic, 1)
    made = TestMember(group.connect, group.group, "a", Subscription.static({group.topic: 1}), group.history)
    group.members.append(made)
    made.delivery.log_end = 100
    node = znodes.offset_path(group.group, group.topic, 0)
    resolve = made.delivery.resolve

    def slowly(partition: Partition, policy: str, done: Callable[[int], None]) -> None:
        client.create(node, other, makepath=True)
        resolve(partition, policy, done)

    made.delivery.resolve = slowly  # type: ignore[method-assign]
    made.start(settle_s=None)
    wait_for_share([made], group.topic, 1)
    assert [own.offset for own in group.history.of(made.name)] == [begins_at]
    assert client.get(node)[0] == other


def test_a_first_position_that_cannot_be_stored_stops_no_delivery(client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 2)
    client.ensure_path(f"{znodes.group_path(group.group)}/offsets")
    client.create(znodes.offsets_path(group.group, group.topic), acl=[make_acl("world", "anyone", read=True)])
    wait_for_share([group.member("a")], group.topic, 2)


# -- cost --------------------------------------------------------------------------------------------------------------


def test_idle_members_write_nothing(zookeeper: ZooKeeperServer, client: KazooClient, group: Group) -> None:
    create_topic(client, group.topic, 4)
    with TcpProxy(zookeeper.connect, count_zookeeper=True) as proxy:
        a = group.member("a", connect=proxy.address, session_s=1.0, audit_s=0.5)
        wait_until(lambda: not a.on_loop(lambda: a.offsets._running), 5.0, "the first commits")
        proxy.forget_requests()
        wait_until(lambda: proxy.requests["exists"] >= 8, 10.0, "some seconds of idleness")
        counted = proxy.requests
        assert {kind for kind, count in counted.items() if count} <= {"exists", "get_children", "get_data", "ping"}
        a.stop()


@pytest.mark.parametrize("revoked_takes_s", [0.0, 0.25], ids=["quick", "slow"])
@pytest.mark.parametrize("leaver", [0, 10, 20], ids=["the first", "the middle", "the last"])
def test_what_one_leaver_of_21_members_with_two_hundred_partitions_costs(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group, leaver: int, revoked_takes_s: float
) -> None:
    """When the first one leaves, nearly each member lets go of what another one claims, sooner or later than that."""
    create_topic(client, group.topic, 200)
    with TcpProxy(zookeeper.connect, count_zookeeper=True) as proxy:
        members = [
            group.member(f"m{number:02}", settle_s=None, connect=proxy.address, session_s=30.0) for number in range(21)
        ]
        wait_for_share(members, group.topic, 200, timeout_s=90.0)
        before = owners(client, group.group, group.topic)
        for member in members:
            member.listener.revoked_takes_s = revoked_takes_s
        proxy.forget_requests()
        members[leaver].stop()
        rest = [member for member in members if member is not members[leaver]]
        wait_for_share(rest, group.topic, 200, timeout_s=60.0)
        cost = sum(count for kind, count in proxy.requests.items() if kind not in ("ping", "connect", "close"))
        after = owners(client, group.group, group.topic)
        moved = sum(before[number][0] != after[number][0] for number in after)
        assert cost <= 5 * len(members) + 6 * moved + 50, (cost, moved, proxy.requests)
        assert proxy.requests["create"] <= 1.2 * moved, (moved, proxy.requests)
        assert group.history.overlaps() == []
        for member in members:
            member.stop()


def test_what_the_first_start_of_a_group_on_three_hundred_partitions_costs(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group
) -> None:
    create_topic(client, group.topic, 300)
    with TcpProxy(zookeeper.connect, count_zookeeper=True) as proxy:
        member = group.member("a", connect=proxy.address, session_s=30.0)
        wait_for_share([member], group.topic, 300)
        seen = Counter(request.kind for request in proxy.seen_requests() if not request.in_multi)
        parts = Counter(request.kind for request in proxy.seen_requests() if request.in_multi)
        member.stop()
    assert seen["get_data"] <= 2 * 300 + 20, "the stored offset and the watch of each owner node"
    assert parts["check"] <= 30, "claims and first positions share their multis"
    assert seen["create"] <= 40
    assert seen["sync"] + seen["exists"] + seen["get_children"] <= 60


def test_the_share_is_complete_only_when_each_partition_has_one_owner() -> None:
    assert share_is_complete([], "t", 0)
    assert not share_is_complete([], "t", 1)
