"""The sizes of frames, checked before memory is allocated for them."""

from __future__ import annotations

import struct

import pytest
from decoding import MEBIBYTE

from simpleconsumer.errors import BrokenFraming, LimitExceeded
from simpleconsumer.primitives import MAX_FRAME_BYTES, frame_size


@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_negative_sizes_are_broken_framing(size: int) -> None:
    with pytest.raises(BrokenFraming, match=f"negative size {size}"):
        frame_size(struct.pack(">i", size))


def test_a_frame_above_the_limit_is_refused_at_its_size_field() -> None:
    assert frame_size(struct.pack(">i", 10), max_frame_bytes=10) == 10
    with pytest.raises(LimitExceeded, match="frame of 11 bytes, at most 10 are accepted"):
        frame_size(struct.pack(">i", 11), max_frame_bytes=10)


def test_the_default_limit_is_256_mebibytes() -> None:
    assert frame_size(struct.pack(">i", 256 * MEBIBYTE)) == MAX_FRAME_BYTES == 256 * MEBIBYTE
    with pytest.raises(LimitExceeded):
        frame_size(struct.pack(">i", 256 * MEBIBYTE + 1))
    assert int.from_bytes(b"HTTP") > MAX_FRAME_BYTES, "an answer of the wrong kind of server is refused"
