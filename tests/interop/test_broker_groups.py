"""Groups that brokers coordinate, with real brokers: shared topics, handovers, what moves, what a restart costs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from broker_groups import (
    Running,
    SlowMember,
    repeated,
    stored,
    wait_owned,
    wait_read,
    wait_shares,
    wait_stored,
)

from zkconsumer.testing import load
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "3.9.2"))]  # fmt: skip
AT_ONCE_S = 12.0
"""Generous for what waits for no session, and less than a session."""


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """Four partitions with fifty messages each."""
    name = fresh_topic()
    cluster.create_topic(name, 4)
    load(cluster, name, 50)
    return name


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_join_share_and_leave_without_a_repeat_and_without_waiting_for_a_session(
    cluster: KafkaCluster, fresh_group: str, topic: str, assignor: str
) -> None:
    chosen = {"partition_assignment_strategy": assignor}
    with Running(cluster, fresh_group, topic, **chosen) as a:
        wait_owned(a, [(topic, number) for number in range(4)])
        wait_read([a], 200)
        with Running(cluster, fresh_group, topic, **chosen) as b:
            wait_shares([a, b], 2, 2)
            load(cluster, topic, 50, first=50)
            wait_read([a, b], 400)
            assert b.leave() == {}
            wait_shares([a], 4, timeout_s=AT_ONCE_S)
            load(cluster, topic, 50, first=100)
            wait_read([a, b], 600)
            assert repeated([a, b]) == []
            assert b.reader.messages
        assert a.leave() == {}
        assert stored(cluster, fresh_group, topic, range(4)) == [150] * 4


def test_with_the_cooperative_protocol_what_is_kept_is_delivered_while_the_group_is_assigned_anew(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    chosen = {"partition_assignment_strategy": "cooperative-sticky"}
    with Running(cluster, fresh_group, topic, **chosen) as a:
        wait_read([a], 200)
        slow = SlowMember(cluster, fresh_group, topic, "cooperative-sticky", 1)
        slow.join()
        wait_owned_count(a, 2)
        wait_until(lambda: slow.has_come_to_rest(a, 2), 30, "the second round to be over")
        kept = a.owned
        told_before = len(a.told.events)
        joined: list[Running] = []
        joining = threading.Thread(target=lambda: joined.append(Running(cluster, fresh_group, topic, **chosen)))
        joining.start()
        wait_until(slow.is_asked_to_rejoin, 15, "the group to be assigned anew")
        wait_until(lambda: a.connector.status().state in ("joining", "giving back"), 15, "the member to join again")
        load(cluster, topic, 50, first=50)
        wait_read([a], 200 + 50 * len(kept))  # the group still waits for the slow member
        assert slow.is_asked_to_rejoin()
        assert a.told.events[told_before:] == []
        slow.leave()
        joining.join(30)
        [b] = joined
        with b:
            wait_shares([a, b], 2, 2)
            assert set(a.owned) == set(kept)
            assert a.told.all("revoked", told_before) == a.told.all("lost") == []
            wait_read([a, b], 400)
            assert repeated([a, b]) == []
        slow.close()


def wait_owned_count(member: Running, count: int) -> None:
    """Return when a member delivers so many partitions."""
    wait_until(lambda: len(member.owned) == count, 30, f"{count} partitions", state=lambda: member.connector.status())


def test_with_the_cooperative_protocol_the_listener_sees_what_moves_and_nothing_else(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    chosen = {"partition_assignment_strategy": "cooperative-sticky"}
    everything = [(topic, number) for number in range(4)]
    with Running(cluster, fresh_group, topic, **chosen) as a:
        wait_owned(a, everything)
        assert a.told.all("assigned") == everything
        since = len(a.told.events)
        with Running(cluster, fresh_group, topic, **chosen) as b:
            wait_shares([a, b], 2, 2)
            moved = sorted(b.owned)
            assert a.told.events[since:] == [("revoked", frozenset(moved))]
            assert b.told.all("assigned") == moved
            since = len(a.told.events)
        wait_owned(a, everything)
        assert a.told.events[since:] == [("assigned", frozenset(moved))]
        assert repeated([a, b]) == []


def test_with_an_eager_assignor_everything_is_revoked_before_it_is_assigned_anew(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    everything = [(topic, number) for number in range(4)]
    with Running(cluster, fresh_group, topic) as a:
        wait_owned(a, everything)
        since = len(a.told.events)
        with Running(cluster, fresh_group, topic) as b:
            wait_shares([a, b], 2, 2)
            assert a.told.all("revoked", since) == everything
            assert a.told.all("assigned", since) == a.owned == everything[:2] or a.owned == everything[2:]
            assert a.told.all("lost") == b.told.all("lost") == []


def test_a_member_of_a_group_finds_what_the_last_one_has_committed(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with Running(cluster, fresh_group, topic) as a:
        wait_read([a], 200)
    assert stored(cluster, fresh_group, topic, range(4)) == [50] * 4
    load(cluster, topic, 10, first=50)
    with Running(cluster, fresh_group, topic, auto_offset_reset="largest") as b:
        assert b.told.starts == {(topic, number): 50 for number in range(4)}
        wait_read([b], 40)
        assert repeated([a, b]) == []


def test_the_streams_of_a_member_share_its_partitions(cluster: KafkaCluster, fresh_group: str, topic: str) -> None:
    with Running(cluster, fresh_group, topic, streams=2) as a:
        wait_owned(a, [(topic, number) for number in range(4)])
        by_thread = [each.thread_id for each in a.connector.status().owned]
        assert sorted(by_thread.count(each.thread_id) for each in a.streams) == [2, 2]
        wait_read([a], 200)
        with Running(cluster, fresh_group, topic, streams=3) as b:
            wait_shares([a, b], 2, 2)
            assert len({each.thread_id for each in a.connector.status().owned}) == 2
            assert len({each.thread_id for each in b.connector.status().owned}) == 2
            load(cluster, topic, 50, first=50)
            wait_read([a, b], 400)
        assert repeated([a, b]) == []


def test_the_status_and_the_statistics_say_what_the_member_does(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with Running(cluster, fresh_group, topic, consumer_id="billing-1") as a:
        wait_read([a], 200)
        wait_stored(cluster, fresh_group, topic, [50] * 4)
        status = a.connector.status()
        assert status.consumer_id == a.connector.consumer_id
        assert (status.state, status.error, status.warnings, status.blocked) == ("stable", None, (), ())
        assert status.generation == 1
        assert len(status.registrations) == 1
        assert status.session_timeout_s == 20.0
        assert status.lease_age_s is not None
        assert status.lease_age_s < 20.0
        assert [(each.partition, each.position, each.log_end, each.lag) for each in status.owned] == [
            (number, 50, 50, 0) for number in range(4)
        ]
        with Running(cluster, fresh_group, topic) as b:
            wait_shares([a, b], 2, 2)
            assert len(a.connector.status().registrations) == 2  # it leads
            assert len(b.connector.status().registrations) == 1
            assert a.connector.status().generation == b.connector.status().generation > 1
        figures = a.connector.statistics()
        assert figures.group == fresh_group
        assert figures.rebalances.count >= 2
        assert figures.zookeeper_requests == {}
        asked = figures.broker_requests
        wanted = ["find_coordinator", "join_group", "sync_group", "heartbeat", "offset_fetch", "offset_commit"]
        assert {name: asked.get(name, 0) > 0 for name in wanted} == dict.fromkeys(wanted, True)
        assert figures.errors == {}
    assert a.connector.status().state == "closed"


def test_a_static_member_that_is_back_in_time_has_its_partitions_again_and_nobody_is_disturbed(
    cluster: KafkaCluster, fresh_group: str, topic: str
) -> None:
    if version_tuple(cluster.version) < (2, 3):
        pytest.skip("static members need Kafka 2.3")
    with Running(cluster, fresh_group, topic) as other:
        with Running(cluster, fresh_group, topic, group_instance_id="one") as first:
            wait_shares([first, other], 2, 2)
            wait_read([first, other], 200)
            mine, since = first.owned, len(other.told.events)
            generation = other.connector.status().generation
        load(cluster, topic, 50, first=50)
        with Running(cluster, fresh_group, topic, group_instance_id="one") as second:
            wait_owned(second, mine)  # type: ignore[arg-type]
            wait_read([first, second, other], 400)
            assert other.told.events[since:] == []
            assert other.connector.status().generation == generation
            assert repeated([first, second, other]) == []
