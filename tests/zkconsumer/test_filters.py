"""Whitelist and Blacklist, as users hold them."""

from __future__ import annotations

import dataclasses

import pytest

from rebalance.errors import UnsupportedFilter
from rebalance.subscription import Subscription
from zkconsumer.filters import Blacklist, TopicFilter, Whitelist


@pytest.mark.parametrize(
    ("topic_filter", "topic", "with_internal", "without_internal"),
    [
        (Whitelist("white1,white2"), "white2", True, True),
        (Whitelist("white1,white2"), "black1", False, False),
        (Whitelist(".+"), "alltopics", True, True),
        (Whitelist(".+"), "__consumer_offsets", True, False),
        (Whitelist("white_listed-topic.+"), "white_listed-topic1", True, True),
        (Whitelist("white_listed-topic.+"), "black1", False, False),
        (Whitelist(r"test-(?!bad\b)[\w]+"), "test-good", True, True),
        (Whitelist(r"test-(?!bad\b)[\w]+"), "test-bad", False, False),
        (Blacklist("black1"), "white2", True, True),
        (Blacklist("black1"), "black1", False, False),
        (Blacklist("black1"), "__consumer_offsets", True, False),
    ],
)
def test_what_a_filter_allows(
    topic_filter: TopicFilter, topic: str, with_internal: bool, without_internal: bool
) -> None:
    assert topic_filter.allows(topic, exclude_internal_topics=False) is with_internal
    assert topic_filter.allows(topic, exclude_internal_topics=True) is without_internal
    assert topic_filter.allows(topic) is without_internal


def test_a_filter_is_cleaned_and_compared_by_its_meaning_to_kafka() -> None:
    assert Whitelist("'foo,bar baz' ").text == "foo|barbaz"
    assert Whitelist("a, b") == Whitelist("a|b")
    assert Whitelist("a") != Blacklist("a")
    assert len({Whitelist("a,b"), Whitelist("a|b"), Blacklist("a|b")}) == 2
    assert repr(Whitelist("a,b")) == "Whitelist(text='a|b')"


def test_a_filter_that_java_refuses_is_refused_when_it_is_made() -> None:
    with pytest.raises(UnsupportedFilter, match="position 1"):
        Whitelist("a(")
    with pytest.raises(UnsupportedFilter):
        Blacklist("[a")


def test_a_filter_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Whitelist("a").text = "b"  # type: ignore[misc]


def test_the_subscription_of_a_filter() -> None:
    assert Whitelist("a,b").subscription(3) == Subscription.white_list("a|b", 3)
    assert Blacklist("a,b").subscription(3) == Subscription.black_list("a|b", 3)
