"""Starts of entries around byte positions of Kafka 0.7: cuts of tasks, ends of micro-batches, logs that change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_07 import entry

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.dialect_types import PositionIs
from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.types import Broker, FetchedPartition, FetchRequest, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.spark.errors import NoEntryFound, PlanningFailed
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading import connections, entry_positions
from zkconsumer.spark.reading.bounds import SplitLimits, plan_ranges
from zkconsumer.spark.reading.entry_positions import EntryPositions, cut_at_entries
from zkconsumer.spark.streaming.log_changes import Logs, next_step, remaining_ranges
from zkconsumer.spark.streaming.stream_entries import StreamEntries
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets

P0, P1 = TopicPartition("t", "0-0"), TopicPartition("t", "1-0")
BROKER = Broker(0, "broker", 9092, generation="kafka07")
CONFIG = ConsumerConfig("zk", "group", fetch_message_max_bytes=1000)
OPTIONS = batch_options({
    "zookeeper.connect": "zk", "kafka.generation": "0.7", "subscribe": "t", "maxMessageBytes": "2m"
})  # fmt: skip


class Log:
    """A log of Kafka 0.7 on a connection that answers from memory.

    Attributes:
        read_bytes: how much was sent of it.
    """

    dialect = KAFKA07

    def __init__(self, entries: Sequence[bytes], start: int = 0, segments: Sequence[int] = ()) -> None:
        self.data = b"".join(entries)
        self.start = start
        sizes = [0, *(len(each) for each in entries)]
        self.starts = [start + sum(sizes[: count + 1]) for count in range(len(sizes))]
        self.segments = [start, *(self.starts[number] for number in segments), start + len(self.data)]
        self.read_bytes = 0

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def multifetch(self, requests: Sequence[FetchRequest], **more: object) -> list[FetchedPartition]:
        [one] = requests
        if one.offset < self.start:
            return [FetchedPartition(one.topic, one.partition, 1, -1, memoryview(b""))]
        behind = min(each for each in [*self.segments, 2**62] if each > one.offset or each == 2**62)
        found = self.data[one.offset - self.start : min(one.offset + one.max_bytes, behind) - self.start]
        self.read_bytes += len(found)
        return [FetchedPartition(one.topic, one.partition, 0, -1, memoryview(found))]

    def multi_offsets_before(self, names: object, time_ms: int, most: int) -> list[tuple[int, list[int]]]:
        return [(0, sorted(self.segments, reverse=True))]

    def close(self) -> None:
        pass


def connected(patched: pytest.MonkeyPatch, log: Log) -> EntryPositions:
    patched.setattr(connections, "take", lambda broker, config: log)
    patched.setattr(connections, "give_back", lambda consumer, config: None)
    patched.setattr(entry_positions, "_PAUSE_S", 0)
    return EntryPositions(CONFIG, 2_000_000)


@pytest.fixture
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


SIZES = st.lists(st.sampled_from([0, 1, 7, 100, 990, 5000]), min_size=1, max_size=12)


@settings(max_examples=60)
@given(SIZES, st.integers(0, 10**12), st.data())
def test_every_position_leads_to_the_entry_around_it(sizes: list[int], start: int, data: st.DataObject) -> None:
    log = Log([entry(bytes(size)) for size in sizes], start, data.draw(st.sets(st.integers(1, len(sizes)))))
    position = data.draw(st.integers(start, log.end - 1))
    around = max(each for each in log.starts if each <= position)
    behind = min(each for each in log.starts if each >= position)
    with pytest.MonkeyPatch.context() as patch:
        entries = connected(patch, log)
        found = entries.around(P0, BROKER, position)
        assert found.start == around
        assert (found.position_is is PositionIs.BOUNDARY) == (position == around)
        assert entries.behind(P0, BROKER, start, position) == behind


@settings(max_examples=60)
@given(SIZES, st.integers(0, 10**12), st.integers(1, 40), st.data())
def test_tasks_share_a_partition_at_entries_without_gap_or_overlap(
    sizes: list[int], start: int, parts: int, data: st.DataObject
) -> None:
    log = Log([entry(bytes(size)) for size in sizes], start, data.draw(st.sets(st.integers(1, len(sizes)))))
    whole = plan_ranges({P0: start}, {P0: log.end}, {P0: BROKER}, SplitLimits(min_partitions=parts))
    with pytest.MonkeyPatch.context() as patch:
        connected(patch, log)
        ranges = cut_at_entries(OPTIONS, whole)
    assert (ranges[0].start, ranges[-1].end) == (start, log.end)
    assert all(here.end == after.start for here, after in pairwise(ranges))
    assert all(each.start in log.starts and each.start < each.end for each in ranges)
    assert len(ranges) <= parts


def test_a_segment_start_near_a_cut_costs_no_reading(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(bytes(90))] * 100, 0, [50])
    entries = connected(patched, log)
    assert entries.cuts(P0, BROKER, 0, log.end, [4900]) == [5000]
    assert log.read_bytes == 0
    assert entries.cuts(P0, BROKER, 0, log.end, [7000]) == [7000]
    assert log.read_bytes <= 2500  # from the segment on


def test_entries_larger_than_a_fetch_are_stepped_over(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(bytes(500_000))] * 5)
    assert connected(patched, log).behind(P0, BROKER, 0, 1_200_000) == log.starts[3]
    assert log.read_bytes < 10_000


def test_a_walk_that_gets_nothing_ends_with_a_sentence(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(b"only")])
    said = "t/0-0 on broker 0 at broker:9092: the broker sends nothing from 14 on, before"
    with pytest.raises(PlanningFailed, match=said):
        connected(patched, log).behind(P0, BROKER, 0, 50)


def test_a_partition_without_a_leader_is_not_split() -> None:
    whole = plan_ranges({P0: 0}, {P0: 1000}, {}, SplitLimits(min_partitions=10))
    assert [(each.start, each.end) for each in cut_at_entries(OPTIONS, whole)] == [(0, 1000)]


# -- streams -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(SIZES, st.data())
def test_a_batch_ends_behind_the_entry_around_its_limit(sizes: list[int], data: st.DataObject) -> None:
    log = Log([entry(bytes(size)) for size in sizes])
    at = data.draw(st.sampled_from(log.starts[:-1]))
    limit = data.draw(st.integers(at, log.end))
    with pytest.MonkeyPatch.context() as patch:
        entries = StreamEntries(connected(patch, log))
        found = entries.batch_ends({P0: at}, {P0: limit}, {P0: log.end}, {P0: BROKER}, may_stay=True)
    assert found == {P0: min(each for each in log.starts if each >= limit)}


def test_without_its_broker_a_partition_waits_or_is_read_whole(patched: pytest.MonkeyPatch) -> None:
    entries = StreamEntries(connected(patched, Log([entry(b"x")] * 10)))
    assert entries.batch_ends({P0: 0}, {P0: 15}, {P0: 110}, {}, may_stay=True) == {P0: 0}
    assert entries.batch_ends({P0: 0}, {P0: 15}, {P0: 110}, {}, may_stay=False) == {P0: 110}


def test_a_broker_that_does_not_answer_is_waited_for_and_logged_once(
    patched: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log([entry(b"x")] * 10)
    entries = StreamEntries(connected(patched, log))
    logs = Logs(frozenset([P0]), {P0: log.end}, {}, may_return=True)

    def fail(*arguments: object, **more: object) -> list[FetchedPartition]:
        raise ConnectionFailed("broker", 9092, "no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "multifetch", fail)
        for _ in range(3):
            assert entries.replaced({P0: 22}, logs, {P0: BROKER}).ends == {}
            assert entries.batch_ends({P0: 22}, {P0: 30}, {P0: 110}, {P0: BROKER}, may_stay=True) == {P0: 22}
    assert [each.message for each in caplog.records] == [
        "t-0-0 waits: t/0-0 on broker 0 at broker:9092: broker:9092: no answer"
    ]
    assert entries.replaced({P0: 22}, logs, {P0: BROKER}) == logs


def test_a_walk_over_a_damaged_size_is_another_log(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(b"x"), b"\xff\xff\xff\xff" + bytes(50)])
    entries = connected(patched, log)
    with pytest.raises(NoEntryFound, match="entry at byte 11, after 1 entries, has size -1"):
        entries.around(P0, BROKER, 30)
    logs = Logs(frozenset([P0]), {P0: log.end}, {}, may_return=True)
    found = StreamEntries(entries).replaced({P0: 30}, logs, {P0: BROKER})
    assert "its log was replaced or is damaged: t/0-0 on broker 0" in found.replaced[P0]


def test_a_position_is_looked_at_once_until_its_broker_was_away(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(b"x")] * 10)
    entries = StreamEntries(connected(patched, log))
    logs = Logs(frozenset([P0]), {P0: log.end}, {}, may_return=True)
    assert entries.replaced({P0: 22}, logs, {P0: BROKER}) == logs
    once = log.read_bytes
    assert entries.replaced({P0: 22}, logs, {P0: BROKER}) == logs
    assert log.read_bytes == once > 0
    entries.replaced({P0: 22}, Logs(frozenset(), {}, {}, may_return=True), {})
    found = entries.replaced({P0: 23}, logs, {P0: BROKER})
    assert found.replaced == {P0: "its log was replaced: position 23 is inside its entry from 22 to 33"}
    step = next_step(StreamOffsets({P0: 23}), found, {P0: 0})
    assert (step.positions, step.ends) == ({P0: 0}, {P0: 0})
    assert [str(each) for each in step.losses] == [
        "t-0-0 from offset 23 on: its log was replaced: position 23 is inside its entry from 22 to 33"
    ]


def test_the_bytes_before_the_end_of_a_batch_tell_another_log(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(b"x" * 100)] * 30, 0, [3, 9])
    entries = StreamEntries(connected(patched, log))
    at = log.starts[10]
    logs = Logs(frozenset([P0]), {P0: log.end}, {}, may_return=True)
    entries.remember({P0: 0}, {P0: at}, {P0: BROKER})
    assert log.read_bytes == 1024  # over the end of a segment
    for _ in range(2):
        assert entries.replaced({P0: at}, logs, {P0: BROKER}) == logs
    assert log.read_bytes == 3 * 1024  # compared before each batch, and not looked at
    log.data = log.data[: at - 1] + b"y" + log.data[at:]
    found = entries.replaced({P0: at}, logs, {P0: BROKER})
    assert found.replaced == {
        P0: f"its log was replaced: the 1024 bytes before position {at} are not the bytes with "
        "which the last batch ended"
    }


def test_bytes_that_retention_has_deleted_or_that_nobody_sends_are_not_compared(
    patched: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log([entry(b"x" * 100)] * 30)
    entries = StreamEntries(connected(patched, log))
    at = log.starts[10]
    logs = Logs(frozenset([P0]), {P0: log.end}, {}, may_return=True)
    entries.remember({P0: 0}, {P0: at}, {P0: BROKER})

    def fail(*arguments: object, **more: object) -> list[FetchedPartition]:
        raise ConnectionFailed("broker", 9092, "no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "multifetch", fail)
        entries.remember({P0: 0}, {P0: log.end}, {P0: BROKER})  # what was known stays
        assert entries.replaced({P0: at}, logs, {P0: BROKER}).ends == {}
    assert [each.message for each in caplog.records] == ["t-0-0 waits: broker 0 at broker:9092: broker:9092: no answer"]
    log.start, log.data = log.starts[9], log.data[log.starts[9] :]
    before = log.read_bytes
    assert entries.replaced({P0: at}, logs, {P0: BROKER}) == logs
    assert log.read_bytes > before  # the position is looked at instead


def test_only_the_bytes_of_a_batch_are_kept_and_of_one_that_reads_nothing_none(patched: pytest.MonkeyPatch) -> None:
    log = Log([entry(b"x" * 100)] * 30)
    entries = StreamEntries(connected(patched, log))
    entries.remember({P0: log.starts[5]}, {P0: log.starts[6]}, {P0: BROKER})
    assert log.read_bytes == 110
    entries.remember({P0: log.starts[6]}, {P0: log.starts[6]}, {P0: BROKER})
    entries.remember({P0: log.starts[6]}, {P0: log.starts[9]}, {})
    assert log.read_bytes == 110


def test_partitions_go_and_return_with_their_broker() -> None:
    start = StreamOffsets({P0: 22, P1: 33})
    away = Logs(frozenset([P0]), {P0: 44}, {}, may_return=True)
    step = next_step(start, away, {P0: 0})
    assert (step.positions, step.ends, step.losses) == ({P0: 22, P1: 33}, {P0: 44, P1: 33}, [])
    waits = next_step(start, away, {P0: 0}, target={P0: 44, P1: 55})
    assert waits.ends == {P0: 44, P1: 55}
    ranges, losses = remaining_ranges(start, StreamOffsets({P0: 44, P1: 55}), away, {P0: 0})
    assert (ranges, losses) == ({P0: (22, 44), P1: (33, 55)}, [])


def test_a_broker_that_is_new_to_the_stream_is_no_loss_whatever_it_has_deleted() -> None:
    logs = Logs(frozenset([P0, P1]), {P0: 22, P1: 900}, {}, may_return=True)
    step = next_step(StreamOffsets({P0: 22}), logs, {P1: 500})
    assert (step.losses, step.positions[P1], step.new_partitions) == ([], 500, [P1])


def test_the_checkpoint_has_the_cluster_and_no_incarnations() -> None:
    offsets = StreamOffsets({P0: 22, TopicPartition("t", "10-0"): 5}, {}, 1393632000000)
    text = {"t": {"0-0": 22, "10-0": 5}, "@born": {"@cluster": 1393632000000}}
    assert offsets.to_json() == text
    assert parse_stream_offsets(text) == offsets
