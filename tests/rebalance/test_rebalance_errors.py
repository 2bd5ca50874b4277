"""An error says the value, the limit and the place, and survives a trip through pickle."""

from __future__ import annotations

import pickle

import pytest

from rebalance import errors


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.UnreadableNode("/p", "not JSON", b"{"), "/p: not JSON: b'{'"),
        (errors.UnreadableNode("/p", "nothing", None), "/p: nothing: no data"),
        (errors.Kafka07Node("/p", "of 0.7", b"x"), "/p: of 0.7: b'x'"),
        (errors.InvalidName("group", "a/b", "is not allowed"), "group 'a/b' is not allowed"),
        (errors.UnsupportedFilter("a[", "not closed", 1), "topic filter 'a[' at position 1: not closed"),
        (errors.UnsupportedFilter("a", "odd"), "topic filter 'a': odd"),
        (errors.ConsumerIdInUse("/ids/c", 0x15A), "/ids/c: held by session 0x15a"),
        (errors.GroupRefused("g", "members of 0.7"), "group 'g': members of 0.7"),
        (errors.NamespaceMissing("/kafka"), "the chroot '/kafka' does not exist"),
        (errors.UnequalSubscriptions({"t": ["a", "b"], "u": ["b"]}), "u lacks a"),
    ],
)
def test_what_an_error_says(error: errors.RebalanceError, said: str) -> None:
    assert said in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_megabyte_does_not_go_into_a_log_line() -> None:
    error = errors.UnreadableNode("/p", "odd", b"x" * 1_000_000)
    assert len(error.excerpt) == 80
    assert "1000000 bytes" in str(error)
    assert len(str(error)) < 200


def test_a_long_list_of_unequal_topics_is_cut() -> None:
    unequal = {f"t{index}": [f"c{index}"] for index in range(50)}
    assert str(errors.UnequalSubscriptions(unequal)).count("lacks") == 5
