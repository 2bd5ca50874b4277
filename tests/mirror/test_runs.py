"""The runs of a lane: which record of the source is where on the target, whatever was written in which order."""

from __future__ import annotations

import random

import pytest

from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.mirror.errors import StateUnreadable
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord, decoded
from zkconsumer.mirror.lanes.lane_events import Run

LANE = Lane("source-id", TopicPartition("clicks", 3), TopicPartition("old.clicks", 3))
ID = ProducerId(4711, 0)


def run(
    number: int, source_first: int, target_first: int, cause: RunCause = RunCause.COMPACTED, producer: ProducerId = ID,
    sequence: int | None = None,
) -> RunRecord:  # fmt: skip
    first = target_first if sequence is None else sequence
    return RunRecord(LANE, number, producer, first, source_first, target_first, cause)


def mapped(*records: RunRecord) -> LaneMap:
    found = LaneMap(LANE)
    for record in records:
        found.apply(record)
    return found


THREE = mapped(run(1, 100, 0, RunCause.START), run(2, 120, 10), run(3, 200, 30, RunCause.TRANSACTION))


def test_the_position_is_computed_from_the_end_of_the_target() -> None:
    for end, position in ((0, 100), (9, 109), (10, 120), (29, 139), (30, 200), (1_000, 1_170)):
        found = THREE.at(end)
        assert found is not None
        assert found.source_at(end) == position


def test_of_two_processes_that_write_the_same_number_the_first_one_counts() -> None:
    found = mapped(run(1, 100, 0, RunCause.START))
    assert found.apply(run(2, 150, 20))
    assert not found.apply(run(2, 170, 20))
    assert not found.apply(run(4, 500, 400))
    assert [each.source_first for each in found.runs] == [100, 150]
    assert found.apply(run(3, 180, 40))


def test_a_run_replaces_those_that_start_at_or_after_it_on_the_target() -> None:
    """The log was cut off there, or nothing was ever written in them."""
    found = mapped(run(1, 100, 0), run(2, 150, 20), run(3, 200, 40), run(4, 160, 30))
    assert [(each.source_first, each.target_first) for each in found.runs] == [(100, 0), (150, 20), (160, 30)]
    assert found.number == 4
    assert found.at(40) == run(4, 160, 30)


def test_numbers_of_a_producer_rise_through_its_runs_and_start_anew_with_its_next_epoch() -> None:
    later = ProducerId(4711, 1)
    found = mapped(run(1, 100, 0), run(2, 150, 20), run(3, 170, 40, producer=later, sequence=0),
                   run(4, 300, 60, producer=later, sequence=20))  # fmt: skip
    assert found.numbering(found.runs[1]) == Run(ID, 0, 0)
    assert found.numbering(found.runs[3]) == Run(later, 40, 0)
    assert found.numbering(found.runs[3]).sequence_at(65) == 25


def test_only_runs_with_records_have_a_stretch() -> None:
    found = mapped(run(1, 100, 0), run(2, 150, 20), run(3, 200, 40))
    assert [(each.run.number, each.target_end, each.source_end) for each in found.stretches(30)] == [
        (1, 20, 120), (2, 30, 160)
    ]  # fmt: skip
    assert [each.run.number for each in found.stretches(20)] == [1]
    assert list(found.stretches(0)) == []
    assert [each.records for each in found.stretches(41)] == [20, 20, 1]


@pytest.mark.parametrize("seed", range(50))
def test_every_record_of_a_drawn_history_is_found_where_it_was_put(seed: int) -> None:
    """Holes, log ends that fall, and runs that were announced and never begun."""
    rng = random.Random(seed)
    found, target = LaneMap(LANE), []
    source = rng.randrange(1_000)
    found.apply(run(1, source, 0, RunCause.START))
    for _ in range(40):
        if rng.random() < 0.2 and target:  # an election cuts the log off
            del target[rng.randrange(len(target)) :]
        now = found.at(len(target))
        assert now is not None
        source = now.source_at(len(target))
        if rng.random() < 0.5:
            source += rng.randrange(1, 50)
            assert found.apply(run(found.number + 1, source, len(target)))
        upcoming = found.after(len(target))
        most = 30 if upcoming is None else min(30, upcoming.target_first - len(target))
        target += range(source, source + rng.randrange(most + 1))
        for index, offset in enumerate(target):
            at = found.at(index)
            assert at is not None
            assert at.source_at(index) == offset
    copied = [offset for each in found.stretches(len(target))
              for offset in range(each.run.source_first, each.source_end)]  # fmt: skip
    assert copied == target


def test_a_record_is_read_as_it_was_written() -> None:
    record = RunRecord(LANE, 7, ProducerId(1 << 40, 12), (1 << 31) - 1, 1 << 50, 9, RunCause.RETENTION, "zxid-17")
    key, value = record.encoded("writer-1")
    assert decoded("state/0 at 3", key, value) == record
    assert record.encoded("writer-2")[0] != key
    assert decoded("state/0 at 3", key, None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"{}"), (b"x", b"{}"), (b"[]", b"{}"), (b'{"format":2}', b"{}"), (b'{"format":1,"run":1}', b"{}")],
)
def test_a_record_that_is_not_of_a_mirror_is_named(key: bytes | None, value: bytes) -> None:
    with pytest.raises(StateUnreadable, match="state/0 at 3"):
        decoded("state/0 at 3", key, value)
