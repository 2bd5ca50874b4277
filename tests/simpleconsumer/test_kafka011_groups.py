"""The requests of members of groups, against frames of real brokers of Kafka 0.10.2 to 4.3.

`test_kafka011_requests.py` checks that each is encoded as it was sent, and decodes wherever it is cut.
"""

from __future__ import annotations

from typing import Any

import pytest
from golden_apis import Frames, of_name
from golden_groups import ASSIGNMENT, MISSING, ONE, SUBSCRIPTION, ZERO

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import (
    GenerationMember,
    JoinedGroup,
    JoinedMember,
    JoiningMember,
    OffsetAndMetadata,
    TopicPartition,
)


def each_of(pattern: str) -> Any:
    found = of_name(pattern)
    assert found
    return pytest.mark.parametrize("each", found, ids=str)


@each_of(r"JoinGroup-v\d")
def test_a_member_alone_leads_its_group_and_sees_what_it_wrote_itself(each: Frames) -> None:
    found: JoinedGroup = each.decoded()
    assert (found.error_code, found.generation, found.protocol) == (0, 1, "range")
    assert found.leader == found.member_id
    assert found.members == (JoinedMember(found.member_id, SUBSCRIPTION),)


@each_of(r"JoinGroup-static-v5")
def test_a_static_member_has_its_instance_id_in_its_member_id_and_in_the_list(each: Frames) -> None:
    found: JoinedGroup = each.decoded()
    assert found.member_id.startswith("i-1-")
    assert found.members == (JoinedMember(found.member_id, SUBSCRIPTION, "i-1"),)


@each_of(r"JoinGroup-first-v\d")
def test_a_new_member_is_given_an_id_first_from_version_4_on(each: Frames) -> None:
    found: JoinedGroup = each.decoded()
    assert (found.error_code, found.generation, found.members) == (79, -1, ())
    assert found.member_id


@each_of(r"JoinGroup-unknown-v\d")
def test_a_made_up_member_id_is_refused(each: Frames) -> None:
    assert each.decoded().error_code == 25


@each_of(r"SyncGroup(-follower)?-v\d")
def test_the_assignment_comes_back_also_when_it_is_asked_for_again(each: Frames) -> None:
    assert each.decoded() == (0, ASSIGNMENT)


@each_of(r"Heartbeat(-later)?-v\d")
def test_heartbeats_are_answered_by_a_code(each: Frames) -> None:
    assert each.decoded() == (22 if "later" in each.name else 0)


@each_of(r"LeaveGroup(-unknown)?-v\d")
def test_the_code_of_a_leave_is_the_same_wherever_it_stands(each: Frames) -> None:
    """From version 3 on it stands beside the member, and that of the group is 0."""
    assert each.decoded() == (25 if "unknown" in each.name else 0)


@each_of(r"OffsetCommit-member-v\d")
def test_a_member_commits(each: Frames) -> None:
    """Brokers before 2.8 store the offset of a partition that is not there, too."""
    assert each.decoded() == [0, 3 if each.kafka in ("2.8.2", "3.9.2", "4.3.1") else 0]


@each_of(r"OffsetFetch-member-v\d")
def test_the_offsets_of_a_group_are_read_with_the_epochs_that_brokers_keep(each: Frames) -> None:
    [(code, stored), missing] = each.decoded()
    epoch = stored.leader_epoch
    assert (code, stored) == (0, OffsetAndMetadata(1, "m", epoch))
    assert epoch == (3 if each.version >= 5 else -1)
    assert missing == (0, OffsetAndMetadata(-1))


@each_of(r"OffsetFetch-all-v\d")
def test_all_offsets_of_a_group_are_read(each: Frames) -> None:
    code, found = each.decoded()
    assert code == 0
    assert found[ZERO][1].offset == 1
    assert ONE not in found
    assert set(found) <= {ZERO, MISSING}


def test_a_consumer_asks_for_stable_offsets_as_java_does() -> None:
    """Frames of a Java consumer and a broker of 2.8.2, which had no offsets of the group yet."""
    asked = KAFKA011.fetch_offsets("g-range", [TopicPartition("tt", 1), TopicPartition("tt", 0)]).at(7)
    assert KAFKA011.frame(asked, 10, "A").hex() == (
        "00000024000900070000000a0001410008672d72616e676502037474030000000100000000000100"
    )
    answer = bytes.fromhex(
        "0000003a0000000a0000000000020374740300000001ffffffffffffffffffffffff0100000000000000ffffffffffffffffffffffff0100000000000000"
    )
    assert asked.decode(memoryview(answer)[8:]) == [(0, OffsetAndMetadata(-1))] * 2


def test_a_static_member_is_never_sent_as_a_dynamic_one() -> None:
    asked = KAFKA011.join_group(JoiningMember("g", "", "i-1"), [("range", b"")], 10_000, 60_000)
    assert asked.versions == (5,)


@pytest.mark.parametrize(("asked", "frame"), [
    (KAFKA011.join_group(JoiningMember("g"), [("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")], 10_000, 300_000).at(0),
     "0000003a000b0000000000010001630001670000271000000008636f6e73756d657200000001000572616e67650000000d000000000001000174"
     "ffffffff"),
    (KAFKA011.sync_group(GenerationMember("g", 1, "m"), {}).at(0),
     "00000019000e0000000000010001630001670000000100016d00000000"),
    (KAFKA011.heartbeat(GenerationMember("g", 1, "m", "i")).at(3),
     "00000018000c0003000000010001630001670000000100016d000169"),
    (KAFKA011.commit_offsets_as(
        GenerationMember("g", 1, "m", "i"), {ZERO._replace(topic="t"): OffsetAndMetadata(5)}).at(7),
     "0000003500080007000000010001630001670000000100016d0001690000000100017400000001000000000000000000000005ffffffff0000"),
])  # fmt: skip
def test_frames_are_those_of_kafkas_own_classes(asked: Any, frame: str) -> None:
    assert KAFKA011.frame(asked, 1, "c").hex() == frame
