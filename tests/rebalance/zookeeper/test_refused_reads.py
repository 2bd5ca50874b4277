"""Nodes of a real ZooKeeper that may not be read: what is held stays, and what they concern is not claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from members import TestMember, create_topic, owners, wait_for_share
from reading import Reading, join, leave
from test_coordinator import Group

from rebalance.partition import PartitionState
from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import UNREAD
from rebalance.zookeeper.machine import GroupState
from rebalance.zookeeper.port.kazoo_client import access_list
from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.requests import Fault, GetChildren, GetData, Reply, Request
from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.znodes import format_registration
from tests.access_lists import unmade, unread
from zkconsumer.testing import ClosedNodes
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

SOON_S = 15.0
"""A node that can be read again is asked for within five seconds."""


@pytest.fixture(autouse=True)
def list_of_members(client: KazooClient, fresh_group: str) -> None:
    client.ensure_path(znodes.ids_path(fresh_group))


@pytest.fixture
def closed(zookeeper: ZooKeeperServer) -> Iterator[ClosedNodes]:
    with ClosedNodes(zookeeper.connect) as made:
        yield made


@pytest.fixture
def topic(client: KazooClient, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    create_topic(client, name, 4)
    return name


@pytest.fixture
def group(zookeeper: ZooKeeperServer, fresh_group: str, topic: str) -> Iterator[Group]:
    made = Group(zookeeper.connect, fresh_group, topic)
    yield made
    made.close()


def registration(topic: str) -> bytes:
    return format_registration(Subscription.static({topic: 1}).to_registration(1))


def stranger_of(group: Group) -> str:
    return znodes.registration_path(group.group, f"{group.group}_stranger")


def named(member: TestMember, path: str) -> None:
    wait_until(
        lambda: any(path in warning for warning in member.coordinator.warnings),
        SOON_S,
        f"{path} to be named",
        state=lambda: (member.describe(), member.coordinator.warnings),
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_registration_that_may_not_be_read_is_part_of_what_was_read_and_not_asked_for_by_each_read(
    client: KazooClient, closed: ClosedNodes, reading: Reading, topic: str
) -> None:
    path = znodes.registration_path(reading.group, "shut")
    closed.create(path, registration(topic))
    join(client, reading.group, "other", Subscription.static({topic: 1}))
    snapshot = reading.read()
    assert set(snapshot.members) == {"other"}
    assert str(snapshot.refused_members["shut"]) == unread(path)
    assert snapshot.unreadable == {}
    assert reading.read().refused_members.keys() == {"shut"}
    assert reading.asked[GetChildren] == 1
    assert sum(reading.asked.values()) == 1
    reading.changes.clear()
    closed.open(path)
    reading.changed(path)
    snapshot = reading.read()
    assert set(snapshot.members) == {"other", "shut"}
    assert snapshot.refused_members == {}


def test_a_registration_that_may_not_be_read_and_goes_away_is_forgotten(
    client: KazooClient, closed: ClosedNodes, reading: Reading, topic: str
) -> None:
    path = znodes.registration_path(reading.group, "shut")
    closed.create(path, registration(topic))
    assert reading.read().refused_members.keys() == {"shut"}
    reading.changes.clear()
    closed.delete(path)
    reading.changed(znodes.ids_path(reading.group))
    assert reading.read().refused_members == {}
    join(client, reading.group, "shut", Subscription.static({topic: 1}))
    assert set(reading.read().members) == {"shut"}


def test_a_name_that_comes_back_closed_is_not_taken_for_what_it_was(
    client: KazooClient, closed: ClosedNodes, reading: Reading, topic: str
) -> None:
    join(client, reading.group, "m", Subscription.static({topic: 1}))
    assert set(reading.read().members) == {"m"}
    leave(client, reading.group, "m")
    closed.create(znodes.registration_path(reading.group, "m"), registration(topic))
    snapshot = reading.read()
    assert snapshot.members == {}
    assert snapshot.refused_members.keys() == {"m"}


def test_a_topic_that_may_not_be_read_leaves_the_others_as_they_are(
    zookeeper: ZooKeeperServer,
    client: KazooClient,
    closed: ClosedNodes,
    fresh_group: str,
    topic: str,
    fresh_topic: Callable[[], str],
) -> None:
    other = fresh_topic()
    create_topic(client, other, 2)
    reading = Reading(zookeeper.connect, fresh_group, Subscription.static({topic: 1, other: 1}))
    closed.close(znodes.topic_path(topic))
    snapshot = reading.read()
    assert set(snapshot.topics) == {other}
    assert set(snapshot.refused_topics) == {topic}
    reading.changes.clear()
    closed.open(znodes.topic_path(topic))
    reading.changed(znodes.topic_path(topic))
    assert set(reading.read().topics) == {topic, other}
    closed.close(znodes.topic_path(topic))
    reading.asker.on_loop(reading.reader.forget_watches)
    assert set(reading.read().refused_topics) == {topic}, "also one that was read before"
    client.delete(znodes.topic_path(topic))
    reading.changed(znodes.topic_path(topic))
    snapshot = reading.read()
    assert set(snapshot.topics) == {other}
    assert snapshot.refused_topics == {}
    reading.asker.close()


def test_a_list_of_members_that_may_not_be_read_is_named_and_read_when_it_can_be(
    client: KazooClient, closed: ClosedNodes, reading: Reading, topic: str
) -> None:
    ids = znodes.ids_path(reading.group)
    join(client, reading.group, "m", Subscription.static({topic: 1}))
    assert set(reading.read().members) == {"m"}
    closed.close(ids)
    reading.asker.on_loop(reading.reader.forget_watches)
    snapshot = reading.read()
    assert str(snapshot.refused_members_list) == unread(ids)
    assert set(snapshot.members) == {"m"}, "as they were"
    reading.changes.clear()
    closed.open(ids)
    reading.changed(ids)
    join(client, reading.group, "n", Subscription.static({topic: 1}))
    snapshot = reading.read()
    assert snapshot.refused_members_list is None
    assert set(snapshot.members) == {"m", "n"}


@pytest.mark.parametrize("kind", ["filter", "roundrobin"])
def test_a_list_of_topics_that_may_not_be_read_is_named_and_read_when_it_can_be(
    kind: str, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    with ZooKeeperServer() as server, ClosedNodes(server.connect) as closed:
        client = KazooClient(server.connect)
        client.start()
        create_topic(client, topic, 2)
        client.ensure_path(znodes.ids_path(fresh_group))
        join(client, fresh_group, "m", Subscription.white_list(f"{topic}.*", 1))
        mine = Subscription.white_list(f"{topic}.*", 1) if kind == "filter" else Subscription.static({topic: 1})
        reading = Reading(server.connect, fresh_group, mine, Strategy("range" if kind == "filter" else "roundrobin"))
        closed.close(znodes.TOPICS)
        snapshot = reading.read()
        assert str(snapshot.refused_topics_list) == unread(znodes.TOPICS)
        reading.changes.clear()
        closed.open(znodes.TOPICS)
        reading.changed(znodes.TOPICS)
        snapshot = reading.read()
        assert snapshot.refused_topics_list is None
        assert set(snapshot.topics) == {topic}
        assert snapshot.known_topics == {topic}
        client.stop()
        client.close()
        reading.asker.close()


def test_whoever_lacks_them_asks_for_twenty_closed_registrations_a_few_times_and_not_at_each_join(
    client: KazooClient, closed: ClosedNodes, reading: Reading, topic: str
) -> None:
    for number in range(20):
        closed.create(znodes.registration_path(reading.group, f"shut{number:02}"), registration(topic))
    reading.read()
    asked = Counter[type]()
    for number in range(10):
        join(client, reading.group, f"open{number}", Subscription.static({topic: 1}))
        reading.read()
        asked += reading.asked
    # One list and one registration for each join, and the rounds of half a second.
    assert sum(asked.values()) <= 2 * 10 + 2 * 10


# What a read of each kind of node comes to, whatever the fault: docs/REBALANCE.md, "What cannot be read".
NODES = ("members", "registration", "topics", "topic")
CONSEQUENCES = {
    **{(node, fault): "read again" for node in NODES for fault in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED)},
    **{(node, fault): "refused" for node in NODES for fault in Fault if fault.is_refusal},
    **{(node, Fault.NO_NODE): "absent" for node in NODES},
    ("members", Fault.NO_NODE): "read again",
}


def test_each_fault_of_each_node_has_a_consequence() -> None:
    assert len(CONSEQUENCES) == len(NODES) * len(Fault)
    assert {Fault.NO_AUTH, Fault.OTHER} <= {fault for (_, fault), what in CONSEQUENCES.items() if what == "refused"}


@pytest.mark.parametrize(("node", "fault"), CONSEQUENCES, ids=lambda each: getattr(each, "name", each))
def test_what_a_fault_of_a_read_comes_to(
    node: str, fault: Fault, zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, topic: str
) -> None:
    join(client, fresh_group, "m", Subscription.white_list(f"{topic}.*", 1))
    path = {
        "members": znodes.ids_path(fresh_group), "registration": znodes.registration_path(fresh_group, "m"),
        "topics": znodes.TOPICS, "topic": znodes.topic_path(topic),
    }[node]  # fmt: skip
    reading = Reading(zookeeper.connect, fresh_group, Subscription.white_list(f"{topic}.*", 1))
    right = reading.asker.ask

    def ask(request: Request, handle: Callable[[Reply], None]) -> None:
        """As ZooKeeper answers, but for that one node."""
        is_read = isinstance(request, (GetChildren, GetData)) and request.path == path
        right(request, lambda reply: handle(Reply(None, fault, reply.sent_at, "provoked") if is_read else reply))

    reading.reader._ask = ask
    snapshot, reason = reading.asker.outcome(reading.reader.read)
    consequence = CONSEQUENCES[node, fault]
    if consequence == "read again":
        assert snapshot is None
        assert path in reason
    else:
        assert (topic in snapshot.topics) is (node not in ("topics", "topic"))
        assert ("m" in snapshot.members) is (node not in ("members", "registration"))
        refused = {
            "members": snapshot.refused_members_list, "registration": snapshot.refused_members.get("m"),
            "topics": snapshot.refused_topics_list, "topic": snapshot.refused_topics.get(topic),
        }  # fmt: skip
        assert {name for name, error in refused.items() if error} == ({node} if consequence == "refused" else set())
    reading.reader._ask = right
    wait_until(lambda: reading.asker.outcome(reading.reader.read)[0] is not None, SOON_S, "a read that goes well")
    reading.asker.on_loop(reading.reader.forget_watches)
    snapshot = reading.read()
    assert set(snapshot.members) == {"m"}
    assert topic in snapshot.topics
    assert (snapshot.refused, snapshot.refused_topics) == ([], {})
    reading.asker.close()


# -- members -----------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("A13")
@pytest.mark.parametrize("end", ["open", "delete"])
def test_a_registration_that_may_not_be_read_keeps_what_is_held_and_claims_nothing_until_it_can_be_or_is_gone(
    client: KazooClient, closed: ClosedNodes, group: Group, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = group.member("a"), group.member("b")
    wait_for_share([a, b], group.topic, 4)
    kept = a.owned()
    stranger = stranger_of(group)
    closed.create(stranger, registration("another-topic"))
    named(a, stranger)
    b.stop()
    wait_until(lambda: len(owners(client, group.group, group.topic)) == 2, SOON_S, "its nodes to go")
    newcomer = group.member("c")
    assert newcomer.state is GroupState.STABLE
    assert newcomer.owned() == set()
    named(newcomer, stranger)
    assert any(stranger in record.getMessage() for record in caplog.records)
    wait_until(lambda: a.state is GroupState.STABLE, SOON_S, "rest", state=a.describe)
    assert a.owned() == kept
    assert [own.ended for own in group.history.of(a.name) if own.partition in kept] == [None, None]
    if end == "open":
        closed.open(stranger)
    else:
        closed.delete(stranger)
    wait_for_share([a, newcomer], group.topic, 4)
    wait_until(lambda: not any(stranger in warning for warning in a.coordinator.warnings), SOON_S, "no warning",
               state=lambda: a.coordinator.warnings)  # fmt: skip
    assert group.history.overlaps() == []


def test_a_member_whose_nodes_are_its_own_secret_freezes_those_who_lack_its_credentials_and_nobody_else(
    zookeeper: ZooKeeperServer, client: KazooClient, group: Group
) -> None:
    def secretive() -> KazooPort:
        return KazooPort(
            zookeeper.connect,
            4.0,
            auth_data=[("digest", "team:secret")],
            default_acl=access_list([("auth", "", "cdrwa")]),
        )

    plain = group.member("plain")
    assert len(plain.owned()) == 4
    one = group.member("one", port=secretive())
    named(plain, znodes.registration_path(group.group, one.name))
    assert len(plain.owned()) == 4
    # It may read everything: it wants its share, and waits for whoever has it.
    blocked = {
        partition
        for partition, entry in one.coordinator.partitions.items()
        if entry.machine.state is PartitionState.BLOCKED
    }
    assert len(blocked) == 2
    plain.stop()
    two = group.member("two", port=secretive())
    wait_for_share([one, two], group.topic, 4)
    one.stop()
    wait_for_share([two], group.topic, 4)


def test_a_topic_that_may_not_be_read_concerns_itself_alone(
    client: KazooClient, closed: ClosedNodes, group: Group, fresh_topic: Callable[[], str]
) -> None:
    other = fresh_topic()
    create_topic(client, other, 4)
    both = Subscription.static({group.topic: 1, other: 1})
    a, b = group.member("a", subscription=both), group.member("b", subscription=both)
    wait_for_share([a, b], group.topic, 4)
    kept = {partition for partition in a.owned() if partition[0] == group.topic}
    path = znodes.topic_path(group.topic)
    closed.close(path)
    b.stop()
    c = group.member("c", subscription=both)
    named(c, path)
    assert {partition[0] for partition in c.owned()} == {other}
    # Who has read it before goes on with what it knows, until it has to read it again.
    wait_for_share([a, c], other, 4)
    a.on_loop(a.coordinator.watches_forgotten)
    a.on_loop(lambda: a.coordinator.recheck("test"))
    named(a, path)
    assert kept <= a.owned()
    create_topic_without_reading(closed, path, client, group.topic)
    wait_for_share([a, c], group.topic, 6)
    assert group.history.overlaps() == []


def create_topic_without_reading(closed: ClosedNodes, path: str, client: KazooClient, topic: str) -> None:
    closed.open(path)
    create_topic(client, topic, 6)


def test_a_change_that_was_made_while_the_topic_could_not_be_read_is_found_by_the_audit(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    a = group.member("a", audit_s=2.0)
    path = znodes.topic_path(group.topic)
    closed.close(path)
    partitions = b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0],"3":[0],"4":[0]}}'
    closed.write(path, partitions)  # ZooKeeper from 3.9.2 on tells no watcher who may not read it
    closed.open(path)
    wait_for_share([a], group.topic, 5)


def test_a_topic_that_could_not_be_read_at_the_start_begins_where_the_policy_says(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    path = znodes.topic_path(group.topic)
    closed.close(path)
    a = group.member("a", reset_policy="largest")
    assert a.owned() == set()
    named(a, path)
    assert not any("does not exist" in warning for warning in a.coordinator.warnings)
    closed.open(path)
    wait_for_share([a], group.topic, 4)
    assert {policy for _, policy in a.delivery.resolved} == {"largest"}
    create_topic(client, group.topic, 5)
    wait_for_share([a], group.topic, 5)
    assert a.delivery.resolved[-1] == ((group.topic, 4), "smallest"), "what appears later begins at its start"


def test_a_list_of_members_that_may_not_be_read_keeps_what_is_held(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    # ZooKeeper tells nobody of a change in what he may not read: the audit finds it.
    a, b = group.member("a", audit_s=2.0), group.member("b", audit_s=2.0)
    wait_for_share([a, b], group.topic, 4)
    kept = a.owned()
    ids = znodes.ids_path(group.group)
    closed.close(ids)
    b.stop()
    named(a, ids)
    wait_until(lambda: a.state is GroupState.STABLE, SOON_S, "rest", state=a.describe)
    assert a.owned() == kept
    closed.open(ids)
    wait_for_share([a], group.topic, 4)
    assert not any(ids in warning for warning in a.coordinator.warnings)


def test_my_own_registration_that_i_may_not_read_is_named_and_no_commit_goes_on_for_ever(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    a = group.member("a")
    path = znodes.registration_path(group.group, a.name)
    closed.close(path)
    failed = a.commit({(group.topic, 0): 5})
    assert failed == {(group.topic, 0): f"the registration cannot be checked: {unread(path)}"}
    a.on_loop(a.coordinator._reader.session_over)
    a.on_loop(lambda: a.coordinator.recheck("test"))
    named(a, path)
    assert len(a.owned()) == 4
    # ZooKeeper from 3.9 on does not let it look at the node either, which is what proves its lease.
    no_proof = f"nothing is delivered while this member cannot read its registration: {unread(path)}"
    wait_until(lambda: no_proof in a.coordinator.warnings, SOON_S, "word of the lease")
    closed.open(path)
    wait_until(lambda: not a.coordinator.warnings, SOON_S, "all to be well", state=lambda: a.coordinator.warnings)
    assert a.commit({(group.topic, 0): 5}) == {}


# -- owner nodes -------------------------------------------------------------------------------------------------------


def test_an_owner_node_that_may_not_be_read_blocks_its_partition_and_its_end_is_heard_of(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    path = znodes.owner_path(group.group, group.topic, 1)
    client.ensure_path(znodes.owners_path(group.group, group.topic))
    closed.create(path, b"stranger-0")
    a = group.member("a", blocked_audit_s=2.0)
    assert len(a.owned()) == 3
    wait_until(lambda: a.coordinator.partitions[group.topic, 1].machine.holder is not None, SOON_S, "the holder")
    assert a.coordinator.partitions[group.topic, 1].machine.holder == (UNREAD, 0)
    closed.delete(path)
    wait_for_share([a], group.topic, 4)


def test_a_node_in_the_place_of_mine_that_i_may_not_read_ends_my_delivery(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    a = group.member("a", blocked_audit_s=2.0)
    path = znodes.owner_path(group.group, group.topic, 1)
    closed.replace(path, b"stranger-0")
    wait_until(lambda: (group.topic, 1) not in a.delivery.running, SOON_S, "the delivery to end", state=a.describe)
    assert len(a.owned()) == 3
    closed.delete(path)
    wait_for_share([a], group.topic, 4)


def test_an_owner_node_of_mine_that_a_hand_closes_is_delivered_and_given_back_when_it_can_be_read(
    client: KazooClient, closed: ClosedNodes, group: Group
) -> None:
    a = group.member("a", audit_s=2.0)
    kept = a.owned()
    paths = [znodes.owner_path(group.group, group.topic, number) for number in range(4)]
    for path in paths:
        closed.close(path)
    looked = {partition: a.coordinator.partitions[partition].looked_at for partition in kept}
    entries = a.coordinator.partitions
    wait_until(lambda: all(entries[each].looked_at > looked[each] for each in kept), SOON_S, "an audit")
    assert a.on_loop(a.owned) == kept
    b = group.member("b", blocked_audit_s=2.0)
    wait_until(lambda: len(a.delivery.running) == 2, SOON_S, "half to be drained", state=a.describe)
    for path in paths:
        closed.open(path)
    wait_for_share([a, b], group.topic, 4)
    assert group.history.overlaps() == []


def test_an_owner_node_that_may_not_be_created_is_named_and_claimed_when_it_may_be(
    client: KazooClient, closed: ClosedNodes, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    parent = znodes.owners_path(group.group, group.topic)
    client.ensure_path(parent)
    closed.close(parent)
    a = group.member("a", settle_s=None, audit_s=2.0)
    path = znodes.owner_path(group.group, group.topic, 0)
    named(a, path)
    assert unmade(path) in a.coordinator.warnings
    closed.open(parent)
    wait_for_share([a], group.topic, 4)
    assert not a.coordinator.warnings
    assert [record.getMessage() for record in caplog.records].count(unmade(path)) == 1


# -- offset nodes ------------------------------------------------------------------------------------------------------


def test_an_offset_that_may_not_be_read_holds_up_its_partition_alone_and_is_named_once(
    client: KazooClient, closed: ClosedNodes, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    path = znodes.offset_path(group.group, group.topic, 2)
    client.ensure_path(znodes.offsets_path(group.group, group.topic))
    client.create(path, b"7")
    closed.close(path)
    a = group.member("a", settle_s=None)
    wait_until(lambda: len(a.owned()) == 3, SOON_S, "the others", state=a.describe)
    wait_until(lambda: a.offsets.refused, SOON_S, "word of it")
    assert a.offsets.refused == {(group.topic, 2): f"its offset cannot be read: {unread(path)}"}
    closed.open(path)
    wait_for_share([a], group.topic, 4)
    assert a.offsets.refused == {}
    assert [own.offset for own in group.history.of(a.name, (group.topic, 2))] == [7]
    assert len([each for each in caplog.records if "cannot be read" in each.getMessage()]) == 1
