"""The comparison of two logs and of leaves: any difference is named, wherever it is and however records are stored."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import Message, ProducerId, TopicPartition
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.audit.audit_comparison import LaneComparison, SourceLog, lost_tail
from zkconsumer.mirror.audit.audit_findings import LaneAudit, RangeState
from zkconsumer.mirror.lane_leaves import DECODED, CopiedRange, LeafNotes, LeafPart, batch_digest
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord
from zkconsumer.mirror.pieces import BatchLimits, LogSpan, log_spans, pieces, records_section

SOURCE, TARGET = TopicPartition("clicks", 0), TopicPartition("copied", 0)
LANE = Lane("source-id", SOURCE, TARGET)
NOW_MS = 1_700_000_000_000


class Copy:
    """A source, and the target into which it was copied, as lists of batches."""

    def __init__(self, batches: Sequence[bytes]) -> None:
        self.source = list(batches)
        self.target: list[bytes] = []
        self.runs = LaneMap(LANE)
        notes, end = LeafNotes(LANE, "w", 0.0), 0
        chunk = Chunk(b"".join(batches), 0, KAFKA011)
        for piece in pieces(chunk, SOURCE, 0, BatchLimits(hashes=True), NOW_MS):
            run = self.runs.at(end)
            if run is None or run.source_at(end) != piece.first_offset:
                number = self.runs.number + 1
                self.runs.apply(RunRecord(LANE, number, ProducerId(1, 0), 0, piece.first_offset, end, RunCause.START))
            section = records_section(piece.data)
            digests, codecs = (batch_digest(section), 1) if piece.is_whole else (piece.digests, DECODED)
            notes.sent(CopiedRange(piece.first_offset, end, piece.records, len(section), codecs, digests))
            self.target.append(end.to_bytes(8, "big") + piece.data[8:])
            end += piece.records
        notes.acknowledge(end)
        self.records = self.end = end
        self.parts = [part for record in notes.due(0.0, is_end=True) for part in record.parts]

    def audit(self, *, start: int = 0, target_start: int = 0, target_only: bool = False) -> LaneAudit:
        """Compare: the source has lost what is before an offset, and the target as well."""
        source = SourceLog(start, 1 << 40, lambda: start, False)
        comparison = LaneComparison(
            LANE, list(self.runs.stretches(self.end)), self.parts, None if target_only else source, target_start,
            lambda: target_start,
        )  # fmt: skip
        theirs = [] if target_only else [each for each in self.source if last_of(each) >= start]
        ours = [each for each in self.target if last_of(each) >= target_start]
        return comparison.compare(spans(theirs, SOURCE, start), spans(ours, TARGET, target_start))

    def source_of(self, target_offset: int) -> int:
        run = self.runs.at(target_offset)
        assert run is not None
        return run.source_at(target_offset)


def spans(batches: Sequence[bytes], name: TopicPartition, position: int) -> Iterator[LogSpan]:
    for index in range(0, len(batches), 3):
        yield from log_spans(Chunk(b"".join(batches[index : index + 3]), 0, KAFKA011), name, position)


def base_of(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def last_of(batch: bytes) -> int:
    return base_of(batch) + int.from_bytes(batch[23:27], "big")


def batch(first: int, count: int, size: int, rows: dict[int, bytes] | None = None) -> bytes:
    values = rows or {}
    messages = [
        Message(*SOURCE, 0, 0, b"k%d" % n, values.get(n, b"v%d" % n).ljust(size, b"."), NOW_MS)
        for n in range(first, first + count)
    ]  # fmt: skip
    return encode_record_batch(messages, "none", first_offset=first)


def drawn(rng: random.Random) -> Copy:
    batches, first = [], rng.randrange(50)
    for _ in range(12):
        count, size = rng.choice([(3, 10), (20, 1_000), (40, 1_000), (1, 20_000)])
        batches.append(batch(first, count, size))
        first += count + rng.choice([0, 0, 0, 2])
    return Copy(batches)


def test_batches_that_are_the_same_on_both_sides_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Copy([batch(0, 40, 1_000), batch(40, 40, 1_000), batch(80, 40, 1_000)])
    monkeypatch.setattr("zkconsumer.mirror.pieces._decoded", lambda *given: pytest.fail("it is decoded"))
    found = copy.audit()
    assert (found.records, found.different) == (120, 0)
    assert [(each.state, each.first, each.end) for each in found.ranges] == [(RangeState.EQUAL, 0, 120)]
    assert copy.audit(target_only=True).by_leaves == 120


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_copy_is_equal_also_where_either_log_has_lost_its_start(seed: int) -> None:
    rng = random.Random(seed)
    copy = drawn(rng)
    assert copy.audit().records == copy.records
    assert copy.audit(target_only=True).by_leaves == copy.records
    cut = rng.randrange(copy.records)
    found = copy.audit(start=copy.source_of(cut))
    assert (found.records, found.by_leaves + found.only_target, found.different) == (copy.records - cut, cut, 0)
    assert found.only_target == 0
    found = copy.audit(target_start=cut)
    assert (found.records, found.only_source, found.different) == (copy.records - cut, cut, 0)
    assert sum(each.records for each in found.ranges) == copy.records - cut


@pytest.mark.parametrize("seed", range(40))
def test_a_planted_difference_is_named_by_its_offsets_and_by_the_leaf_that_has_it(seed: int) -> None:
    rng = random.Random(seed)
    copy = drawn(rng)
    index = rng.randrange(len(copy.target))
    old = copy.target[index]
    messages = list(KAFKA011.decode_messages(old, *TARGET, base_of(old)))
    at = rng.randrange(len(messages))
    rows = [(each.key, b"planted" if n == at else each.value, (), NOW_MS) for n, each in enumerate(messages)]
    copy.target[index] = encode_record_batch(
        [Message(*TARGET, 0, 0, key, value, time) for key, value, _, time in rows], "none", first_offset=base_of(old)
    )  # fmt: skip
    planted = base_of(old) + at
    found = copy.audit()
    assert [(each.source_offset, each.target_offset) for each in found.differences] == [
        (copy.source_of(planted), planted)
    ]  # fmt: skip
    assert (found.different, found.records) == (1, copy.records - 1)
    ours = copy.audit(target_only=True)
    [named] = [each for each in ours.ranges if each.state is not RangeState.PROVED]
    assert named.first <= copy.source_of(planted) < named.end
    assert named.target_first is not None
    assert named.target_first <= planted < named.target_first + named.records
    # A batch that became so small that it had to be decoded has other bytes, and is not proved to be different.
    assert ours.different + ours.only_target == named.records


def test_a_leaf_that_covers_a_difference_says_which_side_has_changed() -> None:
    copy = Copy([batch(0, 40, 1_000), batch(40, 3, 10)])
    copy.source[0] = batch(0, 40, 1_000, {17: b"new"})
    found = copy.audit()
    assert [each[:2] for each in found.differences] == [(17, 17)]
    assert found.differences[0].what.endswith("the target has what was copied, and the source has changed since")
    copy = Copy([batch(0, 40, 1_000), batch(40, 3, 10)])
    copy.target[0] = copy.source[0] = batch(0, 40, 1_000, {17: b"new"})
    found = copy.audit()
    assert (found.records, found.different) == (43, 1)
    assert found.differences[0].what == "records 0 to 39 of the source have changed since on both sides"


def test_what_the_target_lacks_and_what_it_has_too_much_is_named() -> None:
    copy = Copy([batch(n * 40, 40, 1_000) for n in range(4)])
    del copy.target[1], copy.source[2]
    found = copy.audit()
    assert (found.records, found.different) == (80, 80)
    assert [(each.state.value, each.first, each.end, each.target_first) for each in found.ranges] == [
        ("equal", 0, 40, 0), ("different", 40, 80, None), ("different", 80, 120, 80), ("equal", 120, 160, 120)
    ]  # fmt: skip
    assert copy.audit(target_only=True).differences[0].what.endswith("the target lacks 40 of them")


@pytest.mark.parametrize("seed", range(40))
def test_batches_that_either_side_lacks_are_counted_once_whatever_parts_there_are(seed: int) -> None:
    rng = random.Random(seed)
    copy = drawn(rng)
    at = rng.randrange(len(copy.target))
    [lost] = copy.target[at : at + 1]
    del copy.target[at]
    count = last_of(lost) - base_of(lost) + 1
    found = copy.audit()
    assert (found.records, found.different) == (copy.records - count, count)
    assert {each.target_offset for each in found.differences} == {None}
    ours = copy.audit(target_only=True)
    assert ours.different == count
    named = [each for each in ours.ranges if each.state is RangeState.UNPROVED]
    assert sum(each.records for each in named) == ours.only_target


def test_a_part_that_the_batches_of_the_target_do_not_fit_proves_nothing() -> None:
    copy = Copy([batch(n * 40, 40, 1_000) for n in range(4)])
    [whole] = copy.parts
    copy.parts = [LeafPart(20, 120, 0, whole.codecs, whole.digest)]
    found = copy.audit(start=160)
    assert (found.by_leaves, found.only_target, found.different) == (0, 160, 0)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_log_has_lost_at_its_end_is_known_by_the_leaves(seed: int) -> None:
    rng = random.Random(seed)
    copy = drawn(rng)
    assert lost_tail(copy.runs, copy.parts, copy.end) is None
    cut = rng.randrange(copy.end)
    last = copy.source_of(copy.end - 1)
    lost = lost_tail(copy.runs, copy.parts, cut)
    assert lost is not None
    assert lost[1] == last + 1
    assert lost[0] in (copy.source_of(cut), copy.source_of(max(cut - 1, 0)) + 1)


def test_records_after_the_position_are_still_to_be_copied() -> None:
    copy = Copy([batch(n * 40, 40, 1_000) for n in range(4)])
    copy.source += [batch(160, 40, 1_000), batch(200, 3, 10)]
    found = copy.audit()
    assert (found.records, found.not_copied, found.different) == (160, 43, 0)
