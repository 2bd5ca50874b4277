"""What the heads of entries show of a message set."""

from __future__ import annotations

from simpleconsumer.kafka08.entry_heads import bytes_an_offset, first_offset_in
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
