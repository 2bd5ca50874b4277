"""The audit of loads of Kafka 0.7: sums over rows that show whether each message of a span is there once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import EntrySums, OffsetSpan, PartitionCounts, audit, checksum, incomplete, light
from zkconsumer.spark.load.failures import AuditFailed, LoadRefused
from zkconsumer.spark.load.manifest import LastMessage, LoadedPartition, LoadState, Manifest
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape, rows_of_files
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

Row = tuple[int, int, int]
"""Start of the entry, number in it, next offset."""
P0 = TopicPartition("t", "0-0")


def rows_of(start: int, entries: Sequence[tuple[int, int]]) -> list[Row]:
    """The rows of entries with these sizes in bytes, and numbers of messages."""
    found: list[Row] = []
    for size, count in entries:
        found += [(start, index, start + size if index == count - 1 else start) for index in range(count)]
        start += size
    return found


def sums_of(rows: Sequence[Row]) -> EntrySums:
    """What Spark computes of the rows."""
    last = [row for row in rows if row[2] > row[0]]
    return EntrySums(
        covered=sum(end - start for start, _, end in last),
        starts=sum(checksum(start) for start, _, _ in last),
        ends=sum(checksum(end) for _, _, end in last),
        expected=sum(index + 1 for _, index, _ in last),
        weighed=sum(checksum(start) for start, _, _ in rows),
        expected_weight=sum(checksum(start) * (index + 1) for start, index, _ in last),
        indexes=sum(light(checksum(start)) * index for start, index, _ in rows),
        expected_indexes=sum(light(checksum(start)) * (index * (index + 1) // 2) for start, index, _ in last),
        squares=sum(index * index for _, index, _ in rows),
        expected_squares=sum(index * (index + 1) * (2 * index + 1) // 6 for _, index, _ in last),
    )


def counts_of(rows: Sequence[Row]) -> PartitionCounts:
    first, last = min(row[0] for row in rows), max(row[0] for row in rows)
    return PartitionCounts(len(rows), 0, first, last, len(rows), 10, None, sums_of(rows))


ENTRIES = st.lists(st.tuples(st.integers(5, 60), st.integers(1, 5)), min_size=1, max_size=12)


@given(st.integers(0, 2**40), ENTRIES)
def test_whole_entries_pass(start: int, entries: list[tuple[int, int]]) -> None:
    rows = rows_of(start, entries)
    end = start + sum(size for size, _ in entries)
    assert sums_of(rows).fault(start, end, len(rows)) == ""
    [loaded] = audit({P0: OffsetSpan(start, end)}, {P0: counts_of(rows)}, ())
    assert loaded == LoadedPartition("t", "0-0", start, end, len(rows), 10)


@given(st.integers(0, 2**40), ENTRIES, st.data())
def test_a_row_that_is_missing_or_there_twice_is_found(
    start: int, entries: list[tuple[int, int]], data: st.DataObject
) -> None:
    rows = rows_of(start, entries)
    end = start + sum(size for size, _ in entries)
    gone, twice = (data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True, max_size=3)) for _ in range(2))
    changed = [row for number, row in enumerate(rows) if number not in gone] + [rows[number] for number in twice]
    assume(changed and sorted(changed) != sorted(rows))
    assert sums_of(changed).fault(start, end, len(changed))
    assert incomplete({P0: OffsetSpan(start, end)}, {P0: counts_of(changed)}, ()) == [P0]


def test_rows_whose_numbers_add_up_to_those_of_missing_ones_are_found() -> None:
    rows = rows_of(0, [(5, 3), (5, 3), (5, 1), (5, 1), (5, 5), (5, 3)])
    gone, twice = (3, 5, 14), (4, 5, 13)
    changed = [row for number, row in enumerate(rows) if number not in gone] + [rows[number] for number in twice]
    assert sums_of(changed).fault(0, 30, len(changed))


def test_one_entry_twice_and_one_of_its_size_missing_is_found() -> None:
    entries = [(16, 1)] * 8
    rows = rows_of(0, entries)
    changed = [*rows[:3], rows[2], *rows[4:]]
    with pytest.raises(
        AuditFailed, match="t/0-0: the entries from position 0 to 128 were not written exactly once each"
    ):
        audit({P0: OffsetSpan(0, 128)}, {P0: counts_of(changed)}, ())


def test_a_short_run_names_the_bytes_and_the_way_out() -> None:
    with pytest.raises(AuditFailed, match=r"entries of 16 bytes were written, positions 0 to 32 have 32 .*gaps allow"):
        audit({P0: OffsetSpan(0, 32)}, {P0: counts_of(rows_of(0, [(16, 1)]))}, ())
    [loaded] = audit({P0: OffsetSpan(0, 32)}, {P0: counts_of(rows_of(0, [(16, 1)]))}, ("t",))
    assert loaded.missing == 16


def test_the_manifest_names_partitions_as_zookeeper_does() -> None:
    offsets = StreamOffsets({P0: 128, TopicPartition("t", "10-0"): 5}, {}, 1393632000000)
    state = LoadState(offsets, {P0: LastMessage(112, None, 7)}, frozenset({TopicPartition("t", "2-1")}), 9)
    manifest = Manifest(1, "id", "2026-01-01T00:00:00+00:00", "zk", "parquet", "date", state,
                        (LoadedPartition("t", "0-0", 0, 128, 8, 80),))  # fmt: skip
    text = manifest.to_json()
    assert '"0-0": 128' in text
    assert Manifest.from_json("runs/000000001.json", text) == manifest


def test_a_manifest_with_another_name_is_refused() -> None:
    state = LoadState(StreamOffsets({P0: 128}))
    text = Manifest(1, "id", "2026-01-01T00:00:00+00:00", "zk", "parquet", "date", state).to_json()
    with pytest.raises(LoadRefused, match="'0-00' is not the name of a partition"):
        Manifest.from_json("runs/000000001.json", text.replace('"0-0"', '"0-00"'))


def test_the_files_have_the_places_of_messages() -> None:
    shape = Shape("parquet", "date")
    assert rows_of_files(shape._replace(has_places=True)) == (
        rows_of_files(shape) + ", broker int, entry_index int, next_offset bigint"
    )


def test_settings_that_have_no_meaning_there_are_refused() -> None:
    source = {"zookeeper.connect": "zk", "subscribe": "t", "kafka.generation": "0.7"}
    settings = LoadSettings(source, "/nowhere")
    assert settings.shape.has_places
    assert replace(settings, allow_loss=True).shape.has_places
    with pytest.raises(LoadRefused, match=r"a run on Kafka 0\.7 cannot be limited by messages or time"):
        replace(settings, max_messages=10)
    with pytest.raises(LoadRefused, match=r"a table \(delta\) cannot have messages of Kafka 0\.7"):
        LoadSettings(source, "/nowhere", Shape("delta", "date"))
