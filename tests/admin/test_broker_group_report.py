"""What is reported and found of groups that brokers coordinate, from what the brokers say."""

from __future__ import annotations

import json

import pytest
from broker_states import NONSENSE, ONE, TWO, ZERO, classic, member, newest, state

from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.broker_group_report import BrokerGroupReport, BrokerGroupState, broker_group_report
from zkconsumer.admin.groups.group_coordinators import check_code
from zkconsumer.admin.groups.group_deletion import check_without_members
from zkconsumer.admin.values import GroupHasMembers, GroupNotAuthorized
from zkconsumer.admin.verify.broker_group_findings import verify_broker_group
from zkconsumer.admin.verify.findings import Finding

BOTH = {ZERO: 20, ONE: 15}


def found_in(group: BrokerGroupState, least_members: int = 1) -> dict[str, Finding]:
    """The findings, by kind."""
    return {each.kind: each for each in verify_broker_group(group, least_members).findings}


def test_a_group_with_an_owner_of_each_partition_is_fine() -> None:
    group = state(classic(member("b", has=[ONE]), member("a", has=[ZERO])), BOTH)
    found = broker_group_report(group)
    assert (found.problems, found.lag, found.lag_unknown, found.unassigned) == ((), 5, 0, ())
    assert [row.client_id for row in found.members] == ["a", "b"]
    assert [(row.owner, row.offset, row.log_start, row.log_end, row.lag) for row in found.partitions] == [
        ("a-1", 20, 5, 20, 0), ("b-1", 15, 5, 20, 5),
    ]  # fmt: skip
    assert (found.coordinator, found.coordinator_address, found.assignor) == (3, "b3:9092", "range")
    verified = verify_broker_group(group, 2)
    assert (verified.findings, verified.members, verified.partitions, verified.strategy) == ((), 2, 2, "range")


def test_a_partition_without_an_owner_is_a_fault_that_a_rebalance_may_explain() -> None:
    group = state(classic(member("a", has=[ZERO])), BOTH)
    [row] = broker_group_report(group).unassigned
    assert (row.partition, row.problems[0].split(":")[0]) == (1, "unassigned")
    found = found_in(group)
    assert list(found) == ["unowned"]
    assert (found["unowned"].passing, found["unowned"].path) == (True, "clicks-1")
    assert "clicks-1 is assigned to no member, although a-1 subscribes to it" in found["unowned"].sentence


def test_a_group_that_rebalances_shows_no_assignment_and_is_no_fault_at_once() -> None:
    group = state(classic(member("a", has=[ZERO]), state="PreparingRebalance"), BOTH)
    report = broker_group_report(group)
    assert (report.members[0].subscribed, report.members[0].assigned, report.assignor) == (None, (), None)
    assert report.problems == ("the group is in state PreparingRebalance: its partitions may move",)
    found = found_in(group)
    assert list(found) == ["rebalancing"]
    assert found["rebalancing"].passing
    assert "max.poll.interval.ms" in found["rebalancing"].remedy


def test_two_owners_idle_members_and_missing_topics_are_found() -> None:
    group = state(classic(
        member("a", has=[ZERO, ONE]), member("b", ("clicks", "nowhere"), [ONE]), member("c"),
    ), BOTH)  # fmt: skip
    found = found_in(group)
    assert {kind: each.fault for kind, each in found.items()} == {
        "two-owners": True, "missing-topic": False, "idle-member": False,
    }  # fmt: skip
    assert "clicks-1 is assigned to 2 members: a-1, b-1" in found["two-owners"].sentence
    problems = broker_group_report(group).problems
    assert "nowhere: the topic does not exist" in problems
    assert "clicks-1: 2 members own it: a-1, b-1" in problems


@pytest.mark.parametrize(("offset", "kind", "said"), [
    (21, "offset-beyond-log", "clicks-0: its stored offset 21 is 1 beyond the end of its log"),
    (4, "offset-before-log", "clicks-0: its stored offset 4 is 1 before the start of its log"),
])  # fmt: skip
def test_offsets_outside_of_the_log_are_found(offset: int, kind: str, said: str) -> None:
    group = state(classic(state="Empty"), {ZERO: offset})
    found = found_in(group, 0)
    assert list(found) == [kind]
    assert said in found[kind].sentence
    assert "zkconsumer offsets set billing --topic clicks --partition 0 --to earliest" in found[kind].remedy
    [row] = broker_group_report(group).partitions
    assert len(row.problems) == 1
    assert row.lag == (None if offset > 20 else 16)


def test_offsets_of_deleted_topics_and_logs_that_are_not_known_are_found() -> None:
    gone = TopicPartition("gone", 0)
    group = state(classic(state="Empty"), {gone: 3, ZERO: 7}, {ZERO: "broker 9 is silent"})
    found = found_in(group, 0)
    assert {kind: each.fault for kind, each in found.items()} == {"unknown-log": True, "stale-offset": False}
    report = broker_group_report(group)
    assert report.problems == ("clicks-0: its log could not be read: broker 9 is silent",
                               "gone-0: the partition does not exist")  # fmt: skip
    assert (report.lag, report.lag_unknown) == (None, 2)


def test_an_owner_that_has_not_committed_is_worth_knowing() -> None:
    found = found_in(state(classic(member("a", has=[ZERO, ONE])), {ONE: 20}))
    assert {kind: each.fault for kind, each in found.items()} == {"uncommitted": False}
    assert "clicks-0: a-1 has it, but no offset is stored, though its log has" in found["uncommitted"].sentence


def test_what_cannot_be_read_is_named() -> None:
    broken = member("a")._replace(metadata=NONSENSE)
    group = state(classic(broken, member("b", has=[ZERO, ONE])), BOTH)
    found = found_in(group)
    assert list(found) == ["unreadable-subscription"]
    assert found["unreadable-subscription"].sentence.startswith("a-1: its subscription cannot be read: array of 99")
    assert broker_group_report(group).problems[0].startswith("a-1: its subscription cannot be read")


def test_members_that_are_no_consumers_are_not_understood_and_no_fault() -> None:
    worker = member("a")._replace(metadata=NONSENSE, assignment=NONSENSE)
    group = state(classic(worker, protocol_type="connect"), partitions={}, logs={})
    found = found_in(group)
    assert {kind: each.fault for kind, each in found.items()} == {"no-consumers": False}
    assert broker_group_report(group).problems == ()


def test_the_newest_protocol_tells_what_a_member_has_and_shall_have() -> None:
    group = state(newest([ZERO], [ZERO, ONE], "Reconciling"), BOTH)
    report = broker_group_report(group)
    assert (report.group_type, report.epoch, report.assignment_epoch) == ("consumer", 5, 5)
    [row] = report.members
    assert (row.assigned, row.target, row.epoch, row.rack, row.instance_id) == (
        ("clicks-0",), ("clicks-0", "clicks-1"), 4, "r1", "i-1",
    )  # fmt: skip
    found = found_in(group)
    assert {kind: each.passing for kind, each in found.items()} == {"rebalancing": True, "not-reconciled": True}
    assert found["not-reconciled"].sentence == "m does not have clicks-1 yet"
    gives_up = found_in(state(newest([ZERO, ONE], [ZERO], "Reconciling"), BOTH))
    assert gives_up["not-reconciled"].sentence == "m still has clicks-1, which it has to give up"


def test_a_topic_of_a_filter_is_known_by_the_partitions_that_a_member_has_of_it() -> None:
    group = state(newest([ZERO], [ZERO], regex="cl.*"), BOTH)
    found = found_in(group)
    assert list(found) == ["unowned"]
    said = "clicks-1 is assigned to no member, although a filter of a member subscribes to it"
    assert said in found["unowned"].sentence


def test_a_partition_that_is_no_more_is_named_where_a_member_has_it() -> None:
    group = state(classic(member("a", has=[ZERO, ONE, TWO])), BOTH)
    assert list(found_in(group)) == ["no-such-partition"]
    assert broker_group_report(group).problems == ("clicks-2: the partition does not exist",)


def test_a_report_is_json_whose_members_and_partitions_are_lists() -> None:
    report = broker_group_report(state(classic(member("a", has=[ZERO, ONE])), BOTH))
    assert isinstance(report, BrokerGroupReport)
    found = json.loads(report.to_json())
    assert (found["coordination"], found["lag_unit"], found["state"]) == ("brokers", "messages", "Stable")
    assert found["members"][0]["assigned"] == ["clicks-0", "clicks-1"]
    assert found["partitions"][1] == {
        "topic": "clicks", "partition": 1, "offset": 15, "log_end": 20, "lag": 5, "owner": "a-1", "client_id": "a",
        "host": "10.0.0.1", "log_start": 5, "problems": [],
    }  # fmt: skip


def test_a_refusal_names_the_members_and_a_missing_right_is_an_error_of_its_own() -> None:
    many = [member(f"m{number}") for number in range(7)]
    with pytest.raises(GroupHasMembers, match=r"^not done: 7 members are in it \(m0-1 of 10.0.0.1, .* and 2 more\)"):
        check_without_members(classic(*many), "not done")
    check_without_members(classic(state="Empty"), "not done")
    with pytest.raises(GroupNotAuthorized, match=r"group 'g': GroupAuthorizationFailed \(code 30\).*ACLs"):
        check_code(30, "g")
