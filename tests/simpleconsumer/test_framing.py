"""Frames out of chunks of any length."""

from __future__ import annotations

import struct

import pytest
from decoding import MEBIBYTE, memory_growth_below
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import BrokenFraming, LimitExceeded
from simpleconsumer.framing import MAX_FRAME_BYTES, FrameReader, frame_size


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(bodies=st.lists(st.binary(max_size=50)), cuts=st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_whole_and_in_order_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    reader, frames, position, index = FrameReader(), [], 0, 0
    while position < len(stream):
        length = cuts[index % len(cuts)]
        reader.feed(stream[position : position + length])
        position, index = position + length, index + 1
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    assert frames == bodies
    assert reader.next_frame() is None


def test_byte_by_byte_there_is_none_until_it_is_whole() -> None:
    reader = FrameReader()
    for byte in framed(b"abc")[:-1]:
        reader.feed(bytes((byte,)))
        assert reader.next_frame() is None
    reader.feed(b"c" + framed(b"")[:2])
    assert reader.next_frame() == b"abc"
    assert reader.next_frame() is None


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_negative_sizes_are_broken_framing(size: int) -> None:
    reader = FrameReader()
    reader.feed(struct.pack(">i", size))
    with pytest.raises(BrokenFraming, match=f"negative size {size}"):
        reader.next_frame()


def test_a_frame_above_the_limit_is_refused_at_its_size_field() -> None:
    reader = FrameReader(max_frame_bytes=10)
    reader.feed(framed(bytes(10)))
    assert reader.next_frame() == bytes(10)
    reader.feed(struct.pack(">i", 11))
    with pytest.raises(LimitExceeded, match="frame of 11 bytes, at most 10 are taken"):
        reader.next_frame()


def test_the_default_limit_is_256_mebibytes() -> None:
    assert frame_size(struct.pack(">i", 256 * MEBIBYTE)) == MAX_FRAME_BYTES == 256 * MEBIBYTE
    with pytest.raises(LimitExceeded):
        frame_size(struct.pack(">i", 256 * MEBIBYTE + 1))
    assert int.from_bytes(b"HTTP") > MAX_FRAME_BYTES, "an answer of the wrong kind of server is refused"


def test_memory_is_that_of_one_frame_however_many_pass() -> None:
    reader = FrameReader()
    with memory_growth_below(16 * MEBIBYTE):
        for _ in range(200):
            reader.feed(framed(bytes(MEBIBYTE)))
            assert reader.next_frame() == bytes(MEBIBYTE)
