"""Where partitions without a stored offset start: known at the start, later ones, and those that come back."""

from __future__ import annotations

import pytest

from rebalance.errors import RefusedNode
from rebalance.known_topics import SINCE_START, KnownTopics
from rebalance.zookeeper.port.requests import Fault
from rebalance.zookeeper.snapshot import GroupSnapshot, TopicNode


def snapshot(**topics: tuple[int | str, ...]) -> GroupSnapshot:
    """A group with these topics, each of its first incarnation."""
    return GroupSnapshot({}, {name: TopicNode(partitions) for name, partitions in topics.items()})


def known(policy: str, *snapshots: GroupSnapshot) -> KnownTopics:
    topics = KnownTopics(policy)
    for each in snapshots:
        topics.update(each)
    return topics


@pytest.mark.parametrize("policy", ["smallest", "largest"])
def test_what_was_there_at_the_start_follows_the_policy_and_later_partitions_start_at_their_smallest(
    policy: str,
) -> None:
    topics = known(policy, snapshot(clicks=(0, 1)), snapshot(clicks=(0, 1, 2), views=(0,)))
    assert topics.policy(("clicks", 1)) == policy
    assert topics.policy(("clicks", 2)) == topics.policy(("views", 0)) == "smallest"


def test_a_late_partition_of_kafka_07_starts_with_what_was_written_since_the_start() -> None:
    topics = known("largest", snapshot(clicks=("0-0",)), snapshot(clicks=("0-0", "1-0"), views=("1-0",)))
    assert topics.policy(("clicks", "0-0")) == "largest"
    assert topics.policy(("clicks", "1-0")) == SINCE_START
    assert topics.policy(("views", "1-0")) == "smallest"  # the whole topic is new


def test_a_topic_of_kafka_07_without_brokers_at_the_start_is_not_new() -> None:
    assert known("largest", snapshot(clicks=()), snapshot(clicks=("1-0",))).policy(("clicks", "1-0")) == SINCE_START


def test_a_partition_of_kafka_07_that_was_away_counts_as_a_late_one() -> None:
    there, away = snapshot(clicks=("0-0", "1-0")), snapshot(clicks=("0-0",))
    topics = known("largest", there, away, there)
    assert topics.policy(("clicks", "0-0")) == "largest"
    assert topics.policy(("clicks", "1-0")) == SINCE_START


def test_a_topic_of_kafka_07_that_may_not_be_read_for_a_while_is_not_away() -> None:
    closed = GroupSnapshot({}, {}, refused_topics={"clicks": RefusedNode("/brokers/topics/clicks", Fault.NO_AUTH)})
    there = snapshot(clicks=("0-0",))
    assert known("largest", there, closed, there).policy(("clicks", "0-0")) == "largest"
    assert known("largest", closed, there).policy(("clicks", "0-0")) == "largest"


@pytest.mark.parametrize("policy", ["smallest", "raise"])
def test_no_other_policy_has_late_partitions_of_kafka_07_start_anywhere_but_at_their_smallest(policy: str) -> None:
    topics = known(policy, snapshot(clicks=("0-0",)), snapshot(clicks=("0-0", "1-0")))
    assert topics.policy(("clicks", "0-0")) == policy
    assert topics.policy(("clicks", "1-0")) == "smallest"


def test_a_topic_that_is_created_again_starts_at_its_smallest() -> None:
    first = GroupSnapshot({}, {"clicks": TopicNode((0,), 5)})
    second = GroupSnapshot({}, {"clicks": TopicNode((0,), 9)})
    topics = KnownTopics("largest")
    assert topics.update(first) == []
    assert topics.update(second) == ["clicks"]
    assert topics.policy(("clicks", 0)) == "smallest"


def test_a_topic_is_created_again_when_it_has_a_number_that_it_never_had() -> None:
    topics = KnownTopics("largest")

    def recreated(incarnation: int) -> list[str]:
        return topics.update(GroupSnapshot({}, {"clicks": TopicNode((0,), incarnation)}))

    assert [recreated(each) for each in (0, 7, 0, 7)] == [[]] * 4  # not known is no news
    assert topics.policy(("clicks", 0)) == "largest"
    assert [recreated(each) for each in (8, 7, 8)] == [["clicks"], [], []]
    assert (topics.incarnation("clicks"), topics.policy(("clicks", 0))) == (8, "smallest")
    assert recreated(9) == ["clicks"]
