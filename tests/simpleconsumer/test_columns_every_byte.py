"""Record batches of sets in which each byte, or each bit, is wrong in turn, including sets of real brokers."""

from __future__ import annotations

import struct

import golden_frames
import pytest
from column_decoding import found_by_columns, found_by_messages
from decoding import decoding_by
from golden_frames import VERSIONS

from simpleconsumer.columns import decode_columns
from simpleconsumer.errors import MessageError
from simpleconsumer.kafka08.message_encode import encode_message_set


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_sets_give_the_same_whole_cut_anywhere_and_with_any_byte_wrong(version: str) -> None:
    with decoding_by("kernel"):
        for fetch in [fetch for fetch in golden_frames.fetches() if fetch.version == version]:
            data = bytes(fetch.decode().message_set)
            assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)
            for length in range(0, len(data), 3):
                assert found_by_columns(data[:length], 0, None) == found_by_messages(data[:length], 0, None)
            for position in range(0, len(data), 2):
                damaged = bytearray(data)
                damaged[position] ^= (0xFF, 0x01, 0x80)[position // 2 % 3]
                assert found_by_columns(damaged, 0, None) == found_by_messages(damaged, 0, None)


@pytest.mark.parametrize("sizes", [[10] * 64, list(range(64))], ids=["of one size", "of many"])
def test_every_wrong_bit_of_any_message_is_noticed(sizes: list[int]) -> None:
    whole = encode_message_set([bytes(size) for size in sizes])
    position = 0
    for number, size in enumerate(sizes):
        for bit in range(0, (size + 14) * 8, 7):
            data = bytearray(whole)
            data[position + 12 + bit // 8] ^= 1 << bit % 8
            with pytest.raises(MessageError) as caught:
                list(decode_columns(data, "t", 0))
            assert caught.value.offset == number
        position += size + 26
    assert struct.unpack_from(">q", whole, 0) == (0,)
