"""Real message sets, damaged in every possible place: a shorter list or a documented error, never anything else."""

from __future__ import annotations

import golden_frames
import pytest
from decoding import MEBIBYTE, decode_all, entries, memory_growth_below
from golden_frames import VERSIONS, Fetch

from simpleconsumer.errors import BrokenFraming, DamagedOffset, DecodeError, MessageError
from simpleconsumer.kafka08.message_set import decode_messages, shallow_end
from simpleconsumer.types import Message

FETCHES = [fetch for fetch in golden_frames.fetches() if len(fetch.decode().message_set)]
# All bits, the lowest and the sign: a small change of a length, a large one, and a negative number.
MASKS = (0xFF, 0x01, 0x80)


def message_set(fetch: Fetch) -> bytes:
    return bytes(fetch.decode().message_set)


def of_entry(messages: list[Message], data: bytes, index: int) -> list[Message]:
    """Return the messages that one entry of the set holds: those above the entry before, up to its own offset."""
    offsets = [offset for _, _, offset in entries(data)]
    before = offsets[index - 1] if index else -1
    return [message for message in messages if before < message.offset <= offsets[index]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_set_cut_anywhere_yields_the_messages_of_its_whole_entries(version: str) -> None:
    for fetch in [fetch for fetch in FETCHES if fetch.version == version]:
        data = message_set(fetch)
        whole, _ = decode_all(data)
        for length in range(len(data)):
            count = sum(end <= length for _, end, _ in entries(data))
            expected = [m for index in range(count) for m in of_entry(whole, data, index)]
            assert decode_all(data[:length]) == (expected, []), (fetch.name, length)
            end = entries(data)[count - 1][1] if count else 0
            next_offset = expected[-1].next_offset if count else None
            assert shallow_end(data[:length]) == (end, next_offset, count)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flipped_byte_under_a_checksum_costs_its_own_entry_and_one_error(version: str) -> None:
    with memory_growth_below(64 * MEBIBYTE):
        for fetch in [fetch for fetch in FETCHES if fetch.version == version]:
            data = message_set(fetch)
            whole, none = decode_all(data)
            assert none == []
            for index, (start, end, offset) in enumerate(entries(data)):
                others = [m for m in whole if m not in of_entry(whole, data, index)]
                for position in range(start + 12, end):  # the CRC itself and all it covers
                    for mask in MASKS:
                        damaged = bytearray(data)
                        damaged[position] ^= mask
                        messages, errors = decode_all(damaged)
                        assert messages == others, (fetch.name, position, mask)
                        assert [error.offset for error in errors if isinstance(error, MessageError)] == [offset]
                        assert len(errors) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flipped_bit_of_an_offset_costs_its_own_entry_at_most(version: str) -> None:
    """No checksum covers an offset. What its neighbours do not contradict is taken as it is."""
    for fetch in [fetch for fetch in FETCHES if fetch.version == version]:
        data = message_set(fetch)
        asked = int(fetch.name.partition("-from-")[2] or 0)
        whole, _ = decode_all(data, asked)
        if not whole:
            continue
        end = whole[-1].next_offset
        for index, (start, _, offset) in enumerate(entries(data)):
            own = of_entry(whole, data, index)
            others = [m for m in whole if m not in own]
            for bit in range(64):
                damaged = bytearray(data)
                damaged[start + 7 - bit // 8] ^= 1 << bit % 8
                messages, errors = decode_all(damaged, asked, high_watermark=end)
                place = (fetch.name, index, bit)
                if index == 0 and 0 <= int.from_bytes(damaged[start : start + 8], signed=True) < asked:
                    continue  # not for the decoder to know: what is before the offset asked for is passed over
                assert all(isinstance(error, DamagedOffset) for error in errors), place
                if data[start + 16] == 1 and data[start + 17] & 7:
                    continue  # offsets inside count from this one: a wrong one that fits makes wrong ones of them
                assert [m for m in messages if m in others] == others, place
                assert {m.value for m in messages} <= {m.value for m in whole}, place
                if len(messages) == len(others):
                    [error] = errors
                    assert isinstance(error, DamagedOffset), place
                    assert own[0].offset <= error.offset <= offset, place
                else:
                    assert len(messages) == len(whole), place
                    assert errors == [], place


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flipped_byte_of_a_size_gives_values_or_documented_errors(version: str) -> None:
    """No checksum covers these four bytes, so messages may be missing; but nothing else may happen."""
    with memory_growth_below(64 * MEBIBYTE):
        for fetch in [fetch for fetch in FETCHES if fetch.version == version]:
            data = message_set(fetch)
            values = {message.value for message in decode_all(data)[0]}
            for start, _, _ in entries(data):
                for position in range(start + 8, start + 12):
                    for mask in MASKS:
                        damaged = bytearray(data)
                        damaged[position] ^= mask
                        messages, _ = decode_all(damaged, -(2**63))
                        assert {message.value for message in messages} <= values


@pytest.mark.parametrize("version", VERSIONS)
def test_a_size_below_the_smallest_message_is_broken_framing(version: str) -> None:
    for fetch in [fetch for fetch in FETCHES if fetch.version == version]:
        data = message_set(fetch)
        if not entries(data):
            continue
        start, _, offset = entries(data)[-1]
        for size in (13, 0, -1, -(2**31)):
            damaged = bytearray(data)
            damaged[start + 8 : start + 12] = size.to_bytes(4, signed=True)
            before = [m for index in range(len(entries(data)) - 1) for m in of_entry(decode_all(data)[0], data, index)]
            messages, errors = decode_all(damaged)
            assert messages == before
            assert [type(error) for error in errors] == [BrokenFraming]
            assert f"byte {start} (offset {offset}) has size {size}" in str(errors[0])
            with pytest.raises(BrokenFraming, match=f"byte {start}, .* has size {size}"):
                shallow_end(damaged)


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_follows_a_whole_set_is_a_cut_off_tail_or_broken_framing(version: str) -> None:
    for fetch in [fetch for fetch in FETCHES if fetch.version == version]:
        data = message_set(fetch)
        end, next_offset, count = shallow_end(data)
        data = data[:end]
        whole, _ = decode_all(data)
        for tail in (b"\0", b"\0" * 11, b"\0" * 8 + b"\0\0\0\x0e", b"\xff" * 11):
            assert decode_all(data + tail) == (whole, [])
            assert shallow_end(data + tail) == (end, next_offset, count)
        messages, errors = decode_all(data + b"\0" * 12)
        assert messages == whole
        assert [type(error) for error in errors] == [BrokenFraming]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_cut_anywhere_or_with_bytes_behind_it_does_not_decode(version: str) -> None:
    for fetch in [fetch for fetch in golden_frames.fetches() if fetch.version == version]:
        body = fetch.answer
        for length in range(len(body)):
            with pytest.raises(DecodeError):
                fetch.decode(body[:length])
        with pytest.raises(DecodeError, match="3 bytes after its end"):
            fetch.decode(body + b"abc")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flipped_byte_of_an_answer_gives_a_value_or_a_decode_error(version: str) -> None:
    with memory_growth_below(64 * MEBIBYTE):
        for fetch in [fetch for fetch in golden_frames.fetches() if fetch.version == version]:
            body = fetch.answer
            for position in range(len(body)):
                for mask in MASKS:
                    damaged = bytearray(body)
                    damaged[position] ^= mask
                    try:
                        fetched = fetch.decode(bytes(damaged))
                    except DecodeError:
                        continue
                    assert fetched.topic == fetch.request.topic
                    assert len(fetched.message_set) == len(fetch.decode().message_set)


def test_the_same_resume_serves_any_number_of_times() -> None:
    data = bytearray(message_set(next(fetch for fetch in FETCHES if fetch.name == "hand-fetch-v0-g-none")))
    data[entries(data)[1][1] - 1] ^= 1
    decoding = decode_messages(data, "t", 0)
    assert next(decoding).offset == 0
    with pytest.raises(MessageError) as caught:
        next(decoding)
    for _ in range(2):
        rest = decode_messages(data, "t", 0, resume=caught.value.resume)
        assert [message.offset for message in rest] == [2, 3, 4]
