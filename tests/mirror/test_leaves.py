"""Leaves: what is noted of copied records, and which of the parts that were written an audit goes by."""

from __future__ import annotations

import itertools
import random

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.mirror.errors import StateUnreadable
from zkconsumer.mirror.lane_leaves import (
    DECODED,
    LEAF_OFFSETS,
    CopiedRange,
    LeafNotes,
    LeafPart,
    LeafRecord,
    OrderedHash,
    batch_digest,
    chosen,
    decoded_leaf,
)
from zkconsumer.mirror.lane_runs import Lane, decoded

LANE = Lane("source-id", TopicPartition("clicks", 3), TopicPartition("old.clicks", 3))
SHIFT = 1_000
STORED = 1


def batch(first: int, records: int, codecs: int = STORED, target_first: int | None = None) -> CopiedRange:
    target = first - SHIFT if target_first is None else target_first
    return CopiedRange(first, target, records, records * 10, codecs, batch_digest(b"%d %d" % (first, records)))


def noted(*batches: CopiedRange) -> list[LeafPart]:
    notes = LeafNotes(LANE, "w", 0.0)
    for each in batches:
        notes.sent(each)
    notes.acknowledge(1 << 60)
    return [part for record in notes.due(0.0, is_end=True) for part in record.parts]


def test_batches_that_follow_each_other_are_one_part_with_the_hash_of_their_hashes() -> None:
    batches = [batch(2_000, 10), batch(2_010, 5, codecs=8), batch(2_015, 1)]
    [part] = noted(*batches)
    wanted = OrderedHash()
    for each in batches:
        wanted.add(each.digests)
    assert part == LeafPart(2_000, 2_016, 160, 9, wanted.hexdigest())


def test_only_what_the_target_has_acknowledged_is_noted() -> None:
    notes = LeafNotes(LANE, "w", 0.0)
    notes.sent(batch(2_000, 10))
    notes.sent(batch(2_010, 10))
    for stored, ends in ((SHIFT + 9, []), (SHIFT + 10, [2_010]), (SHIFT + 19, [2_010]), (SHIFT + 20, [2_020])):
        notes.acknowledge(stored)
        assert [record.parts[-1].end for record in notes.due(0.0, is_end=True)] == ends


def test_a_part_ends_at_a_hole_of_either_side_at_another_kind_and_at_the_end_of_a_leaf() -> None:
    last = LEAF_OFFSETS - 5
    found = noted(
        batch(last - 300, 10), batch(last - 280, 10), batch(last - 270, 10, target_first=7),
        batch(last - 260, 260, target_first=17), batch(last, 3, DECODED, target_first=277),
        batch(last + 3, 20, DECODED, target_first=280), batch(last + 23, 7, DECODED, target_first=300),
    )  # fmt: skip
    assert [(part.first - last, part.end - last, part.codecs) for part in found] == [
        (-300, -290, STORED), (-280, -270, STORED), (-270, 0, STORED), (0, 23, DECODED), (23, 30, DECODED)
    ]  # fmt: skip


def test_parts_of_one_leaf_are_one_record_that_grows_under_one_key() -> None:
    notes = LeafNotes(LANE, "w", 0.0)
    keys = set()
    for number, kind in enumerate([STORED, DECODED, STORED]):
        notes.sent(batch(2_000 + number * 10, 10, kind))
        notes.acknowledge(1 << 60)
        [record] = notes.due(0.0, is_end=True)
        assert len(record.parts) == number + 1
        keys.add(record.encoded()[0])
        notes.written([record], 0.0)
    assert len(keys) == 1
    notes.sent(batch(LEAF_OFFSETS, 10))
    notes.acknowledge(1 << 60)
    assert [record.first for record in notes.due(0.0, is_end=True)] == [2_000, LEAF_OFFSETS]


def test_an_open_part_is_written_when_it_has_doubled_and_each_minute_if_it_has_grown() -> None:
    notes = LeafNotes(LANE, "w", 0.0)
    writes = []
    for second in range(300):
        notes.sent(batch(2_000 + second, 1))
        notes.acknowledge(1 << 60)
        records = notes.due(float(second))
        if records:
            writes.append(second)
            notes.written(records, float(second))
    assert writes == [5, 11, 23, 47, 95, 155, 215, 275]
    assert notes.due(1_000.0) != []
    notes.written(notes.due(1_000.0), 1_000.0)
    assert notes.due(2_000.0) == []
    assert notes.due(2_000.0, is_end=True) == []


def test_what_cannot_be_written_is_tried_again_and_waits_in_bounded_room() -> None:
    notes = LeafNotes(LANE, "w", 0.0)
    for leaf in range(1_000):
        notes.sent(batch(leaf * LEAF_OFFSETS, LEAF_OFFSETS, target_first=leaf * LEAF_OFFSETS))
    notes.acknowledge(1 << 60)
    notes.put_off(100.0)
    assert notes.due(159.0) == []
    assert [record.first // LEAF_OFFSETS for record in notes.due(160.0)] == list(range(935, 1_000))


def test_after_a_move_nothing_that_was_not_acknowledged_is_noted_and_the_rest_stays() -> None:
    notes = LeafNotes(LANE, "w", 0.0)
    notes.sent(batch(2_000, 10))
    notes.acknowledge(1 << 60)
    notes.sent(batch(2_010, 10))
    notes.restart("x")
    notes.acknowledge(1 << 60)
    notes.sent(batch(2_010, 20))
    notes.acknowledge(1 << 60)
    found = notes.due(0.0, is_end=True)
    assert [(record.writer, [part[:2] for part in record.parts]) for record in found] == [
        ("w", [(2_000, 2_010)]), ("x", [(2_010, 2_030)])
    ]  # fmt: skip


def test_a_record_is_read_as_it_was_written_and_is_no_run() -> None:
    record = LeafRecord(LANE, "w", 5, (LeafPart(5, 9, 100, 3, "ab" * 16), LeafPart(9, 1 << 50, 1 << 40, 0, "cd" * 16)))
    key, value = record.encoded()
    assert decoded_leaf("state/0 at 3", key, value) == record
    assert decoded("state/0 at 3", key, value) is None
    assert decoded_leaf("state/0 at 3", key, None) is None
    assert decoded_leaf("state/0 at 3", b'{"format":1,"run":1}', b"{}") is None
    with pytest.raises(StateUnreadable, match="state/0 at 3"):
        decoded_leaf("state/0 at 3", key, b'{"parts":[[1]]}')


def part(first: int, end: int) -> LeafPart:
    return LeafPart(first, end, 0, STORED, f"{first}-{end}")


def test_of_parts_of_two_processes_those_are_chosen_that_cover_most() -> None:
    assert chosen([part(0, 10), part(5, 100), part(10, 12), part(0, 5)]) == [part(0, 5), part(5, 100)]
    assert chosen([part(0, 10), part(0, 10), part(0, 7)]) == [part(0, 10)]
    assert chosen([]) == []


@pytest.mark.parametrize("seed", range(30))
def test_no_choice_of_parts_covers_more(seed: int) -> None:
    rng = random.Random(seed)
    given = [part(first, first + rng.randrange(1, 12)) for first in (rng.randrange(30) for _ in range(9))]
    found = chosen(given)
    assert all(a.end <= b.first for a, b in itertools.pairwise(found))
    most = 0
    for mask in range(1 << len(given)):
        some = sorted(each for index, each in enumerate(given) if mask >> index & 1)
        if all(a.end <= b.first for a, b in itertools.pairwise(some)):
            most = max(most, sum(each.records for each in some))
    assert sum(each.records for each in found) == most
