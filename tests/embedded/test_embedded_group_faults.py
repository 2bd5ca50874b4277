"""Faults of coordinators: refused, late, lost and garbled answers, moves, deaths, and groups that are loaded late."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from group_wire import GroupClient, coordinator_of

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.messages import apis
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.embedded.faults import GROUP_LOADING
from zkconsumer.testing.embedded.kafka011.broker import Broker011
from zkconsumer.testing.embedded.kafka011.group_coordinator import GroupCoordinator
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
TOPIC = "clicks"
GENERATIONS = ["2.8", *(pytest.param(each, marks=pytest.mark.slow) for each in ("0.9", "0.10", "1.1", "3.9", "4.3"))]
SETTINGS = {"group.min.session.timeout.ms": 100}

Make = Callable[..., GroupClient]


@pytest.fixture(scope="module", params=GENERATIONS)
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster]]:
    with EmbeddedCluster(2, generation=request.param, zookeeper=False, settings=SETTINGS) as running:
        running.create_topic(TOPIC, 2, 2)
        coordinator_of(running)
        yield request.param, running


@pytest.fixture
def cluster(clusters: tuple[str, EmbeddedCluster]) -> Iterator[EmbeddedCluster]:
    yield clusters[1]
    clusters[1].restore()


@pytest.fixture
def age(clusters: tuple[str, EmbeddedCluster]) -> str:
    return clusters[0]


@pytest.fixture
def member(cluster: EmbeddedCluster, age: str) -> Iterator[Make]:
    """Makes clients of one group of its own, connected to its coordinator or to another broker."""
    group, made = f"group-{uuid.uuid4().hex[:8]}", []

    def make(broker: int | None = None, client_id: str = "c", like: GroupClient | None = None) -> GroupClient:
        versions = {"JoinGroup": 0} if age == "0.9" else {}
        port = cluster.port(coordinator_of(cluster) if broker is None else broker)
        made.append(GroupClient(port, group, versions, client_id))
        if like is not None:
            made[-1].member_id, made[-1].generation = like.member_id, like.generation
        return made[-1]

    yield make
    for each in made:
        each.wire.socket.close()


ASK: dict[str, Callable[[GroupClient], object]] = {
    "join_group": lambda one: one.join().error_code,
    "sync_group": lambda one: one.sync({one.member_id: b"all"})[0],
    "heartbeat": lambda one: one.beat(),
    "leave_group": lambda one: one.leave(),
    "offset_commit": lambda one: one.commit(TOPIC, 1),
    "offset_fetch": lambda one: one.committed(TOPIC)[0],
    "describe_groups": lambda one: one.describe().code,
    "list_groups": lambda one: one.listed()[0],
    "delete_groups": lambda one: one.delete(),
}
APIS = list(ASK)


def require(api: str, age: str) -> None:
    if api == "delete_groups" and age in ("0.9", "0.10"):
        pytest.skip("DeleteGroups is there from 1.1 on")


class TestAnswers:
    @pytest.mark.parametrize("api", APIS)
    def test_each_request_is_refused_with_a_code_and_does_nothing(
        self, member: Make, cluster: EmbeddedCluster, api: str, age: str
    ) -> None:
        require(api, age)
        ann = member()
        ann.enter()
        before = ann.describe()
        fault = cluster.faults.add(Fault.error(-1, api=api), times=2)
        assert [ASK[api](ann), ASK[api](ann)] == [-1, -1]
        assert cluster.faults.used(fault) == 2
        assert ann.describe() == before

    @pytest.mark.parametrize("api", APIS)
    def test_each_answer_is_lost_after_what_was_asked_is_done(
        self, member: Make, cluster: EmbeddedCluster, api: str, age: str
    ) -> None:
        require(api, age)
        ann = member()
        ann.enter()
        again = member(like=ann)
        fault = cluster.faults.add(Fault.close(api=api))
        with pytest.raises((EOFError, ConnectionError)):
            ASK[api](ann)
        assert cluster.faults.used(fault) == 1
        if api == "offset_commit":
            assert again.committed(TOPIC) == (0, 1)
        elif api == "join_group":  # the leader has begun another generation
            assert again.beat() == (27 if age == "0.9" else 22)
        elif api == "leave_group":
            assert again.beat() == 25

    @pytest.mark.parametrize("api", APIS)
    def test_each_request_is_late_until_the_faults_are_cleared_and_others_go_on(
        self, member: Make, cluster: EmbeddedCluster, api: str, age: str
    ) -> None:
        require(api, age)
        ann, other = member(client_id="late"), member()
        ann.enter()
        fault = cluster.faults.add(replace(Fault.delay(PATIENCE_S * 2, api=api), client_id="late"))
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(ASK[api], ann)
            cluster.faults.wait_used(fault)
            assert other.describe().state == "Stable"
            assert not answer.done()
            cluster.faults.clear()
            assert answer.result(PATIENCE_S) == (68 if api == "delete_groups" else 0)

    @pytest.mark.parametrize("kind", ["garbage", "wrong_correlation_id", "stall"])
    def test_answers_are_garbled(self, member: Make, cluster: EmbeddedCluster, kind: str) -> None:
        ann = member()
        ann.enter()
        made = {"garbage": Fault.garbage(b"\0\0\0\4oops", api="heartbeat"),
                "wrong_correlation_id": Fault.wrong_correlation_id(api="heartbeat"),
                "stall": Fault.stall(0.1, api="heartbeat", after_bytes=5)}[kind]  # fmt: skip
        cluster.faults.add(made)
        ann.ask(KAFKA011.heartbeat(ann.who))
        answer = ann.wire.receive()
        assert {"garbage": answer[4:] == b"oops", "wrong_correlation_id": answer[4:8] != b"\0\0\0\7",
                "stall": answer[4:] == b"\0\0\0\7\0\0"}[kind]  # fmt: skip

    def test_a_member_is_chosen_by_its_client_id(self, member: Make, cluster: EmbeddedCluster) -> None:
        ann, bob = member(client_id="ann"), member(client_id="bob")
        ann.enter()
        cluster.faults.add(Fault.error(16, api="heartbeat").only(client_id="bob"), times=None)
        bob.member_id, bob.generation = ann.member_id, ann.generation
        assert (ann.beat(), bob.beat()) == (0, 16)

    def test_no_coordinator_is_found(self, member: Make, cluster: EmbeddedCluster) -> None:
        ann = member()
        cluster.faults.add(Fault.error(15, api="consumer_metadata"))
        ann.send(apis.FIND_COORDINATOR, b"\0\1g", 0)
        assert ann.receive()[:2] == b"\0\x0f"

    def test_what_a_fault_may_name(self) -> None:
        for api in (*APIS, GROUP_LOADING):
            assert Fault.delay(1.0, api=api).api == api


class TestMoves:
    @pytest.mark.parametrize("api", ["join_group", "sync_group", "heartbeat", "leave_group", "offset_commit"])
    def test_the_coordinator_moves_under_a_request_and_the_group_goes_on_elsewhere(
        self, member: Make, cluster: EmbeddedCluster, api: str
    ) -> None:
        was = coordinator_of(cluster)
        ann = member()
        ann.enter()
        assert ann.commit(TOPIC, 7) == 0
        before = ann.describe()
        fault = cluster.faults.add(Fault.move_coordinator(1 - was, api=api))
        assert ASK[api](ann) == 16
        assert cluster.faults.used(fault) == 1
        assert coordinator_of(cluster) == 1 - was
        moved = member(like=ann)
        assert moved.describe() == before
        assert (moved.beat(), moved.sync(), moved.committed(TOPIC)) == (0, (0, b"all"), (0, 7))
        assert moved.commit(TOPIC, 8) == 0
        assert ann.describe().code == 16
        assert ann.listed() == (0, {}) or ann.group not in ann.listed()[1]

    def test_who_waits_is_sent_to_the_other_broker(self, member: Make, cluster: EmbeddedCluster) -> None:
        was = coordinator_of(cluster)
        ann, bob = member(), member()
        ann.enter()
        bob.send_join()
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        cluster.move_leader("__consumer_offsets", 0, 1 - was)
        assert bob.joined().error_code == 16
        assert ann.beat() == 16
        moved = member(like=ann)
        assert moved.beat() == 0  # the stored generation counts again, and nobody knows of the other member
        assert [each[0] for each in moved.describe().members] == [ann.member_id]

    def test_a_generation_that_was_not_synced_is_lost(self, member: Make, cluster: EmbeddedCluster) -> None:
        was = coordinator_of(cluster)
        ann, bob = member(), member()
        ann.enter()
        bob.send_join()
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        ann.join()
        bob.joined()
        bob.send_sync()
        cluster.move_leader("__consumer_offsets", 0, 1 - was)
        assert bob.synced()[0] == 16
        moved, other = member(like=ann), member(like=bob)
        assert (moved.sync()[0], other.sync()[0]) == (22, 25)
        moved.generation -= 1
        assert moved.beat() == 0

    @pytest.mark.parametrize("api", ["join_group", "heartbeat", "offset_commit"])
    def test_the_coordinator_dies_under_a_request_and_loads_its_groups_when_it_is_back(
        self, member: Make, cluster: EmbeddedCluster, api: str
    ) -> None:
        ann = member()
        ann.enter()
        assert ann.commit(TOPIC, 7) == 0
        was = coordinator_of(cluster)
        fault = cluster.faults.add(Fault.kill(api=api))
        with pytest.raises((EOFError, ConnectionError)):
            ASK[api](ann)
        assert cluster.faults.used(fault) == 1
        wait_until(lambda: not cluster.brokers[was].running, PATIENCE_S, "the broker to be dead")
        cluster.start(was)
        back = member(like=ann)
        assert (back.beat(), back.committed(TOPIC), back.describe().state) == (0, (0, 7), "Stable")

    def test_sessions_begin_anew_when_a_group_is_loaded_and_end_in_silence(
        self, member: Make, cluster: EmbeddedCluster
    ) -> None:
        was = coordinator_of(cluster)
        ann, tool = member(), member(1 - was)
        ann.enter(session_ms=500)
        cluster.move_leader("__consumer_offsets", 0, 1 - was)
        wait_until(lambda: tool.describe().state in ("Empty", "Dead"), PATIENCE_S, "the session to end")

    def test_what_is_answered_while_groups_are_loaded(self, member: Make, cluster: EmbeddedCluster, age: str) -> None:
        was = coordinator_of(cluster)
        ann = member()
        ann.enter()
        assert ann.commit(TOPIC, 7) == 0
        fault = cluster.faults.add(Fault.delay(PATIENCE_S * 2, api=GROUP_LOADING))
        cluster.move_leader("__consumer_offsets", 0, 1 - was)
        cluster.faults.wait_used(fault)
        moved, tool = member(like=ann), member()
        is_old = age in ("0.9", "0.10", "1.1")
        assert (moved.join().error_code, moved.sync()[0], moved.beat()) == (14, 14 if is_old else 27, 0)
        assert (moved.leave(), moved.commit(TOPIC, 8), moved.committed(TOPIC)) == (14, 14, (14, -1))
        assert (tool.describe().code, tool.listed()[0]) == (14, 14)
        cluster.faults.clear()
        wait_until(lambda: tool.describe().state == "Stable", PATIENCE_S, "the groups to be loaded")
        assert (moved.beat(), moved.sync(), moved.committed(TOPIC)) == (0, (0, b"all"), (0, 7))

    def test_a_broker_that_ends_while_it_loads_lets_go(self, member: Make, cluster: EmbeddedCluster) -> None:
        was = coordinator_of(cluster)
        ann = member()
        ann.enter()
        fault = cluster.faults.add(Fault.delay(PATIENCE_S * 2, api=GROUP_LOADING))
        cluster.move_leader("__consumer_offsets", 0, 1 - was)
        cluster.faults.wait_used(fault)
        cluster.stop(1 - was)
        cluster.start(1 - was)
        assert member(1 - was, like=ann).beat() == 0

    def test_another_broker_sends_members_away(self, member: Make, cluster: EmbeddedCluster) -> None:
        was = coordinator_of(cluster)
        ann = member()
        ann.enter()
        other = member(1 - was, like=ann)
        assert (other.join().error_code, other.sync()[0], other.beat(), other.leave()) == (16, 16, 16, 16)
        assert (other.commit(TOPIC, 1), other.committed(TOPIC), other.describe().code) == (16, (16, -1), 16)
        assert ann.beat() == 0


class TestWaiting:
    @pytest.fixture
    def groups(self, cluster: EmbeddedCluster) -> GroupCoordinator:
        broker = cluster.brokers[coordinator_of(cluster)]
        assert isinstance(broker, Broker011)
        return broker.groups

    def test_a_join_that_is_repeated_takes_the_place_of_the_one_that_waits(
        self, member: Make, groups: GroupCoordinator
    ) -> None:
        """The older one gets no answer, and its connection stays open, as with Kafka."""
        ann, bob = member(), member()
        ann.enter()
        bob.send_join()
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        ann.send_join()
        bob.joined()
        ann.joined()
        assert ann.sync({ann.member_id: b"a"}) == (0, b"a")
        ann.send_join()  # the leader
        wait_until(lambda: groups.waiting(ann.group) == 1, PATIENCE_S, "the leader to wait")
        again = member(like=ann)
        again.send_join()
        wait_until(lambda: groups.abandoned == 1, PATIENCE_S, "the later one to wait")
        bob.join()
        assert again.joined().generation == bob.generation
        ann.wire.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            ann.wire.socket.recv(1)

    def test_a_paused_broker_keeps_answers_back_for_which_members_have_waited(
        self, member: Make, groups: GroupCoordinator, cluster: EmbeddedCluster
    ) -> None:
        ann, bob = member(), member()
        ann.enter(session_ms=700)
        bob.send_join()
        wait_until(lambda: ann.beat() == 27, PATIENCE_S, "a rebalance")
        wait_until(lambda: groups.waiting(ann.group) == 1, PATIENCE_S, "a member to wait")
        was = coordinator_of(cluster)
        cluster.pause(was)
        wait_until(lambda: groups.waiting(ann.group) == 0, PATIENCE_S, "the other session to end")
        bob.wire.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            bob.wire.socket.recv(1)
        bob.wire.socket.settimeout(PATIENCE_S)
        cluster.resume(was)
        assert [each.member_id for each in bob.joined().members] == [bob.member_id]

    def test_the_first_members_are_waited_for_as_long_as_is_set(self, age: str) -> None:
        settings = {**SETTINGS, "group.initial.rebalance.delay.ms": 300}
        with EmbeddedCluster(generation=age, zookeeper=False, settings=settings) as slow:
            coordinator_of(slow)
            versions = {"JoinGroup": 0} if age == "0.9" else {}
            with (
                GroupClient(slow.port(0), "group", versions) as ann,
                GroupClient(slow.port(0), "group", versions) as bob,
            ):
                ann.send_join()
                bob.send_join()
                assert [each.joined().generation for each in (ann, bob)] == [1, 1]


class TestStoring:
    def test_assignments_that_cannot_be_stored_have_all_join_again(self, cluster: EmbeddedCluster, age: str) -> None:
        """A record of a group that is larger than the log takes: error -1."""
        settings = {**SETTINGS, "message.max.bytes": 1000}
        with EmbeddedCluster(generation=age, zookeeper=False, settings=settings) as small:
            coordinator_of(small)
            versions = {"JoinGroup": 0} if age == "0.9" else {}
            with GroupClient(small.port(0), "group", versions) as ann:
                assert ann.join().error_code == 0
                assert ann.sync({ann.member_id: bytes(2000)}) == (-1, b"")
                assert ann.beat() == 27
                ann.enter()
