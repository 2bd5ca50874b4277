"""Streams of members of broker groups: filters, new partitions, pauses, commits, stuck applications, asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from broker_groups import (
    Running,
    SlowMember,
    Told,
    config,
    repeated,
    stored,
    wait_owned,
    wait_read,
    wait_shares,
    wait_stored,
)

from rebalance.brokers.assignor import RebalanceProtocol, Subscriptions
from rebalance.brokers.consumer_protocol import Assignment
from zkconsumer import (
    CommitFailed,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerTimeout,
    Message,
    TopicPartition,
    Whitelist,
)
from zkconsumer.aio import AsyncConsumerConnector
from zkconsumer.testing import load
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "3.9.2"))]  # fmt: skip


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with fifty messages each."""
    name = fresh_topic()
    cluster.create_topic(name, 2)
    load(cluster, name, 50)
    return name


# -- names -------------------------------------------------------------------------------------------------------------


def test_the_group_has_any_name_that_brokers_take(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    group = f"team/{fresh_group}: grüße"
    with Running(cluster, group, topic) as one, Running(cluster, group, topic) as other:
        wait_shares([one, other], 1, 1)
        wait_read([one, other], 100)
    assert not repeated([one, other])
    assert stored(cluster, group, topic, [0, 1]) == [50, 50]


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_a_filter_picks_up_a_new_topic_from_its_start_and_those_that_do_not_match_never(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    prefix = fresh_topic()
    cluster.create_topic(f"{prefix}-a", 1)
    cluster.create_topic(f"other-{prefix}", 1)
    load(cluster, f"{prefix}-a", 20)
    with Running(cluster, fresh_group, Whitelist(f"{prefix}-.*"), auto_offset_reset="largest") as a:
        wait_owned(a, [(f"{prefix}-a", 0)])
        cluster.create_topic(f"{prefix}-b", 1)
        load(cluster, f"{prefix}-b", 20)
        wait_owned(a, [(f"{prefix}-a", 0), (f"{prefix}-b", 0)])
        wait_read([a], 20)
        assert {(each.topic, each.offset) for each in a.reader.messages} == {(f"{prefix}-b", at) for at in range(20)}


@pytest.mark.catalogue("H1")
def test_partitions_that_are_added_are_read_from_their_start_by_leader_and_follower(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    chosen = {"auto_offset_reset": "largest"}
    with Running(cluster, fresh_group, topic, **chosen) as a, Running(cluster, fresh_group, topic, **chosen) as b:
        wait_shares([a, b], 1, 1)
        cluster.add_partitions(topic, 6)
        load(cluster, topic, 20, partitions=[2, 3, 4, 5])
        wait_shares([a, b], 3, 3)
        wait_read([a, b], 80)
        starts = a.told.starts | b.told.starts
        assert {starts[topic, number] for number in (2, 3, 4, 5)} == {0}
        assert repeated([a, b]) == []


@pytest.mark.catalogue("H2")
def test_a_topic_that_does_not_exist_yet_is_read_from_its_start_when_it_does(
    cluster: KafkaCluster, fresh_group: str, topic: str, fresh_topic: Callable[[], str]
) -> None:
    later = fresh_topic()
    with Running(cluster, fresh_group, {topic: 1, later: 1}, auto_offset_reset="largest") as a:
        wait_owned(a, [(topic, 0), (topic, 1)])
        assert a.connector.status().warnings == (f"topic {later} does not exist yet; waiting for it",)
        cluster.create_topic(later, 1)
        load(cluster, later, 20)
        wait_read([a], 20)
        assert {each.topic for each in a.reader.messages} == {later}
        assert a.connector.status().warnings == ()


def test_a_member_of_no_topic_that_exists_joins_all_the_same_and_gets_it_later(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    later = fresh_topic()
    with Running(cluster, fresh_group, later) as a:
        assert a.connector.status().state == "stable"
        cluster.create_topic(later, 2)
        load(cluster, later, 10)
        wait_read([a], 20)


# -- pauses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_paused_partition_stays_owned_and_goes_on_at_its_next_message(
    cluster: KafkaCluster, fresh_group: str, topic: str, assignor: str
) -> None:
    zero = TopicPartition(topic, 0)
    with Running(cluster, fresh_group, topic, partition_assignment_strategy=assignor) as a:
        wait_read([a], 100)
        a.connector.pause([zero])
        load(cluster, topic, 50, first=50)
        wait_read([a], 150)
        assert a.connector.paused() == {zero}
        assert [(each.partition, each.paused) for each in a.connector.status().owned] == [(0, True), (1, False)]
        wait_stored(cluster, fresh_group, topic, [50, 100])
        a.connector.resume([zero])
        wait_read([a], 200)
        assert repeated([a]) == []


# -- commits -----------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("E8")
def test_without_auto_commit_only_commit_offsets_stores_and_the_next_member_goes_on_there(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    manual = {"auto_commit_enable": False}
    with Running(cluster, fresh_group, topic, **manual) as a:
        wait_read([a], 100)
        a.connector.commit_offsets({TopicPartition(topic, 0): 20})
        assert stored(cluster, fresh_group, topic, [0, 1]) == [20, -1]
        a.connector.commit_offsets({TopicPartition(topic, 0): 10})  # an explicit commit may lower it
        assert a.leave() == {}
    assert stored(cluster, fresh_group, topic, [0, 1]) == [10, -1]
    with Running(cluster, fresh_group, topic, **manual) as b:
        assert b.told.starts == {(topic, 0): 10, (topic, 1): 0}
        wait_read([b], 90)


def test_a_commit_of_what_is_not_owned_is_refused_and_named(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with Running(cluster, fresh_group, topic) as a, pytest.raises(CommitFailed, match="elsewhere"):
        a.connector.commit_offsets({TopicPartition("elsewhere", 0): 1})


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_the_listener_commits_what_is_revoked(
    cluster: KafkaCluster, fresh_group: str, topic: str, assignor: str
) -> None:
    chosen = {"auto_commit_enable": False, "partition_assignment_strategy": assignor}
    commits: list[Callable[[], None]] = []
    told = Told(lambda _: commits[0]())
    with Running(cluster, fresh_group, topic, told=told, **chosen) as a:
        commits.append(a.connector.commit_offsets)
        wait_read([a], 100)
        with Running(cluster, fresh_group, topic, **chosen) as b:
            wait_shares([a, b], 1, 1)
            [moved] = b.owned
            assert b.told.starts[moved] == 50
            assert repeated([a, b]) == []
    assert -1 not in stored(cluster, fresh_group, topic, [0, 1])


@pytest.fixture
def waiting(cluster: KafkaCluster, fresh_group: str, topic: str) -> Iterator[tuple[Running, SlowMember]]:
    """A member that has read all of one partition, and joins again; its group waits for a slow member."""
    chosen = {"auto_commit_interval_ms": 600_000, "partition_assignment_strategy": "cooperative-sticky"}
    with Running(cluster, fresh_group, topic, **chosen) as a:
        wait_read([a], 100)
        slow = SlowMember(cluster, fresh_group, topic, "cooperative-sticky", 1)
        slow.join()
        wait_until(lambda: len(a.owned) == 1, 30, "one partition to move")
        wait_until(lambda: slow.has_come_to_rest(a, 1), 30, "the group to rest")
        joining = threading.Thread(target=lambda: joined.append(Running(cluster, fresh_group, topic, **chosen)))
        joined: list[Running] = []
        joining.start()
        wait_until(slow.is_asked_to_rejoin, 15, "the group to be assigned anew")
        wait_until(lambda: a.connector.status().state == "joining", 15, "the member to join again")
        yield a, slow
        slow.leave()
        joining.join(30)
        for each in joined:
            each.leave()
        slow.close()


def test_a_commit_in_the_middle_of_a_cooperative_rebalance_is_stored_at_once(
    cluster: KafkaCluster, fresh_group: str, topic: str, waiting: tuple[Running, SlowMember]
) -> None:
    a, slow = waiting
    [kept] = [TopicPartition(name, int(number)) for name, number in a.owned]
    a.connector.commit_offsets({kept: 33})
    assert stored(cluster, fresh_group, topic, [kept.partition]) == [33]
    assert slow.is_asked_to_rejoin(), "the group still waits"


@pytest.mark.catalogue("I3")
def test_a_member_that_leaves_in_the_middle_of_a_cooperative_rebalance_stores_what_it_has_done(
    cluster: KafkaCluster, fresh_group: str, topic: str, waiting: tuple[Running, SlowMember]
) -> None:
    a, slow = waiting
    load(cluster, topic, 10, first=50)
    wait_read([a], 110)
    [(_, kept)] = a.owned
    assert a.leave() == {}
    assert stored(cluster, fresh_group, topic, [int(kept)]) == [60]
    assert slow.is_asked_to_rejoin(), "the group still waits"


# -- applications that are stuck ---------------------------------------------------------------------------------------


@pytest.mark.catalogue("J3")
def test_others_take_over_from_a_stuck_application_and_it_comes_back_when_it_goes_on(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    chosen = {"consumer_timeout_ms": 1500, "rebalance_timeout_ms": 4000}
    stuck_config = config(cluster, fresh_group, max_processing_interval_ms=1000, **chosen)
    with ConsumerConnector(stuck_config) as stuck:
        [stream] = stuck.create_message_streams({topic: 1})[topic]
        in_hand = next(stream)
        with Running(cluster, fresh_group, topic, **chosen) as spare:
            wait_owned(spare, [(topic, 0), (topic, 1)])
            assert stuck.status().state == "out"
            wait_read([spare], 100)
            assert in_hand.value in {each.value for each in spare.reader.messages}
            with pytest.raises(ConsumerTimeout):
                next(stream)  # asking again is what brings the stuck member back
            wait_until(lambda: len(stuck.status().owned) == 1, 20, "the member to have a share again")
            wait_until(lambda: len(spare.owned) == 1, 20, "the spare member to have given one back")
            assert repeated([spare]) == []


# -- assignors of one's own --------------------------------------------------------------------------------------------


class OneTakesAll:
    """The first member by name gets everything."""

    name = "one-takes-all"
    supported_protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []

    def subscription_user_data(self, topics: Any) -> bytes | None:
        return b"mine"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> Mapping[str, Sequence[tuple[str, int]]]:
        assert {each.user_data for each in subscriptions.values()} == {b"mine"}
        first = min(subscriptions)
        return {first: [(topic, number) for topic, count in partitions_per_topic.items() for number in range(count)]}

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self.given.append((generation, len(assignment.partitions)))


def test_an_assignor_of_ones_own_assigns_for_the_whole_group(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    mine, others = OneTakesAll(), OneTakesAll()
    with (
        Running(cluster, fresh_group, topic, partition_assignment_strategy=(mine,)) as a,
        Running(cluster, fresh_group, topic, partition_assignment_strategy=(others,)) as b,
    ):
        wait_shares([a, b], 2, 0)
        assert sorted((mine.given[-1][1], others.given[-1][1])) == [0, 2]
        assert mine.given[-1][0] == others.given[-1][0] == a.connector.status().generation


# -- asyncio -----------------------------------------------------------------------------------------------------------


def test_asynchronous_members_share_a_topic(cluster: KafkaCluster, fresh_group: str, topic: str) -> None:
    async def read(connector: AsyncConsumerConnector, into: list[Message]) -> None:
        [stream] = (await connector.create_message_streams({topic: 1}))[topic]
        async for message in stream:
            into.append(message)

    async def main() -> None:
        found: list[Message] = []
        async with asyncio.timeout(60):
            async with AsyncConsumerConnector(config(cluster, fresh_group, consumer_timeout_ms=-1)) as a:
                reading = asyncio.create_task(read(a, found))
                while len(found) < 100:
                    await asyncio.sleep(0.01)
                async with AsyncConsumerConnector(config(cluster, fresh_group, consumer_timeout_ms=-1)) as b:
                    other = asyncio.create_task(read(b, found))
                    while [len((await each.status()).owned) for each in (a, b)] != [1, 1]:
                        await asyncio.sleep(0.05)
                    await asyncio.to_thread(load, cluster, topic, 50, first=50)
                    while len(found) < 200:
                        await asyncio.sleep(0.01)
                await other
            await reading
        assert len({(each.partition, each.offset) for each in found}) == len(found) == 200

    asyncio.run(main())
    assert stored(cluster, fresh_group, topic, [0, 1]) == [100, 100]


# -- from a group in ZooKeeper -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.9.0.1", "1.1.1", "2.8.2", "3.9.2"])
def test_a_group_of_brokers_goes_on_where_a_group_in_zookeeper_has_stored_in_kafka(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    old, topic = kafka_clusters(version, 1), fresh_topic()
    old.create_topic(topic, 2)
    load(old, topic, 30)
    in_zookeeper = ConsumerConfig(
        old.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=1000,
        offsets_storage="kafka", dual_commit_enabled=False,
    )  # fmt: skip
    with ConsumerConnector(in_zookeeper) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        before = [next(stream) for _ in range(40)]
    with Running(old, fresh_group, topic, auto_offset_reset="largest") as member:
        wait_read([member], 20)
        wait_stored(old, fresh_group, topic, [30, 30])
        after = [(each.partition, each.offset) for each in member.reader.messages]
    assert sorted([*((each.partition, each.offset) for each in before), *after]) == [
        (partition, at) for partition in (0, 1) for at in range(30)
    ]
