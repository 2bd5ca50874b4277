"""Message sets of Kafka 0.7 as properties: rows against a simple decoder, columns against rows, any bytes."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from decoding import MEBIBYTE, PATHS, decoding_by, memory_growth_below
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka07_decoding import PARTITION, decode_all, decode_simply, entries, numbered

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import BrokenFraming, CrcMismatch, MessageError
from simpleconsumer.kafka07 import columns, message_set
from simpleconsumer.kafka07.columns import decode_columns
from simpleconsumer.kafka07.message_set import decode_messages
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set, encode_wrapper
from simpleconsumer.types import Buffer, Message

payloads = st.binary(max_size=30) | st.sampled_from([0, 5, 5, 16, 100]).map(bytes)
large = st.sampled_from([16_378, 16_379, 70_000]).map(bytes)
codecs = st.sampled_from(["gzip", "snappy"])
kinds = st.sampled_from([bytes, bytearray, memoryview])
bases = st.sampled_from([0, 1, 4711, 2**31, 2**40])
magics = st.sampled_from([1, 1, 1, 0])
bits = st.sampled_from([0, 0, 0, 4, 8, 128])
small_entries = st.builds(encode_entry, payloads, magics, bits)
plain_entries = small_entries | st.builds(encode_entry, payloads | large, magics, bits)


@st.composite
def insides(draw: st.DrawFn, depth: int = 1) -> bytes:
    """Return the inside of a compressed entry, perhaps empty, perhaps with compressed entries in it."""
    data = b"".join(draw(st.lists(plain_entries, max_size=6))) + draw(small_entries) * draw(st.sampled_from([0, 1, 60]))
    if depth and draw(st.integers(0, 2)) == 0:
        data += encode_wrapper(draw(insides(depth - 1)), draw(codecs)) * draw(st.integers(1, 2))
        data += b"".join(draw(st.lists(small_entries, max_size=2)))
    return data


@st.composite
def sets(draw: st.DrawFn) -> bytes:
    """Return plain entries, of one look or of many, and compressed ones between them."""
    data = b""
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["mixed", "equal", "compressed", "compressed"]))
        if kind == "mixed":
            data += b"".join(draw(st.lists(plain_entries, max_size=10)))
        elif kind == "equal":
            data += draw(small_entries) * draw(st.integers(1, 90))
        else:
            data += encode_wrapper(draw(insides()), draw(codecs))
    return data


@st.composite
def damaged_sets(draw: st.DrawFn) -> bytes:
    """Return a set in which some bytes are wrong, an end is cut off, or a size is made up."""
    data = bytearray(draw(sets()))
    heads = [start for start, _ in entries(data)]
    for _ in range(draw(st.integers(0, 4))):
        if not data:
            break
        kind, at = draw(st.sampled_from(["flip", "flip", "cut", "size", "head"])), draw(st.integers(0, len(data) - 1))
        starts = [start for start in heads if start + 6 <= len(data)]
        if kind == "cut":
            del data[at:]
        elif kind == "flip" or not starts:
            data[at] ^= draw(st.sampled_from([1, 2, 3, 0x80, 0xFF]))
        elif kind == "head":
            data[draw(st.sampled_from(starts)) + draw(st.sampled_from([4, 5]))] ^= draw(st.sampled_from([1, 2, 3]))
        else:
            size = draw(st.sampled_from([-1, 0, 4, 5, 6, 2**31 - 1]) | st.integers(-(2**31), 2**31 - 1))
            struct.pack_into(">i", data, draw(st.sampled_from(starts)), size)
    return bytes(data)


Row = tuple[bytes | None, int, int, int]
Found = Row | tuple[type, str, int]


def trouble_of(error: MessageError | BrokenFraming) -> Found:
    return type(error), str(error), error.next_offset if isinstance(error, MessageError) else -1


def found_by_messages(data: Buffer, start: int, end: int | None, limit: int = MEBIBYTE, **place: int) -> list[Found]:
    messages, errors = decode_all(data, start, limit, **place)
    rows: list[tuple[tuple[int, int], Found]] = [
        ((m.offset, m.index), (m.value, m.offset, m.index, m.next_offset))
        for m in messages if end is None or m.offset < end
    ]  # fmt: skip
    for error in errors:
        if not isinstance(error, MessageError):
            at = int(str(error).split()[3]) + place.get("data_offset", start)
            if end is None or at < end:
                rows.append(((at, 0), trouble_of(error)))
        elif end is None or error.offset < end:
            rows.append(((error.offset, error.index), trouble_of(error)))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


def found_by_columns(
    data: Buffer, start: int, end: int | None, batch_bytes: int = MEBIBYTE, limit: int = MEBIBYTE, **place: int
) -> list[Found]:
    found: list[Found] = []
    resume = None
    while True:
        try:
            for batch in decode_columns(
                data, "t", PARTITION, start, end_offset=end, max_batch_bytes=batch_bytes, max_decoded_bytes=limit,
                resume=resume, **place,
            ):  # fmt: skip
                assert batch.num_rows
                assert batch.column("key").null_count == batch.column("timestamp_ms").null_count == batch.num_rows
                assert set(batch.column("timestamp_type").to_pylist()) == {-1}
                names = ("value", "offset", "entry_index", "next_offset")
                found += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            return found
        except MessageError as error:
            found.append(trouble_of(error))
            resume = error.resume
            start, place = error.offset, {**place, "start_index": 0}
        except BrokenFraming as error:
            return [*found, trouble_of(error)]


# Rows


@given(values=st.lists(payloads | large, max_size=30), codec=codecs | st.just("none"), base=bases, kind=kinds)
def test_what_is_encoded_decodes_to_itself(values: list[bytes], codec: str, base: int, kind: type[Buffer]) -> None:
    data = encode_message_set(values, codec)
    decoded = list(decode_messages(kind(data), "t", PARTITION, base))
    assert [message.value for message in decoded] == values
    assert all(type(message.value) is bytes for message in decoded)
    assert [message.next_offset for message in decoded[-1:]] == [base + len(data)] * bool(values)
    again = KAFKA07.encode_messages(decoded, codec, None, None)
    assert list(decode_messages(again, "t", PARTITION, base)) == decoded


@given(data=sets(), base=bases, kind=kinds)
@settings(deadline=None)
def test_any_set_decodes_like_the_simple_decoder(data: bytes, base: int, kind: type[Buffer]) -> None:
    assert list(decode_messages(kind(data), "t", PARTITION, base)) == decode_simply(data, base)


@given(data=sets(), base=bases, cut=st.integers(0, 2**20))
@settings(deadline=None)
def test_no_position_within_an_entry_is_produced_and_all_lead_on(data: bytes, base: int, cut: int) -> None:
    whole = list(decode_messages(data, "t", PARTITION, base))
    boundaries = {base + start for start, _ in entries(data)} | {base + len(data)}
    assert {message.offset for message in whole} | {message.next_offset for message in whole} <= boundaries
    assert list(numbered(whole)) == sorted(numbered(whole))
    if whole:
        done = cut % len(whole) + 1
        last = whole[done - 1]
        index = last.index + 1 if last.next_offset == last.offset else 0
        again = decode_messages(data, "t", PARTITION, last.next_offset, start_index=index, data_offset=base)
        assert list(again) == whole[done:]


@given(data=damaged_sets(), base=bases)
@settings(deadline=None)
def test_damage_gives_messages_and_documented_errors_whose_numbers_hold(data: bytes, base: int) -> None:
    messages, errors = decode_all(data, base)
    items = sorted(
        [(m.offset, m.index, m.next_offset) for m in messages]
        + [(e.offset, e.index, e.next_offset) for e in errors if isinstance(e, MessageError)]
    )
    by_entry: dict[int, list[tuple[int, int]]] = {}
    for offset, index, behind in items:
        by_entry.setdefault(offset, []).append((index, behind))
    ends = dict(entries(data))
    for offset, numbers in by_entry.items():
        assert [index for index, _ in numbers] == list(range(len(numbers))), "an error counts as one message"
        assert {behind for _, behind in numbers[:-1]} <= {offset}
        assert numbers[-1][1] in (offset, base + ends[offset - base])
    for offset, index, _ in items[:3]:
        again, bad = decode_all(data, offset, start_index=index, data_offset=base)
        found = [(m.offset, m.index) for m in again] + [(e.offset, e.index) for e in bad if isinstance(e, MessageError)]
        assert sorted(found) == [item[:2] for item in items if item[:2] >= (offset, index)]


@given(st.binary(max_size=300))
@example(b"\xff" * 200)
@example(struct.pack(">i", 2**31 - 1) + b"\0" * 50)
@example(b"\0" * 200)
@example(struct.pack(">iB", 5, 0) + b"\0" * 4)
def test_any_bytes_give_messages_or_documented_errors(data: bytes) -> None:
    messages, errors = decode_all(data)
    assert len(messages) + len(errors) <= len(data) // 9 + 1
    try:
        end, behind, count = KAFKA07.set_end(data, 0)
    except BrokenFraming:
        assert [type(error) for error in errors][-1:] == [BrokenFraming]
    else:
        assert (end, count) == (max((e for _, e in entries(data)), default=0), len(entries(data)))
        assert behind == (end if count else None)
    with decoding_by("kernel"):
        assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)


@given(data=damaged_sets(), base=bases, kind=kinds)
@settings(deadline=None)
def test_the_end_of_a_set_is_behind_its_last_whole_entry(data: bytes, base: int, kind: type[Buffer]) -> None:
    whole = entries(data)
    end = whole[-1][1] if whole else 0
    is_broken = end + 4 <= len(data) and struct.unpack_from(">i", data, end)[0] < 5
    if is_broken:
        with pytest.raises(BrokenFraming, match=f"entry at byte {end}, after {len(whole)} entries, has size"):
            KAFKA07.set_end(kind(data), base)
    else:
        assert KAFKA07.set_end(kind(data), base) == (end, base + end if whole else None, len(whole))


@given(inside=st.binary(max_size=200), codec=codecs)
def test_any_bytes_in_a_compressed_entry_give_messages_or_documented_errors(inside: bytes, codec: str) -> None:
    data = encode_wrapper(inside, codec) + encode_message_set([b"after"])
    messages, errors = decode_all(data)
    assert messages[-1].value == b"after"
    assert all(isinstance(error, MessageError) for error in errors)
    assert len(errors) <= len(inside) // 4 + 1
    with decoding_by("kernel"):
        assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)


def test_every_byte_of_every_recorded_set_may_be_damaged() -> None:
    from test_kafka07_message_set import SETS

    with memory_growth_below(64 * MEBIBYTE):
        for data in SETS.values():
            for position in range(len(data)):
                for mask in (0xFF, 0x01, 0x80):
                    damaged = bytearray(data)
                    damaged[position] ^= mask
                    decode_all(damaged)
                cut, errors = decode_all(data[:position])
                assert [type(error) for error in errors] in ([], [BrokenFraming], [CrcMismatch])
                assert cut == decode_all(data)[0][: len(cut)]


def test_a_flipped_byte_of_a_payload_or_checksum_costs_its_own_entry_and_one_error() -> None:
    data = encode_message_set([b"one", b"two"]) + encode_message_set([b"a", b"b"], "gzip") + encode_message_set([b"x"])
    whole = decode_simply(data)
    for start, end in entries(data):
        others = [message for message in whole if message.offset != start]
        for position in range(start + 6, end):
            damaged = bytearray(data)
            damaged[position] ^= 0xFF
            messages, [error] = decode_all(damaged)
            assert messages == others
            assert type(error) is CrcMismatch
            assert (error.offset, error.next_offset) == (start, end)  # type: ignore[union-attr]


def test_a_flipped_bit_of_the_attributes_costs_no_other_entry() -> None:
    """No checksum covers them: a plain entry does not decompress, or has the payload that is stored."""
    data = encode_message_set([b"one", b"two"]) + encode_message_set([b"a", b"b"], "gzip") + encode_message_set([b"x"])
    whole = decode_simply(data)
    for start, _ in entries(data):
        others = [message for message in whole if message.offset != start]
        for bit in range(8):
            damaged = bytearray(data)
            damaged[start + 5] ^= 1 << bit
            messages, errors = decode_all(damaged)
            assert [message for message in messages if message.offset != start] == others
            assert len(errors) <= 1


def failed(decoding: Iterator[Any]) -> None:
    try:
        for _ in decoding:
            pass
    except (MessageError, BrokenFraming):
        pass


def test_an_error_leaves_no_cycle_behind() -> None:
    inside = encode_message_set([b"y"] * 40) + b"x"
    sets = [encode_message_set([b"x"] * 50) + entry for entry in (encode_wrapper(inside, "gzip"), bytes(20))]
    gc.collect()
    gc.disable()
    try:
        for data in sets:
            failed(decode_messages(data, "t", PARTITION))
            failed(decode_columns(data, "t", PARTITION))
        assert gc.collect() == 0
    finally:
        gc.enable()


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


# Columns


starts = st.integers(0, 2**20)
ends = st.none() | st.integers(0, 2**20)
batch_sizes = st.sampled_from([MEBIBYTE, 1, 100, 700, 5000])
paths = st.sampled_from(PATHS)


@given(
    data=sets() | damaged_sets(), at=starts, index=st.integers(0, 5), end=ends, batch_bytes=batch_sizes, path=paths,
    kind=kinds, base=bases, limit=st.sampled_from([MEBIBYTE, 3000, 100]),
)  # fmt: skip
@settings(deadline=None, max_examples=400)
def test_columns_hold_what_messages_do(
    data: bytes, at: int, index: int, end: int | None, batch_bytes: int, path: str, kind: type[Buffer], base: int,
    limit: int,
) -> None:  # fmt: skip
    boundaries = [start for start, _ in entries(data)] or [0]
    start = base + boundaries[at % len(boundaries)]
    if end is not None:
        end = base + end % (len(data) + 2)
    place = {"data_offset": base, "start_index": index}
    expected = found_by_messages(data, start, end, limit, **place)
    with decoding_by(path):
        assert found_by_columns(kind(data), start, end, batch_bytes, limit, **place) == expected


@given(data=damaged_sets(), batch_bytes=batch_sizes)
@settings(deadline=None)
def test_one_goes_on_where_the_other_stopped(data: bytes, batch_bytes: int) -> None:
    def rest_by_messages(resume: object) -> list[tuple[int, int]]:
        found = []
        try:
            for message in decode_messages(data, "t", PARTITION, resume=resume):
                found.append((message.offset, message.index))
        except (MessageError, BrokenFraming):
            pass
        return found

    def rest_by_columns(resume: object) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        try:
            for batch in decode_columns(data, "t", PARTITION, max_batch_bytes=batch_bytes, resume=resume):
                found += zip(batch.column("offset").to_pylist(), batch.column("entry_index").to_pylist(), strict=True)
        except (MessageError, BrokenFraming):
            pass
        return found

    for decode in (decode_messages, decode_columns):
        resume = None
        try:
            list(decode(data, "t", PARTITION))
        except (MessageError, BrokenFraming) as error:
            resume = error.resume if isinstance(error, MessageError) else None
        with decoding_by("kernel"):
            assert rest_by_columns(resume) == rest_by_messages(resume)


@given(data=sets(), row=starts, batch_bytes=batch_sizes)
@settings(deadline=None)
def test_decoding_continues_behind_any_row(data: bytes, row: int, batch_bytes: int) -> None:
    with decoding_by("kernel"):
        batches = list(decode_columns(data, "t", PARTITION, 50, max_batch_bytes=batch_bytes))
        whole = [value for batch in batches for value in batch.column("value").to_pylist()]
        if not whole:
            return
        row %= len(whole)
        left = row
        for batch in batches:
            if left < batch.num_rows:
                offset, index = KAFKA07.place_behind(batch, left)
                break
            left -= batch.num_rows
        rest = decode_columns(data, "t", PARTITION, offset, start_index=index, data_offset=50)
        assert [value for each in rest for value in each.column("value").to_pylist()] == whole[row + 1 :]
    messages = decode_messages(data, "t", PARTITION, offset, start_index=index, data_offset=50)
    assert [message.value for message in messages] == whole[row + 1 :]


@pytest.mark.parametrize("columns_", [["value"], ["offset"], ["entry_index", "value"], ["next_offset"], ["key"]])
def test_only_the_columns_that_are_asked_for_are_made(columns_: list[str]) -> None:
    data = encode_message_set([b"x"] * 50) + encode_message_set([b"y"] * 50, "gzip")
    [batch] = KAFKA07.decode_columns(data, "t", PARTITION, 0, columns=columns_)
    assert batch.schema.names == columns_


def test_wrong_columns_and_sizes_are_refused() -> None:
    for wrong in (["values"], [], "value", ["value", "value"]):
        with pytest.raises(ValueError, match="some of key, value, offset, entry_index, next_offset, timestamp_ms"):
            KAFKA07.decode_columns(b"", "t", PARTITION, 0, columns=wrong)
    with pytest.raises(ValueError, match="max_batch_bytes is 0; it must be from 1 to 268435456"):
        KAFKA07.decode_columns(b"", "t", PARTITION, 0, columns=["value"], max_batch_bytes=0)


def test_the_names_of_the_columns_are_those_of_the_dialect() -> None:
    assert tuple(columns.COLUMNS) == KAFKA07.columns
    assert set(KAFKA07.place_columns) <= set(KAFKA07.columns)


@pytest.fixture
def read_alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the entries that the slow path reads."""
    reads: list[int] = []
    real = columns.next_entry

    def counted(*args: Any) -> Any:
        reads.append(1)
        return real(*args)

    monkeypatch.setattr(columns, "next_entry", counted)
    return reads


@pytest.mark.compiled
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_of_one_magic_are_read_as_arrays(read_alone: list[int], magic: int) -> None:
    values = [b"%d" % number * (number % 7) for number in range(5000)]
    for data in (encode_message_set(values, magic=magic), encode_message_set([b"value"] * 5000, magic=magic)):
        assert list(decode_simply(data)) == list(decode_messages(data, "t", PARTITION))
        assert sum(batch.num_rows for batch in decode_columns(data, "t", PARTITION)) == 5000
    assert len(read_alone) == 2, "the end of each set alone"


@pytest.mark.compiled
@pytest.mark.parametrize("codec", ["gzip", "snappy"])
@pytest.mark.parametrize("each", [100, 20_000])
def test_compressed_sets_are_read_as_arrays(read_alone: list[int], codec: str, each: int) -> None:
    values = [b"value %d" % number for number in range(40_000)]
    data = b"".join(encode_message_set(values[at : at + each], codec) for at in range(0, len(values), each))
    batches = list(decode_columns(data, "t", PARTITION, 9, max_batch_bytes=200_000))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == values
    assert len(read_alone) <= 3 * len(values) // each + 1, "each entry, its last message, its end, and the end of all"
    assert len(batches) > 3


def test_a_wrong_checksum_among_messages_that_are_all_the_same_is_noticed() -> None:
    data = bytearray(encode_message_set([b"value"] * 100))
    data[50 * 15 + 6] ^= 1
    with pytest.raises(CrcMismatch, match="t/0-1 at 750: the CRC is"):
        list(decode_columns(data, "t", PARTITION))


def test_a_compressed_entry_in_which_every_message_is_wrong_is_inflated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = bytearray(encode_message_set([b"value"] * 2000))
    inside[14::15] = b"x" * 2000
    opened = []
    real = message_set._open_entry
    monkeypatch.setattr(message_set, "_open_entry", lambda *args: opened.append(1) or real(*args))
    data = encode_wrapper(bytes(inside), "gzip")
    assert len(decode_all(data)[1]) == 2000
    assert len(opened) == 1


def test_a_batch_outlives_the_buffer_it_came_from() -> None:
    buffer = bytearray(encode_message_set([b"v%03d" % number for number in range(200)]))
    [batch] = decode_columns(buffer, "t", PARTITION)
    buffer[:] = bytes(len(buffer))
    assert batch.column("value").to_pylist() == [b"v%03d" % number for number in range(200)]
    del buffer[:]  # nothing holds it


def test_a_large_compressed_entry_is_delivered_in_several_batches_within_memory() -> None:
    data = encode_message_set([b"%01000d" % number for number in range(40_000)], "gzip")
    with memory_growth_below(60 * MEBIBYTE):
        rows = [(b.num_rows, b.column("next_offset")[-1].as_py()) for b in decode_columns(data, "t", PARTITION)]
    assert sum(count for count, _ in rows) == 40_000
    assert len(rows) > 30
    assert {behind for _, behind in rows[:-1]} == {0}
    assert rows[-1][1] == len(data)


def test_values_are_equal_to_those_of_messages() -> None:
    data = encode_message_set([b"x"] * 40) + encode_message_set([b"y"] * 40, "snappy")
    expected = [message.value for message in decode_simply(data)]
    assert [m.value for m in KAFKA07.decode_messages(data, "t", 1, 0)] == expected
    assert all(type(m) in (Message, type(decode_simply(data)[-1])) for m in KAFKA07.decode_messages(data, "t", 1, 0))
