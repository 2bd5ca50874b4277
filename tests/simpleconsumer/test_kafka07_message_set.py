"""Message sets of Kafka 0.7: what Java decoded, positions, where decoding continues, compressed entries and limits."""

from __future__ import annotations

import copy
import pickle
import struct

import pytest
from decoding import MEBIBYTE, memory_growth_below
from kafka07_decoding import PARTITION, answer, decode_all, decode_simply, decoded_by_java, entries, numbered

from simpleconsumer.codecs import compress
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import (
    BrokenFraming,
    CorruptMessage,
    CrcMismatch,
    MessageError,
    MessageTooLarge,
    UnknownCodec,
)
from simpleconsumer.kafka07.message_set import decode_messages
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set, encode_wrapper
from simpleconsumer.types import EntryMessage, FetchRequest, Message

JAVA_ROWS, JAVA_ENDS = decoded_by_java()
SETS = {
    name: bytes(KAFKA07.fetch([FetchRequest("t", 0, 0, 1)], 0, 0, 0).decode(memoryview(answer(name)))[0].message_set)
    for name in (
        "java-fetch-none", "java-fetch-gzip", "java-fetch-snappy", "hand-fetch-magic0", "hand-fetch-nested-gzip",
        "hand-fetch-partial", "hand-fetch-misaligned", "hand-fetch-too-small",
    )
}  # fmt: skip


def java_sets() -> dict[str, bytes]:
    """Return the recorded sets by the name that the Java program printed."""
    found = {name.removeprefix("java-"): data for name, data in SETS.items() if name.startswith("java-")}
    wanted = [FetchRequest("t", number, 0, 1) for number in range(3)]
    for number, part in enumerate(KAFKA07.fetch(wanted, 0, 0, 0).decode(memoryview(answer("java-multifetch")))):
        found[f"multifetch[{number}]"] = bytes(part.message_set)
    return found


def decode(data: bytes, start_offset: int = 0, **place: int) -> list[Message]:
    messages, errors = decode_all(data, start_offset, **place)
    assert errors == []
    return messages


def only_error(data: bytes, **options: int) -> MessageError:
    _, errors = decode_all(data, **options)
    assert len(errors) == 1
    assert isinstance(errors[0], MessageError)
    return errors[0]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


# What Java decoded


@pytest.mark.parametrize(("name", "data"), java_sets().items())
def test_decodes_what_java_decoded(name: str, data: bytes) -> None:
    messages = decode(data)
    assert [(m.next_offset, m.value) for m in messages] == [(row[0], row[3]) for row in JAVA_ROWS[name]]
    assert KAFKA07.set_end(data, 0) == (JAVA_ENDS[name], JAVA_ENDS[name] or None, len(entries(data)))
    assert all(m.key is None and m.timestamp_ms is None for m in messages)
    assert messages == decode_simply(data)


def test_all_that_java_printed_is_compared() -> None:
    assert set(JAVA_ROWS) == set(java_sets()) == set(JAVA_ENDS)


def test_positions_of_the_reference() -> None:
    """A plain entry of 15 bytes and a compressed one of three messages, fetched from 100."""
    wrapper = encode_message_set([b"a", b"b", b"c"], "gzip")
    end = 115 + len(wrapper)
    messages = decode(encode_message_set([b"hello"]) + wrapper, 100)
    assert list(numbered(messages)) == [(100, 0, 115), (115, 0, 115), (115, 1, 115), (115, 2, end)]


def test_messages_of_both_magics_are_in_one_recorded_set() -> None:
    messages = decode(SETS["hand-fetch-magic0"])
    assert values(messages) == [b"hello", b"old", b"new"]
    assert list(numbered(messages)) == [(0, 0, 14), (14, 0, 26), (26, 0, 39)]


def test_a_recorded_nested_entry_numbers_its_messages_through() -> None:
    messages = decode(SETS["hand-fetch-nested-gzip"])
    assert values(messages) == [b"inner1", b"deep1", b"deep2", b"inner2"]
    assert list(numbered(messages)) == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 108)]


def test_recorded_sets_that_are_cut_end_with_their_whole_entries() -> None:
    assert values(decode(SETS["hand-fetch-partial"])) == [b"hello"]
    assert decode(SETS["hand-fetch-too-small"]) == []
    assert KAFKA07.set_end(SETS["hand-fetch-too-small"], 0) == (0, None, 0)


def test_a_recorded_answer_from_within_an_entry_is_broken_or_damaged() -> None:
    messages, errors = decode_all(SETS["hand-fetch-misaligned"])
    assert messages == []
    assert len(errors) <= 1


# Kinds of messages


def test_only_messages_of_compressed_entries_have_a_slot_for_their_number() -> None:
    plain, first, second = decode(encode_message_set([b"x"]) + encode_message_set([b"a", b"b"], "snappy"))
    assert (type(plain), type(first), type(second)) == (Message, EntryMessage, EntryMessage)
    assert (plain.index, first.index, second.index) == (0, 0, 1)
    assert repr(plain).endswith("timestamp_ms=None)")
    assert repr(second).endswith("timestamp_ms=None, index=1)")


def test_messages_with_different_numbers_differ_and_survive_copies() -> None:
    first = EntryMessage("t", "0-1", 5, 5, None, b"x", None, 1)
    assert first == EntryMessage("t", "0-1", 5, 5, None, b"x", index=1)
    assert first != EntryMessage("t", "0-1", 5, 5, None, b"x", index=2)
    assert Message("t", "0-1", 5, 5, None, b"x") == EntryMessage("t", "0-1", 5, 5, None, b"x")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(first, protocol)) == first
    assert copy.copy(first) == copy.deepcopy(first) == first
    assert pickle.loads(pickle.dumps(Message("t", 0, 0, 1, b"k", b"v", 5))) == Message("t", 0, 0, 1, b"k", b"v", 5)


# Where decoding starts and continues


MIXED = (
    encode_message_set([b"p0", b"p1"])
    + encode_message_set([b"g0", b"g1", b"g2", b"g3"], "gzip")
    + encode_message_set([b"q0"])
    + encode_wrapper(encode_message_set([b"s0"]) + encode_message_set([b"s1", b"s2"], "gzip"), "snappy")
)


@pytest.mark.parametrize("base", [0, 7_000_000_000])
def test_decoding_starts_at_any_entry_of_the_data(base: int) -> None:
    whole = decode(MIXED, base)
    assert whole == decode_simply(MIXED, base)
    for start, _ in entries(MIXED):
        expected = [message for message in whole if message.offset >= base + start]
        assert decode(MIXED, base + start, data_offset=base) == expected
        assert decode(MIXED[start:], base + start) == expected
    assert decode(MIXED, base + len(MIXED), data_offset=base) == []


def test_decoding_starts_behind_any_message_of_a_compressed_entry() -> None:
    whole = decode(MIXED, 50)
    for done, message in enumerate(whole, 1):
        is_within = message.next_offset == message.offset
        index = message.index + 1 if is_within else 0
        again = decode(MIXED, message.next_offset, start_index=index, data_offset=50)
        assert again == whole[done:], message


def test_a_plain_entry_that_is_done_is_skipped_by_its_number() -> None:
    assert values(decode(MIXED, 0, start_index=1)) == values(decode(MIXED))[1:]
    assert values(decode(MIXED, 0, start_index=99)) == values(decode(MIXED))[1:]


def test_numbers_beyond_the_messages_of_an_entry_skip_all_of_it() -> None:
    wrapper = encode_message_set([b"a", b"b"], "gzip")
    for index in (2, 3, 99):
        assert values(decode(wrapper + encode_message_set([b"next"]), start_index=index)) == [b"next"]


# The length of what is compressed differs between processes, and must not be a part of the name of a test.
@pytest.mark.parametrize("position", [-1, 99, 100 + len(MIXED) + 1], ids=["negative", "before", "behind"])
def test_a_position_outside_of_the_data_is_refused(position: int) -> None:
    end = 100 + len(MIXED)
    with pytest.raises(ValueError, match=f"position {position} is not within the data, which has 100 to {end}$"):
        decode_messages(MIXED, "t", PARTITION, position, data_offset=100)


def test_decoding_continues_behind_an_error_and_not_before_the_position() -> None:
    entry = encode_wrapper(
        encode_message_set([b"a"]) + damaged(encode_entry(b"b")) + encode_message_set([b"c", b"d", b"e"]), "gzip"
    )
    data = encode_message_set([b"x"]) + entry + encode_message_set([b"y"])
    start = 11
    with pytest.raises(CrcMismatch) as caught:
        list(decode_messages(data, "t", PARTITION))
    error = caught.value
    assert (error.offset, error.index, error.next_offset) == (start, 1, start)

    def rest(*args: int, **place: int) -> list[bytes | None]:
        return values(list(decode_messages(data, "t", PARTITION, *args, resume=error.resume, **place)))

    assert rest() == [b"c", b"d", b"e", b"y"]
    assert rest(start) == [b"c", b"d", b"e", b"y"], "the same resume can be used again"
    assert rest(start, start_index=1) == [b"c", b"d", b"e", b"y"]
    assert rest(start, start_index=3) == [b"d", b"e", b"y"]
    assert rest(start, start_index=5) == [b"y"]
    assert rest(start + len(entry)) == [b"y"]
    assert rest(len(data)) == []
    # Without `resume` the number alone leads behind the error, too: an error counts as one message.
    assert values(decode(data, start, start_index=2, data_offset=0)) == [b"c", b"d", b"e", b"y"]


def test_decoding_continues_behind_an_error_about_a_whole_entry() -> None:
    data = encode_message_set([b"x"]) + damaged(encode_entry(b"y")) + encode_message_set([b"z"])
    with pytest.raises(CrcMismatch) as caught:
        list(decode_messages(data, "t", PARTITION, 500))
    error = caught.value
    assert (error.offset, error.index, error.next_offset) == (511, 0, 522)
    assert values(list(decode_messages(data, "t", PARTITION, 511, data_offset=500, resume=error.resume))) == [b"z"]
    assert values(list(decode_messages(data, "t", PARTITION, 522, data_offset=500))) == [b"z"]


def test_only_the_resume_of_an_error_is_taken() -> None:
    with pytest.raises(TypeError, match="resume must come from a MessageError, not int"):
        decode_messages(b"", "t", PARTITION, resume=5)


def test_an_error_is_pickled_with_its_number() -> None:
    error = CrcMismatch("t", "0-1", 5, 5, "bad", 3)
    again = pickle.loads(pickle.dumps(error))
    assert (again.offset, again.next_offset, again.index, again.reason) == (5, 5, 3, "bad")
    assert str(again) == "t/0-1 at 5: message 3 of the entry: bad"
    assert str(CrcMismatch("t", "0-1", 5, 9, "bad")) == "t/0-1 at 5: bad"


# The wrapper rule


def test_the_last_message_of_an_entry_has_its_end_whatever_form_it_has() -> None:
    large = b"x" * 20_000
    empty = encode_wrapper(b"", "gzip")
    inner = encode_message_set([b"c", b"d"], "snappy")
    for inside, count in (
        (encode_message_set([b"a"]), 1),
        (encode_message_set([large]), 1),
        (encode_message_set([b"a", large]), 2),
        (encode_message_set([large, b"a", large, large]), 4),
        (encode_message_set([b"a", b"b"], magic=0), 2),
        (encode_message_set([b"a"]) + encode_message_set([b"b"], magic=0) + encode_message_set([b"c"]), 3),
        (encode_message_set([b"a"]) + inner, 3),
        (inner + encode_message_set([b"a"]), 3),
        (inner + inner, 4),
        (encode_entry(b"a", attributes=4) + encode_entry(b"b", attributes=8), 2),
        (encode_message_set([b"a", b"b"]) + empty, 2),
        (empty + encode_message_set([b"a"]) + empty + empty, 1),
        (empty + inner + empty + empty, 2),
    ):
        entry = encode_wrapper(inside, "gzip")
        messages = decode(entry + encode_message_set([b"next"]), 40)
        assert messages == decode_simply(entry + encode_message_set([b"next"]), 40)
        behind = 40 + len(entry)
        expected = [(40, index, behind if index == count - 1 else 40) for index in range(count)]
        assert list(numbered(messages)) == [*expected, (behind, 0, behind + 14)]


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_an_entry_of_nothing_only_moves_the_position(codec: str) -> None:
    data = encode_wrapper(b"", codec) + encode_message_set([b"a"])
    [message] = decode(data)
    assert (message.offset, message.next_offset) == (len(data) - 11, len(data))
    assert KAFKA07.set_end(data, 0) == (len(data), len(data), 2)


# Faults


def damaged(entry: bytes, position: int = -1) -> bytes:
    return bytes(byte ^ 1 if index == position % len(entry) else byte for index, byte in enumerate(entry))


@pytest.mark.parametrize(
    ("entry", "kind", "reason"),
    [
        (damaged(encode_entry(b"hello")), CrcMismatch, "the CRC is 0x"),
        (damaged(encode_entry(b"hello", 0)), CrcMismatch, "the CRC is 0x"),
        (struct.pack(">iB", 5, 1) + b"\0" * 4, CorruptMessage, "5 bytes are too few for magic 1"),
        (struct.pack(">iB", 5, 7) + b"\0" * 4, CorruptMessage, "magic 7 is not known (0 and 1 are)"),
        (encode_entry(b"x" * 30, attributes=1), CorruptMessage, "gzip: "),
        (encode_entry(b"x" * 30, attributes=2), CorruptMessage, "snappy: "),
        (encode_entry(b"x", attributes=3), UnknownCodec, "codec 3 is not known (1, gzip, and 2, snappy, are)"),
        (encode_entry(b"", attributes=1), CorruptMessage, "gzip: "),
        (encode_entry(compress(1, b"abc")[:-1], attributes=1), CorruptMessage, "gzip: truncated"),
        (encode_entry(compress(1, b"abc"), attributes=2), CorruptMessage, "snappy: "),
        (encode_wrapper(b"abc", "gzip"), CorruptMessage, "the compressed entry holds 3 bytes after its last message"),
        (encode_wrapper(b"\0\0\0\1", "gzip"), CorruptMessage, "the compressed entry holds an entry of size 1 at"),
        (
            encode_wrapper(encode_entry(b"abc")[:-1], "snappy"), CorruptMessage,
            "the compressed entry holds an entry that ends 1 bytes after it",
        ),
    ],
)  # fmt: skip
def test_one_bad_entry_is_one_error_with_its_place(entry: bytes, kind: type[MessageError], reason: str) -> None:
    data = encode_message_set([b"before"]) + entry + encode_message_set([b"behind"])
    messages, errors = decode_all(data, 1000)
    assert values(messages) == [b"before", b"behind"]
    [error] = errors
    assert type(error) is kind
    assert error.reason.startswith(reason)  # type: ignore[union-attr]
    place = 1000 + 16
    assert (error.offset, error.index, error.next_offset) == (place, 0, place + len(entry))  # type: ignore[union-attr]


def test_bits_of_the_attributes_that_name_no_codec_mean_nothing() -> None:
    assert values(decode(b"".join(encode_entry(b"x", attributes=bits) for bits in range(0, 256, 4)))) == [b"x"] * 64
    compressed = [encode_entry(compress(1, encode_message_set([b"x"])), attributes=1 | bits) for bits in (4, 8, 128)]
    assert values(decode(b"".join(compressed))) == [b"x"] * 3


def test_an_entry_that_lost_its_codec_bits_is_delivered_as_it_is_stored() -> None:
    """No checksum covers the attributes; any bytes are a legal payload."""
    entry = bytearray(encode_message_set([b"a", b"b"], "gzip"))
    entry[5] = 0
    [message] = decode(bytes(entry))
    assert (message.value, message.next_offset) == (bytes(entry[10:]), len(entry))


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 4])
def test_an_impossible_size_ends_a_set(size: int) -> None:
    data = encode_message_set([b"a"]) + struct.pack(">i", size) + b"\0" * 50
    messages, errors = decode_all(data)
    assert values(messages) == [b"a"]
    [error] = errors
    assert type(error) is BrokenFraming
    assert str(error) == f"entry at byte 11 has size {size}"


def test_errors_within_an_entry_have_its_place_and_their_number() -> None:
    bad = damaged(encode_entry(b"bad"))
    inside = (
        encode_message_set([b"a", b"b"]) + bad + encode_message_set([b"c"])
        + encode_wrapper(bad + encode_entry(b"d") + bad, "gzip") + bad
    )  # fmt: skip
    data = encode_wrapper(inside, "snappy")
    messages, errors = decode_all(data + encode_message_set([b"next"]), 70)
    end = 70 + len(data)
    assert list(numbered(messages)) == [
        (70, 0, 70), (70, 1, 70), (70, 3, 70), (70, 5, 70), (end, 0, end + 14),
    ]  # fmt: skip
    assert [(error.index, error.next_offset) for error in errors if isinstance(error, MessageError)] == [
        (2, 70), (4, 70), (6, 70), (7, end),
    ]  # fmt: skip
    for index in range(9):
        again, errors = decode_all(data + encode_message_set([b"next"]), 70, start_index=index)
        assert [m.index for m in again] == [i for i in (0, 1, 3, 5) if i >= index] + [0]
        assert [e.index for e in errors if isinstance(e, MessageError)] == [i for i in (2, 4, 6, 7) if i >= index]


def test_entries_nested_deeper_than_allowed_are_one_error() -> None:
    data = encode_message_set([b"x"])
    for _ in range(2):
        data = encode_wrapper(data, "gzip")
    assert values(decode(data)) == [b"x"]
    error = only_error(encode_wrapper(encode_message_set([b"a"]) + encode_wrapper(data, "gzip"), "gzip"))
    assert type(error) is CorruptMessage
    assert error.reason == "compressed entries nested deeper than 2"
    assert error.index == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_an_entry_that_inflates_to_more_than_the_limit_is_refused_without_the_memory(codec: str) -> None:
    bomb = encode_wrapper(encode_entry(b"\0" * 60 * MEBIBYTE), codec)
    limit = len(encode_entry(b"\0" * 1000))
    fits = encode_wrapper(encode_entry(b"\0" * 1000), codec)
    with memory_growth_below(8 * MEBIBYTE):
        messages, errors = decode_all(bomb + fits, 0, limit)
    assert [(m.offset, len(m.value or b"")) for m in messages] == [(len(bomb), 1000)]
    [error] = errors
    assert type(error) is MessageTooLarge
    assert error.reason == f"{codec}: inflates to more than {limit} bytes"
    assert (error.offset, error.next_offset) == (0, len(bomb))


def test_all_entries_in_an_entry_share_its_limit() -> None:
    bomb = encode_wrapper(encode_entry(b"\0" * MEBIBYTE), "gzip")
    data = encode_wrapper(bomb * 200, "gzip")
    messages, errors = decode_all(data, 0, 3 * MEBIBYTE)
    assert len(messages) in (1, 2)
    assert len(messages) + len(errors) == 200
    assert {type(error) for error in errors} == {MessageTooLarge}
    assert errors[-1].next_offset == len(data)  # type: ignore[union-attr]
