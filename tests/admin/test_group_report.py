"""The report on a group: right about sound groups, and about each thing that can be wrong with one.

Kafka's own check tool called every sound group broken (KAFKA-3952).
"""

from __future__ import annotations

import dataclasses

from zkconsumer.admin.groups.group_report import GroupReport, report
from zkconsumer.admin.groups.group_state import GroupNodes

SESSION = 0x100
STATIC = b'{"version":1,"subscription":{"clicks":%d},"pattern":"static","timestamp":"1"}'
WILDCARD = b'{"version":1,"subscription":{"cl.*":2},"pattern":"white_list","timestamp":"1"}'
TOPIC = b'{"version":1,"partitions":{"0":[0],"1":[1],"2":[0]}}'

SOUND = GroupNodes(
    group="g",
    registrations={"g_ann": STATIC % 1, "g_bob": WILDCARD},
    owners={("clicks", "0"): (b"g_ann-0", SESSION), ("clicks", "1"): (b"g_bob-0", SESSION),
            ("clicks", "2"): (b"g_bob-1", SESSION)},
    offsets={("clicks", "0"): b"5", ("clicks", "1"): b"7"},
    known_topics=("clicks", "views"),
    topics={"clicks": TOPIC},
    log_ends={("clicks", "0"): 9, ("clicks", "1"): 7, ("clicks", "2"): 3},
)  # fmt: skip


def told(**changes: object) -> GroupReport:
    return report(dataclasses.replace(SOUND, **changes))  # type: ignore[arg-type]


def test_a_sound_group_is_called_sound() -> None:
    found = report(SOUND)
    assert found.problems == ()
    assert [(row.partition, row.offset, row.log_end, row.lag, row.owner) for row in found.partitions] == [
        (0, 5, 9, 4, "g_ann-0"), (1, 7, 7, 0, "g_bob-0"), (2, None, 3, None, "g_bob-1"),
    ]  # fmt: skip
    assert (found.lag, found.lag_unknown) == (4, 1)
    assert [(row.consumer_id, row.pattern, row.subscription) for row in found.members] == [
        ("g_ann", "static", {"clicks": 1}), ("g_bob", "white_list", {"cl.*": 2}),
    ]  # fmt: skip


def test_a_partition_that_nobody_owns_is_orphaned() -> None:
    owners = {name: owner for name, owner in SOUND.owners.items() if name != ("clicks", "2")}
    assert told(owners=owners).problems == ("clicks-2: orphaned: a member subscribes to it, but no member owns it",)


def test_without_members_nothing_is_orphaned() -> None:
    assert told(registrations={}, owners={}).problems == ()


def test_an_owner_that_left_is_named() -> None:
    found = told(registrations={"g_bob": WILDCARD})
    assert found.problems == ("clicks-0: its owner 'g_ann-0' is not a thread of a registered member on this topic",)


def test_an_owner_node_that_names_a_member_and_no_thread_is_of_that_member() -> None:
    """As members of kafka-node write them; a consumer id may have hyphens of its own."""
    member = "g_6ba7b810-9dad"
    registrations = {member: STATIC % 1, "g_bob": WILDCARD}
    owners = {**SOUND.owners, ("clicks", "0"): (member.encode(), SESSION)}
    found = told(registrations=registrations, owners=owners)
    assert (found.problems, found.partitions[0].owner) == ((), member)
    unreadable = told(registrations={**registrations, member: b""}, owners=owners)
    assert [problem.partition(":")[0] for problem in unreadable.problems] == [member]
    assert told(registrations={"g_bob": WILDCARD}, owners=owners).problems == (
        f"clicks-0: its owner {member!r} is not a thread of a registered member on this topic",
    )


def test_a_thread_beyond_the_streams_of_its_member_is_no_owner() -> None:
    owners = {**SOUND.owners, ("clicks", "0"): (b"g_ann-1", SESSION)}
    assert "g_ann-1" in told(owners=owners).problems[0]


def test_a_persistent_owner_node_is_named() -> None:
    owners = {**SOUND.owners, ("clicks", "0"): (b"g_ann-0", 0)}
    assert told(owners=owners).problems == (
        "clicks-0: its owner node is persistent: it stays until an operator deletes it",
    )


def test_a_member_whose_registration_is_unreadable_is_reported_and_its_partitions_are_not() -> None:
    found = told(registrations={"g_ann": b"garbage", "g_bob": WILDCARD})
    assert len(found.problems) == 1
    assert found.problems[0].startswith("g_ann: registration cannot be read: /consumers/g/ids/g_ann: ")
    assert found.members[0].pattern is None


def test_a_filter_that_cannot_be_applied_is_named() -> None:
    broken = b'{"version":1,"subscription":{"(":1},"pattern":"white_list","timestamp":"1"}'
    found = told(registrations={"g_ann": STATIC % 1, "g_bob": broken})
    assert found.problems[0].startswith("g_bob: its filter cannot be evaluated in Python: ")
    assert not any("g_bob-0" in problem for problem in found.problems)


def test_an_unreadable_offset_is_named_and_the_lag_is_unknown() -> None:
    found = told(offsets={**SOUND.offsets, ("clicks", "1"): b"-5"})
    assert found.problems[0].startswith("clicks-1: offset cannot be read: /consumers/g/offsets/clicks/1: ")
    assert found.partitions[1].lag is None


def test_an_offset_beyond_the_log_is_named() -> None:
    found = told(offsets={("clicks", "1"): b"10"})
    assert found.problems == ("clicks-1: the stored offset is 3 beyond the end of the log",)
    assert (found.partitions[1].lag, found.lag, found.lag_unknown) == (None, None, 3)


def test_a_log_end_that_is_not_known_is_reported() -> None:
    found = told(log_ends={**SOUND.log_ends, ("clicks", "0"): "no broker leads it"})
    assert found.problems == ("clicks-0: log end unknown: no broker leads it",)


def test_offsets_of_topics_and_partitions_that_are_gone_are_shown() -> None:
    found = told(offsets={**SOUND.offsets, ("clicks", "9"): b"1", ("old", "0"): b"1"})
    assert found.problems == (
        "old: the topic does not exist",
        "clicks-9: the partition does not exist",
    )
    assert {(row.topic, row.partition) for row in found.partitions} >= {("clicks", 9), ("old", 0)}


def test_a_topic_that_only_a_registration_names_is_shown() -> None:
    found = told(owners={}, offsets={}, registrations={"g_ann": STATIC % 1})
    assert [row.partition for row in found.partitions] == [0, 1, 2]
    assert len(found.problems) == 3


def test_partitions_are_sorted_by_number() -> None:
    topic = b'{"version":1,"partitions":{"10":[0],"9":[0],"0":[0]}}'
    assert [row.partition for row in told(topics={"clicks": topic}, owners={}, offsets={}).partitions] == [0, 9, 10]
