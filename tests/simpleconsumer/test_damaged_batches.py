"""Record batches, damaged in every possible place: all others, and a documented error, never anything else."""

from __future__ import annotations

import struct
from collections.abc import Callable

import golden_batches
import pytest
from batch_columns import by_columns, by_messages
from batch_decoding import decode_all, message_of
from decoding import MEBIBYTE, entries, memory_growth_below

from simpleconsumer import codecs
from simpleconsumer.codecs import crc32c
from simpleconsumer.errors import (
    BrokenFraming,
    CorruptMessage,
    CrcMismatch,
    DamagedOffset,
    MessageError,
    MessageTooLarge,
    UnknownCodec,
)
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.kafka011.records import encode_varint
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import AbortedTransaction, Message

HEAD_IS_CHECKED_FROM = 17
"""Checksum and all that it covers."""


def batch(first: int, count: int = 5, codec: str = "none") -> bytes:
    values = [b"value %d" % number for number in range(first, first + count)]
    return encode_record_batch(values, codec, first_offset=first)


def three(codec: str) -> bytes:
    return b"".join(batch(first, codec=codec) for first in (10, 15, 20))


def flipped(data: bytes, position: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("start", [0, 12])
def test_a_flipped_bit_under_the_checksum_costs_its_own_batch_and_one_error(codec: str, start: int) -> None:
    data = three(codec)
    whole, none = decode_all(data, start)
    assert (len(whole), none) == (15 - max(0, start - 10), [])
    for begin, end, base in entries(data):
        others = [m for m in whole if not base <= m.offset < base + 5]
        for position in range(begin + HEAD_IS_CHECKED_FROM, end):
            for bit in range(8):
                messages, errors = decode_all(flipped(data, position, bit), start, high_watermark=25)
                assert messages == others, (position, bit)
                assert [type(error) for error in errors] == [CrcMismatch]
                # The last batch counts as one offset if its head contradicts itself.
                assert errors[0].offset in ((base + 4,) if base < 20 else (base, base + 4))


@pytest.mark.parametrize("start", [10, 12])
def test_a_flipped_bit_before_the_checksum_loses_nothing_without_an_error(start: int) -> None:
    data = three("none")
    whole, _ = decode_all(data, start)
    for begin, _, base in entries(data):
        others = [m for m in whole if not base <= m.offset < base + 5]
        for position in range(begin, begin + HEAD_IS_CHECKED_FROM):
            for bit in range(8):
                messages, errors = decode_all(flipped(data, position, bit), start, high_watermark=25)
                where = position - begin
                if 12 <= where < 16:  # the epoch, of which nothing depends
                    assert (messages, errors) == (whole, [])
                elif where == 16:
                    assert (messages, [type(error) for error in errors]) == (others, [CorruptMessage])
                elif 8 <= where < 12:  # the size: what follows cannot be found, or a set seems to end early
                    assert messages == whole[: len(messages)]
                    assert errors or _seems_cut_off(flipped(data, position, bit))
                elif base > 10:
                    assert (messages, [type(error) for error in errors]) == (others, [DamagedOffset])
                    assert base <= errors[0].offset <= base + 4
                else:  # nothing is before it that shows where it starts
                    assert messages[-10:] == whole[-10:]


def _seems_cut_off(data: bytes) -> bool:
    found = entries(data)
    at = found[-1][1] if found else 0
    return len(data) - at < 12 or bool(at + 12 + struct.unpack_from(">i", data, at + 8)[0] > len(data))


@pytest.mark.parametrize("version", golden_batches.VERSIONS)
def test_real_answers_with_a_flipped_byte_give_the_other_messages_and_errors(version: str) -> None:
    with memory_growth_below(64 * MEBIBYTE):
        for answer in golden_batches.answers():
            if answer.version != version:
                continue
            data = answer.record_set
            whole, _ = decode_all(data)
            for position in range(len(data)):
                for mask in (0xFF, 0x01, 0x80):
                    damaged = bytearray(data)
                    damaged[position] ^= mask
                    messages, errors = decode_all(bytes(damaged), high_watermark=answer.high_watermark)
                    contents = [m.value for m in whole]
                    assert all(m.value in contents for m in messages)
                    is_lost = [m.value for m in messages] != contents
                    assert not is_lost or errors or _seems_cut_off(bytes(damaged)), (answer.name, position, mask)


# What a right checksum covers all the same


def sealed(area: bytes, count: int, last: int, attributes: int = 0) -> bytes:
    """Return a batch at offset 10 with a right checksum, whatever is in it."""
    body = struct.pack(">hiqqqhii", attributes, last, 0, 0, -1, -1, -1, count) + area
    return struct.pack(">qiibI", 10, len(body) + 9, 0, 2, crc32c(body)) + body


def record(delta: int, rest: bytes = b"\x01\x02v\x00", size: int | None = None, stamp: int = 0) -> bytes:
    body = b"\0" + encode_varint(stamp) + encode_varint(delta) + rest
    return encode_varint(len(body) if size is None else size) + body


GOOD = message_of(10, None, b"v", 0), message_of(12, None, b"v", 0)
LONG_VARINT = b"\xff" * 10 + b"\x01"


@pytest.mark.parametrize(
    ("middle", "kind", "reason"),
    [
        (record(1, b"\x01\x40v\x00"), CorruptMessage, "record 1 of the batch: a value of 32 bytes, 2 are left"),
        (record(1, b"\x05\x02v\x00"), CorruptMessage, "record 1 of the batch: a key of -3 bytes, 3 are left"),
        (record(1, b"\x03\x02v\x00"), CorruptMessage, "record 1 of the batch: a key of -2 bytes, 3 are left"),
        (record(1, b"\x01\x02v\x01"), CorruptMessage, "record 1 of the batch: -1 headers, 0 bytes are left"),
        (record(1, b"\x01\x02v\x10ab"), CorruptMessage, "record 1 of the batch: 8 headers, 2 bytes are left"),
        (record(1, b"\x01\x02v\x02\x01\x00"), CorruptMessage, "record 1 of the batch: a header without a key"),
        (record(1, b"\x01\x02v\x02\x04k\x00"), CorruptMessage, "record 1 of the batch: a header's value"),
        (
            record(1, b"\x01\x02v\x00xyz"),
            CorruptMessage,
            "record 1 of the batch: it takes -3 bytes more than its length says",
        ),
        (record(1, LONG_VARINT), CorruptMessage, "record 1 of the batch: the varint at byte"),
        (record(1, b"\xff\xff\xff\xff\x7f\x00\x00"), CorruptMessage, "does not fit into 32 bits"),
        (record(1, stamp=2**63 - 1).replace(b"\0", b"\0", 1), None, ""),
        (record(0), DamagedOffset, "offset 10 is not above 10, the offset before"),
        (record(3), DamagedOffset, "offset 13 is above 12, the last offset of its batch"),
        (record(-1), DamagedOffset, "offset 9 is not above 10, the offset before"),
    ],
)
def test_one_bad_record_costs_itself_and_one_error(middle: bytes, kind: type[MessageError] | None, reason: str) -> None:
    data = sealed(record(0) + middle + record(2), 3, 2)
    messages, errors = decode_all(data)
    if kind is None:
        assert (len(messages), errors) == (3, [])
        return
    assert messages == list(GOOD)
    assert [(type(error), error.offset) for error in errors] == [(kind, 11)]
    assert reason in str(errors[0])


@pytest.mark.parametrize(
    ("area", "count", "last", "delivered", "reason"),
    [
        (record(0) + record(1, size=0) + record(2), 3, 2, 1, "record 1 has the length 0, "),
        (record(0) + record(1, size=500) + record(2), 3, 2, 1, "record 1 has the length 500, "),
        (record(0) + record(1, size=-1) + record(2), 3, 2, 1, "record 1 has the length -1, "),
        (record(0) + LONG_VARINT, 3, 2, 1, "the length of record 1 cannot be read"),
        (record(0), 3, 2, 1, "the batch holds 1 records; it says that it has 3 records"),
        (record(0) + record(1), 1, 2, 1, "the batch holds 8 bytes after its last record; it says that it has 1"),
        (record(0), -1, 2, 0, "the batch says that it has -1 records in 3 offsets"),
        (record(0), 2**31 - 1, 2, 0, "the batch says that it has 2147483647 records in 3 offsets"),
        (b"", 1, 0, 0, "the batch holds 0 records; it says that it has 1 records"),
    ],
)
def test_what_makes_the_rest_of_a_batch_unreadable_is_one_error(
    area: bytes, count: int, last: int, delivered: int, reason: str
) -> None:
    after = batch(10 + last + 1, 2)
    messages, errors = decode_all(sealed(area, count, last) + after)
    assert len(messages) == delivered + 2
    assert [(type(error), error.offset) for error in errors] == [(CorruptMessage, 10 + last)]
    assert reason in str(errors[0])


def test_times_beyond_64_bits_are_an_error_of_their_record() -> None:
    body = struct.pack(">hiqqqhii", 0, 0, 2**63 - 1, 0, -1, -1, -1, 1) + record(0, stamp=1)
    data = struct.pack(">qiibI", 10, len(body) + 9, 0, 2, crc32c(body)) + body
    messages, [error] = decode_all(data)
    assert (messages, type(error)) == ([], CorruptMessage)
    assert "the timestamp 9223372036854775808 does not fit into 64 bits" in str(error)


def test_offsets_end_where_the_one_behind_them_can_still_be_asked_for() -> None:
    first = encode_record_batch([b"a", b"b"], first_offset=2**63 - 7)
    last = encode_record_batch([b"c", b"d"], first_offset=2**63 - 5)
    assert [m.offset for m in decode_all(first + last, 2**63 - 7)[0]] == [2**63 - number for number in (7, 6, 5, 4)]
    for deltas in ((0, 4), (0, 2**31 - 1)):
        offsets = [2**63 - 5 + delta for delta in deltas]
        beyond = encode_record_batch([b"c", b"d"], first_offset=2**63 - 5, offsets=offsets)
        messages, [error] = decode_all(first + beyond, 2**63 - 7)
        assert ([m.value for m in messages], type(error), error.offset) == ([b"a", b"b"], DamagedOffset, 2**63 - 5)
        assert "is not below 9223372036854775807, the largest possible one" in str(error)
        assert by_columns(first + beyond, 2**63 - 7) == by_messages(first + beyond, 2**63 - 7)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_is_not_defined_is_named(number: int) -> None:
    _, [error] = decode_all(sealed(record(0), 1, 0, number))
    assert (type(error), str(error)) == (UnknownCodec, f"t/0 at 10: codec {number} is not known")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_inflates_to_more_than_the_limit_is_an_error_and_takes_no_memory(codec: str) -> None:
    number = codecs.BATCH_CODECS[codec]
    bomb = sealed(codecs.compress(number, bytes(256 * MEBIBYTE)), 1, 0, number)
    after = batch(11)
    with memory_growth_below(40 * MEBIBYTE):
        messages, [error] = decode_all(bomb + after, limit=MEBIBYTE)
    assert [m.offset for m in messages] == list(range(11, 16))
    assert (type(error), error.offset) == (MessageTooLarge, 10)
    assert str(error).endswith(f"{codec}: inflates to more than {MEBIBYTE} bytes")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    "change",
    [lambda packed: packed[:-3], lambda packed: b"", lambda packed: b"more" + packed],
    ids=["cut", "empty", "wrong"],
)
def test_compressed_records_that_do_not_inflate_are_an_error(codec: str, change: Callable[[bytes], bytes]) -> None:
    number = codecs.BATCH_CODECS[codec]
    packed = change(codecs.compress(number, record(0) * 1))
    messages, errors = decode_all(sealed(packed, 1, 0, number) + batch(11))
    assert [m.offset for m in messages] == list(range(11, 16))
    assert [(type(error), error.offset) for error in errors] == [(CorruptMessage, 10)]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_bytes_behind_compressed_records_that_brokers_store_are_ignored(codec: str) -> None:
    number = codecs.BATCH_CODECS[codec]
    data = sealed(codecs.compress(number, record(0) * 1) + b"more", 1, 0, number) + batch(11)
    messages, errors = decode_all(data)
    assert ([m.offset for m in messages], errors) == (list(range(10, 16)), [])
    assert by_columns(data) == by_messages(data)


# Several formats in one answer


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("start", [0, 4, 12, 22])
def test_old_entries_and_batches_in_one_answer_are_read_in_their_order(magic: int, codec: str, start: int) -> None:
    def old(first: int) -> bytes:
        return encode_message_set([b"value %d" % n for n in range(first, first + 5)], codec, magic, first_offset=first)

    mixed = [(old(0) + old(5) + batch(10) + batch(15), 20), (batch(0) + old(5) + old(10) + batch(15), 20)]
    for data, last in (*mixed, (batch(0) + old(5), 10)):
        messages, errors = decode_all(data, start)
        assert errors == []
        assert [(m.offset, m.value) for m in messages] == [(n, b"value %d" % n) for n in range(start, last)]


def test_an_error_in_old_entries_is_continued_behind_and_batches_follow() -> None:
    old = bytearray(encode_message_set([b"value %d" % n for n in range(5)], magic=1))
    old[-1] ^= 1
    old[20] ^= 1
    messages, errors = decode_all(bytes(old) + batch(5))
    assert [m.offset for m in messages] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert [(type(error), error.offset) for error in errors] == [(CrcMismatch, 0), (CrcMismatch, 4)]


def test_a_cut_off_old_entry_behind_batches_ends_the_set() -> None:
    old = encode_message_set([b"value"], magic=1, first_offset=5)
    for end in range(len(old)):
        assert [m.offset for m in decode_all(batch(0) + old[:end])[0]] == list(range(5))
    _, errors = decode_all(batch(0) + old + struct.pack(">qi", 6, 3) + bytes(40))
    assert [type(error) for error in errors] == [BrokenFraming]


# Transactions


def transaction(first: int, producer: int, *, is_control: bool = False, commit: bool = True) -> bytes:
    sender = BatchProducer(producer, 0, 0, is_transactional=True)
    row = (struct.pack(">hh", 0, commit), bytes(6)) if is_control else (None, b"by %d" % producer)
    return encode_record_batch([row], first_offset=first, producer=sender, is_control=is_control)


def committed(data: bytes, *aborted: tuple[int, int], start: int = 0) -> list[int]:
    messages, errors = decode_all(data, start, aborted=[AbortedTransaction(*each) for each in aborted])
    assert errors == []
    return [message.offset for message in messages]


def test_transactions_of_several_producers_are_told_apart() -> None:
    data = (
        transaction(0, 1) + transaction(1, 2) + batch(2, 1) + transaction(3, 1, is_control=True, commit=False)
        + transaction(4, 1) + transaction(5, 2, is_control=True) + transaction(6, 1, is_control=True)
        + transaction(7, 2) + transaction(8, 2, is_control=True, commit=False)
    )  # fmt: skip
    assert committed(data) == [0, 1, 2, 4, 7]
    assert committed(data, (1, 0)) == [1, 2, 4, 7]
    assert committed(data, (2, 7), (1, 0)) == [1, 2, 4]
    assert committed(data, (2, 7), (1, 0), start=4) == [4]


def test_the_rest_of_an_aborted_transaction_is_left_out_behind_an_error_too() -> None:
    bad = bytearray(batch(1, 1))
    bad[-1] ^= 1
    marker = transaction(3, 1, is_control=True, commit=False)
    data = transaction(0, 1) + bytes(bad) + transaction(2, 1) + marker + batch(4, 1)
    messages, errors = decode_all(data, aborted=[AbortedTransaction(1, 0)])
    assert [m.offset for m in messages] == [4]
    assert [type(error) for error in errors] == [CrcMismatch]


def test_messages_have_headers_only_where_they_were_sent() -> None:
    rows = [message_of(0, None, b"a", 1), message_of(1, b"k", None, 1, (("h", b"1"), ("h", None), ("", b"")))]
    found, _ = decode_all(encode_record_batch(rows))
    assert found == rows
    assert [type(m) is Message for m in found] == [True, False]
    assert (found[0].headers, found[1].headers) == ((), (("h", b"1"), ("h", None), ("", b"")))
    assert "headers=(('h', b'1')" in repr(found[1])


def test_header_keys_that_are_no_utf8_are_read_as_java_reads_them() -> None:
    data = sealed(record(0, b"\x01\x02v\x02\x02\xff\x00"), 1, 0)
    [message], _ = decode_all(data)
    assert message.headers == (("\ufffd", b""),)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(("start", "first"), [(0, 15), (17, 17)])
def test_an_error_names_all_offsets_that_cannot_be_read(codec: str, start: int, first: int) -> None:
    data = three(codec)
    begin, end, _ = entries(data)[1]
    _, [error] = decode_all(flipped(data, end - 1, 0), start, high_watermark=25)
    assert str(error).endswith(f"; offsets {first} to 19 cannot be read")
    if codec != "none":
        head, broken = data[begin : begin + 61], b"no stream"
        tail = head[21:] + broken
        whole = head[:8] + struct.pack(">i", 9 + len(tail)) + head[12:17] + struct.pack(">I", crc32c(tail)) + tail
        _, [error] = decode_all(whole, start, high_watermark=20)
        assert str(error).endswith(f"; offsets {first} to 19 cannot be read")


def test_an_error_in_a_batch_names_all_offsets_behind_it() -> None:
    whole = batch(15)
    tail = whole[21:57] + struct.pack(">i", 4) + whole[61:]
    wrong = whole[:17] + struct.pack(">I", crc32c(tail)) + tail
    messages, [error] = decode_all(wrong, 15, high_watermark=20)
    assert [message.offset for message in messages] == [15, 16, 17, 18]
    assert str(error).startswith("t/0 at 19: the batch holds")
    assert "cannot be read" not in str(error), "it is one offset"
