"""What `on_partitions_assigned` may return, and what becomes of what it may not."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping

import pytest

from rebalance.ports import Starts
from simpleconsumer.types import TopicPartition
from zkconsumer.offsets.offset_records import read_starts

A, B = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@pytest.mark.parametrize("answer", [None, {}])
def test_nothing_said_is_nothing_chosen(answer: object) -> None:
    assert read_starts(answer, {A, B}) == Starts()


def test_an_offset_is_chosen_for_the_partitions_that_are_named() -> None:
    assert read_starts({A: 7}, {A, B}) == Starts({A: 7})
    assert read_starts({A: 0, B: 2**63 - 1}, {A, B}) == Starts({A: 0, B: 2**63 - 1})


def test_a_plain_pair_names_a_partition_too() -> None:
    assert read_starts({("clicks", 1): 7}, {A, B}) == Starts({B: 7})


@pytest.mark.parametrize("offset", [-1, 2**63, "7", 7.0, True, None])
def test_an_offset_that_is_none_refuses_its_partition_alone(offset: object) -> None:
    starts = read_starts({A: offset, B: 3}, {A, B})
    assert starts.chosen == {B: 3}
    assert starts.refused == {
        A: f"on_partitions_assigned returned offset {offset!r}; it must be an integer from 0 to 2^63-1"
    }


@pytest.mark.parametrize("answer", [[(A, 7)], 7, True, "clicks", iter([A])])
def test_a_value_that_is_no_mapping_refuses_all(answer: object) -> None:
    starts = read_starts(answer, {A, B})
    assert starts.chosen == {}
    assert set(starts.refused) == {A, B}
    assert (
        starts.refused[A]
        == starts.refused[B]
        == (
            f"on_partitions_assigned returned {reprlib.repr(answer)}; it must return None, or a mapping of assigned "
            "partitions to offsets, such as {TopicPartition('clicks', 0): 42}"
        )
    )


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (TopicPartition("clikcs", 0), "clikcs-0"),
        (("clicks", "0"), "clicks-0"),
        ("clicks", "'clicks'"),
        ("ab", "'ab'"),
        (7, "7"),
        (("clicks",), "('clicks',)"),
        (("clicks", 0, 1), "('clicks', 0, 1)"),
    ],
)
def test_a_partition_that_was_not_assigned_refuses_all_because_another_was_meant(key: object, named: str) -> None:
    starts = read_starts({A: 3, key: 7}, {A, B})
    assert starts.chosen == {}
    assert starts.refused == dict.fromkeys(
        (A, B), f"on_partitions_assigned returned an offset for {named}, which this call did not assign"
    )


def test_of_many_partitions_that_were_not_assigned_five_are_named() -> None:
    five = {("other", number): 1 for number in range(5)}
    assert "for other-0, other-1, other-2, other-3, other-4, which" in read_starts(five, {A}).refused[A]
    six = {("other", number): 1 for number in range(6)}
    assert "for other-0, other-1, other-2, other-3, other-4, ..., which" in read_starts(six, {A}).refused[A]


def test_a_long_value_is_shortened() -> None:
    assert len(read_starts("x" * 10_000, {A}).refused[A]) < 300
    assert len(read_starts({f"topic-{number}": 1 for number in range(10_000)}, {A}).refused[A]) < 300


def test_a_mapping_that_fails_refuses_all() -> None:
    class Broken(Mapping[TopicPartition, int]):
        def __getitem__(self, key: TopicPartition) -> int:
            raise ZeroDivisionError("the table is gone")

        def __iter__(self) -> Iterator[TopicPartition]:
            return iter([A])

        def __len__(self) -> int:
            return 1

    assert "the table is gone" in read_starts(Broken(), {A}).refused[A]
