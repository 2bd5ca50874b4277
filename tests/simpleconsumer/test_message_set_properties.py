"""Message sets as properties: round trips, the fast paths against a simple decoder, and any bytes at all."""

from __future__ import annotations

import gc
import struct
import weakref
import zlib
from typing import Any

import crcmod.predefined
import pytest
from decoding import MEBIBYTE, decode_all, decode_simply
from hypothesis import example, given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from simpleconsumer.columns import decode_columns
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.kafka08.offset_order import shallow_end
from simpleconsumer.types import Buffer, Message

codecs = st.sampled_from(["none", "gzip", "snappy", "lz4"])
magics = st.sampled_from([0, 1])
fields = st.none() | st.binary(max_size=30) | st.sampled_from([0, 16, 100, 70_000]).map(bytes)
stamps = st.none() | st.integers(0, 2**62)
rows = st.lists(st.tuples(fields, fields, stamps), max_size=30)
kinds = st.sampled_from([bytes, bytearray, memoryview])


def as_messages(
    rows: list[tuple[bytes | None, bytes | None, int | None]], magic: int, first_offset: int = 0
) -> list[Message]:
    return [
        Message("t", 0, offset, offset + 1, key, value, stamp if magic else None)
        for offset, (key, value, stamp) in enumerate(rows, first_offset)
    ]


@given(rows=rows, codec=codecs, magic=magics, first_offset=st.integers(0, 2**40), kind=kinds)
def test_what_is_encoded_decodes_to_itself(
    rows: list[tuple[bytes | None, bytes | None, int | None]],
    codec: str,
    magic: int,
    first_offset: int,
    kind: type[Buffer],
) -> None:
    messages = as_messages(rows, magic, first_offset)
    data = encode_message_set(messages, codec, magic, first_offset=first_offset)
    decoded = list(decode_messages(kind(data), "t", 0))
    assert decoded == messages
    assert all(type(field) in (bytes, type(None)) for m in decoded for field in (m.key, m.value))


Tree = tuple[str, list[Any]]
sets: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(st.just("plain"), rows),
    lambda inside: st.tuples(st.sampled_from(["gzip", "snappy", "lz4"]), st.lists(inside, min_size=1, max_size=3)),
    max_leaves=6,
)


def encode(tree: Tree, magic: int, next_offset: int) -> tuple[bytes, int]:
    """Return a set of messages and nested wrappers with absolute offsets at the top, and the next free offset."""
    kind, inside = tree
    if kind == "plain":
        return encode_message_set(as_messages(inside, 1), "none", magic, first_offset=next_offset), next_offset + len(
            inside
        )
    first = next_offset
    data = b""
    relative = 0 if magic else first
    for child in inside:
        part, relative = encode(child, magic, relative)
        data += part
    count = relative - (0 if magic else first)
    if not count:
        return b"", first
    return encode_wrapper(data, kind, magic, first + count - 1), first + count


def depth(tree: Tree) -> int:
    return 0 if tree[0] == "plain" else 1 + max(depth(child) for child in tree[1])


@given(trees=st.lists(sets.filter(lambda tree: depth(tree) <= 2), max_size=4), magic=magics, start=st.integers(0, 60))
@settings(deadline=None)
def test_any_nesting_decodes_like_the_simple_decoder(
    trees: list[Tree],
    magic: int,
    start: int,
) -> None:
    data, next_offset = b"", 0
    for tree in trees:
        part, next_offset = encode(tree, magic, next_offset)
        data += part
    expected = decode_simply(data)
    assert [m.offset for m in expected] == list(range(next_offset))
    assert list(decode_messages(data, "t", 0, start)) == expected[start:]


entry_rows = st.lists(
    st.tuples(
        magics, st.sampled_from([0, 8, 16]), st.integers(0, 3),
        st.sampled_from([None, b"", b"k", b"key", b"0123456789"]), st.sampled_from([None, b"", b"x", b"value" * 20]),
    ),
    max_size=60,
)  # fmt: skip


@given(rows=entry_rows, kind=kinds)
def test_messages_of_all_shapes_mixed_decode_like_the_simple_decoder(
    rows: list[tuple[int, int, int, bytes | None, bytes | None]], kind: type[Buffer]
) -> None:
    data = b"".join(
        encode_message(offset * 3, key, value, magic, attributes, timestamp_ms=stamp - 1)
        for offset, (magic, attributes, stamp, key, value) in enumerate(rows)
    )
    assert list(decode_messages(kind(data), "t", 0)) == decode_simply(data)


@given(rows=entry_rows)
def test_a_set_of_magic_0_is_made_of_its_messages_as_each_is_encoded_alone(
    rows: list[tuple[int, int, int, bytes | None, bytes | None]],
) -> None:
    pairs = [(key, value) for *_, key, value in rows]
    alone = [encode_message(offset, key, value) for offset, (key, value) in enumerate(pairs, 7)]
    assert encode_message_set(pairs, first_offset=7) == b"".join(alone)


@given(lengths=st.lists(st.integers(0, 20), min_size=1, max_size=100), magic=magics)
def test_keys_of_many_lengths_decode_like_the_simple_decoder(lengths: list[int], magic: int) -> None:
    data = encode_message_set([(b"k" * length, b"v" * (length % 3)) for length in lengths], magic=magic)
    assert list(decode_messages(data, "t", 0)) == decode_simply(data)


@given(st.binary(max_size=300))
@example(b"\xff" * 200)
@example(struct.pack(">qi", 0, 2**31 - 1) + b"\0" * 50)
def test_any_bytes_give_messages_or_documented_errors(data: bytes) -> None:
    messages, errors = decode_all(data)
    assert len(messages) + len(errors) <= len(data) // 26 + 1
    try:
        valid, next_offset, count = shallow_end(data)
    except BrokenFraming:
        assert [type(error) for error in errors][-1:] == [BrokenFraming]
    else:
        assert not any(isinstance(error, BrokenFraming) for error in errors)
        assert 26 * count <= valid <= len(data)
        assert (next_offset is None) == (count == 0)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=80)), max_size=8))
def test_any_message_under_a_right_checksum_gives_messages_or_documented_errors(
    rows: list[tuple[int, int, bytes]],
) -> None:
    data = b""
    for offset, (magic, attributes, rest) in enumerate(rows):
        body = bytes((magic % 3, attributes)) + rest
        data += struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
    messages, errors = decode_all(data)
    assert {message.offset for message in messages if message.offset < len(rows)} <= set(range(len(rows)))
    assert len([error for error in errors if isinstance(error, MessageError)]) <= len(rows) + len(messages) + len(data)


@given(st.binary(max_size=400), codecs.filter(lambda codec: codec != "none"), magics)
def test_any_bytes_inside_of_a_wrapper_give_messages_or_errors_and_end_with_it(
    data: bytes, codec: str, magic: int
) -> None:
    after = encode_message(10**6, None, b"after", magic)
    messages, errors = decode_all(encode_wrapper(data, codec, magic, 10**5) + after, -(2**63))
    assert messages[-1].value == b"after"
    assert not any(isinstance(error, BrokenFraming) for error in errors)


def test_resume_must_come_from_an_error() -> None:
    with pytest.raises(TypeError, match="resume must come from a MessageError, not int"):
        list(decode_messages(b"", "t", 0, resume=17))


# What may be encoded


def test_an_empty_set_is_no_bytes_whatever_the_codec() -> None:
    assert {encode_message_set([], codec, magic) for codec in ("none", "gzip") for magic in (0, 1)} == {b""}


def test_what_cannot_be_encoded_is_named() -> None:
    with pytest.raises(ValueError, match="codec 'zstd' is not one of none, gzip, snappy, lz4"):
        encode_message_set([b"a"], "zstd")
    with pytest.raises(ValueError, match="magic 2 is neither 0 nor 1"):
        encode_message_set([b"a"], magic=2)
    with pytest.raises(ValueError, match="1 offsets for 2 messages"):
        encode_message_set([b"a", b"b"], offsets=[1])


# The caches behind the fast paths


@given(st.binary(max_size=1000), st.integers(0, 2**32 - 1))
def test_the_checksum_is_the_one_that_zlib_and_crcmod_compute(data: bytes, state: int) -> None:
    reference = crcmod.predefined.mkCrcFun("crc-32")
    assert isal_zlib.crc32(data) == zlib.crc32(data) == reference(data)
    assert isal_zlib.crc32(data, state) == zlib.crc32(data, state)


@pytest.mark.parametrize("items", ["b", "i"])
def test_views_of_other_items_than_bytes_are_read_as_bytes(items: str) -> None:
    data = encode_message_set([b"v" * 2] * 40)
    assert list(decode_messages(memoryview(data).cast(items), "t", 0)) == decode_simply(data)
    assert [batch.num_rows for batch in decode_columns(memoryview(data).cast(items), "t", 0)] == [40]


def test_large_values_decode_too() -> None:
    values = [bytes([number]) * (MEBIBYTE + number) for number in range(3)]
    assert [m.value for m in decode_messages(encode_message_set(values), "t", 0)] == values


def test_an_error_that_is_kept_does_not_keep_its_message_set() -> None:
    class Answer(bytearray):
        """Bytes that tell when they are gone."""

    data = Answer(encode_message_set([b"a", b"b"]))
    data[-1] ^= 1
    _, [error] = decode_all(data)
    gone = weakref.ref(data)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    del data
    gc.collect()
    assert gone() is None
