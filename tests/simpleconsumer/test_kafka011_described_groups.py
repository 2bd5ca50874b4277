"""What brokers say of the groups that they coordinate, in frames of real brokers of Kafka 0.10.2 to 4.3.

`test_kafka011_requests.py` checks that each request is encoded as it was sent, and decodes wherever it is cut.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from golden_apis import Frames, of_name
from golden_groups import ASSIGNMENT, ONE, SUBSCRIPTION, ZERO

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import DecodeError
from simpleconsumer.types import DescribedConsumerGroup, DescribedGroup, DescribedMember, ListedGroup


def each_of(pattern: str) -> Any:
    found = of_name(pattern)
    assert found
    return pytest.mark.parametrize("each", found, ids=str)


@each_of(r"ListGroups-v\d")
def test_a_broker_lists_its_groups_with_states_and_types_as_it_knows_them(each: Frames) -> None:
    code, groups = each.decoded()
    state, kind = ("Stable" if each.version >= 4 else None), ("classic" if each.version >= 5 else None)
    empty = None if state is None else "Empty"
    assert code == 0
    assert sorted(groups) == [
        ListedGroup("g-deleted", "", empty, kind), ListedGroup("g-described", "consumer", state, kind),
    ]  # fmt: skip


@each_of(r"ListGroups-stable-v\d")
def test_groups_of_one_state_are_listed(each: Frames) -> None:
    code, groups = each.decoded()
    assert (code, [row.group for row in groups]) == (0, ["g-described"])


@each_of(r"ListGroups-types-v5")
def test_groups_of_both_protocols_are_told_apart(each: Frames) -> None:
    _, groups = each.decoded()
    assert {row.group: row.group_type for row in groups}.items() >= {
        "g-consumers": "consumer", "g-described": "classic",
    }.items()  # fmt: skip


def test_states_are_asked_for_where_brokers_know_them() -> None:
    assert KAFKA011.list_groups(["Stable"]).versions == (4, 5)


@each_of(r"DescribeGroups-v\d")
def test_a_group_is_described_with_what_its_member_wrote_and_got(each: Frames) -> None:
    found, empty = each.decoded()
    assert isinstance(found, DescribedGroup)
    assert found[:5] == (0, "g-described", "Stable", "consumer", "range")
    [member] = found.members
    assert isinstance(member, DescribedMember)
    assert member == (member.member_id, None, "golden", "/127.0.0.1", SUBSCRIPTION, ASSIGNMENT)
    assert empty[:6] == (0, "g-deleted", "Empty", "", "", ())


@each_of(r"DescribeGroups-unknown-v\d")
def test_an_unknown_group_is_dead_and_an_error_from_version_6_on(each: Frames) -> None:
    [found] = each.decoded()
    assert (found.error_code, found.state) == (69 if each.version >= 6 else 0, "Dead")
    assert found.error_message == ("Group g-none not found." if each.version >= 6 else None)


@each_of(r"DescribeGroups-consumer-v6")
def test_a_group_of_the_newest_protocol_is_none_of_the_classic_one(each: Frames) -> None:
    [found] = each.decoded()
    assert (found.error_code, found.state) == (69, "Dead")


@each_of(r"OffsetDelete(-subscribed|-unknown)?-v0")
def test_offsets_are_deleted_unless_a_member_reads_the_topic(each: Frames) -> None:
    """An offset that is not there is deleted without an error."""
    expected = {"OffsetDelete-v0": [0, 0], "OffsetDelete-subscribed-v0": [86], "OffsetDelete-unknown-v0": [69]}
    assert each.decoded() == expected[each.name]


@each_of(r"ConsumerGroupDescribe-v\d")
def test_a_group_of_the_newest_protocol_is_described_with_what_its_member_has_and_shall_have(each: Frames) -> None:
    [found] = each.decoded()
    assert isinstance(found, DescribedConsumerGroup)
    assert (found.error_code, found.group, found.state, found.assignor) == (0, "g-consumers", "Stable", "uniform")
    assert found.epoch == found.assignment_epoch > 0
    [member] = found.members
    assert (member.client_id, member.client_host, member.epoch) == ("golden", "/127.0.0.1", found.epoch)
    assert (member.topics, member.instance_id, member.rack) == (("g-apis",), None, None)
    assert member.assigned == member.target == (ZERO, ONE)
    assert member.is_classic is (False if each.version >= 1 else None)


@each_of(r"ConsumerGroupDescribe-unknown-v\d")
def test_a_group_of_the_classic_protocol_is_none_of_the_newest(each: Frames) -> None:
    assert [(row.error_code, row.members) for row in each.decoded()] == [(69, ()), (69, ())]


@pytest.mark.parametrize("pattern", [r"DescribeGroups-unknown-v5", r"ConsumerGroupDescribe-unknown-v1"])
def test_another_group_than_asked_is_refused(pattern: str) -> None:
    [each, *_] = of_name(pattern)
    asked = KAFKA011.describe_groups if pattern.startswith("Describe") else KAFKA011.describe_consumer_groups
    with pytest.raises(DecodeError, match=r"results, not one for each of the 1 groups"):
        asked(["other"]).at(each.version).decode(memoryview(each.answer))


def test_an_error_of_a_deletion_as_a_whole_is_that_of_each_partition() -> None:
    asked = KAFKA011.delete_offsets("g", [ZERO, ONE]).at(0)
    assert asked.decode(memoryview(struct.pack(">hii", 30, 0, 0))) == [30, 30]
