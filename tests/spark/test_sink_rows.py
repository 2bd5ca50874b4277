"""What columns of messages the Spark sink makes of record batches, and where keys belong."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.producer.partitioners import (
    Partitioner,
    partition_07,
    partition_08,
    partition_082,
    partition_murmur2,
)
from zkconsumer.spark.errors import RowRefused
from zkconsumer.spark.header_column import header_array
from zkconsumer.spark.writing.key_partitions import KeyColumn, partition_indexes
from zkconsumer.spark.writing.sink_options import SinkColumns
from zkconsumer.spark.writing.sink_writers import RowColumns, _batches

NAMED: list[Partitioner] = [partition_07, partition_08, partition_082, partition_murmur2]
HASH_MIN = "polygenelubricants"


def column(keys: list[bytes | None], is_text: bool) -> KeyColumn:
    data = b"".join(key or b"" for key in keys)
    offsets = np.cumsum([0, *(len(key or b"") for key in keys)], dtype=np.int64)
    return KeyColumn(keys, np.frombuffer(data, np.uint8), offsets, is_text)


def one_by_one(keys: list[bytes | None], is_text: bool, partitioner: Partitioner, partitions: int) -> list[int]:
    return [-1 if key is None else partitioner(key.decode() if is_text else key, partitions) for key in keys]


@pytest.mark.parametrize("partitioner", NAMED)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(1, 50))
def test_keys_of_bytes_go_where_the_partitioner_says(
    partitioner: Partitioner, keys: list[bytes | None], partitions: int
) -> None:
    found = partition_indexes(column(keys, False), partitioner, partitions)
    assert found == one_by_one(keys, False, partitioner, partitions)


@pytest.mark.parametrize("partitioner", NAMED)
@given(st.lists(st.none() | st.text(max_size=20), max_size=20), st.booleans(), st.integers(1, 50))
def test_keys_of_text_go_where_the_partitioner_says(
    partitioner: Partitioner, texts: list[str | None], is_ascii: bool, partitions: int
) -> None:
    cleaned = [None if text is None else text.encode("ascii" if is_ascii else "utf-8", "replace") for text in texts]
    found = partition_indexes(column(cleaned, True), partitioner, partitions)
    assert found == one_by_one(cleaned, True, partitioner, partitions)


def test_long_keys_and_hashes_without_absolute_value() -> None:
    keys: list[bytes | None] = [random.Random(n).randbytes(n * 97) for n in range(20)]
    for partitioner in NAMED:
        assert partition_indexes(column(keys, False), partitioner, 7) == one_by_one(keys, False, partitioner, 7)
    least = column([b"a", HASH_MIN.encode()], True)
    assert partition_indexes(least, partition_082, 7) == [97 % 7, 0]
    assert partition_indexes(least, partition_07, 8) == [97 % 8, 0]
    with pytest.raises(ValueError, match="which has no absolute value"):
        partition_indexes(least, partition_07, 7)


def test_another_partitioner_gets_each_key() -> None:
    seen: list[object] = []

    def choose(key: object, partitions: int) -> int:
        seen.append(key)
        return partitions - 1

    assert partition_indexes(column([b"a", None], True), choose, 3) == [2, -1]
    assert partition_indexes(column([b"a"], False), choose, 3) == [2]
    assert seen == ["a", b"a"]
    with pytest.raises(ValueError, match="the partitioner chose 3 for the key b'a', of 3 partitions"):
        partition_indexes(column([b"a"], False), lambda key, partitions: partitions, 3)


def rows(columns: SinkColumns, topic: str | None = None, is_07: bool = False) -> RowColumns:
    return RowColumns(columns, topic, partition_082, is_07)


def test_rows_are_split_by_topic_and_keep_their_numbers_and_order() -> None:
    made = rows(SinkColumns(("topic", "key", "value"), "string", "string", True, None))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "a"]), pa.array(["k", None, "ü"]), pa.array(["1", "2", None])], names=["x", "y", "z"]
    )
    first = list(made.of_batch(batch.slice(1)))
    assert [(each.topic, each.values, each.keys, each.numbers) for each in first] == [
        ("b", [b"2"], None, [0]), ("a", [None], ["ü".encode()], [1]),
    ]  # fmt: skip
    [second] = made.of_batch(batch.slice(0, 1))
    assert (second.topic, second.keys, second.numbers, made.rows) == ("a", [b"k"], [2], 3)
    assert second.choose is not None
    assert second.choose(5) == [partition_082("k", 5)]


def test_slices_have_a_few_megabytes() -> None:
    made = rows(SinkColumns(("value",), None, "binary", False, None), "t")
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * 100_000] * 200)], names=["value"])
    sizes = [len(each.values) for each in made.of_batch(batch)]
    assert sum(sizes) == 200
    assert max(sizes) <= 42


@pytest.mark.parametrize("kind", [pa.binary, pa.large_binary, pa.string, pa.large_string])
def test_arrow_types_of_every_width_are_taken(kind: Callable[[], pa.DataType]) -> None:
    made = rows(SinkColumns(("key", "value"), "binary", "binary", False, None), "t")
    array = pa.array(["ab", None, ""], pa.string()).cast(kind())
    [found] = made.of_batch(pa.RecordBatch.from_arrays([array, array], names=["key", "value"]))
    assert (found.values, found.keys) == ([b"ab", None, b""], [b"ab", None, b""])
    assert found.choose is not None
    assert found.choose(4) == [partition_082(b"ab", 4), -1, partition_082(b"", 4)]


TIMED = SinkColumns(("value", "timestamp"), None, "binary", False, None, has_times=True)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns", "UTC")]
)
def test_times_are_cut_off_to_milliseconds_and_null_is_none(kind: pa.DataType) -> None:
    moments = pa.array([1_500_000_000_123_999, None, 0, 999, 253_402_300_799_999_999 if kind.unit == "us" else 1000])
    times = moments.cast(pa.timestamp("us")).cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    [found] = rows(TIMED, "t").of_batch(pa.RecordBatch.from_arrays([pa.array([b""] * 5), times], names=["a", "b"]))
    last = 253_402_300_799_999 if kind.unit == "us" else 1
    assert found.timestamps_ms == [1_500_000_000_123, None, 0, 0, last]
    nulls = pa.array([None, None], kind)
    [found] = rows(TIMED, "t").of_batch(pa.RecordBatch.from_arrays([pa.array([b""] * 2), nulls], names=["a", "b"]))
    assert found.timestamps_ms is None


def test_a_time_before_1970_names_its_row() -> None:
    times = pa.array([5, None, -1], pa.timestamp("us", "UTC"))
    made = rows(TIMED, "t")
    list(made.of_batch(pa.RecordBatch.from_arrays([pa.array([b""]), times[:1]], names=["a", "b"])))
    with pytest.raises(
        RowRefused, match=r"row 3 of the task: timestamp 1969-12-31 23:59:59\.999999\+00:00 is before 1970"
    ):
        list(made.of_batch(pa.RecordBatch.from_arrays([pa.array([b""] * 3), times], names=["a", "b"])))


def test_times_of_rows_one_by_one_are_those_of_the_time_zone_of_the_process() -> None:
    moment = datetime.fromtimestamp(1_500_000_000.123)
    [batch] = _batches(iter([(b"a", moment), (b"b", None)]), TIMED)
    [found] = rows(TIMED, "t").of_batch(batch)
    assert (found.values, found.timestamps_ms) == ([b"a", b"b"], [1_500_000_000_123, None])


def test_partitions_are_numbers_or_names() -> None:
    def partitions(array: pa.Array, kind: str, is_07: bool = False) -> object:
        made = rows(SinkColumns(("partition", "value"), None, "binary", False, kind), "t", is_07)
        value = pa.array([b""] * len(array))
        [found] = made.of_batch(pa.RecordBatch.from_arrays([array, value], names=["partition", "value"]))
        return found.partitions

    assert partitions(pa.array([0, 3], pa.int32()), "int") == [0, 3]
    assert partitions(pa.array([0, None], pa.int32()), "int") == [0, None]
    assert partitions(pa.array([None, None], pa.int32()), "int") is None
    assert partitions(pa.array([131075, None], pa.int32()), "int", is_07=True) == ["2-3", None]
    assert partitions(pa.array(["2-3", "7", None]), "string") == ["2-3", 7, None]
    with pytest.raises(RowRefused, match="row 1 of the task: partition '2:3' names none; a number does"):
        partitions(pa.array(["0", "2:3"]), "string")


def test_a_row_without_topic_is_named() -> None:
    made = rows(SinkColumns(("topic", "value"), None, "binary", True, None))
    good = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([b"1"])], names=["topic", "value"])
    bad = pa.RecordBatch.from_arrays([pa.array(["a", None]), pa.array([b"1", b"2"])], names=["topic", "value"])
    list(made.of_batch(good))
    with pytest.raises(RowRefused, match=r"row 2 of the task has no topic: .* null; set option topic"):
        list(made.of_batch(bad))


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_headers_become_those_of_each_message() -> None:
    made = rows(SinkColumns(("value", "headers", "topic"), None, "binary", True, None, True))
    each = [None, [("a", b"1"), ("a", None)], [], [("b", b"")], None]
    column = pa.array([row and [dict(zip(("key", "value"), one, strict=True)) for one in row] for row in each], HEADERS)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"%d" % n for n in range(5)]), column, pa.array(["x", "y", "y", "y", "x"])],
        names=["value", "headers", "topic"],
    )
    found = {messages.topic: messages.headers for messages in made.of_batch(batch.slice(1))}
    assert found == {"y": [(("a", b"1"), ("a", None)), (), (("b", b""),)], "x": None}
    [none] = made.of_batch(batch.slice(0, 1))
    assert none.headers is None
    assert header_array([None, [("a", b"1"), ("a", None)], [], [("b", bytearray())], None]) == column


@pytest.mark.parametrize("nameless", [{"key": None, "value": b"1"}, None])
def test_a_header_without_a_name_is_refused_with_the_number_of_its_row(nameless: object) -> None:
    made = rows(SinkColumns(("value", "headers"), None, "binary", False, None, True), "t")
    column = pa.array([[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}, nameless]], HEADERS)
    batch = pa.RecordBatch.from_arrays([pa.array([b"1", b"2", b"3"]), column], names=["value", "headers"])
    with pytest.raises(RowRefused, match="row 2 of the task has a header without a name: its key is null"):
        list(made.of_batch(batch))
