"""Partitions are assigned as the members of the JVM assign them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.errors import UnequalSubscriptions
from rebalance.subscription import (
    assign_range,
    assign_roundrobin,
    assign_topic_range,
    hash_collisions,
    java_string_hash,
    sort_partitions_07,
    sort_partitions_08,
    sort_thread_ids,
    thread_ids,
)

Owners = dict[tuple[str, int], str]


def threads(**streams: int) -> list[str]:
    return [thread for consumer, count in streams.items() for thread in thread_ids(consumer, count)]


def of_topic(owners: Owners, topic: str) -> list[str]:
    return [owners[found] for found in sorted(owners) if found[0] == topic]


# Range


@pytest.mark.catalogue("B6")
@pytest.mark.parametrize(
    ("partitions", "members", "expected"),
    [
        (5, ["A-0", "A-1", "B-0"], ["A-0", "A-0", "A-1", "A-1", "B-0"]),
        (5, ["C1-0", "C1-1", "C2-0", "C2-1"], ["C1-0", "C1-0", "C1-1", "C2-0", "C2-1"]),
        (2, ["a", "b", "c"], ["a", "b"]),
        (7, threads(g1_c2=3, g1_c10=1), ["g1_c10-0"] * 2 + ["g1_c2-0"] * 2 + ["g1_c2-1"] * 2 + ["g1_c2-2"]),
        (3, ["g_a", "g_B", "g_A1"], ["g_A1", "g_B", "g_a"]),
        (12, ["m1", "m2"], ["m1"] * 6 + ["m2"] * 6),
    ],
    ids=["5 by 3", "documentation", "more threads", "c10 before c2", "case", "12 in order of numbers"],
)
def test_range_golden(partitions: int, members: list[str], expected: list[str]) -> None:
    owners = assign_range({"t": range(partitions)}, {"t": members})
    assert owners == {("t", partition): thread for partition, thread in enumerate(expected)}


@pytest.mark.parametrize("consumer", ["C", "g1_c"])
def test_thread_ten_comes_before_thread_two(consumer: str) -> None:
    owners = assign_range({"t": range(12)}, {"t": thread_ids(consumer, 12)})
    order = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
    assert of_topic(owners, "t") == [f"{consumer}-{index}" for index in order]
    assert owners["t", 2] == f"{consumer}-10"
    assert owners["t", 4] == f"{consumer}-2"


def test_range_deals_each_topic_for_itself() -> None:
    owners = assign_range(
        {"t": range(3), "u": range(2), "nobody": range(2)}, {"t": ["A-0", "B-0"], "u": ["B-0"], "not there": ["A-0"]}
    )
    assert owners == {("t", 0): "A-0", ("t", 1): "A-0", ("t", 2): "B-0", ("u", 0): "B-0", ("u", 1): "B-0"}


@pytest.mark.catalogue("B6")
def test_the_seven_versions_agree_on_two_static_members() -> None:
    members = {"t.1": threads(gs_A=2, gs_B=2), "t2": threads(gs_A=1, gs_B=1)}
    assert assign_range({"t.1": (0, 1), "t2": (0, 1)}, members) == {
        ("t.1", 0): "gs_A-0",
        ("t.1", 1): "gs_A-1",
        ("t2", 0): "gs_A-0",
        ("t2", 1): "gs_B-0",
    }


def test_partitions_of_07_are_dealt_in_the_order_of_strings() -> None:
    ordered = sort_partitions_07(["2-0", "10-0", "0-1", "0-0"])
    assert ordered == ["0-0", "0-1", "10-0", "2-0"]
    assert assign_topic_range(ordered, ["A-0", "B-0"]) == {"0-0": "A-0", "0-1": "A-0", "10-0": "B-0", "2-0": "B-0"}
    assert sort_partitions_07(["2-2", "2-10"]) == ["2-10", "2-2"]
    assert sort_partitions_07(["2-0", "10-0"]) == ["10-0", "2-0"]
    assert sort_partitions_07(["\uff5e-0", "\U0001f600-0"]) == ["\U0001f600-0", "\uff5e-0"]


def test_the_load_balance_test_of_07() -> None:
    consumer1, consumer2 = "group1_consumer1-0", "group1_consumer2-0"
    assert assign_topic_range(["400-0"], [consumer1, consumer2]) == {"400-0": consumer1}
    five = sort_partitions_07(["400-0", "200-0", "200-1", "300-0", "300-1"])
    assert assign_topic_range(five, [consumer1, consumer2]) == {
        "200-0": consumer1,
        "200-1": consumer1,
        "300-0": consumer1,
        "300-1": consumer2,
        "400-0": consumer2,
    }
    assert assign_topic_range(five[:4], [consumer1, consumer2]) == {
        "200-0": consumer1,
        "200-1": consumer1,
        "300-0": consumer2,
        "300-1": consumer2,
    }


def test_partitions_of_08_sort_by_number_and_threads_by_utf16_units() -> None:
    assert sort_partitions_08([10, 2, 0]) == [0, 2, 10]
    assert sort_thread_ids(["a", "_", "B", "1", "-"]) == ["-", "1", "B", "_", "a"]
    # U+1F600 is two units from U+D83D on, below U+FF5E; by code points it would come last.
    assert sort_thread_ids(["\uff5e", "\U0001f600"]) == ["\U0001f600", "\uff5e"]


def test_names_that_are_no_valid_unicode_have_their_place_too() -> None:
    """JSON of a registration may hold half of a pair, `\\ud83d`, and Java sorts it as any other unit."""
    assert sort_thread_ids(["\uff5e-0", "\ud83d-0", "a-0"]) == ["a-0", "\ud83d-0", "\uff5e-0"]
    assert java_string_hash("\ud83d") == 0xD83D


# Round robin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("[topic,0]", 2068025637),
        ("[topic-b,0]", -1194853328),
        ("[topicA,0]", -315094228),
        ("[t,0]", 87540032),
        ("[u,2]", 87569885),
        ("[t0,0]", -1581112286),
        ("[t1,3]", -1581082402),
        ("[topic-1,0]", -1196313087),
        ("[topic-2,1]", -1196283265),
        ("[events,11]", 686814661),
        ("[Aa,0]", -1626752098),
        ("[BB,0]", -1626752098),
    ],
)
def test_java_string_hash(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_hash_runs_over_utf16_units() -> None:
    assert java_string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_two_topics_of_three() -> None:
    owners = assign_roundrobin({"t": range(3), "u": range(3)}, dict.fromkeys("tu", ("A-0", "B-0")))
    assert {found for found, thread in owners.items() if thread == "A-0"} == {("t", 0), ("t", 2), ("u", 1)}
    assert {found for found, thread in owners.items() if thread == "B-0"} == {("t", 1), ("u", 0), ("u", 2)}


def test_topic_b_is_dealt_before_topicA_by_the_hash() -> None:
    owners = assign_roundrobin(
        {"topicA": range(3), "topic-b": range(3)}, dict.fromkeys(["topicA", "topic-b"], thread_ids("c", 6))
    )
    assert of_topic(owners, "topic-b") == ["c-0", "c-1", "c-2"]
    assert of_topic(owners, "topicA") == ["c-3", "c-4", "c-5"]


def test_two_topics_of_four_among_three_threads() -> None:
    owners = assign_roundrobin({"t0": range(4), "t1": range(4)}, dict.fromkeys(["t0", "t1"], threads(c1=2, c2=1)))
    assert of_topic(owners, "t0") == ["c1-0", "c1-1", "c2-0", "c1-0"]
    assert of_topic(owners, "t1") == ["c1-1", "c2-0", "c1-0", "c1-1"]


@pytest.mark.parametrize(
    ("topics", "order"),
    [
        (["topic1", "a", "b", "t", "clicks", "audit", "payments", "bar", "web.hits"], [10, 11, *range(10)]),
        (["events", "orders", "logs", "foo"], list(range(12))),
    ],
)
def test_order_of_twelve_partitions(topics: list[str], order: list[int]) -> None:
    members = [f"c-{index:02}" for index in range(12)]
    for topic in topics:
        owners = assign_roundrobin({topic: range(12)}, {topic: members})
        assert sorted(range(12), key=lambda partition: owners[topic, partition]) == order


def test_foo_bar_baz_among_three_threads() -> None:
    partitions = {"foo": range(2), "bar": range(3), "baz": range(1)}
    owners = assign_roundrobin(partitions, dict.fromkeys(partitions, threads(m1=1, m2=2)))
    assert owners == {
        ("foo", 0): "m1-0",
        ("foo", 1): "m2-0",
        ("bar", 0): "m2-1",
        ("bar", 1): "m1-0",
        ("bar", 2): "m2-0",
        ("baz", 0): "m2-1",
    }


def test_the_order_of_java_1_0_hashes_another_text() -> None:
    partitions = {"t": range(12), "topic1": range(12)}
    members = dict.fromkeys(partitions, thread_ids("c", 24))
    old, new = assign_roundrobin(partitions, members), assign_roundrobin(partitions, members, order="1.0")
    by_new_hash = sorted(new, key=lambda found: java_string_hash(f"{found[0]}-{found[1]}"))
    assert [new[found] for found in by_new_hash] == sort_thread_ids(thread_ids("c", 24))
    assert old != new


def test_equal_hashes_are_told_and_go_by_topic() -> None:
    partitions = {"BB": range(2), "Aa": range(2), "other": range(2)}
    assert hash_collisions(partitions) == [[("Aa", 0), ("BB", 0)], [("Aa", 1), ("BB", 1)]]
    assert hash_collisions({"other": range(100)}) == []
    owners = assign_roundrobin({"BB": [0], "Aa": [0]}, dict.fromkeys(["Aa", "BB"], ("c-0", "c-1")))
    assert owners == {("Aa", 0): "c-0", ("BB", 0): "c-1"}


def test_unequal_threads_are_refused_and_named() -> None:
    with pytest.raises(UnequalSubscriptions) as refused:
        assign_roundrobin({"t": [0], "u": [0]}, {"t": ["A-0", "B-0"], "u": ["B-0"]})
    assert refused.value.threads == {"t": ("A-0", "B-0"), "u": ("B-0",)}
    assert "u lacks A-0" in str(refused.value)


def test_the_precondition_counts_topics_without_partitions() -> None:
    with pytest.raises(UnequalSubscriptions):
        assign_roundrobin({"t": [0]}, {"t": ["A-0", "B-0"], "unknown yet": ["B-0"]})


def test_round_robin_deals_only_topics_that_exist_and_that_somebody_subscribes_to() -> None:
    members = ["A-0", "B-0"]
    owners = assign_roundrobin({"t": [0, 1], "nobody": [0]}, {"t": members, "not there": members})
    assert owners == {("t", 0): "A-0", ("t", 1): "B-0"}


def test_no_topic_or_no_thread_is_an_empty_assignment() -> None:
    assert assign_roundrobin({}, {}) == {}
    assert assign_roundrobin({"t": [0]}, {}) == {}
    assert assign_roundrobin({"t": [0]}, {"t": []}) == {}
    assert assign_range({"t": [0]}, {"t": []}) == {}
    assert assign_topic_range([], ["A-0"]) == {}


def test_another_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^round robin order '0\.9' is not one of 0\.8, 1\.0$"):
        assign_roundrobin({"t": [0]}, {"t": ["A-0"]}, order="0.9")


# Properties

topics = st.text(st.sampled_from("abAB0._-"), min_size=1, max_size=6)
partition_sets = st.dictionaries(topics, st.sets(st.integers(0, 300), max_size=40), max_size=6)
members = st.dictionaries(st.text(st.sampled_from("abAB019_-"), min_size=1, max_size=5), st.integers(1, 12), max_size=6)


def dumb_range(partitions: set[int], ids: list[str]) -> dict[int, str]:
    """Hand out cards in turn to see how many each gets, then give each its run."""
    ordered = sorted(set(ids), key=lambda text: [ord(char) for char in text])
    counts = Counter(ordered[index % len(ordered)] for index in range(len(partitions)))
    stack = sorted(partitions)
    return {stack.pop(0): thread for thread in ordered for _ in range(counts[thread])}


@given(partition_sets, members)
def test_range_equals_a_dumb_dealer(partitions: dict[str, set[int]], streams: dict[str, int]) -> None:
    ids = threads(**streams)
    owners = assign_range(partitions, dict.fromkeys(partitions, ids))
    expected = {
        (topic, number): thread
        for topic, numbers in partitions.items()
        if ids
        for number, thread in dumb_range(numbers, ids).items()
    }
    assert owners == expected


@given(partition_sets, members, st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_read_changes_nothing(partitions, streams, random) -> None:  # type: ignore[no-untyped-def]
    ids = threads(**streams)
    shuffled_topics, shuffled_ids = list(partitions), list(ids)
    random.shuffle(shuffled_topics)
    random.shuffle(shuffled_ids)
    reread = {topic: sorted(partitions[topic], key=lambda _: random.random()) for topic in shuffled_topics}
    for assign in (assign_range, assign_roundrobin):
        first = assign(partitions, dict.fromkeys(partitions, ids))
        assert assign(reread, dict.fromkeys(shuffled_topics, shuffled_ids)) == first


@given(partition_sets, members)
def test_every_partition_has_exactly_one_owner_and_nobody_much_more(
    partitions: dict[str, set[int]], streams: dict[str, int]
) -> None:
    ids = threads(**streams) or ["only-0"]
    everything = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
    assigned = assign_roundrobin(partitions, dict.fromkeys(partitions, ids))
    ranged = assign_range(partitions, dict.fromkeys(partitions, ids))
    assert assigned.keys() == ranged.keys() == everything
    assert _spread(Counter(assigned.values()), ids) <= 1
    for topic in partitions:
        assert _spread(Counter(of_topic(ranged, topic)), ids) <= 1


def _spread(counts: Counter[str], ids: list[str]) -> int:
    loads = [counts[thread] for thread in set(ids)]
    return max(loads) - min(loads)
