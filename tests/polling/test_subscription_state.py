"""The subscription of a consumer: four kinds that exclude each other, and what is assigned under each."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rebalance.errors import InvalidName
from simpleconsumer.types import TopicPartition
from zkconsumer.polling.errors import NotSubscribed, SubscriptionConflict
from zkconsumer.polling.subscription_state import SubscriptionKind, SubscriptionState

A, B, C = (TopicPartition("clicks", number) for number in range(3))
PATTERN = re.compile("cl.*")

SUBSCRIBE: dict[SubscriptionKind, Callable[[SubscriptionState], object]] = {
    SubscriptionKind.TOPICS: lambda state: state.subscribe(["clicks"]),
    SubscriptionKind.PATTERN: lambda state: state.subscribe_to_pattern(PATTERN),
    SubscriptionKind.PARTITIONS: lambda state: state.assign([A]),
}


def state(kind: SubscriptionKind = SubscriptionKind.NONE) -> SubscriptionState:
    made = SubscriptionState()
    if kind is not SubscriptionKind.NONE:
        SUBSCRIBE[kind](made)
    return made


# The kinds exclude each other


@pytest.mark.parametrize("first", SUBSCRIBE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("second", SUBSCRIBE, ids=lambda kind: kind.name)
def test_kinds_exclude_each_other_until_unsubscribe(first: SubscriptionKind, second: SubscriptionKind) -> None:
    tested = state(first)
    if first is not second:
        before = tested.topics, tested.pattern, tuple(tested.assigned)
        with pytest.raises(SubscriptionConflict, match=f"{first.value}, and subscription to topics, partitions and "
                           "pattern are mutually exclusive; call unsubscribe"):  # fmt: skip
            SUBSCRIBE[second](tested)
        assert (tested.topics, tested.pattern, tuple(tested.assigned)) == before
        assert tested.unsubscribe()
    SUBSCRIBE[second](tested)
    assert tested.kind is second


@pytest.mark.parametrize("kind", SUBSCRIBE, ids=lambda kind: kind.name)
def test_unsubscribe_drops_all(kind: SubscriptionKind) -> None:
    tested = state(kind)
    if tested.is_of_group:
        tested.assigned_from_group([A], cooperative=True)
    assert tested.unsubscribe()
    assert (tested.kind, tested.topics, tested.pattern) == (SubscriptionKind.NONE, frozenset(), None)
    assert list(tested.assigned) == []
    assert not tested.unsubscribe()


# Topics


def test_a_subscription_replaces_the_one_before() -> None:
    tested = state()
    assert tested.subscribe(["clicks", "views"])
    assert not tested.subscribe(["views", "clicks", "clicks"])
    assert tested.subscribe(["orders"])
    assert tested.topics == {"orders"}


def test_the_assignment_stays_until_the_group_is_assigned_anew() -> None:
    tested = state(SubscriptionKind.TOPICS)
    tested.assigned_from_group([A], cooperative=False)
    tested.subscribe(["orders"])
    assert list(tested.assigned) == [A]


def test_no_topics_end_the_subscription() -> None:
    tested = state(SubscriptionKind.TOPICS)
    assert tested.subscribe([])
    assert tested.kind is SubscriptionKind.NONE


def test_impossible_topics_are_refused_and_the_subscription_stays() -> None:
    tested = state(SubscriptionKind.TOPICS)
    with pytest.raises(InvalidName):
        tested.subscribe(["orders", "a/b"])
    with pytest.raises(TypeError, match=r"'orders' is text; topics must be a list of names: \['orders'\]"):
        tested.subscribe("orders")
    assert tested.topics == {"clicks"}


# Patterns


def test_another_pattern_replaces_the_one_before() -> None:
    tested = state(SubscriptionKind.PATTERN)
    assert not tested.subscribe_to_pattern(re.compile("cl.*"))
    assert tested.subscribe_to_pattern(re.compile("o.*"))
    assert tested.topics == frozenset()


# Partitions that the application assigns


def test_assigned_partitions_keep_their_positions_when_others_come() -> None:
    tested = state(SubscriptionKind.PARTITIONS)
    tested.assigned.seek(A, 5)
    assert tested.assign([B, A]) == ((B,), ())
    assert tested.assigned.position(A) == 5
    assert tested.assign([B]) == ((), (A,))
    assert tested.topics == frozenset()


def test_no_partitions_end_the_subscription() -> None:
    tested = state(SubscriptionKind.PARTITIONS)
    assert tested.assign([]) == ((), (A,))
    assert tested.kind is SubscriptionKind.NONE


def test_an_impossible_topic_is_refused() -> None:
    with pytest.raises(InvalidName):
        state().assign([TopicPartition("a/b", 0)])


# The assignment of the group


def test_an_eager_assignment_starts_anew() -> None:
    tested = state(SubscriptionKind.TOPICS)
    assert tested.assigned_from_group([A, B], cooperative=False) == ((A, B), ())
    tested.assigned.seek(A, 5)
    assert tested.assigned_from_group([A, C], cooperative=False) == ((A, C), (A, B))
    assert tested.assigned.initializing() == [A, C]


def test_a_cooperative_assignment_keeps_what_stays() -> None:
    tested = state(SubscriptionKind.TOPICS)
    tested.assigned_from_group([A, B], cooperative=True)
    tested.assigned.seek(A, 5)
    assert tested.assigned_from_group([A, C], cooperative=True) == ((C,), (B,))
    assert tested.assigned.position(A) == 5
    assert tested.assigned.initializing() == [C]


@pytest.mark.parametrize("kind", [SubscriptionKind.NONE, SubscriptionKind.PARTITIONS])
def test_without_a_subscription_there_is_no_assignment_of_the_group(kind: SubscriptionKind) -> None:
    with pytest.raises(NotSubscribed, match=f"cannot take an assignment of the group: {kind.value}"):
        state(kind).assigned_from_group([A], cooperative=False)
