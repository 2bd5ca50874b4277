"""Groups of our members and Kafka's own Java 0.8.2.2 members, on real brokers, under load.

Java members wait two seconds between their four tries, as they do by default: our members have to let go within that
time, or a Java member gives up and its partitions are read by nobody. A single failed try is normal, an exhausted one
must not come from us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence

import pytest
from group_members import AUTO_COMMIT_S, RECONNECTED_S
from group_scene import JAVA_SETTINGS, Scene, scene

from zkconsumer.testing.history.checks import Limits, check_history, count_allowed_repeats
from zkconsumer.testing.history.events import Event, Place, in_order, ownerships
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

NS = 1_000_000_000
JAVA_SESSION_S = int(JAVA_SETTINGS["zookeeper.session.timeout.ms"]) / 1000
DRAIN_MS = 3000
UNGRACEFUL = Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0)
SESSION_ENDED = Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0, zombie_slack_s=RECONNECTED_S)


@pytest.fixture
def stage(kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]) -> Iterator[Scene]:
    """A topic of eight partitions under load."""
    with scene(kafka_0822, fresh_group, [fresh_topic()]) as new_scene:
        yield new_scene


def assert_clean_beside_java(
    stage: Scene, java_handovers: int = 0, limits: Limits | None = None, java_cut_off: Sequence[int] = (0, 0)
) -> int:
    """The number of repeats that ungraceful ends explain; fails with whatever else is wrong, and with a Java member
    that gave up.

    Two things come from the Java side of an orderly handover and are let pass. It counts a message as consumed in
    `next()`, after its iterator has taken it: the one in hand may come again. And it reads offsets before it claims:
    what others have done in between comes again to it, although it is committed by then; of ours that is proved here.

    Args:
        java_handovers: how often a stream of a Java member let go to one of ours in order.
        java_cut_off: from when to when (ns) a Java member was without session: it goes on delivering and committing,
            which cannot be prevented.
    """
    for member in stage.java:
        assert member.gave_up == 0, f"{member.id} gave up\n{member.log()[-3000:]}"
        assert member.stream_errors == []
    java = {member.consumer_id for member in stage.java}
    history = stage.history()
    findings = check_history(history, limits)
    cut_off = [each for each in findings if any(_is_zombie(event, java, java_cut_off) for event in each.events)]
    repeats = [each for each in findings if each.check == "repeated" and each not in cut_off]
    read_early = [each for each in repeats if each.events[1].member in java]
    in_hand = [each for each in repeats if each.events[0].member in java and each not in read_early]
    ours = [each for each in findings if each not in [*cut_off, *in_hand, *read_early]]
    assert not ours, "\n".join(map(str, ours[:10]))
    if java_cut_off[1] == 0:
        assert len(in_hand) <= java_handovers, "\n".join(map(str, in_hand[:10]))
    by_zombies = {
        (event.place, event.offset)
        for event in history
        if event.kind == "deliver" and _is_zombie(event, java, java_cut_off)
    }
    assert_released_at_the_exact_offset(history, by_zombies)
    assert_committed_to_the_end(stage)
    print(f"Java: {len(in_hand)} in hand, {len(read_early)} read early, {len(cut_off)} while cut off")
    return count_allowed_repeats(history, limits)


def _is_zombie(event: Event, java: set[str], cut_off: Sequence[int]) -> bool:
    """True for a delivery by a Java member, or a value of an offset node, in that time."""
    return cut_off[0] < event.time_ns < cut_off[1] and (event.member in java or event.kind == "offset_node")


def assert_released_at_the_exact_offset(
    history: Sequence[Event], by_zombies: Collection[tuple[Place, int]] = frozenset()
) -> None:
    """Behind each orderly end of ours the offset node held the very next message.

    A watcher on a busy machine may miss a value; then the next owner has begun there. Or that message is one
    of `by_zombies`: a Java member without session had taken it too, and has committed behind it.
    """
    stored = {(event.place, event.offset) for event in history if event.kind == "offset_node"}
    taken = [event for event in in_order(history) if event.kind == "deliver"]
    for owned in ownerships(history):
        if owned.graceful and owned.deliveries:
            last = owned.deliveries[-1]
            later = (each.offset for each in taken if each.place == owned.place and each.time_ns > last.time_ns)
            following = (owned.place, last.offset + 1)
            is_exact = following in stored or next(later, -1) == last.offset + 1 or following in by_zombies
            assert is_exact, f"{owned.member} released {owned.place} behind {last.offset + 1}, not stored"


def assert_committed_to_the_end(stage: Scene) -> None:
    """At last each offset node holds the end of its log, whichever member wrote it meanwhile."""
    ends: dict[Place, int] = {}
    for event in stage.load.acked:
        ends[event.place] = max(ends.get(event.place, 0), event.offset + 1)

    def stored() -> dict[Place, int]:
        return {event.place: event.offset for event in list(stage.watch.events) if event.kind == "offset_node"}

    wait_until(lambda: ends.items() <= stored().items(), 10, f"committed offsets {ends}", state=stored)


def seconds_since(event: Event) -> float:
    return (time.monotonic_ns() - event.time_ns) / NS


def tries(members: Sequence[JavaMember]) -> str:
    return ", ".join(f"{each.consumer_id}: {each.rebalance_failures} of {each.rebalance_attempts}" for each in members)


@pytest.mark.parametrize("strategy", ["range", pytest.param("roundrobin", marks=pytest.mark.slow)])
def test_each_side_joins_and_leaves_and_the_other_goes_on_at_the_very_next_message(stage: Scene, strategy: str) -> None:
    dealt = {"partition.assignment.strategy": strategy}
    first = stage.join_java("j1", settings=dealt)
    stage.wait_shares(j1=8)
    stage.load.grow(100)
    a = stage.group.join("a", topics=stage.topics, partition_assignment_strategy=strategy)
    stage.wait_shares(j1=4, a=4)
    stage.load.grow(100)
    second = stage.join_java("j2", settings=dealt)
    stage.wait_shares(j1=3, a=3, j2=2)
    stage.load.grow(100)
    a.leave()
    stage.wait_shares(j1=4, j2=4)
    stage.load.grow(100)
    stage.group.join("b", topics=stage.topics, partition_assignment_strategy=strategy)
    stage.wait_shares(j1=3, j2=2, b=3)
    stage.load.grow(100)
    first.stop()
    stage.wait_shares(j2=4, b=4)
    second.stop()
    stage.wait_shares(b=8)
    stage.load.grow(100)
    stage.settle()
    assert assert_clean_beside_java(stage, java_handovers=4) == 0
    print(f"{strategy}: failed tries {tries(stage.java)}")


def test_either_side_may_be_killed(stage: Scene) -> None:
    first = stage.join_java("j1")
    a = stage.group.join("a", topics=stage.topics)
    stage.wait_shares(j1=4, a=4)
    stage.wait_committed()
    stage.load.grow(100)
    killed = a.kill()
    stage.wait_shares(j1=8)
    by_java_s = seconds_since(killed)
    stage.load.grow(100)
    stage.group.join("b", topics=stage.topics)
    stage.wait_shares(j1=4, b=4)
    stage.load.grow(200)
    killed = stage.kill_java(first)
    stage.wait_shares(b=8, timeout_s=JAVA_SESSION_S + 5)
    by_us_s = seconds_since(killed)
    stage.load.grow(100)
    stage.settle()
    repeats = assert_clean_beside_java(stage, java_handovers=1, limits=UNGRACEFUL)
    print(f"kill -9: Java took over after {by_java_s:.2f} s, we after {by_us_s:.2f} s, {repeats} repeats")


def test_white_lists_on_both_sides_share_topics_that_are_there_and_that_come_later(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    prefix = fresh_topic()
    with scene(kafka_0822, fresh_group, [f"{prefix}.one", f"{prefix}.two"], partitions=3) as stage:
        pattern = rf"{prefix}\.\w+,none"
        stage.join_java("j", whitelist=pattern, streams=2)
        stage.group.join("a", whitelist=pattern, streams=1)
        stage.wait_shares(j=4, a=2)
        stage.load.grow(50)
        later = f"{prefix}.three"
        kafka_0822.create_topic(later, 3)
        stage.places = [*stage.places, *((later, partition) for partition in range(3))]
        stage.wait_shares(j=6, a=3)
        stage.load.grow(50)
        stage.settle()
        assert assert_clean_beside_java(stage, java_handovers=2) == 0


def test_a_java_session_ended_from_outside_costs_neither_side_its_share(stage: Scene) -> None:
    member = stage.join_java("j")
    stage.group.join("a", topics=stage.topics)
    stage.wait_shares(j=4, a=4)
    stage.wait_committed()
    stage.load.grow(100)
    first = member.session_id()
    ended_ns = time.monotonic_ns()
    stage.cluster.zookeeper.end_session(first)

    def is_back() -> bool:
        node = stage.cluster.client.exists(member.registration_path)
        return node is not None and node.ephemeralOwner != first

    wait_until(is_back, 20, "the Java member to register anew")
    back_ns = time.monotonic_ns()
    stage.wait_shares(j=4, a=4)
    stage.load.grow(100)
    stage.settle()
    # It forgets what it has done since its last commit and does not fence; ours put right what it has put back.
    assert_clean_beside_java(stage, limits=SESSION_ENDED, java_cut_off=(ended_ns, back_ns + NS))
    print(f"Java session ended: back after {(back_ns - ended_ns) / NS:.2f} s, failed tries {tries(stage.java)}")


@pytest.mark.catalogue("B10")
@pytest.mark.parametrize("work_ms", [2500, 6000])
def test_a_slow_application_of_ours_does_not_make_java_give_up(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], work_ms: int
) -> None:
    with scene(kafka_0822, fresh_group, [fresh_topic()], partitions=1, rate_per_s=5) as stage:
        z = stage.group.join("z", topics=stage.topics, work_ms=work_ms)
        z.wait_for("deliver")
        asked_ns = time.monotonic_ns()
        member = stage.join_java("j")  # sorts before z, so the only partition is its
        stage.wait_shares(j=1)
        took_s = (time.monotonic_ns() - asked_ns) / NS
        member.wait_messages(1)
        assert member.gave_up == 0, member.log()[-3000:]
        finished = work_ms < DRAIN_MS
        in_hand = z.wait_for("deliver")[-1]  # at the handover; before that, z works on while a slow machine starts Java
        assert member.messages[0].offset == in_hand.offset + (1 if finished else 0)
        print(f"a message of {work_ms} ms in hand: handed over after {took_s:.2f} s, failed tries {tries(stage.java)}")
