"""JavaMember and MemberProcess are alike: one test runs with either."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from zkconsumer.testing import GroupWatch, Limits, check_history
from zkconsumer.testing.errors import KitError, StartFailed, WaitTimeout
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.members.recorded_member import MemberKind
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
QUICK = {"zookeeper.session.timeout.ms": 2000, "auto.commit.interval.ms": 200}


@pytest.fixture(params=[JavaMember, MemberProcess])
def kind(request: pytest.FixtureRequest) -> MemberKind:
    return request.param


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    return name


def stored(cluster: KafkaCluster, group: str, topic: str) -> list[bytes]:
    return [cluster.client.get(f"/consumers/{group}/offsets/{topic}/{partition}")[0] for partition in (0, 1)]


def test_a_member_delivers_owns_leaves_and_comes_back(
    kind: MemberKind, kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    acked = load(kafka_0822, topic, 5)
    with kind(kafka_0822, fresh_group, topics={topic: 2}, consumer_id="ann", settings=QUICK) as ann:
        assert (ann.group, ann.consumer_id, ann.id) == (fresh_group, "ann", f"{fresh_group}_ann")
        assert ann.running
        assert ann.is_ready
        messages = ann.wait_messages(10)
        assert {(each.partition, each.offset, each.value) for each in messages} == {
            (event.partition, event.offset, event.id.encode()) for event in acked
        }
        assert {each.stream for each in messages} == {0, 1}
        assert {each.key for each in messages} == {None}
        assert ann.wait_owned(2) == ann.owned() == [(topic, 0), (topic, 1)]
        assert ann.session_id() == kafka_0822.client.get(ann.registration_path)[1].ephemeralOwner
        ann.stop()
        assert not ann.running
        assert stored(kafka_0822, fresh_group, topic) == [b"5", b"5"]
        assert ann.owned() == []
        with pytest.raises(KitError, match="is not registered"):
            ann.session_id()
        load(kafka_0822, topic, 1, first=5)
        ann.start()  # again, under the same name
        assert [each.offset for each in ann.wait_messages(12)[10:]] == [5, 5]
        assert len(ann.wait_for("deliver", count=12)) == 12
        log = ann.log()
        assert "ann" in log
        with pytest.raises(KitError, match="runs already"):
            ann.launch()
    assert not ann.folder.exists()
    assert len(ann.messages) == 12


def test_a_killed_member_keeps_its_partitions_until_its_session_ends(
    kind: MemberKind, kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    load(kafka_0822, topic, 5)
    places = [(topic, 0), (topic, 1)]
    with (
        GroupWatch(kafka_0822.zookeeper_connect, fresh_group, places) as watch,
        kind(kafka_0822, fresh_group, whitelist=topic, settings=QUICK) as ann,
        kind(kafka_0822, fresh_group, blacklist=f"(?!{topic}).*", settings=QUICK) as bob,
    ):
        assert ann.wait_owned(1) + bob.wait_owned(1) in (places, places[::-1])
        session = ann.session_id()
        assert ann.kill().kind == "killed"
        assert len(ann.owned()) == 1
        kafka_0822.zookeeper.end_session(session)
        assert bob.wait_owned(2) == places
        assert ann.events("killed") == ann.events("killed", since_ns=0)
        assert len(ann.events("killed")) == 1
        acked = load(kafka_0822, topic, 3, first=5)
        wait_until(lambda: {each.value for each in bob.messages} >= {event.id.encode() for event in acked}, 20, "bob")
        history = [*acked, *watch.events, *ann.events(), *bob.events()]
        assert check_history(history, Limits(repeat_before_end_s=10.0)) == []
        with pytest.raises(KitError, match="ended with -9"):
            ann.stop()


def test_a_paused_member_goes_on_and_may_be_stopped_while_paused(
    kind: MemberKind, kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    with kind(kafka_0822, fresh_group, topics={topic: 1}, settings=QUICK) as ann:
        ann.wait_owned(2)
        ann.pause()
        load(kafka_0822, topic, 2)
        with pytest.raises(WaitTimeout, match=r"4 messages at .*_(java|ours)-"):
            ann.wait_messages(4, timeout_s=0.5)
        ann.resume()
        ann.wait_messages(4)
        ann.pause()
        ann.stop()
        assert len(ann.events("killed")) == 2
    assert stored(kafka_0822, fresh_group, topic) == [b"2", b"2"]


def test_work_takes_its_time_and_a_link_can_be_between(
    kind: MemberKind, kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    load(kafka_0822, topic, 3, partitions=[0])
    with (
        TcpProxy(kafka_0822.zookeeper_connect, count_zookeeper=True) as link,
        kind(
            kafka_0822, fresh_group, topics={topic: 1}, work_ms=300, zookeeper_connect=link.address, settings=QUICK
        ) as ann,
    ):
        first, second, third = ann.wait_messages(3)
        assert third.time_ns - second.time_ns >= 290_000_000 <= second.time_ns - first.time_ns
        assert sum(link.requests.values()) > 10


def test_what_cannot_start_is_an_error_with_its_log(
    kind: MemberKind, kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    wrong = {"auto.offset.reset": "smallest", "fetch.min.bytes": "many"}
    member = kind(kafka_0822, fresh_group, topics={topic: 1}, settings=wrong)
    assert not member.running
    with pytest.raises(KitError, match="was never started"):
        member.stop()
    with pytest.raises(StartFailed, match=r"ended: 1\n(.*\n)*.*many"), member:
        pass
    assert not member.folder.exists()
    with pytest.raises(ValueError, match="one of topics, whitelist, blacklist is needed"):
        kind(kafka_0822, fresh_group, topics={topic: 1}, whitelist="a")


def test_the_older_form_of_a_member_process_launches_it_at_once(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    load(kafka_0822, topic, 1)
    connect = kafka_0822.zookeeper_connect
    with closing(MemberProcess(connect, fresh_group, "ann", topics={topic: 1})) as ann:
        assert ann.running
        assert ann.wait_ready() is ann
        assert ann.wait_owned(2) == [(topic, 0), (topic, 1)]  # by a client of its own
        assert ann.session_id(kafka_0822.client) == ann.session_id()
        ann.wait_for("deliver", count=2)
        ann.leave()
        assert ann.notes("left")
    with pytest.raises(ValueError, match="give one of them"):
        MemberProcess(connect, fresh_group, "ann", consumer_id="bob", topics={topic: 1})
