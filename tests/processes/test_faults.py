"""Real processes under load: join, leave, kill -9, SIGSTOP, a session ended, ZooKeeper gone, frozen, cut off.

Each history is checked as a whole: nothing acknowledged is lost or skipped, every partition has one owner at a time,
offset nodes never go back, nothing is committed early, and a message comes again only where an ungraceful end explains
it. What a fault may cost on top is said test by test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest
from group_members import AUTO_COMMIT_S, LAST_DELIVERY_S, RECONNECTED_S, SESSION_S, MemberProcess
from group_scene import Scene, assert_clean, scene

from zkconsumer.testing.history.checks import Limits, find_zombies
from zkconsumer.testing.history.events import Event, in_order
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

pytestmark = pytest.mark.real

NS = 1_000_000_000
LEASE = 2 / 3
PARTITIONS = 8
# What was delivered since the last commit may come again: one interval, and the time between deciding and writing.
UNGRACEFUL = Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0, zombie_slack_s=0.05)
SESSION_ENDED = Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0, zombie_slack_s=RECONNECTED_S)
ENSEMBLE_SESSION_S = 6.0
PATIENT_BROKER = {"zookeeper.session.timeout.ms": 30_000}  # the fault is for the members alone
REBALANCE = ("assigned", "revoked", "lost")


@pytest.fixture
def stage(kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]) -> Iterator[Scene]:
    """A topic of eight partitions under load."""
    with scene(kafka_0822, fresh_group, [fresh_topic()], partitions=PARTITIONS) as new_scene:
        yield new_scene


def seconds(later_ns: int, earlier_ns: int) -> float:
    return (later_ns - earlier_ns) / NS


def in_zombie_hands(events: list[Event], limits: Limits) -> list[Event]:
    """Deliveries by a member whose owner node was gone."""
    return [finding.events[1] for finding in find_zombies(in_order(events), limits)]


# -- in order ----------------------------------------------------------------------------------------------------------


def test_joins_and_leaves_under_load_lose_and_repeat_nothing(stage: Scene) -> None:
    stage.group.join("a", topics=stage.topics)
    stage.load.grow(100)
    b = stage.group.join("b", topics=stage.topics)
    shared = stage.wait_shares(a=4, b=4)
    stage.load.grow(100)
    c = stage.group.join("c", topics=stage.topics)
    stage.wait_shares(a=3, b=3, c=2)
    stage.load.grow(100)
    c.leave()
    again = stage.wait_shares(a=4, b=4)
    kept = [place for place in shared if shared[place].czxid == again[place].czxid]
    assert kept, "partitions that a and b have held all the time keep their owner node"
    b.leave()
    stage.wait_shares(a=8)
    stage.load.grow(100)
    stage.settle()
    assert assert_clean(stage.history()) == 0


def test_a_listener_that_commits_hands_over_in_order_without_auto_commit(stage: Scene) -> None:
    manual = {"topics": stage.topics, "auto_commit_enable": "false", "commit_on_revoke": True}
    a = stage.group.join("a", **manual)
    stage.load.grow(100)
    stage.group.join("b", **manual)
    stage.wait_shares(a=4, b=4)
    stage.load.grow(100)
    a.leave()
    stage.wait_shares(b=8)
    stage.load.grow(50)
    stage.settle()
    assert assert_clean(stage.history()) == 0


@pytest.mark.catalogue("B8")
def test_a_member_of_another_topic_disturbs_nobody(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    mine, other = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(other, 2)
    with scene(kafka_0822, fresh_group, [mine], partitions=4) as stage:
        a = stage.group.join("a", topics=stage.topics)
        before = stage.wait_shares(a=4)
        since_ns = time.monotonic_ns()
        for turn in range(3):
            stage.group.join(f"other-{turn}", topics={other: 1}).leave()
        stage.load.grow(50)
        stage.settle()
        assert stage.owners() == before
        assert a.events(*REBALANCE, since_ns=since_ns) == []
        assert assert_clean(stage.history()) == 0


# -- abrupt ends -------------------------------------------------------------------------------------------------------


def test_a_killed_member_costs_one_session_and_repeats_one_commit_interval_at_most(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics)
    b = stage.group.join("b", topics=stage.topics)
    stage.wait_shares(a=4, b=4)
    stage.wait_committed()
    stage.load.grow(100)
    kept = {place for place, owner in stage.owners().items() if owner.member_id == stage.id("b")}
    killed = a.kill()
    taken = b.wait_for("assigned", since_ns=killed.time_ns, count=4, timeout_s=SESSION_S + 2.0)
    assert {event.place for event in taken}.isdisjoint(kept)
    stage.load.grow(100)
    stage.settle()
    repeats = assert_clean(stage.history(), UNGRACEFUL)
    print(f"kill -9: taken over after {seconds(taken[-1].time_ns, killed.time_ns):.2f} s, {repeats} repeats")


def test_the_message_in_the_hands_of_a_killed_member_comes_again(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics, work_ms=400, auto_commit_interval_ms=50)
    stage.load.stop()
    in_hand = a.wait_for("deliver", count=4)[-1]
    a.kill()
    b = stage.group.join("b", topics=stage.topics)
    wait_until(
        lambda: any((event.place, event.offset) == (in_hand.place, in_hand.offset) for event in b.events("deliver")),
        SESSION_S + 5.0,
        f"{in_hand} to come again",
    )
    stage.settle()
    assert assert_clean(stage.history(), UNGRACEFUL) <= 2, "the message in hand, and one done since the last commit"


@pytest.mark.catalogue("A8")
def test_many_killed_at_once_leave_ghosts_for_one_session_only(stage: Scene) -> None:
    ghosts = [stage.group.launch(f"ghost{number}", topics=stage.topics) for number in range(4)]
    for ghost in ghosts:
        ghost.wait_ready()
    stage.wait_shares(ghost0=2, ghost1=2, ghost2=2, ghost3=2)
    stage.wait_committed()
    killed = [ghost.kill() for ghost in ghosts]
    heirs = [stage.group.launch(name, topics=stage.topics) for name in ("x", "y")]
    for heir in heirs:
        heir.wait_ready()
    stage.wait_shares(x=4, y=4, timeout_s=SESSION_S + 3.0)
    print(f"four ghosts: all partitions taken over {seconds(time.monotonic_ns(), killed[-1].time_ns):.2f} s after")
    stage.load.grow(100)
    stage.settle()
    assert_clean(stage.history(), UNGRACEFUL)


@pytest.mark.catalogue("A4", "C2", "E4")
def test_a_member_stopped_past_its_session_delivers_and_commits_nothing_stale(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics, work_ms=2)
    b = stage.group.join("b", topics=stage.topics)
    stage.wait_shares(a=4, b=4)
    stage.wait_committed()
    stage.load.grow(50)
    stopped_ns = a.pause().time_ns
    taken = b.wait_for("assigned", since_ns=stopped_ns, count=4, timeout_s=SESSION_S + 2.0)
    stage.wait_committed(stage.wait_committed())  # the new owner's commits are stored, which a stale one would lower
    stage.load.grow(100)
    resumed_ns = time.monotonic_ns()
    a.process.resume()
    back = a.wait_for("assigned", since_ns=resumed_ns, count=4)
    stage.wait_shares(a=4, b=4)
    stage.load.grow(100)
    stage.settle()
    history = stage.history()
    zombies = in_zombie_hands(history, UNGRACEFUL)
    assert len(zombies) <= 1, "one stream has one message in hand"
    repeats = assert_clean([event for event in history if event not in zombies], UNGRACEFUL)
    print(
        f"SIGSTOP: taken over after {seconds(taken[-1].time_ns, stopped_ns):.2f} s, back "
        f"{seconds(back[-1].time_ns, resumed_ns):.2f} s after SIGCONT, {len(zombies)} zombie, {repeats} repeats"
    )


def test_a_session_ended_from_outside_is_survived(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics)
    stage.group.join("b", topics=stage.topics)
    stage.wait_shares(a=4, b=4)
    stage.wait_committed()
    stage.load.grow(50)
    first = a.session_id(stage.cluster.client)
    ended_ns = time.monotonic_ns()
    stage.cluster.zookeeper.end_session(first)
    back = a.wait_for("assigned", since_ns=ended_ns, count=4)
    assert len(a.events("lost", since_ns=ended_ns)) == 4
    stage.wait_shares(a=4, b=4)
    assert a.session_id(stage.cluster.client) != first
    stage.load.grow(100)
    stage.settle()
    repeats = assert_clean(stage.history(), SESSION_ENDED)
    print(f"session ended: back after {seconds(back[-1].time_ns, ended_ns):.2f} s, {repeats} repeats")


@pytest.mark.catalogue("E14")
def test_a_lonely_member_goes_on_behind_what_it_has_done_when_its_session_ends(stage: Scene) -> None:
    a = stage.group.join("a", topics=stage.topics, auto_commit_interval_ms=60_000)
    stage.wait_shares(a=8)
    stage.load.grow(200)
    ended_ns = time.monotonic_ns()
    stage.cluster.zookeeper.end_session(a.session_id(stage.cluster.client))
    a.wait_for("assigned", since_ns=ended_ns, count=8)
    stage.load.grow(100)
    stage.settle()
    repeats = assert_clean(stage.history(), Limits(repeat_before_end_s=60.0, zombie_slack_s=RECONNECTED_S))
    assert repeats <= 1, "only the message in hand was not done"


# -- ZooKeeper gone, frozen, cut off -----------------------------------------------------------------------------------


@pytest.mark.catalogue("K2")
def test_a_restart_of_zookeeper_moves_and_repeats_nothing(fresh_group: str, fresh_topic: Callable[[], str]) -> None:
    with (
        ZooKeeperServer() as server,
        KafkaCluster("0.8.2.2", zookeeper=server) as cluster,
        scene(cluster, fresh_group, [fresh_topic()], partitions=PARTITIONS) as stage,
    ):
        members = [
            stage.group.join(name, topics=stage.topics, zookeeper_session_timeout_ms=20_000) for name in ("a", "b")
        ]
        before = stage.wait_shares(a=4, b=4)
        committed = stage.wait_committed()
        since_ns = time.monotonic_ns()
        server.kill()
        stage.load.grow(400)  # two seconds of it
        server.start()
        stage.wait_committed(stage.wait_committed(committed))
        stage.load.grow(100)
        stage.settle()
        assert stage.owners() == before
        assert [event for member in members for event in member.events(*REBALANCE, since_ns=since_ns)] == []
        assert assert_clean(stage.history()) == 0


def server_of(ensemble: ZooKeeperEnsemble, session_id: int) -> ZooKeeperServer | None:
    """The server that a session is connected to."""
    sid = f"sid=0x{session_id & (1 << 64) - 1:x},"
    return next((member for member in ensemble if sid in member.four_letter("cons")), None)


@pytest.mark.catalogue("K7")
@pytest.mark.parametrize("role", ["follower", pytest.param("leader", marks=pytest.mark.slow)])
def test_one_of_three_zookeepers_frozen_costs_its_members_nothing(
    fresh_group: str, fresh_topic: Callable[[], str], role: str
) -> None:
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeperEnsemble(3))
        frozen = ensemble.leader() if role == "leader" else ensemble.followers()[0]
        others = ",".join(member.connect for member in ensemble if member is not frozen)
        cluster = stack.enter_context(KafkaCluster("0.8.2.2", zookeeper=others, settings=PATIENT_BROKER))
        stage = stack.enter_context(scene(cluster, fresh_group, [fresh_topic()], partitions=PARTITIONS))
        members = _join_through(stage, ensemble, frozen)
        before = stage.wait_shares(**{member.name: 4 for member in members})
        committed = stage.wait_committed()
        since_ns = time.monotonic_ns()
        frozen.pause()
        stage.wait_committed(stage.wait_committed(committed), timeout_s=ENSEMBLE_SESSION_S + 6.0)
        stage.load.grow(100)
        stage.settle()
        assert stage.owners() == before
        assert [event for member in members for event in member.events(*REBALANCE, since_ns=since_ns)] == []
        assert assert_clean(stage.history()) == 0
        frozen.resume()
        silent_s = longest_silence_s(members[0], since_ns)
        print(f"{role} of three frozen: its member was silent for {silent_s:.2f} s at most")


def longest_silence_s(member: MemberProcess, since_ns: int) -> float:
    """The longest time between two deliveries of a member."""
    times = [event.time_ns for event in member.events("deliver", since_ns=since_ns)]
    return max(seconds(later, earlier) for earlier, later in pairwise(times))


def _join_through(stage: Scene, ensemble: ZooKeeperEnsemble, wanted: ZooKeeperServer) -> list[MemberProcess]:
    """Two members with the whole ensemble in their connect string, the first of them connected to one server."""
    options = {"topics": stage.topics, "zookeeper_session_timeout_ms": int(ENSEMBLE_SESSION_S * 1000)}
    for attempt in range(20):
        member = stage.group.join(f"m{attempt}", connect=ensemble.connect, **options)
        if server_of(ensemble, member.session_id(stage.cluster.client)) is wanted:
            return [member, stage.group.join("z", connect=ensemble.connect, **options)]
        member.leave()
    raise AssertionError(f"no member connected to {wanted.connect} in 20 attempts")


@pytest.mark.catalogue("K2")
def test_a_frozen_zookeeper_stops_delivery_at_the_lease(fresh_group: str, fresh_topic: Callable[[], str]) -> None:
    with (
        ZooKeeperServer() as server,
        KafkaCluster("0.8.2.2", zookeeper=server, settings=PATIENT_BROKER) as cluster,
        scene(cluster, fresh_group, [fresh_topic()], partitions=PARTITIONS) as stage,
    ):
        members = [stage.group.join(name, topics=stage.topics) for name in ("a", "b")]
        stage.wait_shares(a=4, b=4)
        stage.wait_committed()
        stage.load.grow(50)
        server.pause()
        frozen_ns = time.monotonic_ns()
        stage.load.grow(int(200 * 3 * SESSION_S))
        thawed_ns = time.monotonic_ns()
        server.resume()  # its clock went on: sessions are over, unless their clients ask just in time
        stage.wait_committed(stage.wait_committed())
        stage.wait_shares(a=4, b=4)
        stage.load.grow(100)
        stage.settle()
        last = max(
            event.time_ns for member in members for event in member.events("deliver") if event.time_ns < thawed_ns
        )
        assert seconds(last, frozen_ns) <= LAST_DELIVERY_S
        repeats = assert_clean(stage.history(), Limits(repeat_before_end_s=4 * SESSION_S, zombie_slack_s=0.05))
        assert repeats <= 200 * (LEASE * SESSION_S + AUTO_COMMIT_S + 0.5), "what was done within the lease, once"
        print(f"ZooKeeper frozen: last delivery after {seconds(last, frozen_ns):.2f} s, {repeats} repeats")
        server.pause()
        left_ns = time.monotonic_ns()
        members[0].leave(timeout_s=2 * SESSION_S + 8.0)  # the last commit and the goodbye stay without an answer
        print(f"left a frozen ZooKeeper after {seconds(time.monotonic_ns(), left_ns):.2f} s")
        server.resume()


@pytest.mark.catalogue("A4")
def test_a_stalled_link_to_zookeeper_ends_delivery_before_anybody_takes_over(stage: Scene) -> None:
    with TcpProxy(stage.cluster.zookeeper.connect) as link:
        a = stage.group.join("a", topics=stage.topics, connect=link.address)
        b = stage.group.join("b", topics=stage.topics)
        stage.wait_shares(a=4, b=4)
        stage.wait_committed()
        stage.load.grow(50)
        stalled_ns = time.monotonic_ns()
        link.stall()
        silent_ns = time.monotonic_ns()
        taken = b.wait_for("assigned", since_ns=stalled_ns, count=4, timeout_s=SESSION_S + 3.0)
        wait_until(
            lambda: time.monotonic_ns() - stalled_ns > 2.5 * SESSION_S * NS, 20, "the stall to outlast the session"
        )
        healed_ns = time.monotonic_ns()
        link.clear()
        back = a.wait_for("assigned", since_ns=healed_ns, count=4)
        stage.wait_shares(a=4, b=4)
        stage.load.grow(50)
        stage.settle()
    last = max(event.time_ns for event in a.events("deliver") if event.time_ns < healed_ns)
    assert seconds(last, silent_ns) <= LAST_DELIVERY_S, "the lease counts from an answer before the stall"
    assert last < min(event.time_ns for event in taken)
    repeats = assert_clean(stage.history(), Limits(repeat_before_end_s=SESSION_S + AUTO_COMMIT_S + 1.0))
    print(
        f"link stalled: last delivery after {seconds(last, stalled_ns):.2f} s, taken over after "
        f"{seconds(taken[-1].time_ns, stalled_ns):.2f} s, back {seconds(back[-1].time_ns, healed_ns):.2f} s after "
        f"the link, {repeats} repeats"
    )
