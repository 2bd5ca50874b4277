"""What each answer to a fetch means for one partition, where brokers send record batches."""

from __future__ import annotations

import golden_batches
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import broker_error
from simpleconsumer.kafka011.classify import classify
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.kafka08 import classify as kafka08
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import FetchedPartition

LIMIT = 1_000_000
SIZE = 1000


def answered(message_set: bytes = b"", code: int = 0, high_watermark: int = 100) -> FetchedPartition:
    return FetchedPartition("t", 0, code, high_watermark, message_set)


def batch(first: int, behind: int, codec: str = "none") -> bytes:
    return encode_record_batch([b"value"] * (behind - first), codec, first_offset=first)


def moved(data: bytes, base: int) -> bytes:
    """Return a batch with another base offset, which no checksum covers."""
    return base.to_bytes(8, "big", signed=True) + data[8:]


def chunk(result: FetchResult) -> tuple[Outcome, int, int]:
    return result.outcome, result.valid_bytes, result.next_offset


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_whole_batches_make_a_chunk_and_a_cut_off_tail_is_left_out(codec: str) -> None:
    whole = batch(0, 5, codec) + batch(5, 8, codec)
    for tail in (b"", batch(8, 9)[:5], batch(8, 9)[:20], batch(8, 9)[:-1]):
        assert chunk(classify(answered(whole + tail), 3, SIZE, LIMIT)) == (Outcome.CHUNK, len(whole), 8)


def test_no_bytes_mean_no_messages_yet_or_that_other_partitions_filled_the_answer() -> None:
    assert classify(answered(), 5, SIZE, LIMIT).outcome is Outcome.NOTHING
    assert classify(answered(high_watermark=5), 5, SIZE, LIMIT).outcome is Outcome.NOTHING


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        *((code, Outcome.FIND_LEADER) for code in (3, 5, 6, 9, 56, 74, 78, 100, 103)),
        (1, Outcome.CHECK_RANGE),
        *((code, Outcome.BACK_OFF) for code in (-1, 2, 29, 70, 71, 75, 76, 999)),
    ],
)
def test_each_error_code_has_its_outcome_and_is_named(code: int, outcome: Outcome) -> None:
    result = classify(answered(code=code), 5, SIZE, LIMIT)
    row = broker_error(code)
    assert (result.outcome, result.reason) == (outcome, f"{row.name} (code {code}): {row.meaning}")


def test_the_position_moves_behind_batches_of_which_nothing_is_delivered() -> None:
    sender = BatchProducer(1, 0, 0, is_transactional=True)
    marker = encode_record_batch([(bytes(4), b"")], first_offset=5, producer=sender, is_control=True)
    emptied = encode_record_batch([], first_offset=6, last_offset=9)
    shortened = encode_record_batch([b"v"], first_offset=10, offsets=[12], last_offset=14)
    data = marker + emptied + shortened
    assert chunk(classify(answered(data), 5, SIZE, LIMIT)) == (Outcome.CHUNK, len(data), 15)
    assert chunk(classify(answered(marker), 5, SIZE, LIMIT)) == (Outcome.CHUNK, len(marker), 6)


def test_a_last_batch_behind_a_hole_is_fetched_again_unless_something_confirms_it() -> None:
    first, last = batch(0, 5), batch(7, 9)
    assert chunk(classify(answered(first + last), 0, SIZE, LIMIT)) == (Outcome.CHUNK, len(first), 5)
    confirmed = answered(first + last + batch(9, 10)[:30])
    assert chunk(classify(confirmed, 0, SIZE, LIMIT)) == (Outcome.CHUNK, len(first + last), 9)
    for at_end in (
        answered(first + last, high_watermark=9),
        answered(first + last)._replace(last_stable_offset=9),  # with isolation.level=read_committed
    ):
        assert chunk(classify(at_end, 0, SIZE, LIMIT)) == (Outcome.CHUNK, len(first + last), 9)


def test_a_chunk_names_the_epoch_in_which_its_last_batch_was_appended() -> None:
    first, second = (
        encode_record_batch([b"v"], first_offset=number, leader_epoch=epoch) for number, epoch in ((0, 3), (1, 5))
    )
    assert classify(answered(first + second), 0, SIZE, LIMIT).leader_epoch == 5
    assert classify(answered(first + second[:-1]), 0, SIZE, LIMIT).leader_epoch == 3
    assert classify(answered(encode_message_set([b"old"])), 0, SIZE, LIMIT).leader_epoch == -1


def test_the_only_batch_behind_a_hole_is_asked_for_with_more_bytes_and_then_believed() -> None:
    only = batch(7, 9)
    result = classify(answered(only), 5, SIZE, LIMIT)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, 2 * SIZE)
    assert "the offsets of the 1 entries at 5 cannot be determined" in result.reason
    assert chunk(classify(answered(only), 5, LIMIT, LIMIT)) == (Outcome.CHUNK, len(only), 9)
    assert chunk(classify(answered(only + batch(9, 10)[:12]), 5, SIZE, LIMIT)) == (Outcome.CHUNK, len(only), 9)


@pytest.mark.parametrize("base", [-3, 0, 4, 6, 90, 2**40, 2**62])
def test_a_damaged_base_offset_never_leads_over_messages_that_nobody_has_read(base: int) -> None:
    data = batch(0, 5), batch(5, 10), batch(10, 15)
    for index in range(3):
        parts = [moved(each, base) if at == index else each for at, each in enumerate(data)]
        if parts == list(data):
            continue
        result = classify(answered(b"".join(parts)), 0, SIZE, LIMIT)
        assert result.outcome in (Outcome.CHUNK, Outcome.GROW)
        ends = {0: 0, **{sum(map(len, data[: at + 1])): 5 * (at + 1) for at in range(3)}}
        if result.outcome is Outcome.CHUNK:
            assert result.next_offset == ends[result.valid_bytes]


def test_an_unreadable_batch_is_passed_by_its_head_or_by_what_is_behind_it() -> None:
    bad = bytearray(batch(5, 10))
    bad[-1] ^= 1
    between = batch(0, 5) + bytes(bad) + batch(10, 12)
    assert chunk(classify(answered(between), 0, SIZE, LIMIT)) == (Outcome.CHUNK, len(between), 12)
    last = batch(0, 5) + bytes(bad)
    assert chunk(classify(answered(last), 0, SIZE, LIMIT)) == (Outcome.CHUNK, len(batch(0, 5)), 5)
    assert classify(answered(bytes(bad)), 5, SIZE, LIMIT).outcome is Outcome.GROW
    assert chunk(classify(answered(bytes(bad)), 5, LIMIT, LIMIT)) == (Outcome.CHUNK, len(bad), 10)


def test_a_first_batch_far_below_the_position_is_damaged() -> None:
    result = classify(answered(moved(batch(50, 55), 0) + batch(55, 60)), 52, SIZE, LIMIT)
    assert (result.outcome, result.offset, result.next_offset) == (Outcome.DAMAGED, 52, 53)
    assert "offset 52 was requested, a batch up to 4 came first" in result.reason


def test_an_answer_without_a_whole_entry_is_broken() -> None:
    for data in (batch(0, 5)[:-1], batch(0, 5)[:30], b"\0" * 9):
        assert classify(answered(data), 0, SIZE, LIMIT).outcome is Outcome.BROKEN
    impossible = batch(0, 5)[:8] + (5).to_bytes(4, "big") + bytes(40)
    assert classify(answered(impossible), 0, SIZE, LIMIT).outcome is Outcome.BROKEN


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_of_old_formats_are_judged_as_those_of_old_brokers(codec: str, magic: int) -> None:
    data = encode_message_set([b"value"] * 5, codec, magic)
    for cut in (0, 1, 20):
        for position in (0, 3):
            answer = answered(data[: len(data) - cut])
            assert classify(answer, position, SIZE, LIMIT) == kafka08.classify(answer, position, SIZE, LIMIT)
    assert classify(answered(), 5, SIZE, LIMIT, 2) == kafka08.classify(answered(), 5, SIZE, LIMIT, 2)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_entries_and_batches_in_one_answer_make_one_chunk(magic: int) -> None:
    old = encode_message_set([b"value"] * 5, magic=magic)
    later = encode_message_set([b"value"] * 5, magic=magic, first_offset=10)
    for data, behind in ((old + batch(5, 10), 10), (old + batch(5, 10) + later, 15)):
        assert chunk(classify(answered(data), 0, SIZE, LIMIT)) == (Outcome.CHUNK, len(data), behind)


@pytest.mark.parametrize("answer", golden_batches.answers(), ids=lambda each: f"{each.version}-{each.name}")
def test_answers_of_real_brokers_are_taken_whole(answer: golden_batches.GoldenAnswer) -> None:
    result = classify(answered(answer.record_set, high_watermark=answer.high_watermark), 0, SIZE, LIMIT)
    behind = 4 if answer.name == "m2-none-max20" else answer.high_watermark
    assert chunk(result) == (Outcome.CHUNK, len(answer.record_set), behind)


@given(st.binary(max_size=300), st.integers(0, 50), st.booleans(), st.integers(-1, 100))
def test_any_bytes_have_an_outcome_and_never_move_back(
    data: bytes, position: int, is_largest: bool, high_watermark: int
) -> None:
    marked = data[:16] + b"\2" + data[17:] if len(data) > 17 else data
    for each in (data, marked):
        result = classify(answered(each, 0, high_watermark), position, LIMIT if is_largest else SIZE, LIMIT)
        if result.outcome is Outcome.CHUNK:
            assert result.next_offset > position
            assert 0 < result.valid_bytes <= len(each)
        else:
            assert result.outcome is Outcome.NOTHING or result.reason
