"""The rules for targets without sequence numbers, without brokers: when an end is believed, and what a tail says."""

from __future__ import annotations

import pytest

from simpleconsumer.dialect import KAFKA011, KAFKA08, NO_ID, encode_producer_batch
from simpleconsumer.types import TopicPartition
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.errors import AnotherWriter, HeadersRefused, RepeatedRequest
from zkconsumer.mirror.lane_runs import Lane, RunCause, RunRecord
from zkconsumer.mirror.lanes.plain_lane import LogEndWatch, first_difference, what_is_wrong
from zkconsumer.mirror.pieces import BatchLimits, CopiedBatch, pieces

SOURCE, TARGET = TopicPartition("here", 0), TopicPartition("there", 3)
RUN = RunRecord(Lane("cluster", SOURCE, TARGET), 1, NO_ID, 0, 100, 0, RunCause.START)
"""Offset 100 of the source is at offset 0 of the target."""


def log(text: str, first: int = 0) -> dict[int, bytes]:
    """A log in which each letter stands for a record."""
    return {first + index: letter.encode() for index, letter in enumerate(text)}


# -- the end of the log ------------------------------------------------------------------------------------------------


def test_at_first_the_end_has_to_stay_the_same_for_a_while() -> None:
    watch = LogEndWatch(3.0)
    assert watch.see(10, 10, 0.0) is None
    assert watch.see(10, 10, 2.9) is None
    assert "the log has to end at 10 for 0.1 s more" in watch.reason
    assert watch.see(10, 10, 3.0) == 10


def test_a_request_that_arrives_late_starts_the_wait_again() -> None:
    watch = LogEndWatch(3.0)
    assert watch.see(10, 10, 0.0) is None
    assert watch.see(20, 20, 2.5) is None
    assert watch.see(20, 20, 5.4) is None
    assert watch.see(20, 20, 5.5) == 20


def test_an_end_that_replicas_lag_behind_is_not_believed() -> None:
    watch = LogEndWatch(0.0)
    assert watch.see(10, 20, 0.0) is None
    assert watch.reason == "replicas have the offsets before 10, the leader those before 20"
    assert watch.see(20, 20, 1.0) == 20


def test_without_doubt_the_end_counts_at_once_and_after_a_lost_answer_it_is_waited_for_again() -> None:
    watch = LogEndWatch(3.0)
    watch.see(10, 10, 0.0)
    assert watch.see(10, 10, 3.0) == 10
    assert watch.see(12, 12, 3.1) == 12
    watch.doubt()
    assert watch.see(12, 12, 3.2) is None
    assert watch.see(12, 12, 6.2) == 12


# -- the last records --------------------------------------------------------------------------------------------------


def test_equal_records_are_right_and_those_that_the_source_has_deleted_prove_nothing() -> None:
    assert first_difference(log("abcd"), log("abcdef", 100), RUN, 106) is None
    assert first_difference(log("abcd"), log("cd", 102), RUN, 104) is None


def test_another_record_and_one_that_the_source_does_not_have_yet_are_found() -> None:
    assert first_difference(log("abXd"), log("abcd", 100), RUN, 104) == 2
    assert first_difference(log("abcd"), log("abc", 100), RUN, 103) == 3


@pytest.mark.parametrize(
    ("copied", "wrong", "repeated"),
    [
        ("abcdcd", 4, (4, 6, 2)),  # all of the last request
        ("abcdecde", 5, (5, 8, 2)),
        ("abcdec", 5, (5, 6, 2)),  # the first part of it
        ("abcdcdefg", 4, (4, 6, 2)),  # the next request has arrived after it
    ],
)
def test_a_request_that_is_there_twice_is_named(copied: str, wrong: int, repeated: tuple[int, int, int]) -> None:
    origins = log("abcdefghi", 100)
    assert first_difference(log(copied), origins, RUN, 109) == wrong
    found = what_is_wrong(TARGET, SOURCE, log(copied), origins, RUN, wrong)
    assert isinstance(found, RepeatedRequest)
    assert (found.first_offset, found.end, found.repeated_offset) == repeated
    assert str(found).startswith(f"there/3: one request was stored twice: offsets {wrong} to ")


def test_records_of_somebody_else_are_named_with_the_offsets_of_both_sides() -> None:
    found = what_is_wrong(TARGET, SOURCE, log("abX"), log("abc", 100), RUN, 2)
    assert isinstance(found, AnotherWriter)
    assert "there/3: another writer: expected at offset 2 the record at offset 102 of here/0" in str(found)


# -- formats -----------------------------------------------------------------------------------------------------------


def cut(headers: list[tuple[tuple[str, bytes], ...]], magic: int, codec: str = "none") -> list[CopiedBatch]:
    rows = [(b"k", b"value %d" % number, each, 1_000 + number) for number, each in enumerate(headers)]
    chunk = Chunk(encode_producer_batch([(rows, (0.0,))], codec, 0.0), len(rows), KAFKA011, high_watermark=len(rows))
    found: list[CopiedBatch] = []
    limits = BatchLimits(magic=magic, takes_zstd=False, codec="gzip", batch_records=4)
    found.extend(pieces(chunk, SOURCE, 0, limits, 0))
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_large_batches_become_message_sets_with_keys_and_from_0_10_on_times(magic: int, codec: str) -> None:
    found = cut([()] * 10, magic, codec)
    assert [(each.first_offset, each.records, each.is_whole) for each in found] == [(0, 4, False), (4, 4, False),
                                                                                   (8, 2, False)]  # fmt: skip
    messages = [message for each in found for message in KAFKA08.decode_messages(each.data, *TARGET, 0)]
    assert [(each.key, each.value, each.timestamp_ms) for each in messages] == [
        (b"k", b"value %d" % number, 1_000 + number if magic else None) for number in range(10)
    ]  # fmt: skip


def test_a_record_with_headers_is_refused_and_what_comes_before_it_is_copied() -> None:
    found: list[CopiedBatch] = []
    rows = [(None, b"v", (("trace", b"1"),) if number == 5 else (), 0) for number in range(8)]
    chunk = Chunk(encode_producer_batch([(rows, (0.0,))], "none", 0.0), 8, KAFKA011, high_watermark=8)
    with pytest.raises(HeadersRefused, match=r"here/0 at offset 5: the record has headers \(trace\)"):
        found.extend(pieces(chunk, SOURCE, 0, BatchLimits(magic=0), 0))
    assert [(each.first_offset, each.records) for each in found] == [(0, 5)]
