"""Wrappers: offsets, timestamps, nesting, and damage inside of a wrapper whose own CRC is right."""

from __future__ import annotations

import struct
import zlib

import pytest
from decoding import MEBIBYTE, decode_all, entries, memory_growth_below

from simpleconsumer.codecs import CODECS, compress
from simpleconsumer.errors import (
    BrokenFraming,
    CorruptMessage,
    CrcMismatch,
    DamagedOffset,
    MessageError,
    MessageTooLarge,
    UnknownCodec,
)
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.types import Message

COMPRESSED = ("gzip", "snappy", "lz4")
BOTH = pytest.mark.parametrize("magic", [0, 1])
EACH_CODEC = pytest.mark.parametrize("codec", COMPRESSED)


def offsets_of(data: bytes, start_offset: int = 0) -> list[int]:
    messages, errors = decode_all(data, start_offset)
    assert errors == []
    return [message.offset for message in messages]


def only_error(data: bytes) -> MessageError:
    _, errors = decode_all(data)
    assert len(errors) == 1
    assert isinstance(errors[0], MessageError)
    return errors[0]


# Offsets, as Kafka assigns them


def test_magic_0_offsets_inside_are_absolute_and_the_wrapper_has_the_last() -> None:
    wrapper = encode_message_set([b"a", b"b", b"c"], "gzip", first_offset=10)
    assert entries(wrapper) == [(0, len(wrapper), 12)]
    assert offsets_of(wrapper) == [10, 11, 12]
    messages = list(decode_messages(wrapper, "t", 0, 11))
    assert [(m.offset, m.next_offset) for m in messages] == [(11, 12), (12, 13)]


def test_magic_1_offsets_inside_are_relative_to_the_last() -> None:
    inside = b"".join(encode_message(offset, None, b"v", 1) for offset in (0, 1, 2))
    assert offsets_of(encode_wrapper(inside, "gzip", 1, 12)) == [10, 11, 12]


@pytest.mark.catalogue("G7")
def test_holes_that_compaction_left_stay_holes() -> None:
    inside = b"".join(encode_message(offset, None, b"v", 1) for offset in (0, 2))
    assert offsets_of(encode_wrapper(inside, "gzip", 1, 12)) == [10, 12]
    assert offsets_of(encode_message_set([b"a", b"b"], "gzip", 0, offsets=[10, 12])) == [10, 12]
    assert offsets_of(encode_message_set([b"a", b"b", b"c"], offsets=[1, 5, 6])) == [1, 5, 6]


@EACH_CODEC
@BOTH
def test_a_start_in_the_middle_of_a_wrapper_passes_over_what_is_before(codec: str, magic: int) -> None:
    values = [b"%d" % number for number in range(300)]
    data = encode_message_set(values[:200], codec, magic) + encode_message_set(
        values[200:], codec, magic, first_offset=200
    )
    for start in (0, 1, 57, 198, 199, 200, 201, 299, 300, 1000):
        messages = list(decode_messages(data, "t", 0, start))
        assert [m.value for m in messages] == values[start:]


def test_an_empty_wrapper_is_passed_over() -> None:
    data = encode_wrapper(b"", "gzip", 0, 4) + encode_wrapper(b"", "snappy", 1, 5) + encode_message(6, None, b"x")
    assert offsets_of(data) == [6]


# Timestamps


def test_magic_0_has_no_timestamps_and_minus_one_means_none() -> None:
    assert [m.timestamp_ms for m in decode_messages(encode_message_set([b"a"], timestamp_ms=5), "t", 0)] == [None]
    plain = encode_message_set([b"a", b"b"], magic=1) + encode_message(2, b"k", None, 1)
    assert [m.timestamp_ms for m in decode_messages(plain, "t", 0)] == [None, None, None]


@pytest.mark.parametrize("codec", ["none", *COMPRESSED])
def test_creation_times_are_those_of_the_messages_and_the_wrapper_has_the_newest(codec: str) -> None:
    source = [Message("t", 0, 0, 1, None, b"v%d" % stamp, stamp) for stamp in (7, 9, 8)]
    data = encode_message_set(source, codec, 1)
    assert [m.timestamp_ms for m in decode_messages(data, "t", 0)] == [7, 9, 8]
    if codec != "none":
        assert struct.unpack_from(">q", data, 18) == (9,)


@pytest.mark.parametrize("codec", ["none", *COMPRESSED])
def test_append_time_holds_for_all_messages(codec: str) -> None:
    source = [(b"k" * (number % 3), b"v") for number in range(10)] + [(None, None), (None, b"x")]
    data = encode_message_set(source, codec, 1, timestamp_ms=7, log_append_time_ms=1234)
    assert {m.timestamp_ms for m in decode_messages(data, "t", 0)} == {1234}


def test_append_time_of_the_outer_wrapper_holds_for_wrappers_inside() -> None:
    inner = encode_message_set([b"a", b"b"], "gzip", 1, timestamp_ms=7, log_append_time_ms=8)
    data = encode_wrapper(inner, "snappy", 1, 1, log_append_time_ms=99)
    assert [m.timestamp_ms for m in decode_messages(data, "t", 0)] == [99, 99]


# Nesting


@pytest.mark.catalogue("G8")
@EACH_CODEC
def test_wrappers_in_wrappers_are_read_two_deep(codec: str) -> None:
    deep = encode_message_set([b"deep1", b"deep2"], "gzip", first_offset=6)
    inside = encode_message(5, None, b"inner1") + deep + encode_message(8, b"k", b"inner2")
    data = encode_wrapper(inside, codec, 0, 8) + encode_message(9, None, b"after")
    messages, errors = decode_all(data)
    assert errors == []
    assert [(m.offset, m.value) for m in messages] == [
        (5, b"inner1"), (6, b"deep1"), (7, b"deep2"), (8, b"inner2"), (9, b"after"),
    ]  # fmt: skip


def test_magic_1_offsets_are_relative_at_each_depth() -> None:
    deep = encode_wrapper(encode_message_set([b"b", b"c"], magic=1), "lz4", 1, 2)
    inside = encode_message(0, None, b"a", 1) + deep + encode_message(3, None, b"d", 1)
    assert offsets_of(encode_wrapper(inside, "gzip", 1, 103)) == [100, 101, 102, 103]


@BOTH
def test_deeper_is_one_error_and_the_rest_is_read(magic: int) -> None:
    too_deep = encode_message_set([b"c"], "gzip", magic, first_offset=1)
    for codec in ("snappy", "gzip"):
        too_deep = encode_wrapper(too_deep, codec, magic, 1)
    data = encode_message(0, None, b"a", magic) + too_deep + encode_message(2, None, b"d", magic)
    messages, errors = decode_all(data)
    assert [m.value for m in messages] == [b"a", b"d"]
    assert [(type(e), e.offset) for e in errors if isinstance(e, MessageError)] == [(CorruptMessage, 1)]
    assert "nested deeper than 2" in str(errors[0])


# Damage inside


@EACH_CODEC
@BOTH
def test_a_bad_message_inside_costs_itself_alone(codec: str, magic: int) -> None:
    messages = [(b"key" if number % 2 else None, b"value %d" % number) for number in range(40)]
    plain = encode_message_set(messages, magic=magic)
    for index, (_, end, _) in enumerate(entries(plain)):
        damaged = bytearray(plain)
        damaged[end - 1] ^= 0x20
        found, errors = decode_all(encode_wrapper(bytes(damaged), codec, magic, 139 if magic else 39))
        base = 100 if magic else 0
        assert [m.offset for m in found] == [base + n for n in range(40) if n != index]
        assert [(type(e), e.offset) for e in errors if isinstance(e, MessageError)] == [(CrcMismatch, base + index)]


@pytest.mark.parametrize("magic", [0, 1])
def test_every_byte_inside_flipped_gives_messages_or_errors_and_never_leaves_the_wrapper(magic: int) -> None:
    plain = encode_message_set([b"first", (b"key", b"second"), (b"k", None), b"x" * 40], magic=magic)
    after = encode_message(1000, None, b"after", magic)
    covered = {p for start, end, _ in entries(plain) for p in range(start + 12, end)}
    with memory_growth_below(64 * MEBIBYTE):
        for position in range(len(plain)):
            for mask in (0xFF, 0x01, 0x80):
                damaged = bytearray(plain)
                damaged[position] ^= mask
                found, errors = decode_all(encode_wrapper(bytes(damaged), "gzip", magic, 3) + after, -(2**63))
                assert found[-1].value == b"after"
                assert not any(isinstance(error, BrokenFraming) for error in errors)
                if position in covered:
                    assert len(errors) == 1
                    assert len(found) == 4


@EACH_CODEC
@BOTH
def test_every_byte_of_a_compressed_value_flipped_under_a_right_checksum(codec: str, magic: int) -> None:
    values = [b"some value %d" % number for number in range(20)]
    value = compress(CODECS[codec], encode_message_set(values, magic=magic), legacy_lz4_checksum=not magic)
    after = encode_message(1000, None, b"after", magic)
    with memory_growth_below(64 * MEBIBYTE):
        for position in range(len(value)):
            for mask in (0xFF, 0x01, 0x80):
                damaged = bytearray(value)
                damaged[position] ^= mask
                data = encode_message(19, None, bytes(damaged), magic, CODECS[codec]) + after
                found, errors = decode_all(data, -(2**63))
                assert found[-1].value == b"after"
                assert {message.value for message in found[:-1]} <= set(values)
                assert not any(isinstance(error, BrokenFraming) for error in errors)


@EACH_CODEC
def test_an_inside_that_breaks_off_is_an_error_because_its_checksum_vouched_for_it(codec: str) -> None:
    plain = encode_message_set([b"a", b"b", b"c"])
    for cut, held in (
        (1, "an entry that ends 1 bytes after it"), (20, "7 bytes after its last message"),
        (26, "1 bytes after its last message"),
    ):  # fmt: skip
        found, errors = decode_all(encode_wrapper(plain[:-cut], codec, 0, 2))
        assert [m.value for m in found] == [b"a", b"b"]
        assert [(type(error), str(error)) for error in errors] == [
            (CorruptMessage, f"t/0 at 2: the wrapper holds {held}")
        ]
    plain = encode_message_set([b"a", b"b", b"c"], magic=1)
    error = only_error(encode_wrapper(plain[:-1], codec, 1, 2) + encode_message(3, None, b"x", 1))
    assert (type(error), error.offset, error.reason) == (CorruptMessage, 2, "the wrapper breaks off, 34 bytes are left")


@BOTH
def test_a_broken_size_inside_ends_the_wrapper_and_not_the_set(magic: int) -> None:
    inside = encode_message(0, None, b"a", magic) + struct.pack(">qi", 1, 3) + b"abc"
    found, errors = decode_all(encode_wrapper(inside, "gzip", magic, 1) + encode_message(2, None, b"after", magic))
    assert [m.value for m in found] == ([b"a", b"after"] if magic == 0 else [b"after"])
    reason = "the wrapper holds an entry of size 3 at byte 27"
    if magic == 1:
        reason = "inside the wrapper: entry at byte 35, after 1 entries, has size 3"
    assert [(type(error), str(error)) for error in errors] == [(CorruptMessage, f"t/0 at 1: {reason}")]


@pytest.mark.parametrize(("outer", "inner"), [(0, 1), (1, 0)])
def test_messages_of_another_magic_than_their_wrapper_are_corrupt(outer: int, inner: int) -> None:
    data = encode_wrapper(encode_message_set([b"a", b"b"], magic=inner), "gzip", outer, 1)
    found, errors = decode_all(data)
    assert found == []
    assert [str(e) for e in errors] == [f"t/0 at {n}: magic {inner} in a wrapper of magic {outer}" for n in (0, 1)]


def test_errors_before_the_start_offset_are_passed_over() -> None:
    plain = bytearray(encode_message_set([b"a", b"b", b"c"]))
    plain[26] ^= 1
    wrapper = encode_wrapper(bytes(plain), "gzip", 0, 2)
    assert [type(error) for error in decode_all(wrapper)[1]] == [CrcMismatch]
    assert offsets_of(wrapper, 1) == [1, 2]


def test_the_offset_of_a_message_that_is_cut_off_in_a_wrapper_is_no_start() -> None:
    inside = encode_message_set([b"a"], first_offset=0) + encode_message(7, None, b"cut off")[:-1]
    data = encode_wrapper(inside, "gzip", 0, 1) + encode_message_set([b"c", b"d", b"e"], first_offset=2)
    assert offsets_of(data, 3) == [3, 4], "the wrapper at 1 is before the start, and so is what is wrong with it"


def test_a_value_that_does_not_inflate_says_why() -> None:
    error = only_error(encode_message(5, None, b"x", 0, CODECS["snappy"]))
    assert type(error) is CorruptMessage
    assert str(error) == "t/0 at 5: snappy: 1 bytes cannot hold the 120 they claim"


@pytest.mark.parametrize("magic", [0, 1])
def test_the_offset_of_a_message_with_a_wrong_checksum_is_taken(magic: int) -> None:
    data = bytearray(encode_message_set([b"a", b"b"], magic=magic, first_offset=10))
    data[-1] ^= 1
    data += encode_message(11, None, b"again", magic) + encode_message(13, None, b"d", magic)
    found, errors = decode_all(bytes(data), 10)
    assert [m.offset for m in found] == [10, 13]
    assert [(type(e), e.offset) for e in errors if isinstance(e, MessageError)] == [
        (CrcMismatch, 11), (DamagedOffset, 12),
    ]  # fmt: skip
    *_, (start, end, _) = entries(bytes(data))[:2]
    says, computed = struct.unpack_from(">I", data, start + 12)[0], zlib.crc32(data[start + 16 : end])
    assert str(errors[0]) == f"t/0 at 11: the CRC is {computed:#010x}, the message says {says:#010x}"


@pytest.mark.parametrize("behind", [b"", b"more"])
def test_a_head_of_twelve_bytes_is_enough_to_see_an_impossible_size(behind: bytes) -> None:
    found, errors = decode_all(encode_message(10, None, b"a") + struct.pack(">qi", 11, 3) + behind)
    assert [m.offset for m in found] == [10]
    assert [(type(e), str(e)) for e in errors] == [(BrokenFraming, "entry at byte 27 (offset 11) has size 3")]


# Messages that contradict themselves


@pytest.mark.catalogue("G9")
@BOTH
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_undefined_codecs_are_named(magic: int, codec: int) -> None:
    error = only_error(encode_message(5, None, b"x", magic, codec))
    assert (type(error), str(error)) == (UnknownCodec, f"t/0 at 5: codec {codec} is not known")


@pytest.mark.catalogue("G9")
@pytest.mark.parametrize("magic", [2, 3, 255])
def test_undefined_magic_is_named(magic: int) -> None:
    entry = bytearray(encode_message(5, None, b"x"))
    entry[16] = magic
    assert str(only_error(bytes(entry))) == f"t/0 at 5: magic {magic} is not known (0 and 1 are)"


@BOTH
def test_a_wrapper_without_a_value_is_corrupt(magic: int) -> None:
    assert only_error(encode_message(5, None, None, magic, 1)).reason == "a wrapper without a value"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("0000 ffffffff 00000003 6162", "value of 3 bytes in a message with 2 left"),
        ("0000 ffffffff 00000001 6162", "1 bytes after the value"),
        ("0000 ffffffff ffffffff 61", "1 bytes after the value"),
        ("0000 ffffffff fffffffe", "value of -2 bytes in a message with 0 left"),
        ("0000 fffffffe 00000000", "key of -2 bytes in a message with 4 left"),
        ("0000 7fffffff 00000000", "key of 2147483647 bytes in a message with 4 left"),
        ("0000 00000001 61000000 00", "value of 0 bytes"),
        ("0000 00000004 61616161", "no room for the length of the value"),
        ("0100 0000000000000001 ffffffff", "18 bytes are too few for magic 1"),
    ],
)
def test_lengths_that_contradict_each_other_under_a_right_checksum(body: str, reason: str) -> None:
    message = bytes.fromhex(body)
    data = struct.pack(">qiI", 7, len(message) + 4, zlib.crc32(message)) + message
    found, errors = decode_all(data + encode_message(8, None, b"after"))
    if reason == "value of 0 bytes":
        assert [(m.key, m.value) for m in found] == [(b"a", b""), (None, b"after")]
        assert errors == []
    else:
        assert [m.value for m in found] == [b"after"]
        assert [(type(e), e.reason) for e in errors if isinstance(e, MessageError)] == [(CorruptMessage, reason)]


# Bombs


@pytest.mark.catalogue("J2")
@EACH_CODEC
@BOTH
def test_a_wrapper_that_inflates_beyond_the_limit_is_one_error(codec: str, magic: int) -> None:
    bomb = encode_message_set([bytes(3 * MEBIBYTE)], codec, magic)
    data = bomb + encode_message(1, None, b"after", magic)
    found, errors = decode_all(data, max_decoded_bytes=MEBIBYTE)
    assert [m.value for m in found] == [b"after"]
    assert [type(e) for e in errors] == [MessageTooLarge]
    assert f"{codec}: inflates to more than {MEBIBYTE} bytes" in str(errors[0])
    found, errors = decode_all(data, max_decoded_bytes=4 * MEBIBYTE)
    assert [len(m.value) for m in found] == [3 * MEBIBYTE, 5]


@BOTH
def test_the_limit_counts_wrappers_inside_of_a_wrapper(magic: int) -> None:
    inner = [
        encode_message_set([bytes(600_000)], "gzip", magic, first_offset=n if magic == 0 else 0) for n in range(50)
    ]
    if magic == 1:
        inner = [encode_wrapper(encode_message_set([bytes(600_000)], magic=1), "gzip", 1, n) for n in range(50)]
    data = encode_wrapper(b"".join(inner), "snappy", magic, 49) + encode_message(50, None, b"after", magic)
    with memory_growth_below(64 * MEBIBYTE):
        found, errors = decode_all(data, max_decoded_bytes=MEBIBYTE)
    assert [m.offset for m in found] == [0, 50]
    assert {type(error) for error in errors} == {MessageTooLarge}
    assert len(errors) == 49


@BOTH
def test_the_limit_counts_what_stands_beside_a_wrapper_inside_of_a_wrapper(magic: int) -> None:
    inside = encode_message(0, None, bytes(600_000), magic)
    inside += encode_wrapper(encode_message(1 - magic, None, bytes(600_000), magic), "gzip", magic, 1)
    found, errors = decode_all(encode_wrapper(inside, "gzip", magic, 1), max_decoded_bytes=MEBIBYTE)
    assert ([m.offset for m in found], [type(error) for error in errors]) == ([0], [MessageTooLarge])


def test_a_wrapper_that_has_overrun_its_limit_inflates_nothing_more() -> None:
    """Or a hundred bombs in one wrapper would cost the work of a hundred, each up to what is left."""
    inside = b"".join(
        encode_wrapper(encode_message_set([bytes(size)], first_offset=offset), "gzip", 0, offset)
        for offset, size in enumerate((10, 2 * MEBIBYTE, 10))
    )
    found, errors = decode_all(encode_wrapper(inside, "gzip", 0, 2), max_decoded_bytes=MEBIBYTE)
    assert len(found) == 1
    assert [type(error) for error in errors] == [MessageTooLarge, MessageTooLarge]
    assert "more than 0 bytes" in str(errors[1])


def test_a_wrapper_that_has_overrun_the_limit_leaves_it_whole_for_the_next() -> None:
    data = encode_message_set([bytes(2 * MEBIBYTE)], "gzip") + encode_message_set([b"b"], "gzip", first_offset=1)
    found, errors = decode_all(data, max_decoded_bytes=MEBIBYTE)
    assert ([m.value for m in found], [type(error) for error in errors]) == ([b"b"], [MessageTooLarge])


def test_each_wrapper_of_a_set_has_the_whole_limit() -> None:
    data = b"".join(encode_message_set([bytes(600_000)], "gzip", first_offset=number) for number in range(5))
    assert offsets_of(data) == [0, 1, 2, 3, 4]
