"""Groups, request by request: who waits for whom, states, codes in each state, and their order.

The same tests run on embedded brokers and on real ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker_wire import Wire
from group_wire import GroupClient, find_coordinator

from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.cluster import VERSIONS
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
ALL = ("0.9", "0.10", "1.1", "2.8", "3.9", "4.3")
SELDOM = ("0.10", "1.1", "3.9")
REAL = [pytest.mark.real, pytest.mark.slow]
CLUSTERS = [
    *(pytest.param((each, EmbeddedCluster), id=each, marks=pytest.mark.slow if each in SELDOM else ()) for each in ALL),
    *(pytest.param((each, KafkaCluster), id=f"{each} real", marks=REAL) for each in ALL),
]
TOPIC = "clicks"
SETTINGS = {"group.min.session.timeout.ms": 100, "group.max.size": 3}
REAL_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1,
                 "offsets.topic.replication.factor": 1}  # fmt: skip
STATIC = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3, "OffsetCommit": 7, "OffsetFetch": 5}
NEWER = {"JoinGroup": 2}

Make = Callable[..., GroupClient]


@pytest.fixture(scope="module", params=CLUSTERS)
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster | KafkaCluster]]:
    generation, kind = request.param
    made: EmbeddedCluster | KafkaCluster
    if kind is EmbeddedCluster:
        made = EmbeddedCluster(generation=generation, zookeeper=False, settings=SETTINGS)
    else:
        made = KafkaCluster(VERSIONS[generation], settings=REAL_SETTINGS | SETTINGS)
    with made as running:
        running.create_topic(TOPIC, 2)
        port = running.port(min(running.brokers))
        find_coordinator(port)
        with GroupClient(port, "first") as tool:
            wait_until(lambda: tool.describe().code == 0, PATIENCE_S, "the coordinator to be ready")
        yield generation, running


@pytest.fixture
def cluster(clusters: tuple[str, EmbeddedCluster | KafkaCluster]) -> EmbeddedCluster | KafkaCluster:
    return clusters[1]


@pytest.fixture
def age(clusters: tuple[str, EmbeddedCluster | KafkaCluster]) -> str:
    return clusters[0]


@pytest.fixture
def member(cluster: EmbeddedCluster | KafkaCluster, age: str) -> Iterator[Make]:
    """Makes clients of one group of its own."""
    group, made = f"group-{uuid.uuid4().hex[:8]}", []

    def make(group: str = group, **more: Any) -> GroupClient:
        versions = {"JoinGroup": 0} if age == "0.9" else {}
        made.append(GroupClient(cluster.port(min(cluster.brokers)), group, more.pop("versions", versions), **more))
        return made[-1]

    yield make
    for each in made:
        each.wire.socket.close()


def two_stable(member: Make) -> tuple[GroupClient, GroupClient]:
    """Leader and follower."""
    ann, bob = member(), member()
    ann.enter()
    bob.send_join()
    wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
    assert ann.join().error_code == 0
    assert bob.joined().error_code == 0
    bob.send_sync()
    assert ann.sync({ann.member_id: b"a", bob.member_id: b"b"}) == (0, b"a")
    assert bob.synced() == (0, b"b")
    return ann, bob


def wait_stable(tool: GroupClient) -> None:
    """Real brokers answer SyncGroup a moment before the state is another one."""
    wait_until(lambda: tool.describe().state == "Stable", PATIENCE_S, "the group to be stable")


def completing(age: str) -> str:
    return "AwaitingSync" if age in ("0.9", "0.10", "0.11") else "CompletingRebalance"


class TestStates:
    def test_a_group_is_seen_in_each_state(self, member: Make, age: str) -> None:
        ann, bob, tool = member(), member(), member()
        assert tool.describe() == (0, "Dead", "", "", ())
        assert ann.join().members[0].member_id == ann.member_id
        found = tool.describe()
        assert found[:4] == (0, completing(age), "consumer", "")
        assert found.members == ((ann.member_id, b"", b""),)
        assert ann.sync({ann.member_id: b"all"}) == (0, b"all")
        wait_stable(tool)
        assert tool.describe() == (0, "Stable", "consumer", "range", ((ann.member_id, b"r", b"all"),))
        assert tool.listed()[1][tool.group] == "consumer"
        bob.send_join()
        wait_until(lambda: tool.describe().state == "PreparingRebalance", PATIENCE_S, "a rebalance")
        assert ann.leave() == 0
        assert bob.joined().leader == bob.member_id
        assert bob.leave() == 0
        left = tool.describe()
        assert left == ((0, "Dead", "", "", ()) if age == "0.9" else (0, "Empty", "consumer", "", ()))
        assert (tool.group in tool.listed()[1]) == (age != "0.9")

    def test_groups_are_listed_by_state(self, member: Make, age: str) -> None:
        if age not in ("2.8", "3.9", "4.3"):
            pytest.skip("ListGroups knows states from version 4 on")
        ann, tool = member(), member()
        ann.enter()
        wait_stable(tool)
        assert tool.listed_in("Stable")[ann.group] == "Stable"
        assert ann.group not in tool.listed_in("Empty", "Dead")
        assert ann.leave() == 0
        assert tool.listed_in("Empty", "Stable")[ann.group] == "Empty"
        assert tool.listed_in()[ann.group] == "Empty"

    def test_a_group_without_members_is_deleted_with_its_offsets(self, member: Make, age: str) -> None:
        if age in ("0.9", "0.10"):
            pytest.skip("DeleteGroups is there from 1.1 on")
        ann, tool = member(), member()
        assert tool.delete() == 69
        ann.enter()
        assert ann.commit(TOPIC, 5) == 0
        assert tool.delete() == 68
        assert ann.leave() == 0
        assert tool.committed(TOPIC) == (0, 5)
        assert tool.delete() == 0
        assert tool.committed(TOPIC) == (0, -1)
        assert tool.describe().state == "Dead"


class TestRebalances:
    def test_requests_that_wait_hold_nobody_else_up(self, member: Make) -> None:
        ann, bob, tool = member(), member(), member()
        ann.enter()
        bob.send_join()
        for _ in range(3):
            wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
            assert tool.describe().code == 0
        other = member(group=f"{ann.group}-other")
        other.enter()
        assert ann.leave() == 0
        assert bob.joined().error_code == 0

    def test_the_leader_alone_gets_the_members(self, member: Make) -> None:
        ann, bob = two_stable(member)
        ann.send_join()
        wait_until(lambda: bob.beat() == 27, PATIENCE_S, "a rebalance")
        assert bob.join().members == ()
        found = ann.joined()
        assert {each.member_id for each in found.members} == {ann.member_id, bob.member_id}
        assert {each.metadata for each in found.members} == {b"r"}

    def test_a_follower_that_repeats_its_sync_gets_the_same(self, member: Make) -> None:
        _, bob = two_stable(member)
        assert bob.sync() == (0, b"b")
        assert bob.beat() == 0

    def test_who_is_not_named_by_the_leader_gets_nothing(self, member: Make) -> None:
        ann, bob = two_stable(member)
        ann.send_join()
        wait_until(lambda: bob.beat() == 27, PATIENCE_S, "a rebalance")
        bob.join()
        ann.joined()
        bob.send_sync()
        assert ann.sync({ann.member_id: b"all"}) == (0, b"all")
        assert bob.synced() == (0, b"")

    def test_a_late_joiner_begins_a_new_generation(self, member: Make) -> None:
        ann, bob = two_stable(member)
        ann.send_join()
        wait_until(lambda: bob.beat() == 27, PATIENCE_S, "a rebalance")
        bob.join()
        ann.joined()
        bob.send_sync()
        tool = member()
        cat = member()
        assert len(tool.describe().members) == 2
        cat.send_join()
        assert bob.synced()[0] == 27
        assert ann.sync({ann.member_id: b"all"})[0] == 27
        ann.send_join()
        bob.send_join()  # the three of them are waited for
        assert {each.joined().generation for each in (ann, bob, cat)} == {4}

    def test_a_connection_that_is_closed_while_it_waits_does_no_harm(self, member: Make) -> None:
        """The member that it has added goes when its session ends."""
        ann, ghost, tool = member(), member(), member()
        ann.enter()
        ghost.send_join(session_ms=1000)
        wait_until(lambda: len(tool.describe().members) == 2, PATIENCE_S, "the ghost to be there")
        ghost.wire.socket.close()
        assert ann.join().error_code == 0
        assert len(tool.describe().members) == 2
        assert ann.sync({ann.member_id: b"all"}) == (0, b"all")
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "the session of the ghost to end")
        found = ann.join()
        assert [each.member_id for each in found.members] == [ann.member_id]

    def test_a_session_that_ends_in_silence_has_the_others_rebalance(self, member: Make, age: str) -> None:
        ann, bob = member(), member()
        ann.enter()
        bob.send_join(session_ms=500)
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        ann.join()
        bob.joined()
        assert ann.sync({ann.member_id: b"a"}) == (0, b"a")
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "the session to end")
        assert [each.member_id for each in ann.join().members] == [ann.member_id]
        assert bob.beat() == (27 if age == "0.9" else 25)

    def test_who_does_not_join_again_in_time_is_left_behind(self, member: Make) -> None:
        """All have short time-outs, and who is late goes on with its heartbeats."""
        ann, bob = member(), member()
        ann.enter(session_ms=700, rebalance_ms=700)
        bob.send_join(session_ms=700, rebalance_ms=700)
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        wait_until(lambda: ann.beat() == 25, PATIENCE_S, "it to be left behind")
        found = bob.joined()
        assert [each.member_id for each in found.members] == [bob.member_id]


class TestCodes:
    def test_an_unknown_group_is_named_by_each_request(self, member: Make) -> None:
        nobody = member()
        nobody.member_id, nobody.generation = "nobody", 3
        assert nobody.join().error_code == 25
        assert (nobody.sync()[0], nobody.beat(), nobody.leave()) == (25, 25, 25)
        assert nobody.commit(TOPIC, 1) == 22
        assert nobody.committed(TOPIC) == (0, -1)

    def test_members_and_generations_are_checked_in_this_order(self, member: Make, age: str) -> None:
        ann = member()
        ann.enter()
        known, generation = ann.member_id, ann.generation
        ann.member_id, ann.generation = "nobody", 99
        assert (ann.sync()[0], ann.beat(), ann.leave(), ann.commit(TOPIC, 1)) == (25, 25, 25, 25)
        ann.member_id = known
        assert (ann.sync()[0], ann.beat(), ann.commit(TOPIC, 1)) == (22, 22, 22)
        ann.generation = generation
        assert (ann.beat(), ann.commit(TOPIC, 1)) == (0, 0)

    def test_commits_of_members_and_of_nobody_in_each_state(self, member: Make, age: str) -> None:
        ann, bob, tool = member(), member(), member()
        is_old = age in ("0.9", "0.10", "0.11", "1.1")
        assert tool.commit(TOPIC, 1, as_nobody=True) == 0
        assert ann.join().error_code == 0
        assert (ann.commit(TOPIC, 2), tool.commit(TOPIC, 2, as_nobody=True)) == (27, 27 if is_old else 25)
        assert ann.sync({ann.member_id: b"all"})[0] == 0
        assert (ann.commit(TOPIC, 3), tool.commit(TOPIC, 9, as_nobody=True)) == (0, 25)
        bob.send_join()
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        assert (ann.commit(TOPIC, 4), tool.commit(TOPIC, 9, as_nobody=True)) == (0, 25)
        assert ann.leave() == 0
        assert bob.joined().error_code == 0
        assert bob.leave() == 0
        assert bob.commit(TOPIC, 9) == (22 if age == "0.9" else 25)
        assert tool.committed(TOPIC) == (0, 4)
        assert tool.commit(TOPIC, 5, as_nobody=True) == 0
        assert tool.committed(TOPIC) == (0, 5)

    def test_partitions_and_metadata_are_refused_one_by_one(self, member: Make, age: str) -> None:
        ann = member()
        ann.enter()
        is_old = age in ("0.9", "0.10", "0.11", "1.1")
        assert ann.commit("no-such-topic", 1) == 3
        assert ann.commit(TOPIC, 1, partition=9) == (0 if is_old else 3)
        assert ann.commit(TOPIC, 1, text="x" * 4097) == 12
        assert ann.commit(TOPIC, -1) == 0
        assert ann.committed(TOPIC) == (0, -1)

    def test_requests_to_join_that_cannot_be(self, member: Make, age: str) -> None:
        ann, bob = member(), member()
        assert ann.join(session_ms=10).error_code == 26
        assert member(group="").join().error_code == 24
        none = member(group=f"{ann.group}-none")
        none.send_join(protocols=())
        assert none.joined().error_code == (-1 if age in ("0.9", "0.10", "0.11") else 23)
        ann.enter()
        bob.send_join(protocols=(("other", b""),))
        assert bob.joined().error_code == 23

    def test_a_heartbeat_while_the_group_completes(self, member: Make, age: str) -> None:
        ann = member()
        ann.join()
        assert ann.beat() == (27 if age in ("0.9", "0.10", "0.11", "1.1") else 0)

    def test_a_group_that_is_full_takes_nobody(self, member: Make, age: str) -> None:
        if age in ("0.9", "0.10", "1.1"):
            pytest.skip("groups have a largest size from 2.2 on")
        ann, bob = two_stable(member)
        cat, dan = member(), member()
        cat.send_join()
        for each in (ann, bob):
            wait_until(lambda each=each: each.beat() == 27, PATIENCE_S, "a rebalance")  # type: ignore[misc]
            each.send_join()
        assert [each.joined().error_code for each in (ann, bob, cat)] == [0, 0, 0]
        assert dan.join().error_code == 81

    def test_a_request_that_is_not_served_is_answered_as_by_a_broker_of_that_age(
        self, cluster: EmbeddedCluster | KafkaCluster, age: str
    ) -> None:
        if age == "0.9":
            pytest.skip("brokers of 0.9 say nothing")
        with Wire(cluster.port(min(cluster.brokers))) as wire:
            wire.send(bytes.fromhex("0000000b000b006300000001000163"))
            assert wire.is_closed()


class TestRestart:
    def test_a_group_is_the_same_when_its_broker_is_back(
        self, member: Make, cluster: EmbeddedCluster | KafkaCluster
    ) -> None:
        """A generation that was not synced is forgotten, and the one before it counts again."""
        ann, bob = member(), member()
        ann.enter()
        assert ann.commit(TOPIC, 7) == 0
        first = ann.generation
        bob.send_join()
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        assert (ann.join().error_code, bob.joined().error_code) == (0, 0)
        broker = min(cluster.brokers)
        cluster.stop(broker)
        cluster.start(broker)
        find_coordinator(cluster.port(broker))
        back, other = member(), member()
        wait_until(lambda: back.describe().code == 0, PATIENCE_S, "the groups to be loaded")
        back.member_id, back.generation = ann.member_id, ann.generation
        other.member_id, other.generation = bob.member_id, bob.generation
        assert (back.sync({})[0], other.sync()[0]) == (22, 25)
        back.generation = first
        assert (back.beat(), back.sync(), back.committed(TOPIC)) == (0, (0, b"all"), (0, 7))
        assert back.describe()[:4] == (0, "Stable", "consumer", "range")


class TestStaticMembers:
    @pytest.fixture
    def static(self, member: Make, age: str) -> Make:
        if age not in ("2.8", "3.9", "4.3"):
            pytest.skip("static members are there from 2.3 on")
        return lambda instance_id=None, **more: _named(member(versions=STATIC, **more), instance_id)

    def test_a_member_is_named_before_it_joins(self, static: Make) -> None:
        ann, tool = static(), static()
        assert ann.join().error_code == 79
        assert tool.describe().members == ()
        ann.enter()
        assert ann.member_id.startswith("c-")

    def test_a_member_that_is_back_keeps_its_generation_and_fences_its_predecessor(self, static: Make) -> None:
        ann, again = static("i"), static("i")
        ann.enter()
        found = again.join()
        assert (found.error_code, found.generation, found.leader) == (0, ann.generation, ann.member_id)
        assert again.sync() == (0, b"all")
        assert (ann.beat(), ann.sync()[0], ann.commit(TOPIC, 1), ann.leave()) == (82, 82, 82, 82)
        ann.instance_id = None
        assert ann.beat() == 25
        assert (again.beat(), again.commit(TOPIC, 1)) == (0, 0)

    def test_a_tool_removes_members_by_their_instances(self, static: Make) -> None:
        ann, tool = static("i"), static("i")
        ann.enter()
        tool.member_id = ""
        assert tool.leave() == 0
        assert ann.beat() == 25
        assert tool.leave() == 25


def _named(client: GroupClient, instance_id: str | None) -> GroupClient:
    client.instance_id = instance_id
    return client
