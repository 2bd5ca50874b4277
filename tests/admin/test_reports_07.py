"""Reports on topics and groups of Kafka 0.7: names of partitions, no replicas, positions and lag in bytes. Pure."""

from __future__ import annotations

import json

import pytest

from rebalance.zookeeper.znodes_07 import GENERATION_07
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_report import report
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.offsets.group_offsets import StoredOffsets
from zkconsumer.admin.topics.topic_report import TopicNodes, TopicPartitionRow, topic_report
from zkconsumer.admin.verify.offset_findings import offset_findings
from zkconsumer.admin.verify.verification import verify_group
from zkconsumer.cluster.registry import Topic07

REGISTRATION = b'{ "clicks": 1 }'
CLICKS = Topic07(("0-0", "0-1", "10-0", "2-0"))


def group(**changed: object) -> GroupNodes:
    """A sound group of one member that owns all partitions."""
    owners = {("clicks", name): (b"g_ann-0", 7) for name in CLICKS.partitions}
    fields: dict[str, object] = {
        "group": "g", "registrations": {"g_ann": REGISTRATION}, "owners": owners,
        "offsets": {("clicks", "0-1"): b"31"}, "known_topics": ("clicks",), "topics": {"clicks": b""},
        "log_ends": {("clicks", name): 46 for name in CLICKS.partitions}, "sessions": {"g_ann": 7},
        "generation": GENERATION_07, "topics_07": {"clicks": CLICKS},
    }  # fmt: skip
    return GroupNodes(**(fields | changed))  # type: ignore[arg-type]


# -- topics ----------------------------------------------------------------------------------------------------------


def topics(found: Topic07, brokers: set[int], **changed: object) -> TopicNodes:
    ends = {TopicPartition("clicks", name): (0, 46) for name in found.partitions}
    return TopicNodes(brokers, {"clicks": b""}, log_offsets=ends, topics_07={"clicks": found})


def test_the_broker_in_the_name_leads_and_there_are_no_replicas() -> None:
    found = topic_report(topics(Topic07(("0-0", "10-0")), {0, 10}))
    assert found.partitions == (
        TopicPartitionRow("clicks", "0-0", 0, (), None, 0, 46),
        TopicPartitionRow("clicks", "10-0", 10, (), None, 0, 46),
    )
    assert found.problems == ()


def test_json_has_the_name_of_the_node_beside_a_null_number() -> None:
    [row] = json.loads(topic_report(topics(Topic07(("0-1",)), {0})).to_json())["partitions"]
    assert (row["partition"], row["partition_node"], row["leader"], row["replicas"], row["isr"]) == (
        None, "0-1", 0, [], None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "brokers", "problem"),
    [
        (Topic07(("3-0",)), {0}, "clicks-3-0: leaderless: broker 3 has it, and is not registered"),
        (Topic07(()), {0}, "clicks: no broker that has it is registered; its partitions return with their brokers"),
        (Topic07((), ("/brokers/topics/clicks/1: no",)), {1}, "clicks: /brokers/topics/clicks/1: no"),
    ],
)
def test_what_is_wrong_with_a_topic_is_named(found: Topic07, brokers: set[int], problem: str) -> None:
    assert topic_report(topics(found, brokers)).problems == (problem,)


# -- groups ----------------------------------------------------------------------------------------------------------


def test_a_sound_group_has_its_partitions_in_the_order_of_text_and_its_lag_in_bytes() -> None:
    found = report(group())
    assert [row.partition for row in found.partitions] == ["0-0", "0-1", "10-0", "2-0"]
    assert found.members is not None
    assert [(row.pattern, row.subscription, row.problem) for row in found.members] == [("static", {"clicks": 1}, None)]
    assert (found.lag, found.lag_unknown, found.lag_unit) == (15, 3, "bytes")
    assert found.problems == ()


def test_a_member_of_kafka_08_is_a_problem() -> None:
    of_08 = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'
    found = report(group(registrations={"g_ann": of_08}))
    assert any("g_ann: registration cannot be read" in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("3-0", "broker 3 is not registered with the topic; the partition returns with it, at the same position"),
        ("0-7", "broker 0 does not have this partition of the topic"),
        ("7", "the partition does not exist"),
    ],
)
def test_an_offset_of_a_partition_that_is_not_there_says_why(name: str, problem: str) -> None:
    found = report(group(offsets={("clicks", name): b"31"}))
    [row] = [row for row in found.partitions if str(row.partition) == name]
    assert row.problems == (problem,)


def test_in_a_cluster_of_08_lag_is_in_messages() -> None:
    found = report(GroupNodes("g", {}, {}, {}))
    assert found.lag_unit == "messages"


def test_stored_offsets_come_in_the_order_of_text_and_numbers_as_numbers() -> None:
    names = [("t", name) for name in ("0-0", "0-10", "0-2", "10-0", "2-0")]
    assert StoredOffsets("g", True, dict.fromkeys(reversed(names), b"0")).names() == names
    numbers = [("t", name) for name in ("0", "2", "10")]
    assert StoredOffsets("g", True, dict.fromkeys(reversed(numbers), b"0")).names() == numbers


@pytest.mark.parametrize("name", ["\u00b2", "9" * 5000])
def test_a_node_with_a_name_that_python_takes_for_digits_hides_no_other(name: str) -> None:
    foreign = {("clicks", name): (b"g_x-0", 7), ("clicks", "0-0"): (b"g_ann-0", 7)}
    found = report(group(owners=foreign, offsets={("clicks", name): b"1"}))
    assert {row.partition for row in found.partitions} == {name, *CLICKS.partitions}
    names = [("clicks", "0-0"), ("clicks", name)]
    assert set(StoredOffsets("g", True, dict.fromkeys(names, b"0")).names()) == set(names)
    assert verify_group(group(owners=foreign)).faults


# -- verify ----------------------------------------------------------------------------------------------------------


def two_members(owner_of: dict[str, str], **changed: object) -> GroupNodes:
    owners = {("clicks", name): (owner.encode(), 7 if "ann" in owner else 8) for name, owner in owner_of.items()}
    members = {"g_ann": REGISTRATION, "g_bob": b"*1*cli.*"}
    return group(registrations=members, sessions={"g_ann": 7, "g_bob": 8}, owners=owners, **changed)


IN_TEXT_ORDER = {"0-0": "g_ann-0", "0-1": "g_ann-0", "10-0": "g_bob-0", "2-0": "g_bob-0"}


def test_owners_in_the_order_of_text_are_right() -> None:
    found = verify_group(two_members(IN_TEXT_ORDER))
    assert (found.members, found.partitions, found.strategy, found.findings) == (2, 4, "range", ())


def test_owners_in_the_order_of_numbers_are_wrong() -> None:
    found = verify_group(two_members(IN_TEXT_ORDER | {"10-0": "g_ann-0", "0-0": "g_bob-0"}))
    assert [each.kind for each in found.faults] == ["wrong-owner", "wrong-owner"]
    assert "range assigns it to g_ann-0" in found.faults[0].sentence


def test_a_partition_that_nobody_owns_is_found() -> None:
    found = verify_group(two_members({name: owner for name, owner in IN_TEXT_ORDER.items() if name != "2-0"}))
    assert [each.kind for each in found.faults] == ["unowned"]
    assert found.wakeable == ("g_bob",)


def test_an_owner_of_a_partition_of_a_broker_that_is_gone_is_found() -> None:
    found = verify_group(two_members(IN_TEXT_ORDER | {"7-0": "g_bob-0"}))
    assert [each.kind for each in found.faults] == ["no-such-partition"]
    assert "broker 7 is not registered with the topic" in found.faults[0].sentence


def test_a_node_that_is_named_as_in_08_is_of_another_scheme() -> None:
    found = verify_group(two_members(IN_TEXT_ORDER | {"7": "g_bob-0"}))
    assert [each.kind for each in found.faults] == ["foreign-scheme"]
    assert "0.7 does not name partitions in this way" in found.faults[0].sentence


def test_a_broker_whose_number_of_partitions_cannot_be_read_is_a_fault() -> None:
    broken = Topic07(CLICKS.partitions, ("/brokers/topics/clicks/3: not a number",))
    found = verify_group(two_members(IN_TEXT_ORDER, topics_07={"clicks": broken}))
    assert [each.kind for each in found.faults] == ["unreadable-topic"]


def test_a_member_of_08_is_named() -> None:
    of_08 = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'
    found = verify_group(group(registrations={"g_ann": of_08}))
    assert "unreadable-registration" in [each.kind for each in found.faults]


@pytest.mark.parametrize(
    ("name", "data", "kind", "is_fault"),
    [
        ("0-1", b"31", None, False), ("0-1", b"47", "offset-beyond-log", True),
        ("0-1", b"x", "unreadable-offset", True), ("7-0", b"31", "stale-offset", False),
    ],
)  # fmt: skip
def test_stored_positions_are_compared_with_the_logs(name: str, data: bytes, kind: str | None, is_fault: bool) -> None:
    found = list(offset_findings(group(offsets={("clicks", name): data}), {("clicks", "0-1"): (0, 46)}))
    assert [(each.kind, each.fault) for each in found] == ([] if kind is None else [(kind, is_fault)])
