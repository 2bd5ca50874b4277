"""Failures of the catalogue (docs/FAULTS.md) that no other test provokes: each test names its entry."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from group_members import SESSION_S, SETTINGS
from group_scene import Scene, scene

from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaStream, TopicPartition
from zkconsumer.fetching.fetcher import Fetcher
from zkconsumer.testing import Deadline, EmbeddedCluster, Hold, KafkaCluster, TcpProxy, load, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

WATCHDOG_S = 90.0


@pytest.fixture
def stage(kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]) -> Iterator[Scene]:
    """A topic of four partitions under load."""
    with scene(kafka_0822, fresh_group, [fresh_topic()], partitions=4) as new_scene:
        yield new_scene


def config(cluster: EmbeddedCluster | KafkaCluster, group: str, name: str, **settings: object) -> ConsumerConfig:
    return ConsumerConfig.from_properties(
        {
            "zookeeper.connect": cluster.zookeeper_connect, "group.id": group, "consumer.id": name,
            "auto.offset.reset": "smallest", **SETTINGS,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )  # fmt: skip


def session_of(cluster: EmbeddedCluster, group: str, name: str) -> int:
    stat = cluster.client.exists(f"/consumers/{group}/ids/{group}_{name}")
    return 0 if stat is None else int(stat.ephemeralOwner)


def owned(member: ConsumerConnector) -> set[TopicPartition]:
    return {TopicPartition(each.topic, each.partition) for each in member.status().owned}


def reading(stream: KafkaStream, handle: Callable[[], object]) -> threading.Thread:
    """A thread that reads a stream to its end."""

    def read() -> None:
        for _ in stream:
            handle()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


@pytest.mark.catalogue("A5")
def test_a5_a_listener_that_sleeps_costs_no_session(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    load(embedded_cluster, topic, 5)
    entered, gate = threading.Event(), threading.Event()

    class Sleeper:
        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            entered.set()
            gate.wait(60)

    with ConsumerConnector(config(embedded_cluster, fresh_group, "a", consumer_timeout_ms=30_000), Sleeper()) as member:
        [stream] = member.create_message_streams({topic: 1})[topic]
        assert {next(stream).value for _ in range(10)} == {b"%d:%d" % (p, n) for p in (0, 1) for n in range(5)}
        first = session_of(embedded_cluster, fresh_group, "a")
        embedded_cluster.zookeeper.end_session(first)
        assert entered.wait(20)
        wait_until(lambda: session_of(embedded_cluster, fresh_group, "a") not in (0, first), 20, "another session")
        second = session_of(embedded_cluster, fresh_group, "a")
        asleep = Deadline(3 * SESSION_S)
        wait_until(lambda: asleep.expired, 4 * SESSION_S, "the listener to sleep through three sessions")
        assert session_of(embedded_cluster, fresh_group, "a") == second
        gate.set()
        load(embedded_cluster, topic, 5, first=5)
        wanted = {b"%d:%d" % (p, n) for p in (0, 1) for n in range(5, 10)}
        seen: set[bytes] = set()
        while not wanted <= seen:
            seen.add(next(stream).value)


@pytest.mark.catalogue("B11")
def test_b11_blocked_readers_keep_no_idle_partition(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    empty, busy = fresh_topic(), fresh_topic()
    embedded_cluster.create_topic(empty, 4)
    embedded_cluster.create_topic(busy, 4)
    load(embedded_cluster, busy, 1, partitions=[0])
    in_hand, gate = threading.Event(), threading.Event()

    def handle() -> None:
        in_hand.set()
        gate.wait(60)

    endless = {"rebalance_drain_timeout_ms": 55_000}  # a member that waits for the handler is too late
    with ConsumerConnector(config(embedded_cluster, fresh_group, "a", **endless)) as first:
        streams = first.create_message_streams({empty: 1, busy: 1})
        readers = [reading(streams[empty][0], lambda: None), reading(streams[busy][0], handle)]
        try:
            assert in_hand.wait(20)
            with ConsumerConnector(config(embedded_cluster, fresh_group, "b")) as second:
                second.create_message_streams({empty: 1, busy: 1})
                moved = {TopicPartition(topic, partition) for topic in (empty, busy) for partition in (2, 3)}
                wait_until(lambda: owned(second) >= moved, 15, "the idle partitions to move", state=second.status)
        finally:
            gate.set()
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive()


@pytest.mark.catalogue("B12")
def test_b12_offsets_are_stored_before_the_owner_node_goes_and_before_the_session_ends(stage: Scene) -> None:
    with TcpProxy(stage.cluster.zookeeper.connect, count_zookeeper=True) as link:
        a = stage.group.join("a", topics=stage.topics, connect=link.address, auto_commit_interval_ms=60_000)
        stage.wait_shares(a=4)
        stage.load.grow(100)
        link.forget_requests()
        stage.group.join("b", topics=stage.topics)
        stage.wait_shares(a=2, b=2)
        handed = [(each.kind, each.path) for each in link.seen_requests()]
        for topic, partition in stage.places[2:]:
            stored = handed.index(("set_data", f"/consumers/{stage.group.name}/offsets/{topic}/{partition}"))
            released = handed.index(("delete", f"/consumers/{stage.group.name}/owners/{topic}/{partition}"))
            assert stored < released
        stage.load.grow(50)
        link.forget_requests()
        a.leave()
        left = [(each.kind, each.path) for each in link.seen_requests()]
        for topic, partition in stage.places[:2]:
            stored = left.index(("set_data", f"/consumers/{stage.group.name}/offsets/{topic}/{partition}"))
            assert stored < left.index(("close", ""))


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, in ticks of a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.catalogue("B13")
def test_b13_a_spare_member_costs_nothing_and_takes_over(stage: Scene) -> None:
    names = ["a", "b", "c", "d", "spare"]
    members = [stage.group.launch(name, topics=stage.topics) for name in names]
    for member in members:
        member.wait_ready()
    stage.wait_shares(a=1, b=1, c=1, d=1)
    spare = members[-1]
    before_s, watched = cpu_s(spare.process.pid), Deadline(8.0)
    wait_until(lambda: watched.expired, 20, "the spare to be watched for eight seconds")
    assert cpu_s(spare.process.pid) - before_s < 0.4
    members[0].kill()
    stage.wait_shares(b=1, c=1, d=1, spare=1)


@pytest.mark.catalogue("B16")
def test_b16_a_join_is_one_rebalance_for_each_member(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics)
    stage.wait_shares(a=4)
    assert (len(a.events("assigned")), len(a.events("revoked", "lost"))) == (4, 0)
    b = stage.group.join("b", topics=stage.topics)
    stage.wait_shares(a=2, b=2)
    stage.load.grow(200)
    assert (len(a.events("assigned")), len(a.events("revoked", "lost"))) == (4, 2)
    assert (len(b.events("assigned")), len(b.events("revoked", "lost"))) == (2, 0)


@pytest.mark.catalogue("B17", "I3")
@pytest.mark.embedded_cluster(brokers=2)
def test_b17_joins_growth_leaders_and_shutdowns_at_once_lock_nobody_up(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    done = threading.Event()

    def disturb() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            if turn <= 10:
                embedded_cluster.add_partitions(topic, 2 + turn)
            embedded_cluster.move_leader(topic, turn % 2, turn // 2 % 2)
            load(embedded_cluster, topic, 1)

    def come_and_go(name: str) -> None:
        for _ in range(8):
            with ConsumerConnector(config(embedded_cluster, fresh_group, name)) as member:
                [stream] = member.create_message_streams({topic: 1})[topic]
                reader = reading(stream, lambda: None)
                wait_until(lambda member=member: owned(member), 30, "a share", state=member.status)
            reader.join(20)
            assert not reader.is_alive()

    finished: list[str] = []
    threads = [
        threading.Thread(target=lambda name=name: (come_and_go(name), finished.append(name)), daemon=True)
        for name in ("a", "b", "c")
    ]
    disturber = threading.Thread(target=disturb, daemon=True)
    faulthandler.dump_traceback_later(WATCHDOG_S)
    try:
        for thread in (*threads, disturber):
            thread.start()
        for thread in threads:
            thread.join(WATCHDOG_S)
    finally:
        done.set()
        disturber.join(30)
        faulthandler.cancel_dump_traceback_later()
    assert sorted(finished) == ["a", "b", "c"]


@pytest.mark.catalogue("D2", "F1")
def test_d2_a_fetch_thread_that_fails_goes_on(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    load(embedded_cluster, topic, 5)
    right, failures = Fetcher._step, [1, 2, 3]

    def wrong(self: Fetcher) -> bool:
        if failures:
            raise ZeroDivisionError(f"made up, number {failures.pop(0)}")
        return right(self)

    with ConsumerConnector(config(embedded_cluster, fresh_group, "a", consumer_timeout_ms=30_000)) as member:
        [stream] = member.create_message_streams({topic: 1})[topic]
        assert [next(stream).value for _ in range(5)] == [b"0:%d" % n for n in range(5)]
        monkeypatch.setattr(Fetcher, "_step", wrong)
        wait_until(lambda: not failures, 20, "three failures")
        load(embedded_cluster, topic, 5, first=5)
        assert [next(stream).value for _ in range(5)] == [b"0:%d" % n for n in range(5, 10)]


@pytest.mark.catalogue("E5")
def test_e5_nothing_is_read_before_the_stored_offset_is_known(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics)
    stage.load.grow(100)
    a.leave()
    with TcpProxy(stage.cluster.zookeeper.connect, count_zookeeper=True) as link:
        with Hold(link, "get_data", "/offsets/") as hold:
            b = stage.group.launch("b", topics=stage.topics, connect=link.address)
            hold.wait()
            held = Deadline(1.0)
            wait_until(lambda: held.expired, 5, "the read to be held for a second")
            assert b.events("assigned", "deliver") == []
        b.wait_ready()
        stage.load.grow(50)
        stage.settle()
        last = {event.place: event.offset for event in a.events("deliver")}
        first = {event.place: event.offset for event in reversed(b.events("deliver"))}
        assert first == {place: offset + 1 for place, offset in last.items()}
        b.leave()


def left_over(pid: int) -> tuple[int, int]:
    """Open descriptors and threads of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), len(list(Path(f"/proc/{pid}/task").iterdir()))


def watches_of(stage: Scene, session_id: int) -> list[str]:
    """The paths that a session watches."""
    lines = stage.cluster.zookeeper.four_letter("wchc").splitlines()
    start = lines.index(f"0x{session_id & (1 << 64) - 1:x}")
    paths = []
    for line in lines[start + 1 :]:
        if not line.startswith("\t"):
            break
        paths.append(line.strip())
    return sorted(paths)


@pytest.mark.catalogue("F12", "O")
def test_o_and_f12_rebalances_leave_neither_watches_nor_threads_nor_sockets(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics)
    stage.load.grow(50)
    session_id = a.session_id(stage.cluster.client)

    def join_and_leave() -> None:
        with ConsumerConnector(config(stage.cluster, stage.group.name, "b")) as member:
            [stream] = member.create_message_streams(stage.topics)[stage.places[0][0]]
            stage.wait_shares(a=2, b=2)
            reading(stream, lambda: None)
        stage.wait_shares(a=4)

    for _ in range(3):
        join_and_leave()
    before = left_over(a.process.pid), watches_of(stage, session_id)
    for _ in range(12):
        join_and_leave()
    wait_until(lambda: watches_of(stage, session_id) == before[1], 10, "as many watches as before")
    descriptors, threads = left_over(a.process.pid)
    assert descriptors <= before[0][0] + 2
    assert threads <= before[0][1] + 2
