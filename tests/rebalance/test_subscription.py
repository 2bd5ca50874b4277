"""What a consumer subscribes to, and who sees it how."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.errors import InvalidName, UnsupportedFilter
from rebalance.subscription import (
    Subscription,
    check_client_id,
    check_group,
    check_topic,
    clean_filter_text,
    consumer_id_of,
    java_regex,
    thread_ids,
)
from rebalance.zookeeper.znodes import MAX_STREAMS, Registration, format_registration, parse_registration


@pytest.mark.catalogue("N1")
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("'foo,bar baz' ", "foo|barbaz"),
        ("white1,white2", "white1|white2"),
        ('"a,b"', "a|b"),
        ("\"'a'\"", "a"),
        (" \t\na\x01", "a"),
        ("a b\tc", "ab\tc"),
        ("it's", "it's"),
        ("{1,3}", "{1|3}"),
        ("\u00a0a", "\u00a0a"),
        ("", ""),
    ],
)
def test_cleaning_as_kafka_does(text: str, cleaned: str) -> None:
    assert clean_filter_text(text) == cleaned


@pytest.mark.catalogue("N5")
@pytest.mark.parametrize(
    ("text", "topic", "with_internal", "without_internal"),
    [
        ("white1,white2", "white2", True, True),
        ("white1,white2", "black1", False, False),
        (".+", "alltopics", True, True),
        (".+", "__consumer_offsets", True, False),
        ("white_listed-topic.+", "white_listed-topic1", True, True),
        ("white_listed-topic.+", "black1", False, False),
        (r"test-(?!bad\b)[\w]+", "test-good", True, True),
        (r"test-(?!bad\b)[\w]+", "test-bad", False, False),
        ("white", "white1", False, False),
    ],
)
def test_white_lists(text: str, topic: str, with_internal: bool, without_internal: bool) -> None:
    subscription = Subscription.white_list(text)
    assert subscription.matches(topic, exclude_internal_topics=False) is with_internal
    assert subscription.matches(topic, exclude_internal_topics=True) is without_internal


def test_black_lists() -> None:
    subscription = Subscription.black_list("black1")
    assert subscription.matches("white2")
    assert not subscription.matches("black1")
    assert not subscription.matches("__consumer_offsets")
    assert subscription.matches("__consumer_offsets", exclude_internal_topics=False)
    assert subscription.pattern == "black_list"


@pytest.mark.parametrize("filtered", [Subscription.white_list, Subscription.black_list])
def test_a_filter_has_one_stream_unless_more_are_asked_for(filtered: Callable[..., Subscription]) -> None:
    assert filtered("t").streams_of("u") == 1
    assert filtered("t", MAX_STREAMS).streams_of("u") == MAX_STREAMS


def test_a_wildcard_leaves_internal_topics_out_unless_told_otherwise() -> None:
    subscription, known = Subscription.white_list(".*"), ["t", "__consumer_offsets"]
    assert subscription.topics(known) == subscription.topics(known, True) == ["t"]
    assert subscription.topics(known, exclude_internal_topics=False) == ["__consumer_offsets", "t"]


@pytest.mark.parametrize(("text", "trivial"), [("white1|white2", True), ("a-b", True), ("a_b", False), ("a.b", False)])
def test_the_expression_by_which_07_and_080_skip_the_topic_watcher(text: str, trivial: bool) -> None:
    assert (java_regex(r"[\p{Alnum}-|]+").fullmatch(text) is not None) is trivial


def test_a_static_subscription_keeps_its_topics_known_or_not() -> None:
    subscription = Subscription.static({"u": 2, "t": 1, "__consumer_offsets": 1})
    assert not subscription.is_wildcard
    assert subscription.topics(["v"]) == ["__consumer_offsets", "t", "u"]
    assert subscription.matches("__consumer_offsets")
    assert not subscription.matches("v")
    assert [subscription.streams_of(topic) for topic in "tuv"] == [1, 2, 0]


def test_a_static_subscription_may_be_empty() -> None:
    assert Subscription.static({}).topics(["t"]) == []


def test_a_wildcard_takes_the_known_topics_that_match() -> None:
    subscription = Subscription.white_list("t.*", streams=3)
    assert subscription.is_wildcard
    assert subscription.topics(["t2", "u", "t1"]) == ["t1", "t2"]
    assert subscription.streams_of("t1") == 3


def test_a_filter_that_java_refuses_is_refused_at_once() -> None:
    with pytest.raises(UnsupportedFilter):
        Subscription.white_list("(a")
    with pytest.raises(UnsupportedFilter):
        Subscription.from_registration(Registration("white_list", (("[", 1),)))


@pytest.mark.parametrize("count", [0, -1, MAX_STREAMS + 1, True, 1.0, "1"])
def test_a_count_of_streams_that_java_cannot_parse_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match="streams"):
        Subscription.static({"t": count})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="streams"):
        Subscription.white_list("t", count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription.static({"t.1": 2, "t2": 1}),
        Subscription.static({}),
        Subscription.white_list(r'"t\.1,x/y"', 2),
        Subscription.black_list("t2|__.*"),
    ],
)
def test_a_subscription_survives_its_registration(subscription: Subscription) -> None:
    data = format_registration(subscription.to_registration(1400000000123))
    assert Subscription.from_registration(parse_registration(data, "/ids/c")) == subscription


def test_the_first_entry_of_a_foreign_wildcard_counts_and_is_cleaned() -> None:
    foreign = Registration("white_list", (("'a,b'", 2), ("c", 5)))
    assert Subscription.from_registration(foreign) == Subscription.white_list("a|b", 2)


def test_a_member_of_kafka_1_1_demands_a_backslash_and_so_owns_nothing() -> None:
    data = rb'{"version":1,"subscription":{"t\\\\.1|x\\/y":2},"pattern":"white_list","timestamp":"1"}'
    registration = parse_registration(data, "/ids/c")
    assert Subscription.from_registration(registration).topics(["t.1", "t1"]) == []


def test_thread_ids_count_without_padding() -> None:
    assert thread_ids("g_c", 11)[-2:] == ["g_c-9", "g_c-10"]
    assert consumer_id_of("g_h1-1400000000000-0a1b2c3d-12") == "g_h1-1400000000000-0a1b2c3d"
    assert consumer_id_of("nohyphen") == "nohyphen"


@pytest.mark.parametrize("check", [check_group, check_topic, check_client_id])
@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "x" * 255])
def test_legal_names(check, name: str) -> None:  # type: ignore[no-untyped-def]
    assert check(name) == name


@pytest.mark.parametrize(
    ("check", "kind"), [(check_group, "group"), (check_topic, "topic"), (check_client_id, "client id")]
)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a/b", "has characters other than [a-zA-Z0-9._-], or is '.' or '..'"),
        ("x" * 256, "has 256 characters; 1 to 255 are allowed"),
        (7, "is not text"),
    ],
)
def test_an_illegal_name_is_refused_with_what_it_is_the_name_of_and_why(
    check: Callable[[object], str], kind: str, name: object, reason: str
) -> None:
    with pytest.raises(InvalidName) as refused:
        check(name)
    assert (refused.value.kind, refused.value.name, refused.value.reason) == (kind, name, reason)


@pytest.mark.catalogue("M3")
@pytest.mark.parametrize("check", [check_group, check_topic, check_client_id])
@pytest.mark.parametrize("name", [".", "..", "a/b", "x" * 256, "a b", "é", "a\n", b"g", None, 7])
def test_illegal_names(check, name: object) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidName) as refused:
        check(name)
    assert repr(name) in str(refused.value)


def test_only_a_client_id_may_be_empty() -> None:
    assert check_client_id("") == ""
    for check in (check_group, check_topic):
        with pytest.raises(InvalidName, match="0 characters"):
            check("")


names = st.text(st.sampled_from("abc._-1"), min_size=1, max_size=4)


@given(st.lists(names, min_size=1, max_size=5), st.sets(names, max_size=20))
def test_a_list_of_quoted_names_divides_the_topics(listed: list[str], known: set[str]) -> None:
    text = ",".join(rf"\Q{name}\E" for name in listed)
    assert Subscription.white_list(text).topics(known) == sorted(known & set(listed))
    assert Subscription.black_list(text).topics(known) == sorted(known - set(listed))
