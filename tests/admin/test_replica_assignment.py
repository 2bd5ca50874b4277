"""Replica assignments are those of Kafka's own tools: the examples of their source, and their rules for any cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.admin import TopicRefused
from zkconsumer.admin.topics.topic_plans import (
    Start,
    assign_replicas,
    check_assignment,
    check_count,
    check_numbers,
    check_settings,
    parse_assignment,
)

RACKS: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
"""The example of AdminUtils."""


def test_the_example_without_racks() -> None:
    found = assign_replicas(dict.fromkeys(range(5)), range(10), 3, Start(0, 0))
    assert [found[number] for number in range(10)] == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_the_example_with_racks() -> None:
    found = assign_replicas(RACKS, range(7), 3, Start(0, 0))
    assert [found[number] for number in range(7)] == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip
    assert assign_replicas(RACKS, range(1), 3, Start(0, 0), rack_aware=False) == {0: (0, 1, 2)}


@given(
    brokers=st.integers(1, 12), partitions=st.integers(1, 40), first=st.integers(0, 11), racks=st.integers(0, 5),
    data=st.data(),
)  # fmt: skip
def test_no_broker_stands_twice_and_leaders_are_even(
    brokers: int, partitions: int, first: int, racks: int, data: st.DataObject
) -> None:
    named: dict[int, str | None] = {each: f"r{each % racks}" if racks else None for each in range(brokers)}
    replication = data.draw(st.integers(1, brokers))
    found = assign_replicas(named, range(partitions), replication, Start(first % brokers, first % brokers))
    leaders = [found[number][0] for number in range(partitions)]
    counts = [leaders.count(broker) for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1
    for replicas in found.values():
        assert len(set(replicas)) == len(replicas) == replication
        assert len({named[broker] for broker in replicas}) == min(replication, len(set(named.values())))


def test_too_few_brokers_and_half_named_racks_are_refused() -> None:
    with pytest.raises(TopicRefused, match=r"3 replicas .* 2 brokers are registered \(0, 4\)"):
        assign_replicas({0: None, 4: None}, range(1), 3, Start(0, 0))
    with pytest.raises(TopicRefused, match="no broker is registered"):
        assign_replicas({}, range(1), 1, Start(0, 0))
    with pytest.raises(TopicRefused, match=r"1 broker \(7\) do not.*--disable-rack-aware"):
        assign_replicas({0: "a", 7: None}, range(1), 1, Start(0, 0))
    for value in (0, -1, 200_001, True, "4"):
        with pytest.raises(TopicRefused, match=r"the number of partitions is .*; it must be 1 to 200000"):
            check_count("the number of partitions", value, 200_000)  # type: ignore[arg-type]


def test_an_assignment_is_parsed_and_checked() -> None:
    assert parse_assignment("0:1, 1:2") == {0: (0, 1), 1: (1, 2)}
    for text in ("", "0:", "0:x", "0,,1", "-1", "0:1;2"):
        with pytest.raises(ValueError, match="broker ids with"):
            parse_assignment(text)
    brokers: dict[int, str | None] = dict.fromkeys(range(3))
    assert check_assignment({0: [0, 1], 1: [1, 2]}, brokers) == {0: (0, 1), 1: (1, 2)}
    with pytest.raises(TopicRefused, match="partition 1 names broker 9, not registered; registered are 0, 1, 2"):
        check_assignment({0: [0], 1: [9]}, brokers)
    with pytest.raises(TopicRefused, match="partition 0 has the replicas 1:1"):
        check_assignment({0: [1, 1]}, brokers)
    with pytest.raises(TopicRefused, match="partition 1 has 2 replicas, and the others have 1"):
        check_assignment({0: [0], 1: [1, 2]}, brokers)
    with pytest.raises(TopicRefused, match="names the partitions 0, 2"):
        check_numbers({0: [0], 2: [1]})


@pytest.mark.parametrize(
    ("name", "value", "version", "said"),
    [
        ("retention.ms", "soon", 1, "retention.ms is 'soon'; it must be an integer from -1 to 9223372036854775807"),
        ("segment.bytes", 2**31, 1, "segment.bytes is '2147483648'"),
        ("retention.hours", "1", 1, "'retention.hours' is not a setting of a topic; did you mean 'retention.ms'"),
        ("compression.type", "gzip", 1, "compression.type is a setting of Kafka 0.9 and later"),
        ("cleanup.policy", "compact,delete", 3, "cleanup.policy is 'compact,delete'"),
        ("min.cleanable.dirty.ratio", "1.5", 1, "it must be a number from 0 to 1"),
    ],
)
def test_settings_that_a_broker_could_not_read_are_refused(name: str, value: object, version: int, said: str) -> None:
    with pytest.raises(TopicRefused, match=said):
        check_settings({name: value}, version)


def test_settings_become_texts() -> None:
    given_ = {"retention.ms": 5, "preallocate": True, "cleanup.policy": "compact,delete", "compression.type": "gzip"}
    assert check_settings(given_, 4) == {
        "retention.ms": "5", "preallocate": "true", "cleanup.policy": "compact,delete", "compression.type": "gzip",
    }  # fmt: skip
