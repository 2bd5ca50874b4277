"""What is fetched from the source becomes whole batches, or ones that are encoded anew: every record, in order."""

from __future__ import annotations

import pytest

from simpleconsumer.dialect import KAFKA011, KAFKA08, BatchProducer, Dialect, head_with
from simpleconsumer.errors import MessageError
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka08.message_set import encode_message_set
from simpleconsumer.types import AbortedTransaction, Message, TopicPartition
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.pieces import WHOLE_BYTES, BatchLimits, CopiedBatch, has_transactions, pieces

NAME = TopicPartition("clicks", 0)
NOW_MS = 1_700_000_000_000
LARGE = b"x" * 1_000


def chunk(data: bytes, next_offset: int, dialect: Dialect = KAFKA011, **more: object) -> Chunk:
    return Chunk(data, next_offset, dialect, **more)  # type: ignore[arg-type]


def cut(given: Chunk, position: int = 0, **limits: object) -> list[CopiedBatch]:
    return list(pieces(given, NAME, position, BatchLimits(**limits), NOW_MS))  # type: ignore[arg-type]


def read(found: list[CopiedBatch]) -> list[tuple[int, bytes | None, bytes | None, int | None]]:
    """Each record, with the offset at which the source has it."""
    rows = []
    for piece in found:
        # A whole batch still has the offsets of the source; the target gives new ones.
        base = int.from_bytes(piece.data[:8], "big")
        messages = list(KAFKA011.decode_messages(piece.data, *NAME, base))
        assert len(messages) == piece.records
        rows += [(piece.first_offset + index, each.key, each.value, each.timestamp_ms)
                 for index, each in enumerate(messages)]  # fmt: skip
    return rows


def batch(first: int, count: int, value: bytes = b"v", codec: str = "none", **more: object) -> bytes:
    rows = [Message(*NAME, 0, 0, b"k%d" % n, value, NOW_MS + n) for n in range(first, first + count)]
    return encode_record_batch(rows, codec, first_offset=first, **more)  # type: ignore[arg-type]


def wanted(first: int, count: int, value: bytes = b"v") -> list[tuple[int, bytes, bytes, int]]:
    return [(n, b"k%d" % n, value, NOW_MS + n) for n in range(first, first + count)]


def test_large_batches_go_whole_and_small_neighbours_are_merged() -> None:
    data = batch(0, 3) + batch(3, 4) + batch(7, 40, LARGE) + batch(47, 2) + batch(49, 1)
    found = cut(chunk(data, 50))
    assert [(each.first_offset, each.records, each.is_whole) for each in found] == [
        (0, 7, False), (7, 40, True), (47, 3, False)
    ]  # fmt: skip
    assert found[1].data == batch(7, 40, LARGE)
    assert read(found) == [*wanted(0, 7), *wanted(7, 40, LARGE), *wanted(47, 3)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_is_encoded_anew_keeps_the_codec(codec: str) -> None:
    [found] = cut(chunk(batch(5, 20, LARGE, codec), 25))
    assert not found.is_whole
    head = head_with(found.data, 0)
    assert head is not None
    assert head.attributes & 7 == {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    assert read([found]) == wanted(5, 20, LARGE)


def test_zstd_is_decoded_for_a_target_that_does_not_take_it() -> None:
    noise = bytes((n * 7919 + n * n) % 251 for n in range(WHOLE_BYTES * 3))
    data = batch(0, 2, noise, "zstd")
    limits = {"takes_zstd": False, "codec": "lz4"}
    [found] = cut(chunk(data, 2), **limits)
    head = head_with(found.data, 0)
    assert head is not None
    assert (found.is_whole, head.attributes & 7) == (False, 3)


def test_a_batch_that_begins_before_the_position_is_copied_from_the_position_on() -> None:
    found = cut(chunk(batch(0, 40, LARGE) + batch(40, 40, LARGE), 80), position=13)
    assert [(each.first_offset, each.records, each.is_whole) for each in found] == [(13, 27, False), (40, 40, True)]
    assert read(found) == [*wanted(13, 27, LARGE), *wanted(40, 40, LARGE)]


def test_a_hole_ends_a_batch_within_a_compacted_batch_and_between_two() -> None:
    rows = [Message(*NAME, 0, 0, b"k%d" % n, LARGE, NOW_MS + n) for n in (3, 4, 9, 10, 11)]
    data = encode_record_batch(rows * 1, offsets=[3, 4, 9, 10, 11]) + batch(20, 2, LARGE)
    found = cut(chunk(data, 25))
    assert [(each.first_offset, each.records) for each in found] == [(3, 2), (9, 3), (20, 2)]


def test_markers_and_aborted_transactions_are_holes() -> None:
    aborted, committed = BatchProducer(7, 0, 0, True), BatchProducer(8, 0, 0, True)
    data = (
        batch(0, 40, LARGE, producer=aborted) + batch(40, 40, LARGE, producer=committed)
        + encode_record_batch([(b"\0\0\0\0", b"\0\0\0\0\0\0")], first_offset=80, producer=aborted, is_control=True)
        + encode_record_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], first_offset=81, producer=committed, is_control=True)
        + batch(82, 1)
    )  # fmt: skip
    given = chunk(data, 83, aborted=(AbortedTransaction(7, 0),))
    assert has_transactions(given)
    found = cut(given)
    assert read(found) == [*wanted(40, 40, LARGE), *wanted(82, 1)]
    assert not has_transactions(chunk(batch(0, 3), 3))


def test_records_after_the_end_of_the_log_are_damage_and_not_copied_whole() -> None:
    with pytest.raises(MessageError, match="offset 79 is not below 40, where the log ends"):
        cut(chunk(batch(0, 40, LARGE) + batch(40, 40, LARGE), 80, high_watermark=40))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_messages_of_kafka_08_get_batches_without_times(codec: str) -> None:
    messages = [Message(*NAME, n, n + 1, b"k%d" % n, b"v") for n in range(10)]
    data = encode_message_set(messages, codec)
    found = cut(chunk(data, 10, KAFKA08), codec="gzip")
    assert [row[:3] for row in read(found)] == [(n, b"k%d" % n, b"v") for n in range(10)]
    head = head_with(found[0].data, 0)
    assert head is not None
    assert (head.max_timestamp_ms, head.attributes & 7) == (-1, 1)


def test_null_and_empty_keys_and_values_and_headers_stay_what_they_are() -> None:
    rows = [(None, None), (b"", None), (None, b""), (b"", b"")]
    given = encode_record_batch(rows, timestamp_ms=5)
    found = cut(chunk(given, 4))
    assert read(found) == [(n, key, value, 5) for n, (key, value) in enumerate(rows)]


def test_times_of_the_target_are_given_when_they_are_wanted() -> None:
    found = cut(chunk(batch(0, 40, LARGE), 40), sets_times=True)
    assert {row[3] for row in read(found)} == {NOW_MS}


def test_batches_that_are_encoded_anew_have_bounds_of_bytes_and_of_records() -> None:
    data = b"".join(batch(n, 1, LARGE) for n in range(100))
    assert [each.records for each in cut(chunk(data, 100), batch_records=30)] == [30, 30, 30, 10]
    by_bytes = cut(chunk(data, 100), batch_bytes=10_300)
    assert max(each.records for each in by_bytes) == 10
    assert read(by_bytes) == wanted(0, 100, LARGE)
    [single] = cut(chunk(batch(0, 1, LARGE), 1), batch_bytes=10)
    assert single.records == 1


def test_a_damaged_batch_is_an_error_after_what_comes_before_it() -> None:
    good, bad = batch(0, 3), bytearray(batch(3, 3))
    bad[-1] ^= 1
    found = pieces(chunk(good + bytes(bad), 6), NAME, 0, BatchLimits(), NOW_MS)
    assert read([next(found)]) == wanted(0, 3)
    with pytest.raises(MessageError, match="clicks"):
        next(found)
