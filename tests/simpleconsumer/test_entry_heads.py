"""What the heads of entries show of a message set."""

from __future__ import annotations

import pytest

from simpleconsumer.kafka011 import batch_head as kafka011
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka08.classify import bytes_an_offset, first_offset_in
from simpleconsumer.kafka08.message_set import encode_message_set


def test_where_a_wrapper_begins_is_shown_by_the_entry_before_it() -> None:
    plain = encode_message_set([b"x", b"y"], offsets=[3, 5])
    wrapper = encode_message_set([b"x", b"y"], "gzip", first_offset=8)
    assert first_offset_in(plain + wrapper, 9, 3) == 6
    assert first_offset_in(wrapper, 9, 7) == 7
    assert first_offset_in(plain, 5, 3) == 5
    assert first_offset_in(plain, 9, 3) == 6


def test_the_size_of_messages_is_seen_in_a_set() -> None:
    message_set = encode_message_set([b"x" * 74] * 10)
    assert bytes_an_offset(message_set, 0) == 100.0


def test_the_size_of_one_that_does_not_fit_is_in_its_head() -> None:
    assert bytes_an_offset(encode_message_set([b"x" * 99_974])[:1000], 0) == 100_000.0


def test_nothing_is_seen_where_nothing_is() -> None:
    assert bytes_an_offset(b"", 7) is None
    assert bytes_an_offset(b"\0" * 20, 7) is None


# The same of record batches


def batch(first: int, behind: int) -> bytes:
    return encode_record_batch([b"value"] * (behind - first), first_offset=first)


def test_the_head_of_a_batch_says_where_it_begins_and_ends() -> None:
    old = encode_message_set([b"x", b"y"], offsets=[3, 5])
    for before in (b"", old):
        data = before + batch(10, 15) + batch(20, 25)
        assert kafka011.set_end(data + batch(25, 26)[:-1]) == (len(data), 25, 2 + 2 * bool(before))
        assert kafka011.set_end(data[:-1]) == (len(before) + len(batch(10, 15)), 15, 1 + 2 * bool(before))
        for offset, first in ((12, 10), (14, 10), (17, 20), (24, 20), (25, 25)):
            assert kafka011.first_offset_in(data, offset, 3 if before else 10) == first
    assert kafka011.first_offset_in(batch(10, 15), 12, 11) == 11
    assert kafka011.first_offset_in(old + batch(10, 15), 5, 3) == 5


@pytest.mark.parametrize("cut", [0, 1])
def test_the_size_of_messages_is_seen_in_batches_whole_or_not(cut: int) -> None:
    data = batch(10, 20)
    assert kafka011.bytes_an_offset(data[: len(data) - cut], 15) == len(data) / 10
    assert kafka011.bytes_an_offset(data[:20], 15) is None
    assert kafka011.bytes_an_offset(b"", 15) is None
    assert kafka011.bytes_an_offset(encode_message_set([b"x" * 74] * 10), 0) == 100.0
