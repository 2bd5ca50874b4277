"""Groups that keep their offsets in Kafka, as administration shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from click.testing import CliRunner

from tests.admin.both_stores import store_in_kafka, store_in_zookeeper
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.admin import Admin, LagChoice, NotFound
from zkconsumer.cli.program import program
from zkconsumer.testing import EmbeddedCluster, Fault, load, wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions with ten messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, 2)
    load(embedded_cluster, name, 10)
    return name


def test_a_group_with_offsets_in_kafka_alone_is_shown_with_its_offsets(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4, 1: 10})
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        found = admin.describe(fresh_group)
        rows = admin.offsets(fresh_group, topic).partitions
    assert found.partitions == rows
    shown = [(row.partition, row.offset, row.offset_in_zookeeper, row.offset_in_kafka, row.lag) for row in rows]
    assert shown == [(0, 4, None, 4, 6), (1, 10, None, 10, 0)]
    assert (found.lag, found.lag_unknown, found.problems) == (6, 0, ())


def test_each_offset_names_its_store(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 7, 1: 2})
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        rows = admin.describe(fresh_group).partitions
    assert [(row.offset, row.offset_in_zookeeper, row.offset_in_kafka) for row in rows] == [(7, 7, 4), (2, 2, None)]


def test_the_commands_show_both_stores(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 7})
    for command in (["describe"], ["offsets", "get"]):
        arguments = [*command, fresh_group, "--zookeeper", embedded_cluster.zookeeper_connect]
        lines = CliRunner().invoke(program, arguments).stdout.splitlines()
        header = next(line for line in lines if line.startswith("TOPIC"))
        row = next(line for line in lines if line.startswith(topic) and line.split()[1] == "0")
        assert header.split() == [
            "TOPIC",
            "PARTITION",
            "OFFSET",
            "LOG",
            "END",
            "LAG",
            "IN",
            "ZOOKEEPER",
            "IN",
            "KAFKA",
            "OWNER",
        ]
        assert row.split() == [topic, "0", "7", "10", "3", "7", "4", "none"]
        answer = json.loads(CliRunner().invoke(program, [*arguments, "--json"]).stdout)
        first = answer["partitions"][0]
        assert (first["offset"], first["offset_in_zookeeper"], first["offset_in_kafka"]) == (7, 7, 4)


@pytest.mark.usefixtures("soon_given_up")
def test_an_offset_manager_that_does_not_answer_is_a_problem_and_no_empty_group(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}-k/ids")
    store_in_kafka(embedded_cluster, f"{fresh_group}-k", topic, {0: 4})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        started_at = time.monotonic()
        found = admin.describe(f"{fresh_group}-k")
        assert time.monotonic() - started_at < 5
        assert [problem for problem in found.problems if problem.startswith("the offsets in Kafka cannot be read: ")]
        # ZooKeeper's offset may be a leftover. Whether there is one in Kafka is known of partition 1.
        found = admin.describe(fresh_group)
        [problem] = found.problems
        assert problem.startswith("the offsets in Kafka cannot be read: ")
        assert [(row.offset, row.lag, row.offset_in_zookeeper) for row in found.partitions] == [
            (None, None, 1), (None, None, None),
        ]  # fmt: skip


def test_the_larger_offset_counts_and_a_problem_says_so_where_the_store_is_not_known(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 9})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 7})
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        found = admin.describe(fresh_group)
        offsets = admin.offsets(fresh_group)
        [lag] = admin.lag(fresh_group).groups
    assert [(row.offset, row.lag, row.offset_in_kafka, row.storage) for row in found.partitions] == [
        (9, 1, 9, None), (None, None, None, None),
    ]  # fmt: skip
    sentence = (
        f"the stores differ for 1 of 2 partitions, first for {topic}-0: 7 in ZooKeeper and 9 in Kafka; it is not "
        "known which store the group uses, so the larger offset counts"
    )
    assert (found.notes, found.problems) == ((), (sentence,))
    assert (offsets.notes, offsets.partitions) == ((sentence,), found.partitions)
    assert (lag.problems, lag.partitions) == ((sentence,), found.partitions)
    arguments = ["offsets", "get", fresh_group, "--zookeeper", embedded_cluster.zookeeper_connect]
    assert f"note: {sentence}" in CliRunner().invoke(program, arguments).stdout
    assert json.loads(CliRunner().invoke(program, [*arguments, "--json"]).stdout)["notes"] == [sentence]


@pytest.mark.parametrize("storage", ["kafka", "zookeeper"])
def test_the_offset_of_the_store_in_which_the_owner_works_counts(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, storage: str
) -> None:
    """A group that moved to Kafka, or back, left old offsets in the other store."""
    old, new = {0: 2, 1: 2}, {0: 10, 1: 10}
    store_in_kafka(embedded_cluster, fresh_group, topic, new if storage == "kafka" else old)
    store_in_zookeeper(embedded_cluster, fresh_group, topic, old)
    client = embedded_cluster.client
    registration = json.dumps({"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1"})
    client.create(f"/consumers/{fresh_group}/ids/{fresh_group}_ann", registration.encode(), makepath=True)
    for number in range(2):
        owner = f"/consumers/{fresh_group}/owners/{topic}/{number}"
        client.create(owner, f"{fresh_group}_ann-0".encode(), makepath=True)
        if storage == "zookeeper":
            client.set(f"/consumers/{fresh_group}/offsets/{topic}/{number}", b"10")
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        found = admin.describe(fresh_group)
        [lag] = admin.lag(fresh_group).groups
        [of_lag] = [problem for problem in lag.problems if "differ" in problem]
    assert [(row.offset, row.lag, row.storage) for row in found.partitions] == [(10, 0, storage)] * 2
    assert (found.partitions, found.lag, found.lag_unknown) == (lag.partitions, lag.lag, lag.lag_unknown)
    assert of_lag.endswith("offset and lag are those of the store that the owner uses")
    assert of_lag in found.notes
    assert not [problem for problem in found.problems if "differ" in problem]


def test_offsets_in_kafka_of_topics_that_the_members_do_not_read_are_shown(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    read = fresh_topic()
    embedded_cluster.create_topic(read, 1)
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, fresh_group, auto_commit_enable=False)
    with Admin(embedded_cluster.zookeeper_connect) as admin, ConsumerConnector(config) as connector:
        connector.create_message_streams({read: 1})
        rows = [
            admin.describe(fresh_group).partitions, admin.offsets(fresh_group).partitions,
            admin.lag(fresh_group).groups[0].partitions, admin.lag_monitor(LagChoice(
                keeps_group=lambda name: name == fresh_group)).read().groups[0].partitions,
        ]  # fmt: skip
    for each in rows:
        shown = {(row.topic, row.partition): row.lag for row in each}
        assert shown == {(topic, 0): 6, (topic, 1): None, (read, 0): None}


@pytest.mark.parametrize(("settings", "storage"), [
    ({}, "zookeeper"), ({"offsets_storage": "kafka", "dual_commit_enabled": False}, "kafka"),
])  # fmt: skip
def test_the_store_in_which_a_member_works_is_named(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, settings: dict[str, Any], storage: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, fresh_group, auto_commit_enable=False, **settings)
    with Admin(embedded_cluster.zookeeper_connect) as admin, ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert {row.storage for row in admin.describe(fresh_group).partitions} == {None}
        for _ in range(18):
            next(stream)
        connector.commit_offsets()
        found = admin.describe(fresh_group)
        assert {row.storage for row in found.partitions} == {storage}
        name = {"kafka": "Kafka", "zookeeper": "ZooKeeper"}[storage]
        assert f"owners seem to store the offsets of 2 of 2 partitions in {name}, such as {topic}-0" in found.notes


def test_a_group_that_zookeeper_does_not_know_is_found_in_kafka(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        assert [row.offset for row in admin.offsets(fresh_group).partitions] == [4, None]
        assert [fault.kind for fault in admin.verify(fresh_group).faults] == ["too-few-members"]
        with pytest.raises(NotFound):
            admin.offsets(f"{fresh_group}-none")


def test_verify_compares_offsets_in_kafka_with_the_log(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4, 1: 13})
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        found = admin.verify(fresh_group, least_members=0, patience_s=0)
        [fault] = found.faults
        assert (fault.kind, fault.path) == ("offset-beyond-log", "__consumer_offsets")
        assert fault.sentence == f"{topic}-1: its offset in Kafka 13 is 3 beyond the end of its log"
        assert "--store kafka" in fault.remedy
        assert admin.verify(fresh_group, least_members=0, patience_s=0, with_logs=False).faults == []
        admin.set_offsets(fresh_group, topic, "latest", [1])
        assert admin.verify(fresh_group, least_members=0, patience_s=0).findings == ()


def test_verify_notices_offsets_that_differ(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4, 1: 5})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 7, 1: 5})
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        [found] = admin.verify(fresh_group, least_members=0, patience_s=0).findings
    assert (found.kind, found.fault) == ("offsets-differ", False)
    assert found.sentence == (
        f"the offset of 1 partition differs between the stores, first of {topic}-0: 7 in ZooKeeper and 4 in Kafka"
    )


def test_verify_notices_members_that_store_elsewhere(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})

    def member(name: str, **settings: Any) -> ConsumerConnector:
        address = embedded_cluster.zookeeper_connect
        return ConsumerConnector(
            ConsumerConfig(address, fresh_group, consumer_id=name, auto_commit_enable=False, **settings)
        )

    with (
        Admin(embedded_cluster.zookeeper_connect) as admin,
        member("ann") as ann,
        member("bob", offsets_storage="kafka", dual_commit_enabled=False) as bob,
    ):
        with ThreadPoolExecutor(2) as pool:  # each waits for the other to release or claim
            streams = list(pool.map(lambda one: one.create_message_streams({topic: 1})[topic][0], (ann, bob)))
        for one, stream in zip((ann, bob), streams, strict=True):
            wait_until(lambda one=one: len(one.status().owned) == 1, 30.0, "one partition each")
            for _ in range(9):
                next(stream)
            one.commit_offsets()
        mixed = [fault for fault in admin.verify(fresh_group, patience_s=0).faults if fault.kind == "mixed-storage"]
        assert [fault.sentence for fault in mixed] == [
            f"members seem to store their offsets in different stores: {fresh_group}_ann in ZooKeeper (as of "
            f"{topic}-0),"
            f" {fresh_group}_bob in Kafka (as of {topic}-1); when a partition moves between them, messages are skipped "
            "or read again"
        ]


@pytest.mark.parametrize(("has_offsets", "is_fault"), [(False, True), (True, False)])
@pytest.mark.usefixtures("soon_given_up")
def test_verify_says_when_offsets_in_kafka_cannot_be_read(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, has_offsets: bool, is_fault: bool
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    if has_offsets:
        store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 4})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        [found] = admin.verify(fresh_group, least_members=0, patience_s=0).findings
    assert (found.kind, found.fault) == ("unknown-offsets", is_fault)


@pytest.mark.usefixtures("soon_given_up")
def test_verify_blames_no_offset_in_zookeeper_while_those_in_kafka_cannot_be_read(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 400})
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        assert "offset-beyond-log" in {fault.kind for fault in admin.verify(fresh_group, least_members=0).faults}
        embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
        found = admin.verify(fresh_group, least_members=0, patience_s=0)
    assert found.faults == []
    assert {finding.kind for finding in found.findings} == {"offset-beyond-log", "unknown-offsets"}


def test_groups_say_in_which_store_they_have_offsets(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    names = {store: f"{fresh_group}-{store}" for store in ("kafka", "zookeeper", "both", "none")}
    for name in names.values():
        embedded_cluster.client.ensure_path(f"/consumers/{name}/ids")
    for store in ("kafka", "both"):
        store_in_kafka(embedded_cluster, names[store], topic, {0: 4})
    for store in ("zookeeper", "both"):
        store_in_zookeeper(embedded_cluster, names[store], topic, {0: 4})
    arguments = ["groups", "--zookeeper", embedded_cluster.zookeeper_connect]
    answer = json.loads(CliRunner().invoke(program, [*arguments, "--json"]).stdout)
    rows = {row["group"]: row for row in answer["groups"]}
    assert {store: (rows[name]["offsets_in_zookeeper"], rows[name]["offsets_in_kafka"], rows[name]["topics"])
            for store, name in names.items()} == {
        "kafka": (False, True, [topic]), "zookeeper": (True, False, [topic]), "both": (True, True, [topic]),
        "none": (False, False, []),
    }  # fmt: skip
    lines = CliRunner().invoke(program, arguments).stdout.splitlines()
    assert "OFFSETS IN" in lines[2]
    shown = {line.split()[0]: line.split()[3:] for line in lines[3:]}
    assert shown[names["both"]] == ["ZooKeeper,", "Kafka", topic]
    assert shown[names["none"]] == ["-", "-"]


@pytest.mark.usefixtures("soon_given_up")
def test_groups_say_where_the_offset_manager_does_not_answer_and_do_not_take_long(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    started_at = time.monotonic()
    shown = CliRunner().invoke(program, ["groups", "--zookeeper", embedded_cluster.zookeeper_connect])
    assert time.monotonic() - started_at < 10
    [row] = [line for line in shown.stdout.splitlines() if line.startswith(fresh_group)]
    assert row.split()[3] == "Kafka?"
    assert "have offsets in Kafka is not known: " in shown.stderr
