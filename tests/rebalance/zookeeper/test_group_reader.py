"""The group as it is read from a real ZooKeeper: nothing twice, and nothing that changed unnoticed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from members import create_topic
from reading import Reading, closed_to_readers, join, leave

from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.group_reader import MOST_DOUBTED
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData
from rebalance.zookeeper.snapshot import GroupSnapshot, OwnerNode, Strategy
from rebalance.zookeeper.znodes import format_registration
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture(autouse=True)
def list_of_members(client: KazooClient, fresh_group: str) -> None:
    client.ensure_path(znodes.ids_path(fresh_group))


@pytest.fixture
def topic(client: KazooClient, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    create_topic(client, name, 2)
    return name


# -- what a read costs --------------------------------------------------------------------------------------------


def test_the_first_read_asks_for_everything_and_the_next_for_the_list_of_members_only(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    for number in range(5):
        join(client, reading.group, f"m{number}", Subscription.static({topic: 1}))
    assert len(reading.read().members) == 5
    assert reading.asked == Counter({GetData: 6, GetChildren: 1})
    again = reading.read()
    assert reading.asked == Counter({GetChildren: 1})
    assert len(again.members) == 5
    assert again.topics[topic].partitions == (0, 1)


def test_a_join_costs_the_list_and_the_new_ones_data_and_a_leave_the_list_alone(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    for number in range(5):
        join(client, reading.group, f"m{number}", Subscription.static({topic: 1}))
    first = reading.read()
    join(client, reading.group, "new", Subscription.static({topic: 3}))
    reading.changed(znodes.ids_path(reading.group))
    second = reading.read()
    assert reading.asked == Counter({GetChildren: 1, GetData: 1})
    assert second.members["new"].streams_of(topic) == 3
    assert second.group_version > first.group_version
    leave(client, reading.group, "m2")
    reading.changed(znodes.ids_path(reading.group))
    assert "m2" not in reading.read().members
    assert reading.asked == Counter({GetChildren: 1})


def test_a_fixed_id_that_registers_anew_with_another_subscription_is_noticed(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    join(client, reading.group, "fixed", Subscription.static({topic: 1}))
    join(client, reading.group, "other", Subscription.static({topic: 1}))
    reading.read()
    leave(client, reading.group, "fixed")
    join(client, reading.group, "fixed", Subscription.static({topic: 4}))
    assert reading.read().members["fixed"].streams_of(topic) == 4
    # Also when another join hides the difference in the number of members.
    leave(client, reading.group, "fixed")
    join(client, reading.group, "fixed", Subscription.static({topic: 5}))
    leave(client, reading.group, "other")
    assert reading.read().members["fixed"].streams_of(topic) == 5


@pytest.mark.catalogue("B4")
def test_a_burst_of_changes_is_told_once_until_it_was_read(client: KazooClient, reading: Reading, topic: str) -> None:
    reading.read()
    for number in range(20):
        join(client, reading.group, f"m{number:02}", Subscription.static({topic: 1}))
    reading.changed(znodes.ids_path(reading.group))
    assert reading.changes == []
    assert len(reading.read().members) == 20


# -- odd members --------------------------------------------------------------------------------------------------


def test_unreadable_and_untranslatable_members_are_named_and_stop_nothing(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    join(client, reading.group, "good", Subscription.static({topic: 1}))
    client.create(znodes.registration_path(reading.group, "bad"), b"topic1", ephemeral=True)
    client.create(
        znodes.registration_path(reading.group, "odd"),
        b'{"version":1,"subscription":{"(?<=a)\\\\p{javaMirrored}++":1},"pattern":"white_list"}',
        ephemeral=True,
    )
    snapshot = reading.read()
    assert set(snapshot.members) == {"good"}
    assert set(snapshot.unreadable) == {"bad"}
    assert set(snapshot.untranslatable) == {"odd"}
    reading.read()
    assert reading.asked == Counter({GetChildren: 1}), "read once, though unreadable"


def test_a_registration_that_is_created_empty_and_filled_then_is_read_again(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    path = znodes.registration_path(reading.group, "k1")  # kafka-node 3.0.1 does so
    client.create(path, b"", ephemeral=True)
    assert set(reading.read().unreadable) == {"k1"}
    reading.changes.clear()
    client.set(path, b'{"version":1,"subscription":{"%s": 1},"pattern":"white_list"}' % topic.encode())
    reading.changed(path)
    snapshot = reading.read()
    assert snapshot.members["k1"].streams_of(topic) == 1
    assert snapshot.unreadable == {}
    reading.read()
    assert reading.asked == Counter({GetChildren: 1}), "read once it is readable, and not again"


@pytest.mark.catalogue("B5")
def test_members_that_vanish_between_the_list_and_the_read_are_no_failure(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    join(client, reading.group, "stays", Subscription.static({topic: 1}))
    stop = threading.Event()

    def flap() -> None:
        while not stop.is_set():
            join(client, reading.group, "flaps", Subscription.static({topic: 2}))
            leave(client, reading.group, "flaps")

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        for _ in range(60):
            assert "stays" in reading.read().members
    finally:
        stop.set()
        thread.join(10.0)
    join(client, reading.group, "flaps", Subscription.static({topic: 7}))
    assert reading.read().members["flaps"].streams_of(topic) == 7


# -- topics -------------------------------------------------------------------------------------------------------


def test_partitions_added_are_noticed(client: KazooClient, reading: Reading, topic: str) -> None:
    reading.read()
    create_topic(client, topic, 5)
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == (0, 1, 2, 3, 4)
    assert reading.asked == Counter({GetChildren: 1, GetData: 1})


def test_a_topic_created_later_deleted_and_created_again_is_noticed_each_time(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    reading = Reading(zookeeper.connect, fresh_group, Subscription.static({name: 1}))
    assert name not in reading.read().topics
    assert reading.asked[Exists] == 1
    lives = []
    for count in (1, 2):
        create_topic(client, name, count)
        reading.changed(znodes.topic_path(name))
        node = reading.read().topics[name]
        lives.append(node.incarnation)
        assert len(node.partitions) == count
        client.delete(znodes.topic_path(name))
        reading.changed(znodes.topic_path(name))
        assert name not in reading.read().topics
    assert lives[0] < lives[1]
    reading.asker.close()


def test_an_unreadable_topic_has_no_partitions_and_stops_nothing(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    client.set(znodes.topic_path(topic), b"nonsense")
    assert reading.read().topics[topic].partitions == ()
    create_topic(client, topic, 2)
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == (0, 1)


def test_a_filter_follows_the_topics_that_come_and_go(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    prefix = fresh_topic()
    reading = Reading(zookeeper.connect, fresh_group, Subscription.white_list(f"{prefix}.*", 1))
    assert reading.read().topics == {}
    create_topic(client, f"{prefix}.a", 1)
    reading.changed(znodes.TOPICS)
    snapshot = reading.read()
    assert set(snapshot.topics) == {f"{prefix}.a"}
    assert f"{prefix}.a" in (snapshot.known_topics or ())
    create_topic(client, f"{prefix}.b", 1)
    reading.changed(znodes.TOPICS)
    assert set(reading.read().topics) == {f"{prefix}.a", f"{prefix}.b"}
    assert reading.asked[GetData] == 1, "the first topic is known"
    client.delete(znodes.topic_path(f"{prefix}.a"))
    reading.changed(znodes.TOPICS)
    assert set(reading.read().topics) == {f"{prefix}.b"}
    reading.asker.close()


def test_round_robin_asks_for_the_topics_once_though_many_members_have_filters(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, topic: str
) -> None:
    for number in range(10):
        join(client, fresh_group, f"m{number}", Subscription.white_list("nothing-at-all", 1))
    reading = Reading(zookeeper.connect, fresh_group, Subscription.static({topic: 1}), Strategy("roundrobin"))
    snapshot = reading.read()
    assert topic in (snapshot.known_topics or ())
    assert reading.asked[GetChildren] == 2
    reading.asker.close()


@pytest.fixture
def owner_reading(zookeeper: ZooKeeperServer, fresh_group: str, topic: str) -> Iterator[Reading]:
    """A reader that is asked for the owner nodes in every read."""
    reading = Reading(
        zookeeper.connect,
        fresh_group,
        Subscription.static({topic: 1}),
        Strategy("roundrobin"),
        needs_owners=lambda _: True,
    )
    yield reading
    reading.asker.close()


def test_owner_nodes_are_read_with_the_members_that_wrote_their_registration_once(
    client: KazooClient, owner_reading: Reading, topic: str
) -> None:
    group = owner_reading.group
    for name in ("java", "ours"):
        join(client, group, name, Subscription.static({topic: 1}))
    client.set(znodes.registration_path(group, "ours"), client.get(znodes.registration_path(group, "ours"))[0])
    assert owner_reading.read().owners == {}
    for partition, thread in enumerate((b"java-0", b"ours-0")):
        client.create(znodes.owner_path(group, topic, partition), thread, ephemeral=True, makepath=True)
    for stray in ("2", "01", "x"):  # no partitions of the topic
        client.create(f"{znodes.owners_path(group, topic)}/{stray}", b"java-0", ephemeral=True)
    snapshot = owner_reading.read()
    assert snapshot.java_members == {"java"}
    czxids = [client.exists(znodes.owner_path(group, topic, each)).czxid for each in (0, 1)]
    assert snapshot.owners == {(topic, 0): OwnerNode("java-0", czxids[0]), (topic, 1): OwnerNode("ours-0", czxids[1])}
    assert snapshot.group_version < min(czxids)


def test_a_registration_that_was_read_between_its_creation_and_its_second_write_is_read_again(
    client: KazooClient, owner_reading: Reading, topic: str
) -> None:
    """On ZooKeeper 3.3 a member of this client registers in two steps."""
    path = znodes.registration_path(owner_reading.group, "ours")
    join(client, owner_reading.group, "ours", Subscription.static({topic: 1}))
    assert owner_reading.read().java_members == {"ours"}
    client.set(path, client.get(path)[0])
    assert owner_reading.read().java_members == set()


def test_one_owner_node_that_may_not_be_read_hides_the_others(
    client: KazooClient, owner_reading: Reading, topic: str
) -> None:
    for partition in (0, 1):
        client.create(znodes.owner_path(owner_reading.group, topic, partition), b"java-0", makepath=True)
    assert owner_reading.read().owners is not None
    with closed_to_readers(client, znodes.owner_path(owner_reading.group, topic, 1)):
        assert owner_reading.read().owners is None


def test_what_an_audit_doubts_is_read_again_ten_topics_at_a_time_and_all_in_their_turn(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    prefix = fresh_topic()
    names = [f"{prefix}.{number:02}" for number in range(MOST_DOUBTED + 3)]
    for name in names:
        create_topic(client, name, 1)
    reading = Reading(zookeeper.connect, fresh_group, Subscription.white_list(f"{prefix}.*", 1))
    reading.read()
    again: list[str] = []
    for _ in range(2):
        reading.asker.on_loop(reading.reader.doubt)
        before = len(reading.asker.sent)
        reading.read()
        assert reading.asked[GetChildren] == 2
        again += [each.path for each in reading.asker.sent[before:] if isinstance(each, GetData)]
    assert sorted(again) == [znodes.topic_path(name) for name in names]
    # The watches that were armed twice fire once, and still do.
    reading.changes.clear()
    create_topic(client, names[0], 2)
    reading.changed(znodes.topic_path(names[0]))
    assert reading.read().topics[names[0]].partitions == (0, 1)
    reading.asker.close()


# -- the connection -----------------------------------------------------------------------------------------------


@pytest.mark.catalogue("K5")
def test_after_a_lost_connection_everything_is_read_again_with_new_watches(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, topic: str
) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        reading = Reading(proxy.address, fresh_group, Subscription.static({topic: 1}))
        reading.read()
        proxy.drop()
        wait_until(lambda: len(reading.asker.changes) >= 3, 10.0, "the way back")
        reading.asker.connected()
        reading.asker.on_loop(reading.reader.forget_watches)
        reading.read()
        assert reading.asked == Counter({GetChildren: 1, GetData: 1})
        create_topic(client, topic, 3)
        reading.changed(znodes.topic_path(topic))
        reading.asker.close()


def test_registrations_of_a_zookeeper_that_lost_its_data_are_read_again_though_the_list_is_the_same(
    fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic, path = fresh_topic(), znodes.registration_path(fresh_group, "b")

    def register(streams: int) -> None:
        client = KazooClient(server.connect)
        client.start()
        data = format_registration(Subscription.static({topic: streams}).to_registration(1))
        client.create(path, data, makepath=True)
        client.stop()
        client.close()

    with ZooKeeperServer() as server:
        register(streams=1)
        # Twice the session time-out passes before the client lets go of what it has seen of the lost data.
        reading = Reading(server.connect, fresh_group, Subscription.static({topic: 1}), session_s=3.0)
        assert reading.read().members["b"] == Subscription.static({topic: 1})
        first = reading.asker.session_id
        server.wipe()
        register(streams=2)
        wait_until(lambda: reading.asker.changes[-1].session_id not in (0, first), 40.0, "another session")
        reading.asker.on_loop(reading.reader.forget_watches)
        reading.asker.on_loop(reading.reader.session_over)
        assert reading.read().members["b"] == Subscription.static({topic: 2})
        reading.asker.close()


def test_a_read_that_a_lost_connection_ends_says_so(zookeeper: ZooKeeperServer, fresh_group: str, topic: str) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        reading = Reading(proxy.address, fresh_group, Subscription.static({topic: 1}))
        proxy.stall("down")
        outcomes: list[tuple[GroupSnapshot | None, str]] = []
        reading.asker.on_loop(lambda: reading.reader.read(lambda *outcome: outcomes.append(outcome)))
        proxy.drop()
        proxy.clear()
        wait_until(lambda: outcomes, 10.0, "word")
        assert outcomes[0][0] is None
        assert znodes.ids_path(fresh_group) in outcomes[0][1] or topic in outcomes[0][1]
        reading.asker.close()


def test_a_later_read_makes_an_earlier_one_fall_silent_and_trusts_nothing_of_it(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    join(client, reading.group, "m", Subscription.static({topic: 1}))
    first: list[object] = []
    second: list[tuple[GroupSnapshot | None, str]] = []

    def both() -> None:
        reading.reader.read(lambda *outcome: first.append(outcome))
        reading.reader.read(lambda *outcome: second.append(outcome))

    reading.asker.on_loop(both)
    wait_until(lambda: second, 5.0, "the second")
    assert first == []
    snapshot = second[0][0]
    assert snapshot is not None
    assert set(snapshot.members) == {"m"}
    assert topic in snapshot.topics


def test_a_missing_list_of_members_is_a_failure_with_its_path(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, topic: str
) -> None:
    reading = Reading(zookeeper.connect, f"{fresh_group}-none", Subscription.static({topic: 1}))
    snapshot, reason = reading.asker.outcome(reading.reader.read)
    assert snapshot is None
    assert znodes.ids_path(f"{fresh_group}-none") in reason
    reading.asker.close()


def test_after_a_failure_nothing_that_was_on_its_way_counts_as_known(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, topic: str
) -> None:
    group = f"{fresh_group}-later"
    reading = Reading(zookeeper.connect, group, Subscription.static({topic: 1}))
    assert reading.asker.outcome(reading.reader.read)[0] is None
    client.ensure_path(znodes.ids_path(group))
    assert reading.read().topics[topic].partitions == (0, 1)
    reading.asker.close()
