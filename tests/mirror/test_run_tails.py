"""The end of a lane of transactions is described by its batches, whoever has ended a transaction, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from simpleconsumer.dialect import BatchHead
from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.mirror.errors import AnotherWriter
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord
from zkconsumer.mirror.lanes.lane_events import SEQUENCES
from zkconsumer.mirror.run_tails import changes, described_tail, tail_start

LANE = Lane("c", TopicPartition("t", 0), TopicPartition("t", 0))
PRODUCER = ProducerId(7, 3)
CONTROL = 32


@dataclass
class Log:
    """A partition of the target, and what each of its offsets holds."""

    first_sequence: int = 0
    epoch: int = PRODUCER.epoch
    heads: list[BatchHead] = field(default_factory=list)
    holds: list[int | None] = field(default_factory=list)  # offsets of the source; None for markers
    aborted: set[int] = field(default_factory=set)
    sequence: int = 0
    open_from: int | None = None

    def __post_init__(self) -> None:
        self.sequence = self.first_sequence

    @property
    def end(self) -> int:
        return len(self.holds)

    def write(self, source: int, records: int) -> None:
        self.heads.append(_head(self.end, records, 0, self.sequence)._replace(producer_epoch=self.epoch))
        if self.open_from is None:
            self.open_from = self.end
        self.holds += range(source, source + records)
        self.sequence = (self.sequence + records) % SEQUENCES

    def mark(self, *, commits: bool) -> None:
        self.heads.append(_head(self.end, 1, CONTROL, -1))
        if not commits and self.open_from is not None:
            self.aborted |= set(range(self.open_from, self.end))
        self.holds.append(None)
        self.open_from = None

    def is_committed(self, first: int, marker: int) -> bool:
        assert self.holds[first] is not None
        assert self.holds[marker] is None
        return first not in self.aborted


def _head(offset: int, records: int, attributes: int, sequence: int) -> BatchHead:
    return BatchHead(offset, 100, 0, 2, 0, attributes, records - 1, 0, 0, *PRODUCER, sequence, records)


def run(number: int, target: int, source: int, sequence: int, cause: RunCause, gap: int = 0) -> RunRecord:
    return RunRecord(LANE, number, PRODUCER, sequence, source, target, cause, "", gap=gap)


def _now(log: Log, record: RunRecord) -> RunRecord:
    """The run under the present epoch of a log."""
    return record._replace(producer=ProducerId(PRODUCER.producer_id, log.epoch))


def map_of(*runs: RunRecord) -> LaneMap:
    found = LaneMap(LANE)
    for each in runs:
        assert found.apply(each)
    return found


def described(runs: LaneMap, log: Log) -> tuple[LaneMap, bool]:
    """The runs of a lane after its tail was described."""
    first = tail_start(runs, log.end)
    assert first is not None
    start = runs.runs[first].target_first
    heads = [head for head in log.heads if head.base_offset >= start]
    tail = described_tail(runs, first, heads, log.end, log.is_committed)
    found = runs.copy()
    stored = changes(runs, first, tail.runs)
    assert stored, "a former owner of the lane can store no run any more"
    for each in stored:
        assert found.apply(each)
    return found, tail.is_aborted


def mapped(runs: LaneMap, end: int) -> dict[int, int]:
    """Offsets of the target -> of the source."""
    return {
        offset: stretch.run.source_at(offset)
        for stretch in runs.stretches(end) for offset in range(stretch.run.target_first, stretch.target_end)
    }  # fmt: skip


def test_a_marker_that_another_process_has_written_starts_a_run_there() -> None:
    """A process that slept has ended the transaction of its successor."""
    log = Log()
    log.write(0, 10)
    log.mark(commits=True)
    log.write(10, 5)
    runs, is_aborted = described(map_of(run(1, 0, 0, 0, RunCause.START)), log)
    assert not is_aborted
    assert [(each.target_first, each.source_first, each.first_sequence, each.gap) for each in runs.runs] == [
        (0, 0, 0, 0), (11, 10, 10, 1), (16, 15, 15, 0)
    ]  # fmt: skip


def test_a_run_whose_marker_never_came_is_replaced_where_records_came_instead() -> None:
    log = Log()
    log.write(0, 10)
    log.write(10, 5)
    known = map_of(run(1, 0, 0, 0, RunCause.START), run(2, 11, 10, 10, RunCause.MARKER, 1))
    runs, _ = described(known, log)
    assert mapped(runs, log.end) == {offset: offset for offset in range(15)}


def test_the_records_of_an_aborted_transaction_are_copied_again() -> None:
    log = Log()
    log.write(0, 10)
    log.mark(commits=True)
    log.write(10, 5)
    log.mark(commits=False)
    known = map_of(run(1, 0, 0, 0, RunCause.START), run(2, 11, 10, 10, RunCause.MARKER, 1))
    runs, is_aborted = described(known, log)
    assert is_aborted
    assert runs.runs[-1].place_at(log.end).offset == 10
    assert mapped(runs, log.end) == {offset: offset for offset in range(10)}


def test_a_batch_of_somebody_else_is_named() -> None:
    log = Log()
    log.write(0, 10)
    log.heads.append(log.heads[0]._replace(base_offset=10, producer_id=99))
    log.holds += [0] * 10
    with pytest.raises(AnotherWriter, match="expected producer 7 at sequence 10, found a batch of producer 99"):
        described(map_of(run(1, 0, 0, 0, RunCause.START)), log)


@pytest.mark.parametrize("seed", range(300))
def test_whatever_has_happened_each_offset_is_mapped_to_its_record(seed: int) -> None:
    """Batches, holes of the source, markers with and without their runs, and runs whose markers never came."""
    rng = random.Random(seed)
    log = Log(rng.choice([0, SEQUENCES - 20]))
    runs = map_of(run(1, 0, 0, log.first_sequence, RunCause.START))
    source = 0
    is_over = False
    for _ in range(rng.randrange(1, 25)):
        event = rng.choice(
            ["write", "write", "hole", "commit", "commit", "foreign commit", "lost marker", "take over", "new epoch"]
        )
        number, here = runs.number + 1, runs.runs[-1]
        if event == "write":
            if runs.at(log.end) is None or log.end < here.target_first:
                break  # nobody writes before the marker is there, but the processes of before
            records = rng.randrange(1, 6)
            log.write(source, records)
            source += records
        elif event == "hole":
            source += rng.randrange(1, 9)
            runs.apply(_now(log, run(number, log.end, source, log.sequence, RunCause.TRANSACTION)))
        elif event == "commit":
            runs.apply(_now(log, run(number, log.end + 1, source, log.sequence, RunCause.MARKER, 1)))
            log.mark(commits=True)
        elif event == "foreign commit":
            log.mark(commits=True)
            is_over = True
        elif event == "lost marker":
            runs.apply(_now(log, run(number, log.end + 1, source, log.sequence, RunCause.MARKER, 1)))
            if rng.random() < 0.7:
                log.write(source, 2)
                source += 2
            is_over = True
        elif event == "new epoch":
            if log.open_from is not None:
                log.mark(commits=False)
            runs, _ = described(runs, log)
            last = runs.runs[-1]
            log.epoch, log.sequence, source = log.epoch + 1, 0, last.source_first
            assert runs.apply(
                last._replace(number=runs.number + 1, producer=ProducerId(7, log.epoch), first_sequence=0)
            )
        else:
            runs, is_aborted = described(runs, log)
            assert not is_aborted
        if is_over:
            break
    if rng.random() < 0.3 and log.open_from is not None:
        log.mark(commits=False)
    if runs.runs[-1].cause is RunCause.MARKER and runs.runs[-1].target_first == log.end + 1:
        log.mark(commits=True)  # as the successor does
    found, _ = described(runs, log)
    truth = {
        offset: held for offset, held in enumerate(log.holds) if held is not None and offset not in log.aborted
    }  # fmt: skip
    assert mapped(found, log.end) == truth
    assert found.runs[-1].target_first == log.end
