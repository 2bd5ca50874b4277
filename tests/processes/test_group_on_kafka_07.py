"""Groups on Kafka 0.7 and ZooKeeper 3.3 whose members and brokers die: nothing is lost, only deaths repeat messages.

ZooKeeper 3.3 has no transactions, and was usual in the time of 0.7. `test_fault_suite.py` has all the other faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from kafka_07 import BOTH_07, cluster_07, needs_jar_07

from zkconsumer.testing import (
    EmbeddedCluster,
    Event,
    GroupWatch,
    JavaMember,
    LastingLoad,
    Limits,
    MemberProcess,
    check_history,
    figures_of,
    load,
    wait_until,
)
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.recorded_member import Delivered, GroupMember, MemberKind
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real

Both = EmbeddedCluster | KafkaCluster

SETTINGS = {"zookeeper.session.timeout.ms": 3000, "auto.commit.interval.ms": 500, "fetcher.backoff.ms": 200}
ENTRY = 20
"""Messages in a compressed entry."""
EACH = 10 * ENTRY


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[Both]:
    with ZooKeeperServer(version="zk-3.3.6") as server, cluster_07(request.param, zookeeper=server) as cluster:
        yield cluster


@dataclass(frozen=True)
class Stage:
    """Two members that share a topic under load."""

    watch: GroupWatch
    load: LastingLoad
    ann: MemberProcess
    bob: MemberProcess

    def check(self, limits: Limits) -> None:
        """Everything is delivered, and the history keeps the promises within the limits."""
        self.load.stop()

        def history() -> list[Event]:
            return [*self.load.acked, *self.watch.events, *self.ann.events(), *self.bob.events()]

        wait_until(lambda: figures_of(history()).lost == 0, 30, "everything to be delivered")
        assert check_history(history(), limits) == []


@pytest.fixture
def stage(cluster: Both, fresh_topic: Callable[[], str], fresh_group: str) -> Iterator[Stage]:
    topic = fresh_topic()
    places = [(topic, name) for name in cluster.create_topic(topic)]

    def member(name: str) -> MemberProcess:
        return MemberProcess(cluster, fresh_group, consumer_id=name, topics={topic: 1}, settings=SETTINGS)

    with (
        GroupWatch(cluster.zookeeper_connect, fresh_group, places) as watch,
        LastingLoad(cluster, [topic], 2, 200.0) as sent,
        member("ann") as ann,
        member("bob") as bob,
    ):
        assert bob.wait_owned(2) == [(topic, "1-0"), (topic, "1-1")]
        sent.grow(100)
        yield Stage(watch, sent, ann, bob)


def test_a_killed_member_and_a_killed_broker_lose_nothing(cluster: Both, stage: Stage) -> None:
    stage.ann.kill()
    stage.bob.wait_owned(4)
    stage.load.grow(50)
    cluster.stop(1)
    stage.bob.wait_owned(2)
    stage.load.grow(50)
    cluster.start(1)
    stage.bob.wait_owned(4)
    stage.load.grow(50)
    stage.check(Limits(repeat_before_end_s=5.0))
    assert {event.partition for event in stage.load.acked} == {"0-0", "0-1", "1-0", "1-1"}


def test_a_member_that_is_stopped_past_its_session_and_one_whose_session_is_ended_come_back(
    cluster: Both, stage: Stage
) -> None:
    stage.ann.pause()
    stage.bob.wait_owned(4)
    stage.load.grow(50)
    stage.ann.resume()
    stage.ann.wait_owned(2)
    stage.bob.wait_owned(2)
    stage.load.grow(50)
    cluster.zookeeper.end_session(stage.bob.session_id())
    stage.bob.wait_owned(2)
    stage.ann.wait_owned(2)
    stage.load.grow(50)
    stage.check(Limits(repeat_before_end_s=5.0, zombie_slack_s=0.5))


KINDS: dict[str, MemberKind] = {"ours": MemberProcess, "java": JavaMember}


@pytest.mark.parametrize(
    ("dead", "heir"),
    [("ours", "ours"), pytest.param("ours", "java", marks=needs_jar_07),
     pytest.param("java", "ours", marks=needs_jar_07)],
)  # fmt: skip
def test_what_a_killed_member_had_not_committed_comes_again_from_the_start_of_its_entry(
    cluster: Both, fresh_topic: Callable[[], str], fresh_group: str, dead: str, heir: str
) -> None:
    topic = fresh_topic()
    names = list(cluster.create_topic(topic))
    load(cluster, topic, EACH, codec="gzip", batch=ENTRY)

    def member(kind: str, name: str, work_ms: float) -> GroupMember:
        make = KINDS[kind]
        return make(cluster, fresh_group, consumer_id=name, topics={topic: 1}, settings=SETTINGS, work_ms=work_ms)

    with member(dead, "ann", 5) as ann:
        stored = [f"/consumers/{fresh_group}/offsets/{topic}/{name}" for name in names]

        def is_within_entry_behind_a_commit() -> bool:
            if len(ann.messages) % ENTRY != ENTRY // 2:
                return False
            return any(cluster.client.exists(path) and int(cluster.client.get(path)[0]) > 0 for path in stored)

        wait_until(is_within_entry_behind_a_commit, 30, "the middle of an entry", interval_s=0.001)
        ann.kill()
        # A Java member would give up: it tries four times, a fifth of a second apart, while the claims are there.
        wait_until(lambda: cluster.client.exists(ann.registration_path) is None, 10, "the end of its session")
        with member(heir, "bob", 0) as bob:
            places = {(name, number) for name in names for number in range(EACH)}
            wait_until(lambda: _places(ann.messages) | _places(bob.messages) == places, 30, "all messages")
            before, again = _numbers(ann.messages, names), _numbers(bob.messages, names)
    repeats = 0
    for name in names:
        start = min(again[name], default=EACH)
        assert start % ENTRY == 0, "reading goes on at the start of an entry"
        assert before[name] == list(range(len(before[name])))
        assert start <= len(before[name]), "nothing is skipped"
        assert again[name] == list(range(start, EACH)), "nothing comes twice after that"
        repeats += len(before[name]) - start
    assert 0 < repeats < len(ann.messages), "the entry in hand is delivered again, and what was committed is not"


def _places(messages: Sequence[Delivered]) -> set[tuple[int | str, int]]:
    """The partition and number of each message."""
    return {(message.partition, _number(message)) for message in messages}


def _numbers(messages: Sequence[Delivered], names: Sequence[int | str]) -> dict[int | str, list[int]]:
    """The numbers of the messages of each partition, in the order of delivery."""
    return {name: [_number(message) for message in messages if message.partition == name] for name in names}


def _number(message: Delivered) -> int:
    """The number of a message in its partition, as `load` writes it."""
    return int((message.value or b"").rpartition(b":")[2])
