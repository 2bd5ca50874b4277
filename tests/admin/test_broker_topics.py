"""Topics changed by requests to embedded brokers of every generation that has them, without ZooKeeper and with one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from zkconsumer.admin import (
    Admin,
    BrokerAdmin,
    ControllerUnavailable,
    NotFound,
    TopicNotAuthorized,
    TopicRefused,
    TopicUnfinished,
)
from zkconsumer.admin.topics import controller_calls
from zkconsumer.cli.program import program
from zkconsumer.producer import Producer, ProducerConfig
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.waiting import wait_until

NOT_CONTROLLER = 41


@pytest.fixture(scope="module", params=["0.10", "0.11", "1.1", "2.8", "3.9", "4.3"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, generation=request.param, zookeeper=False) as started:
        yield started


@pytest.fixture(scope="module")
def newest() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, generation="4.3", zookeeper=False) as started:
        yield started


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[BrokerAdmin]:
    cluster.restore()
    with BrokerAdmin(cluster.broker_list) as made:
        yield made


@pytest.fixture
def newest_admin(newest: EmbeddedCluster) -> Iterator[BrokerAdmin]:
    newest.restore()
    with BrokerAdmin(newest.broker_list) as made:
        yield made


def age(cluster: EmbeddedCluster) -> tuple[int, ...]:
    return tuple(map(int, cluster.version.split(".")))


def test_a_topic_is_created_grown_and_deleted(
    cluster: EmbeddedCluster, admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic, said = fresh_topic(), []
    created = admin.create_topic(topic, 3, 2, config={"retention.ms": 1000}, on_progress=said.append)
    assert (created.written, created.done, created.config) == (True, True, {"retention.ms": "1000"})
    assert said[-1] == "3 of 3 partitions have a leader"
    assert [(each.partition, len(each.replicas), each.leader == each.replicas[0]) for each in created.partitions] == [
        (number, 2, True) for number in range(3)
    ]  # fmt: skip
    assert cluster.registry.topics()[topic].config == {"retention.ms": "1000"}
    if age(cluster) >= (1, 0):
        grown = admin.grow_topic(topic, 5, assignment={
            **{each.partition: each.replicas for each in created.partitions}, 3: [2, 1], 4: [1, 0],
        })  # fmt: skip
        assert [(each.partition, each.replicas, each.leader) for each in grown.partitions] == [
            (3, (2, 1), 2), (4, (1, 0), 1),
        ]  # fmt: skip
        assert "messages with keys go to other partitions" in grown.warnings[0]
        assert len(admin.grow_topic(topic, 6, rack_aware=False).partitions) == 1
    else:
        with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 1\.0 or later, .*; give --zookeeper"):
            admin.grow_topic(topic, 5)
    deleted = admin.delete_topic(topic)
    assert (deleted.written, deleted.done) == (True, True)
    assert topic not in cluster.registry.topics()
    with pytest.raises(NotFound, match=f"topic '{topic}' does not exist at the brokers "):
        admin.delete_topic(topic)


def test_refusals_name_the_value_the_limit_and_the_place_and_change_nothing(
    cluster: EmbeddedCluster, admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    admin.create_topic(f"{topic}.a", 2, assignment={0: [1], 1: [0]})
    before = cluster.registry.topics()
    where = f"at the brokers {cluster.broker_list}"
    refused: dict[str, Callable[[], object]] = {
        f"topic '{topic}.a' exists already {where}": lambda: admin.create_topic(f"{topic}.a"),
        f"'{topic}_a' and '{topic}.a' (which exists {where}) collide": lambda: admin.create_topic(f"{topic}_a"),
        "4 replicas of each partition need as many brokers, and 3 brokers are registered (0, 1, 2)":
            lambda: admin.create_topic(topic, 1, 4),
        "partition 0 names broker 7, not registered": lambda: admin.create_topic(topic, assignment={0: [7]}),
        "the number of partitions is 0; it must be 1 to": lambda: admin.create_topic(topic, 0),
        "'retention.mss'" if age(cluster) < (0, 10, 2) else "retention.mss":
            lambda: admin.create_topic(topic, config={"retention.mss": 1}),
        "soon": lambda: admin.create_topic(topic, config={"retention.ms": "soon"}),
        "has 250 characters; a new topic may have 249": lambda: admin.create_topic("t" * 250),
        "is an internal topic": lambda: admin.delete_topic("__consumer_offsets"),
    }  # fmt: skip
    if age(cluster) >= (1, 0):
        refused["has 2 partitions, so it cannot grow to 2"] = lambda: admin.grow_topic(f"{topic}.a", 2)
        refused["moves partition 0, which exists with the replicas 1"] = lambda: admin.grow_topic(
            f"{topic}.a", 3, assignment={0: [0], 1: [0], 2: [1]}
        )
    for said, call in refused.items():
        with pytest.raises(TopicRefused) as error:
            call()
        assert said in str(error.value)
    with pytest.raises(TopicRefused, match=r"did you mean 'retention\.ms'\?"):
        admin.create_topic(topic, config={"retention.mss": 1})
    with pytest.raises(NotFound, match=f"topic '{topic}s' does not exist {where}"):
        admin.delete_topic(f"{topic}s")
    assert cluster.registry.topics() == before


def test_a_dry_run_checks_and_changes_nothing(
    cluster: EmbeddedCluster, admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    planned = admin.create_topic(topic, 2, 2, dry_run=True)
    assert (len(planned.partitions), planned.written, planned.done) == (2, False, False)
    with pytest.raises(TopicRefused, match="soon"):
        admin.create_topic(topic, config={"retention.ms": "soon"}, dry_run=True)
    admin.create_topic(topic)
    before = cluster.registry.topics()
    assert not admin.delete_topic(topic, dry_run=True).written
    if age(cluster) >= (1, 0):
        assert not admin.grow_topic(topic, 2, dry_run=True).written
    if age(cluster) >= (0, 11):
        assert not admin.set_topic(topic, {"retention.ms": 1}, dry_run=True).written
        assert not admin.cut_topic(topic, "latest", dry_run=True).written
    assert cluster.registry.topics() == before


def test_settings_that_are_not_named_stay(
    cluster: EmbeddedCluster, admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    admin.create_topic(topic, config={"retention.ms": 1000, "segment.bytes": 2000})
    if age(cluster) < (0, 11):
        with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 0\.11 or later"):
            admin.set_topic(topic, {"retention.ms": 5})
        return
    found = admin.set_topic(topic, {"retention.ms": 5000, "preallocate": True}, unset=["segment.bytes"])
    assert [(each.name, each.old_value, each.new_value) for each in found.changes] == [
        ("preallocate", None, "true"), ("retention.ms", "1000", "5000"), ("segment.bytes", "2000", None),
    ]  # fmt: skip
    assert cluster.registry.topics()[topic].config == {"retention.ms": "5000", "preallocate": "true"}
    assert admin.set_topic(topic, {"flush.ms": 7}).changes[0].old_value is None
    assert cluster.registry.topics()[topic].config["retention.ms"] == "5000"
    assert admin.set_topic(topic, {"flush.ms": 7}).changes == ()
    with pytest.raises(TopicRefused, match=r"is not set at the brokers .*: Unknown topic config name: flush\.m "):
        admin.set_topic(topic, {"flush.m": 7})
    with pytest.raises(TopicRefused, match=r"flush\.ms is both set and removed"):
        admin.set_topic(topic, {"flush.ms": 7}, unset=["flush.ms"])
    with pytest.raises(TopicRefused, match="no setting is named"):
        admin.set_topic(topic)
    with pytest.raises(NotFound, match=f"did you mean '{topic}'"):
        admin.set_topic(f"{topic}s", {"flush.ms": 7})


def test_logs_are_cut_below_an_offset(
    cluster: EmbeddedCluster, admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    admin.create_topic(topic, 2)
    cluster.produce(topic, [b"%d" % number for number in range(10)], partition=0)
    if age(cluster) < (0, 11):
        with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 0\.11 or later, .*zkconsumer topics set"):
            admin.cut_topic(topic, 4)
        return
    with pytest.raises(TopicRefused, match="partition 1: offset 4 is after the end of its log, 0"):
        admin.cut_topic(topic, 4)
    assert cluster.log(topic, 0).start_offset == 0
    found = admin.cut_topic(topic, 4, partitions=[0])
    assert [(each.partition, each.earliest, each.latest, each.new_earliest) for each in found.partitions] == [
        (0, 0, 10, 4)
    ]
    assert cluster.log(topic, 0).start_offset == 4
    assert admin.cut_topic(topic, 2, partitions=[0]).partitions[0].new_earliest == 4
    with pytest.raises(NotFound, match="has no partition 5; it has 0, 1"):
        admin.cut_topic(topic, 0, partitions=[5])
    with pytest.raises(ValueError, match="'soon' is not earliest"):
        admin.cut_topic(topic, "soon")
    assert [each.new_earliest for each in admin.cut_topic(topic, "latest").partitions] == [10, 0]
    assert (cluster.log(topic, 0).start_offset, cluster.log(topic, 0).end_offset) == (10, 10)
    admin.set_topic(topic, {"cleanup.policy": "compact"})
    with pytest.raises(TopicRefused, match=r"its cleanup\.policy is 'compact'"):
        admin.cut_topic(topic, "latest")


def test_who_has_written_to_a_topic_is_told(newest: EmbeddedCluster, newest_admin: BrokerAdmin) -> None:
    newest.create_topic("written", 2)
    config = ProducerConfig(metadata_broker_list=newest.broker_list, enable_idempotence=True)
    with Producer(config) as sender:
        for value in (b"a", b"b"):
            sender.send("written", value, partition=1).result(10)
    found = newest_admin.topic_producers("written")
    [row] = found.producers
    assert (row.partition, row.epoch, row.last_sequence, row.transaction_start) == (1, 0, 1, None)
    assert row.last_timestamp_ms is not None
    assert found.problems == ()
    assert newest_admin.topic_producers("written", partitions=[0]).producers == ()
    shown = topics(newest, "producers", "written").stdout
    head, _, _, line = shown.splitlines()
    assert head == "1 producer"
    assert line.split() == ["1", str(row.producer_id), "0", "1", str(row.last_timestamp_ms), "-"]
    newest.faults.add(Fault.error(29, "describe_producers"))
    with pytest.raises(TopicNotAuthorized) as error:
        newest_admin.topic_producers("written")
    assert "Read topic written" in error.value.remedy
    newest.faults.add(Fault.error(6, "describe_producers"))
    [said] = newest_admin.topic_producers("written", partitions=[1]).problems
    assert "written-1" in said


def test_a_cut_log_starts_there_after_a_restart(newest: EmbeddedCluster, newest_admin: BrokerAdmin) -> None:
    newest.create_topic("kept", 1, 1, assignment={0: [1]})
    newest.produce("kept", [b"a", b"b", b"c"], partition=0)
    newest_admin.cut_topic("kept", 2)
    newest.stop(1)
    newest.start(1)
    newest.wait_leaders("kept", [0])
    assert newest.log("kept", 0).start_offset == 2


def test_each_missing_right_is_named(
    newest: EmbeddedCluster, newest_admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    newest.create_topic(topic)
    newest.produce(topic, [b"a"], partition=0)
    for api, code, right, call in (
        ("create_topics", 29, "Create", lambda: newest_admin.create_topic(f"{topic}x")),
        ("create_partitions", 29, f"Alter topic {topic}", lambda: newest_admin.grow_topic(topic, 4)),
        ("delete_topics", 29, f"Delete topic {topic}", lambda: newest_admin.delete_topic(topic)),
        ("describe_configs", 29, "DescribeConfigs", lambda: newest_admin.set_topic(topic, {"flush.ms": 1})),
        ("incremental_alter_configs", 29, "AlterConfigs", lambda: newest_admin.set_topic(topic, {"flush.ms": 1})),
        ("delete_records", 29, f"Delete topic {topic}", lambda: newest_admin.cut_topic(topic, 1)),
    ):
        newest.faults.add(Fault.error(code, api))
        with pytest.raises(TopicNotAuthorized, match="TopicAuthorizationFailed") as error:
            call()
        assert right in error.value.remedy
        assert topic in str(error.value)
    assert len(newest.registry.topics()[topic].assignment) == 1


def test_a_controller_that_has_moved_is_asked_again(
    newest: EmbeddedCluster, newest_admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    newest.faults.add(Fault.error(NOT_CONTROLLER, "create_topics"), times=3)
    assert newest_admin.create_topic(topic).done


def test_a_controller_that_answers_never_is_given_up(
    newest: EmbeddedCluster, newest_admin: BrokerAdmin, fresh_topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(controller_calls, "_DEADLINE_S", 1.0)
    topic = fresh_topic()
    newest.faults.add(Fault.error(NOT_CONTROLLER, "create_topics"), times=None)
    with pytest.raises(ControllerUnavailable, match=r"does not answer within 1 s: .*NotController"):
        newest_admin.create_topic(topic)
    assert topic not in newest.registry.topics()


def test_a_lost_answer_is_not_asked_for_again(
    newest: EmbeddedCluster, newest_admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    newest.faults.add(Fault.close("create_topics"))
    with pytest.raises(TopicUnfinished, match=f"did not confirm that topic '{topic}' is created"):
        newest_admin.create_topic(topic)
    assert topic in newest.registry.topics()


def test_leaders_that_have_moved_are_asked_again(
    newest: EmbeddedCluster, newest_admin: BrokerAdmin, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    newest.create_topic(topic, 2)
    newest.produce(topic, [b"a", b"b"], partition=1)
    newest.faults.add(Fault.error(6, "delete_records"), times=2)
    newest_admin.cut_topic(topic, 1, partitions=[1])
    assert newest.log(topic, 1).start_offset == 1


def test_brokers_that_are_too_old_are_named() -> None:
    with EmbeddedCluster(1, generation="0.9", zookeeper=False) as old, BrokerAdmin(old.broker_list) as admin:
        with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 0\.10\.1 or later"):
            admin.create_topic("t")
        old.create_topic("t")
        with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 0\.11 or later"):
            admin.cut_topic("t", 0)


# -- with a ZooKeeper --------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("generation", ["0.8", "1.1", "2.8"])
def test_the_same_words_with_a_zookeeper(generation: str) -> None:
    with EmbeddedCluster(2, generation=generation) as cluster, Admin(cluster.zookeeper_connect) as admin:
        with pytest.raises(TopicRefused, match=r"retention\.mss.*; did you mean 'retention\.ms'\?"):
            admin.create_topic("clicks", config={"retention.mss": 1000}, dry_run=True)
        assert admin.create_topic("clicks", 2, 2, config={"retention.ms": 1000}).done
        assert admin.grow_topic("clicks", 3).done
        found = admin.set_topic("clicks", {"retention.ms": 5000})
        [change] = found.changes
        assert (change.name, change.old_value, change.new_value) == ("retention.ms", "1000", "5000")
        wait_until(
            lambda: cluster.registry.topics()["clicks"].config == {"retention.ms": "5000"}, 30, "brokers to know it"
        )
        with pytest.raises(TopicRefused, match=r"retention\.mss"):
            admin.set_topic("clicks", {"retention.mss": 5000})
        cluster.produce("clicks", [b"a", b"b"], partition=0)
        if generation == "0.8":
            with pytest.raises(TopicRefused, match=r"needs brokers of Kafka 0\.11 or later"):
                admin.cut_topic("clicks", "latest")
        else:
            assert admin.cut_topic("clicks", "latest").partitions[0].new_earliest == 2
        assert admin.delete_topic("clicks").done


# -- the command -------------------------------------------------------------------------------------------------------


def topics(cluster: EmbeddedCluster, word: str, *arguments: str) -> Result:
    call = ["topics", word, "--bootstrap-server", cluster.broker_list, *arguments]
    return CliRunner().invoke(program, call, prog_name="zkconsumer")


def test_the_command_has_the_same_words(newest: EmbeddedCluster) -> None:
    newest.restore()
    created = topics(newest, "create", "clicks", "--partitions", "2", "--config", "retention.ms=1000")
    assert created.stdout.startswith("topic clicks is created: 2 partitions\nPARTITION  LEADER  REPLICAS\n")
    assert topics(newest, "grow", "clicks", "--partitions", "3").stdout.startswith("topic clicks is grown: 1 partition")
    changed = topics(newest, "set", "clicks", "--topic-config", "flush.ms=5", "--unset", "retention.ms")
    assert changed.stdout == (
        "topic clicks is set: 2 changes\n  flush.ms: (of the brokers) -> 5\n  retention.ms: 1000 -> (of the brokers)\n"
    )
    newest.produce("clicks", [b"a", b"b", b"c"], partition=0)
    planned = topics(newest, "cut", "clicks", "--before", "latest", "--dry-run", "--json")
    assert json.loads(planned.stdout)["partitions"][0] == {
        "partition": 0, "earliest": 0, "latest": 3, "new_earliest": 3,
    }  # fmt: skip
    assert topics(newest, "cut", "clicks", "--before", "2", "--partition", "0").stdout == (
        "topic clicks is cut: 2 offsets of 1 partition\n"
        "PARTITION  EARLIEST  NEW  LATEST\n"
        "        0         0    2       3\n"
    )
    assert topics(newest, "set", "clicks").exit_code == 2
    refused = topics(newest, "cut", "clicks", "--before", "soon")
    assert (refused.exit_code, "'soon' is not earliest" in refused.stderr) == (2, True)
    assert topics(newest, "delete", "clicks").stdout == "topic clicks is deleted: 3 partitions\n"
