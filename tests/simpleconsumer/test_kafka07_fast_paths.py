"""The fast paths of Kafka 0.7: what they read, that they are taken, and that they give what the exact path gives."""

from __future__ import annotations

from typing import Any

import pytest
from decoding import MEBIBYTE
from kafka07_decoding import PARTITION, decode_all, decode_simply

from simpleconsumer.errors import CorruptMessage
from simpleconsumer.kafka07 import message_set
from simpleconsumer.kafka07.columns import decode_columns
from simpleconsumer.kafka07.message_set import decode_messages
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set, encode_wrapper
from simpleconsumer.types import MAX_INT64

LARGEST = 16 * 1024


@pytest.fixture
def read_slowly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the entries that rows are read from by the exact path."""
    reads: list[int] = []
    real = message_set.next_entry

    def counted(*args: Any) -> Any:
        reads.append(1)
        return real(*args)

    monkeypatch.setattr(message_set, "next_entry", counted)
    return reads


@pytest.mark.compiled
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 100, LARGEST - 6])
def test_plain_messages_are_read_by_the_kernel(read_slowly: list[int], length: int, magic: int) -> None:
    data = encode_message_set([b"x" * length] * 50 + [b"y" * (length // 2)] * 50, magic=magic)
    assert list(decode_messages(data, "t", PARTITION)) == decode_simply(data)
    assert len(read_slowly) <= 2, "the last one, and the end"


@pytest.mark.compiled
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 100, LARGEST - 6])
def test_messages_of_a_compressed_entry_are_read_by_the_kernel(read_slowly: list[int], length: int, magic: int) -> None:
    inside = encode_message_set([b"x" * length] * 50 + [b"y" * (length // 2)] * 50, magic=magic)
    data = encode_wrapper(inside, "gzip")
    assert list(decode_messages(data, "t", PARTITION)) == decode_simply(data)
    assert len(read_slowly) <= 5, "the entry, its last two messages, and both ends"


@pytest.mark.compiled
def test_each_run_of_one_magic_in_an_entry_is_read_by_the_kernel(read_slowly: list[int]) -> None:
    runs = [encode_message_set([b"x" * (magic + 9)] * 50, magic=magic) for magic in (0, 1, 0)]
    data = encode_wrapper(b"".join(runs), "gzip")
    assert list(decode_messages(data, "t", PARTITION)) == decode_simply(data)
    assert len(read_slowly) <= 9, "the entry, the messages before another magic and at the end, and both ends"


@pytest.mark.compiled
def test_large_messages_are_read_by_the_kernel_too(read_slowly: list[int]) -> None:
    for magic, length in ((1, LARGEST - 5), (0, LARGEST - 4)):
        data = encode_message_set([b"x" * length] * 3, magic=magic)
        read_slowly.clear()
        assert list(decode_messages(data, "t", PARTITION)) == decode_simply(data)
        assert len(read_slowly) <= 2


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
@pytest.mark.parametrize("tail", [b"", encode_message_set([b"plain"] * 3), encode_message_set([b"last"], "gzip")])
def test_small_compressed_entries_beside_each_other_have_their_own_places(codec: str, tail: bytes) -> None:
    """They are inflated one behind the other, and read as one stretch."""
    parts = [encode_message_set([b"%d %d" % (part, n) for n in range(40)], codec) for part in range(5)]
    data = encode_message_set([b"before"]) + b"".join(parts) + tail
    [batch] = decode_columns(data, "t", PARTITION, 1000)
    expected = list(decode_messages(data, "t", PARTITION, 1000))
    names = ("value", "offset", "entry_index", "next_offset")
    rows = list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    assert rows == [(m.value, m.offset, m.index, m.next_offset) for m in expected]


def test_a_stretch_of_one_unknown_magic_is_one_error_a_message() -> None:
    for magic in (2, 3, 255):
        entry = bytearray(encode_entry(b"x" * 20))
        entry[4] = magic
        resume, errors = None, 0
        while True:
            try:
                assert list(decode_columns(bytes(entry) * 50, "t", PARTITION, resume=resume)) == []
                break
            except CorruptMessage as error:
                resume, errors = error.resume, errors + 1
        assert errors == 50


def test_each_entry_has_the_whole_limit_of_inflated_bytes() -> None:
    entry = encode_message_set([b"x" * 500, b"y" * 400], "gzip")
    messages, errors = decode_all(entry * 20, 0, 1000)
    assert (len(messages), errors) == (40, [])
    assert sum(batch.num_rows for batch in decode_columns(entry * 20, "t", PARTITION, max_decoded_bytes=1000)) == 40


def test_behind_a_bomb_no_other_entry_of_its_entry_is_inflated() -> None:
    bomb = encode_wrapper(encode_entry(bytes(MEBIBYTE)), "gzip")
    small = encode_wrapper(encode_entry(b"small"), "gzip")
    data = encode_wrapper(small + bomb + small, "gzip") + small
    messages, errors = decode_all(data, 0, 10_000)
    assert [message.value for message in messages] == [b"small", b"small"]
    assert len(errors) == 2
    assert messages[-1].offset == len(data) - len(small)


def test_an_error_at_the_end_of_all_levels_leads_behind_the_entry() -> None:
    bad = bytearray(encode_entry(b"bad"))
    bad[-1] ^= 1
    inner = encode_wrapper(encode_message_set([b"a"]) + bytes(bad), "gzip")
    for inside, ends in ((inner, True), (inner + encode_message_set([b"longer than the inner one"]), False)):
        entry = encode_wrapper(encode_message_set([b"first"]) + inside, "gzip")
        _, [error] = decode_all(entry, 70)
        assert (error.index, error.next_offset) == (2, 70 + len(entry) if ends else 70)  # type: ignore[union-attr]


@pytest.mark.parametrize("behind", [b"a", b"abc"])
def test_bytes_behind_the_last_message_of_an_entry_are_counted(behind: bytes) -> None:
    _, [error] = decode_all(encode_wrapper(encode_message_set([b"x"] * 7) + behind, "gzip"))
    assert error.reason == f"the compressed entry holds {len(behind)} bytes after its last message"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", None),
        (encode_entry(b"x"), None),
        (encode_entry(b"x", 0), None),
        (encode_entry(b"x")[:-1], None),
        (encode_entry(b"x")[:3], None),
        (b"\0\0\0\4" + bytes(10), "entry at byte 0 has size 4"),
        (b"\xff\xff\xff\xff" + bytes(10), "entry at byte 0 has size -1"),
        (encode_entry(b"x")[:-1] + b"y", "the CRC is 0xfbdb2615, the message says 0x8cdc1683"),
        (b"\0\0\0\7\2" + bytes(6), "magic 2 is not known (0 and 1 are)"),
    ],
)
@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(data).cast("c")])
def test_what_is_wrong_with_a_first_entry(data: bytes, fault: str | None, kind: Any) -> None:
    assert message_set.first_entry_fault(kind(data)) == fault


@pytest.mark.parametrize(
    ("room", "values"), [(26, [b"one", b"two"]), (25, [b"one"]), (13, [b"one"]), (12, []), (0, []), (-5, [])]
)
@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(data).cast("c")])
def test_bytes_behind_which_no_position_is_possible_are_a_tail_that_is_cut_off(
    room: int, values: list[bytes], kind: Any
) -> None:
    data, start = kind(encode_message_set([b"one", b"two"])), MAX_INT64 - room
    assert [message.value for message in decode_messages(data, "t", PARTITION, start)] == values
    batches = decode_columns(data, "t", PARTITION, start)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == values


def test_a_set_of_magic_0_has_no_attributes() -> None:
    assert encode_message_set([b"hello"], magic=0) == bytes.fromhex("0000000a003610a68668656c6c6f")
    assert encode_message_set([b"hello"]) == bytes.fromhex("0000000b01003610a68668656c6c6f")


# Columns of sets in which everything follows everything


def numbered_values(count: int, name: str) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(count)]


EMPTY = encode_wrapper(b"", "gzip")
MIXED = b"".join([
    encode_message_set(numbered_values(40, "plain")),
    encode_message_set(numbered_values(40, "gzip"), "gzip"),
    encode_message_set(numbered_values(3, "few")),
    encode_message_set(numbered_values(50, "snappy"), "snappy"),
    encode_message_set([b"alone"], "gzip"),
    EMPTY,
    encode_message_set(numbered_values(40, "more")),
    encode_message_set(numbered_values(300, "large"), "gzip"),
    encode_message_set([b"one"]),
    EMPTY,
    encode_wrapper(encode_message_set(numbered_values(60, "nested"), "snappy") + encode_message_set([b"x"]), "gzip"),
    encode_message_set(numbered_values(2, "last")),
    EMPTY,
])  # fmt: skip
NAMES = ("value", "offset", "entry_index", "next_offset")


@pytest.mark.parametrize("batch_bytes", [50, 700, 1500, 5000, MEBIBYTE])
def test_columns_equal_rows_from_every_place_of_a_set_of_all_kinds(batch_bytes: int) -> None:
    rows = [(m.value, m.offset, m.index, m.next_offset) for m in decode_messages(MIXED, "t", PARTITION, 1000)]
    assert rows == [(m.value, m.offset, m.index, m.next_offset) for m in decode_simply(MIXED, 1000)]
    for first in [*range(0, len(rows), 17), 40, 79, 80, 83, 133, 134, 174, 473, 474, 475, len(rows) - 1]:
        _, offset, index, _ = rows[first]
        batches = decode_columns(
            MIXED, "t", PARTITION, offset, start_index=index, data_offset=1000, max_batch_bytes=batch_bytes
        )
        found = [
            row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True)
        ]
        assert found == rows[first:]


@pytest.mark.parametrize(
    "data",
    [
        b"".join(encode_message_set([b"x" * 20] * 20, "gzip") + encode_message_set([b"y" * 20] * 2) for _ in range(40)),
        encode_wrapper(encode_message_set([b"x" * 20] * 1000, "gzip"), "gzip"),
        encode_message_set([b"x" * 20] * 1000),
        encode_message_set([b"x" * 20] * 1000, "gzip"),
    ],
    ids=["small entries", "nested", "plain", "large entry"],
)
def test_batches_are_as_large_as_was_asked_for_and_one_entry_more(data: bytes) -> None:
    batches = list(decode_columns(data, "t", PARTITION, max_batch_bytes=2000))
    sizes = [batch.num_rows * 30 for batch in batches]
    assert max(sizes) <= 2000 + 22 * 30
    assert len(batches) <= 2 * sum(sizes) // 2000 + 2


def test_each_batch_of_messages_that_are_read_one_by_one_is_filled_to_the_limit() -> None:
    """An entry within an entry is read so; a message of 90 bytes takes 100."""
    inside = encode_wrapper(encode_message_set([b"x" * 90] * 10), "gzip")
    batches = decode_columns(encode_wrapper(inside, "gzip"), "t", PARTITION, max_batch_bytes=200)
    assert [batch.num_rows for batch in batches] == [2] * 5


def test_entries_without_messages_make_no_row_and_change_none() -> None:
    assert list(decode_columns(EMPTY, "t", PARTITION)) == []
    data = encode_message_set([b"x"]) + EMPTY
    [batch] = decode_columns(data, "t", PARTITION)
    assert batch.column("next_offset").to_pylist() == [len(data) - len(EMPTY)]
