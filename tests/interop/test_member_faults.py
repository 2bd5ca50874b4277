"""A member whose coordinator fails releases its partitions at once, and reports why; if it can, it commits before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from consuming import (
    COUNT,
    PATIENCE_S,
    BackgroundReader,
    member,
    owners,
    stored,
    wait_owners,
    wait_stored,
)

from rebalance.zookeeper.port.kazoo_port import KazooPort
from zkconsumer import (
    CommitFailed,
    ConsumerConfig,
    ConsumerConnector,
    PauseFailed,
    RebalanceListener,
    StreamFailed,
    TopicPartition,
)
from zkconsumer.member.membership import Membership
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

SESSION_MS = 60_000
"""Longer than any test waits: a session that is not closed is still there when the test fails."""


class MadeUpError(Exception):
    """What is raised where nothing should."""


def boom(*_: object, **__: object) -> None:
    raise MadeUpError("made up")


class Told(RebalanceListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self.heard.append(("assigned", set(positions)))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("revoked", set(partitions)))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("lost", set(partitions)))


class Victim:
    """A member that owns the first of two partitions, and its reader."""

    def __init__(self, cluster: EmbeddedCluster, group: str, topic: str) -> None:
        self.cluster, self.group, self.topic = cluster, group, topic
        self.listener = Told()
        self.connector = member(
            cluster, group, "a", self.listener, zookeeper_session_timeout_ms=SESSION_MS, auto_commit_interval_ms=200
        )
        [self.stream] = self.connector.create_message_streams({topic: 1})[topic]
        self.reader = BackgroundReader(self.stream)

    @property
    def membership(self) -> Membership:
        assert self.connector._member is not None
        return self.connector._member

    @property
    def kazoo(self) -> KazooPort:
        port = self.membership.port._port
        assert isinstance(port, KazooPort)
        return port


@pytest.fixture
def other(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> Iterator[ConsumerConnector]:
    """A healthy member of the group."""
    with member(embedded_cluster, fresh_group, "b", zookeeper_session_timeout_ms=SESSION_MS) as connector:
        BackgroundReader(*connector.create_message_streams({topic: 1})[topic])
        yield connector


@pytest.fixture
def victim(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, other: ConsumerConnector
) -> Iterator[Victim]:
    found = Victim(embedded_cluster, fresh_group, topic)
    wait_owners(embedded_cluster, fresh_group, topic, {0: f"{fresh_group}_a-0", 1: f"{fresh_group}_b-0"})
    load(embedded_cluster, topic, COUNT, first=COUNT)
    found.reader.wait(COUNT)
    yield found
    found.connector.shutdown(0)


# -- the coordinator's thread ------------------------------------------------------------------------------------------


def the_timer_of_the_session(victim: Victim) -> None:
    victim.membership.coordinator.session._check_answers = boom  # type: ignore[method-assign]
    victim.membership.loop.post(victim.membership.coordinator.session.prove)


def the_timer_of_auto_commits(victim: Victim) -> None:
    victim.membership.commits.commit_done = boom  # type: ignore[method-assign]


def an_answer_on_the_loop(victim: Victim) -> None:
    victim.membership.coordinator.session._proved = boom  # type: ignore[method-assign]
    victim.membership.loop.post(victim.membership.coordinator.session.prove)


def an_answer_on_kazoos_thread(victim: Victim) -> None:
    victim.kazoo._answered = boom  # type: ignore[method-assign]
    victim.membership.loop.post(victim.membership.coordinator.session.prove)


def a_watch_on_kazoos_thread(victim: Victim) -> None:
    victim.membership.coordinator._reader._loop = None  # type: ignore[assignment]
    victim.cluster.create_topic(f"{victim.topic}-more")
    victim.cluster.client.create(f"/consumers/{victim.group}/ids/stranger", b"", ephemeral=True)


def a_change_of_the_session(victim: Victim) -> None:
    victim.kazoo._on_session = boom
    victim.kazoo.drop_connection()


def kazoos_state_listener(victim: Victim) -> None:
    victim.kazoo._queue_connected = boom  # type: ignore[method-assign]
    victim.kazoo.drop_connection()


def a_change_of_the_group(victim: Victim) -> None:
    victim.membership.coordinator.machine.handle = boom  # type: ignore[method-assign,assignment]
    victim.cluster.client.create(f"/consumers/{victim.group}/ids/stranger", b"", ephemeral=True)


def a_program_that_ends_its_thread(victim: Victim) -> None:
    def leave() -> None:
        raise SystemExit("made up")

    victim.membership.loop.post(leave)


FAULTS = [
    the_timer_of_the_session, the_timer_of_auto_commits, an_answer_on_the_loop, an_answer_on_kazoos_thread,
    a_watch_on_kazoos_thread, a_change_of_the_session, kazoos_state_listener, a_change_of_the_group,
    a_program_that_ends_its_thread,
]  # fmt: skip


def others_take_over(victim: Victim) -> None:
    """The victim's nodes go long before its session would have ended by itself."""
    ids = f"/consumers/{victim.group}/ids"
    client = victim.cluster.client
    wait_until(lambda: f"{victim.group}_a" not in client.get_children(ids), PATIENCE_S, "the registration to go",
               state=lambda: client.get_children(ids))  # fmt: skip
    with_stranger = client.exists(f"{ids}/stranger")
    if with_stranger:
        client.delete(f"{ids}/stranger")
    wait_owners(victim.cluster, victim.group, victim.topic, dict.fromkeys((0, 1), f"{victim.group}_b-0"))


@pytest.mark.catalogue("B18")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_others_take_over_at_once_when_the_coordinator_fails(victim: Victim, fault: Callable[[Victim], None]) -> None:
    fault(victim)
    others_take_over(victim)
    wait_until(lambda: victim.reader.errors, PATIENCE_S, "the stream to raise")
    error = victim.reader.errors[0]
    assert isinstance(error, StreamFailed)
    assert "the coordinator has failed" in str(error)
    assert isinstance(error.__cause__, MadeUpError | SystemExit | AttributeError)
    status = victim.connector.status()
    assert (status.state, status.error) == ("failed", str(error))
    mine = {TopicPartition(victim.topic, 0)}
    wait_until(lambda: victim.listener.heard[-1][0] == "lost", PATIENCE_S, "the listener to hear of it")
    assert victim.listener.heard[-1] == ("lost", mine)
    assert set(victim.connector.shutdown(0)) <= mine


def test_positions_that_a_failed_coordinator_has_not_stored_are_told(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    connector = member(embedded_cluster, fresh_group, auto_commit_interval_ms=3_600_000)
    [stream] = connector.create_message_streams({topic: 1})[topic]
    wait_stored(embedded_cluster, fresh_group, topic, 0, 0)
    reader = BackgroundReader(stream)
    reader.wait(2 * COUNT)
    assert connector._member is not None
    connector._member.loop.post(boom)
    wait_until(lambda: reader.errors, PATIENCE_S, "the stream to raise")
    unstored = connector.shutdown(5)
    assert set(unstored) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert all("made up" in reason for reason in unstored.values())
    assert stored(embedded_cluster, fresh_group, topic, 0) == b"0"


def test_calls_that_wait_for_a_coordinator_that_fails_name_the_cause(victim: Victim) -> None:
    victim.membership.commits.choose = boom  # type: ignore[method-assign,assignment]
    with pytest.raises(CommitFailed, match="made up"):
        victim.connector.commit_offsets({TopicPartition(victim.topic, 0): 7})
    with pytest.raises(PauseFailed, match="made up"):
        victim.connector.pause([TopicPartition(victim.topic, 0)])
    assert victim.connector.status().state == "failed"
    others_take_over(victim)


def test_a_start_whose_coordinator_fails_raises_the_cause(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebalance.zookeeper.session.SessionKeeper.register", boom)
    connector = member(embedded_cluster, fresh_group, zookeeper_connection_timeout_ms=SESSION_MS)
    with pytest.raises(StreamFailed, match="made up"):
        connector.create_message_streams({topic: 1})


@pytest.mark.catalogue("B18")
def test_the_end_of_the_zookeeper_clients_own_thread_is_noticed(victim: Victim) -> None:
    """It cannot close the session any more; but nothing is delivered without a lease, and the application hears."""
    victim.kazoo._client._connection._read_socket = boom
    wait_until(lambda: victim.reader.errors, PATIENCE_S, "the stream to raise")
    assert "made up" in str(victim.reader.errors[0])
    assert victim.membership.lease.until <= 0.0


# -- the threads that deliver ------------------------------------------------------------------------------------------


def end_thread(*_: object) -> None:
    raise SystemExit("made up")


def the_fetcher(victim: Victim) -> None:
    for fetcher in victim.membership.delivery._pool.fetchers():
        fetcher._step = end_thread  # type: ignore[method-assign,assignment]


def the_leader_finder(victim: Victim) -> None:
    finder: Any = victim.membership.delivery._finder
    finder._step = end_thread
    finder._wakeup.wake()


@pytest.mark.catalogue("F15")
@pytest.mark.parametrize("end", [the_fetcher, the_leader_finder], ids=lambda end: end.__name__)
def test_a_member_whose_thread_has_died_leaves_in_order(victim: Victim, end: Callable[[Victim], None]) -> None:
    end(victim)
    others_take_over(victim)
    assert stored(victim.cluster, victim.group, victim.topic, 0) == str(2 * COUNT).encode()
    wait_until(lambda: victim.reader.errors, PATIENCE_S, "the stream to raise")
    error = victim.reader.errors[0]
    assert isinstance(error, StreamFailed)
    assert "has ended" in str(error)
    assert "made up" in str(error)
    assert victim.listener.heard[-1] == ("revoked", {TopicPartition(victim.topic, 0)})
    assert victim.connector.status().error == str(error)
    assert victim.connector.shutdown() == {}


@pytest.mark.catalogue("F15")
def test_a_fetcher_that_cannot_be_started_is_tried_again(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is out of threads for a moment."""
    right, failures = threading.Thread.start, [1, 2]

    def start(self: threading.Thread) -> None:
        if failures and self.name.startswith(f"fetcher-{fresh_group}"):
            failures.pop()
            raise RuntimeError("can't start new thread")
        right(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with member(embedded_cluster, fresh_group) as connector:
        reader = BackgroundReader(*connector.create_message_streams({topic: 1})[topic])
        reader.wait(2 * COUNT)
    assert not failures


def test_a_callback_that_exits_ends_neither_the_listener_nor_the_statistics(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    heard: list[str] = []

    class Exits(RebalanceListener):
        def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
            heard.append("assigned")
            raise SystemExit

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            heard.append("revoked")

    with member(embedded_cluster, fresh_group, listener=Exits()) as connector:
        BackgroundReader(*connector.create_message_streams({topic: 1})[topic]).wait(2 * COUNT)
    assert heard[0] == "assigned"
    assert heard[-1] == "revoked"


def test_a_session_that_cannot_be_closed_does_not_keep_the_lease(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    """The coordinator fails while ZooKeeper does not answer."""
    with TcpProxy(embedded_cluster.zookeeper_hosts) as proxy:
        connect = embedded_cluster.zookeeper_connect.replace(embedded_cluster.zookeeper_hosts, proxy.address)
        connector = ConsumerConnector(
            ConsumerConfig(connect, fresh_group, auto_offset_reset="smallest", zookeeper_session_timeout_ms=SESSION_MS)
        )
        reader = BackgroundReader(*connector.create_message_streams({topic: 1})[topic])
        reader.wait(2 * COUNT)
        proxy.stall()
        assert connector._member is not None
        connector._member.loop.post(boom)
        wait_until(lambda: reader.errors, PATIENCE_S, "the stream to raise")
        assert "made up" in str(reader.errors[0])
        connector.shutdown(0)
    assert owners(embedded_cluster, fresh_group, topic)  # their session ends by itself
