"""Columns of the Spark source, and offsets and partitions as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import ColumnsRefused
from zkconsumer.spark.options.offsets_json import nested_offsets, parse_assignment, parse_offsets
from zkconsumer.spark.schema import chosen_columns, schema_text

NAMES = st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1))


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert schema_text() == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert schema_text(with_errors=True) == f"{schema_text()}, error string"


def test_a_schema_chooses_columns_and_their_order() -> None:
    assert chosen_columns([("offset", "bigint", True), ("topic", "string", True)]) == ("offset", "topic")


@pytest.mark.parametrize(
    ("fields", "means"),
    [
        ([], "has no column"),
        ([("ofset", "bigint", True)], "column 'ofset' does not exist (did you mean 'offset'?)"),
        ([("Offset", "bigint", True)], "did you mean 'offset'?"),
        ([("headers", "binary", True)], "includeHeaders=true only"),
        ([("error", "string", True)], "onMessageError=row"),
        ([("xxxxxx", "string", True)], "existing columns: key, value"),
        ([("offset", "int", True)], "column 'offset' is bigint, not int"),
        ([("value", "string", True)], "column 'value' is binary, not string; cast it after load()"),
        ([("offset", "bigint", False)], "leave NOT NULL out"),
        ([("key", "binary", True), ("key", "binary", True)], "named twice"),
    ],
)
def test_what_the_source_cannot_fill_is_refused_by_name(fields: list[tuple[str, str, bool]], means: str) -> None:
    with pytest.raises(ColumnsRefused) as caught:
        chosen_columns(fields)
    assert means in str(caught.value)


@given(st.dictionaries(NAMES, st.integers(-2, 2**63 - 1), min_size=1))
def test_offsets_come_back_from_json(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(json.dumps(nested_offsets(offsets))) == offsets


@given(st.dictionaries(NAMES, st.integers(0, 9), min_size=1))
def test_offsets_are_written_in_one_order(offsets: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(nested_offsets(offsets)) == json.dumps(nested_offsets(backwards))


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("", "is not JSON"),
        ("[]", "names no topic"),
        ("{}", "names no topic"),
        ('{"a": 1}', "topic 'a' has 1"),
        ('{"a": {"x": 1}}', "has partition 'x'"),
        ('{"a": {"-1": 1}}', "has partition '-1'"),
        ('{"a": {"0": "1"}}', "a/0 has '1'"),
        ('{"a": {"0": true}}', "a/0 has True"),
        ('{"a": {"0": -3}}', "a/0 has -3"),
        ('{"a": {"0": 9223372036854775808}}', "a/0 has 9223372036854775808"),
        ('{"a": {"0": 1, "0": 2}}', "'0' is named twice"),
        ('{"a": {"0": 1, "00": 2}}', "partition 0 of 'a' is named twice"),
        ('{"a/b": {"0": 1}}', "topic 'a/b'"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_other_json_is_refused_with_what_is_wrong(text: str, means: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_offsets(text)
    assert means in str(caught.value)
    assert len(str(caught.value)) < 400


def test_assigned_partitions_are_sorted_and_named_once() -> None:
    assert parse_assignment('{"b": [1, 0, 1], "a": [7]}') == (("a", 7), ("b", 0), ("b", 1))
