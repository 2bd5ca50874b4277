"""Record batches as properties: round trips, the fast path against a simple decoder, and any bytes at all."""

from __future__ import annotations

import gc
import struct
import weakref

import pytest
from batch_decoding import decode_all, decode_simply, message_of
from decoding import MEBIBYTE
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simpleconsumer.codecs import crc32c
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.kafka011.records import encode_varint, read_varint, read_varlong
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import Buffer, Headers, Message

codecs = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
fields = st.none() | st.binary(max_size=30) | st.sampled_from([0, 16, 63, 64, 100, 8191, 8192, 70_000]).map(bytes)
stamps = st.none() | st.integers(0, 2**62 - 1) | st.integers(10**12, 10**12 + 300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
few_headers = st.just(()) | headers
Row = tuple[bytes | None, bytes | None, int | None, Headers]
rows = st.lists(st.tuples(fields, fields, stamps, few_headers), max_size=30)
kinds = st.sampled_from([bytes, bytearray, memoryview])


def as_messages(some: list[Row], first_offset: int = 0) -> list[Message]:
    return [message_of(offset, *row) for offset, row in enumerate(some, first_offset)]


@given(rows=rows, codec=codecs, first_offset=st.integers(0, 2**40), kind=kinds)
@settings(deadline=None)
def test_what_is_encoded_decodes_to_itself(rows: list[Row], codec: str, first_offset: int, kind: type[Buffer]) -> None:
    messages = as_messages(rows, first_offset)
    data = encode_record_batch(messages, codec, first_offset=first_offset)
    decoded = list(decode_messages(kind(data), "t", 0))
    assert decoded == messages
    assert all(type(field) in (bytes, type(None)) for m in decoded for field in (m.key, m.value))


shapes = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"k", b"key", b"0123456789" * 7]),
        st.sampled_from([None, b"", b"x", b"value" * 20, bytes(9000)]),
        st.sampled_from([None, 1000, 1001, 1063, 1064, 900, 10_000, 10**7, 10**13]),
        st.sampled_from([(), (), (), (("h", b"1"),), (("h", None), ("h", b""))]),
    ),
    max_size=200,
)


@given(rows=shapes, holes=st.lists(st.integers(0, 199), max_size=5), kind=kinds, starts=st.integers(0, 400))
@settings(deadline=None)
def test_records_of_all_forms_mixed_and_with_holes_decode_like_the_simple_decoder(
    rows: list[Row], holes: list[int], kind: type[Buffer], starts: int
) -> None:
    offsets = [offset + sum(offset >= hole for hole in holes) for offset in range(len(rows))]
    data = encode_record_batch(as_messages(rows), offsets=offsets) + encode_record_batch([b"next"], first_offset=1000)
    expected = decode_simply(data)
    assert [m.offset for m in expected] == [*offsets, 1000]
    assert list(decode_messages(kind(data), "t", 0)) == expected
    assert list(decode_messages(kind(data), "t", 0, starts)) == [m for m in expected if m.offset >= starts]


@given(lengths=st.lists(st.integers(0, 70), min_size=1, max_size=100))
def test_keys_of_many_lengths_decode_like_the_simple_decoder(lengths: list[int]) -> None:
    data = encode_record_batch([(b"k" * length, b"v" * (length % 3)) for length in lengths])
    assert list(decode_messages(data, "t", 0)) == decode_simply(data)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 9000])
def test_differences_of_one_two_and_three_bytes_are_read(count: int) -> None:
    data = encode_record_batch([b"v%d" % number for number in range(count)], first_offset=7)
    assert list(decode_messages(data, "t", 0)) == decode_simply(data)


@pytest.mark.parametrize("append", [None, 0, 17])
def test_log_append_time_holds_for_all_records(append: int | None) -> None:
    sent = as_messages([(None, b"v", stamp, ()) for stamp in (5, 3, -7 + 2**40, 5)])
    data = encode_record_batch(sent, log_append_time_ms=append)
    expected = [m.timestamp_ms if append is None else append for m in sent]
    assert [m.timestamp_ms for m in decode_messages(data, "t", 0)] == expected


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints_decode_to_themselves(small: int, large: int) -> None:
    data = b"x" + encode_varint(small) + encode_varint(large)
    found, at = read_varint(data, 1)
    assert (found, read_varlong(data, at)) == (small, (large, len(data)))


@given(st.binary(max_size=400))
@example(b"\xff" * 200)
@example(struct.pack(">qi", 0, 2**31 - 1) + b"\0" * 50)
@example(struct.pack(">qiib", 0, 30, 0, 2) + b"\0" * 50)
def test_any_bytes_give_messages_or_documented_errors(data: bytes) -> None:
    messages, errors = decode_all(data)
    assert len(messages) + len(errors) <= len(data) // 26 + 1


@given(
    area=st.binary(max_size=120),
    count=st.integers(-2, 20),
    last=st.integers(-2, 20),
    attributes=st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 48, 0x7F00]),
    base_time=st.integers(-(2**63), 2**63 - 1),
)
@settings(max_examples=400, deadline=None)
def test_any_records_under_a_right_checksum_give_messages_or_documented_errors(
    area: bytes, count: int, last: int, attributes: int, base_time: int
) -> None:
    data = batch_of(area, count, last, attributes, base_time) + encode_record_batch([b"after"], first_offset=100)
    messages, errors = decode_all(data)
    assert messages[-1].value == b"after"
    assert all(isinstance(error, MessageError) and 0 <= error.offset < 100 for error in errors)
    assert all(0 <= message.offset <= last for message in messages[:-1])
    found = [m.offset for m in messages]
    assert found == sorted(set(found))


def batch_of(area: bytes, count: int, last: int, attributes: int = 0, base_time: int = 0) -> bytes:
    body = struct.pack(">hiqqqhii", attributes, last, base_time, base_time, -1, -1, -1, count) + area
    return struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body


# What may be encoded


def test_no_messages_are_no_batch_but_one_that_compaction_emptied() -> None:
    assert encode_record_batch([], "gzip") == b""
    emptied = encode_record_batch([], first_offset=5, last_offset=9)
    after = encode_record_batch([b"after"], first_offset=10)
    assert decode_all(emptied + after) == ([message_of(10, None, b"after", None)], [])


def test_what_cannot_be_encoded_is_named() -> None:
    with pytest.raises(ValueError, match="codec 'brotli' is not one of none, gzip, snappy, lz4, zstd"):
        encode_record_batch([b"a"], "brotli")
    with pytest.raises(ValueError, match="1 offsets for 2 messages"):
        encode_record_batch([b"a", b"b"], offsets=[1])


def test_the_producer_is_in_the_head() -> None:
    data = encode_record_batch([b"a"], producer=BatchProducer(7, 2, 30, is_transactional=True))
    assert struct.unpack_from(">qhi", data, 43) == (7, 2, 30)
    assert struct.unpack_from(">h", data, 21) == (16,)


# Places, buffers and caches


def test_resume_must_come_from_an_error_of_record_batches() -> None:
    with pytest.raises(TypeError, match="resume must come from a MessageError, not int"):
        list(decode_messages(b"", "t", 0, resume=17))


@pytest.mark.parametrize("items", ["b", "i"])
def test_views_of_other_items_than_bytes_are_read_as_bytes(items: str) -> None:
    data = encode_record_batch([b"v" * 3] * 3 + [b"four56"])
    assert len(data) % 4 == 0
    assert list(decode_messages(memoryview(data).cast(items), "t", 0)) == decode_simply(data)


def test_large_values_decode_too() -> None:
    values = [bytes([number]) * (MEBIBYTE + number) for number in range(3)]
    assert [m.value for m in decode_messages(encode_record_batch(values), "t", 0)] == values


BROKEN = {
    "batch": batch_of(b"\x02\x00", 2, 1),
    "message of magic 1": encode_message_set([b"a", b"b"], magic=1)[:-1] + b"x",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_error_that_is_kept_does_not_keep_its_set(kind: str) -> None:
    class Answer(bytearray):
        """Bytes that tell when they are gone."""

    data = Answer(BROKEN[kind])
    _, [error] = decode_all(data)
    gone = weakref.ref(data)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    del data
    gc.collect()
    assert gone() is None


def test_framing_that_cannot_be_is_reported_behind_what_came_before() -> None:
    messages, errors = decode_all(encode_record_batch([b"a"]) + struct.pack(">qi", 1, 13) + bytes(30))
    assert [m.value for m in messages] == [b"a"]
    assert [type(error) for error in errors] == [BrokenFraming]
    assert str(errors[0]) == "entry at byte 69 (offset 1) has size 13"
