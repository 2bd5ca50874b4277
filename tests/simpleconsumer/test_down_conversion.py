"""Answers of brokers from 0.11 on with batches that cannot be converted, as captured from 1.1.1, 2.8.2 and 3.9.2."""

from __future__ import annotations

import struct

import pytest

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.kafka08.classify import behind_marks, classify, last_offset_of_batch, repeated_bytes
from simpleconsumer.kafka08.message_set import encode_message_set
from simpleconsumer.types import FetchedPartition

FILLER = b"\xff" * 8 + b"\0\0\0\x3d"
MARK, EMPTY, DATA = 0x30, 0x10, 0x10


def batch(first: int, count: int = 1, attributes: int = MARK, records: int | None = None, size: int = 78) -> bytes:
    """A batch of format 2 that spans `count` offsets; what is in it does not matter."""
    held = count if records is None else records
    head = struct.pack(">qiibIhi30xi", first, size - 12, 0, 2, 0, attributes, count - 1, held)
    return head.ljust(size, b"\0")


def messages(*offsets: int, codec: str = "none") -> bytes:
    """Plain messages, or a wrapper that holds them."""
    if codec != "none":
        return encode_message_set([b"%d" % n for n in offsets], codec=codec, first_offset=offsets[0], magic=1)
    return b"".join(encode_message_set([b"%d" % n], first_offset=n, magic=1) for n in offsets)


def classified(
    message_set: bytes, position: int = 5, asked: int = 1000, largest: int = 4000, end: int = 100
) -> FetchResult:
    return classify(FetchedPartition("t", 0, 0, end, message_set), position, asked, largest, version=2)


@pytest.mark.parametrize(
    ("message_set", "behind"),
    [
        (FILLER, 6),
        (FILLER + bytes(0x3C), 6),  # one byte of it is missing
        (batch(5), 6),
        (batch(3, 2), 6),  # begins before the position, as compaction merges
        (batch(5) + batch(6) + batch(7), 8),
        (batch(5) + batch(6)[:70], 6),
        (batch(5) + batch(6, 20, DATA, size=900)[:300], 6),
        (batch(5, 10, EMPTY, records=0), 15),
        (batch(5, 10, EMPTY, records=0, size=61), 15),  # a head with nothing behind it
    ],
)
def test_marks_are_passed_over(message_set: bytes, behind: int) -> None:
    assert behind_marks(message_set, 5) == behind
    result = classified(message_set)
    assert (result.outcome, result.valid_bytes, result.next_offset) == (Outcome.CHUNK, 0, behind)


@pytest.mark.parametrize(
    "message_set",
    [
        b"", FILLER[:11], FILLER + bytes(0x3D), messages(5, 6), messages(5, 6, codec="gzip"), batch(5)[:70],
        batch(5, 10, DATA), batch(5) + messages(6, 7, 8), b"\xff" * 80,
    ],
)  # fmt: skip
def test_what_may_hold_messages_is_not(message_set: bytes) -> None:
    assert behind_marks(message_set, 5) is None


def test_an_older_broker_sends_no_such_thing() -> None:
    assert classify(FetchedPartition("t", 0, 0, 100, FILLER), 5, 1000, 4000).outcome is not Outcome.CHUNK
    assert classify(FetchedPartition("t", 0, 0, 100, b""), 5, 1000, 4000).outcome is Outcome.NOTHING


def test_where_nothing_comes_though_there_is_more_a_larger_size_is_asked_for_up_to_the_limit() -> None:
    assert classified(b"", end=5).outcome is Outcome.NOTHING
    assert classified(b"", asked=1000).size_bytes == 2000
    grown = classified(b"", asked=3000)
    assert (grown.outcome, grown.size_bytes) == (Outcome.GROW, 4000)
    assert grown.reason == "nothing came within 3000 bytes, though the log ends at 100"
    given_up = classified(b"", asked=4000)
    assert (given_up.outcome, given_up.offset, given_up.next_offset) == (Outcome.LEFT_OUT, 5, 6)
    assert given_up.size_bytes == 4000
    assert given_up.reason == (
        "nothing came within 4000 bytes, though the log ends at 100: the next message is larger than that, "
        "and it is the limit"
    )


def test_a_batch_that_is_cut_off_names_its_last_offset() -> None:
    cut = batch(5, 20, DATA, size=5000)[:1000]
    assert last_offset_of_batch(cut) == 24
    assert last_offset_of_batch(cut[:27]) == 24
    assert last_offset_of_batch(batch(0)) == 0
    for other in (messages(5), encode_message_set([(b"key", b"a value")], first_offset=5), cut[:26], b""):
        assert last_offset_of_batch(other) is None
    for damaged in (batch(-5, 20), batch(5, -20)):
        assert last_offset_of_batch(damaged) is None
    given_up = classified(cut)
    assert (given_up.outcome, given_up.offset, given_up.next_offset) == (Outcome.TOO_LARGE, 24, 25)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_that_comes_twice_counts_once(codec: str) -> None:
    twice, next_one = messages(7, 8, codec=codec), messages(9, 10, codec=codec)
    message_set = twice + twice + next_one + b"\0" * 300
    assert repeated_bytes(message_set, 5) == len(twice)
    result = classified(twice + twice + next_one)
    assert (result.first_byte, result.next_offset) == (len(twice), 11)
    result = classified(twice + twice + messages(*range(9, 200)), end=1000)
    assert (result.first_byte, result.next_offset) == (len(twice), 200)


def test_messages_that_come_twice_do_not_fill_the_hole_behind_them() -> None:
    message_set = messages(7, 8) * 2 + messages(11)
    result = classified(message_set)
    assert (result.valid_bytes, result.next_offset) == (len(messages(7, 8)) * 2, 9)


def test_the_first_message_is_not_taken_for_a_repeated_one() -> None:
    inner = messages(7)
    carrier = encode_message_set([inner], first_offset=8, magic=1)  # its value has the same bytes
    assert repeated_bytes(inner + inner + carrier, 5) == len(inner)
    assert repeated_bytes(messages(5) * 2, 5) == 0
    assert repeated_bytes(inner[:17], 5) == 0
    for usual in (messages(5, 6), messages(7, 8, 9), inner + carrier, messages(7, 8, codec="gzip"), b""):
        assert repeated_bytes(usual, 5) == 0
