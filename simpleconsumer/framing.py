"""Frames: `int32 size` and as many bytes, in both directions and in every Kafka version.

`frame_size` judges a size field before memory is taken for it; `FrameReader` cuts a stream of chunks of any length
into frames, for whoever does not read from a socket of its own.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.errors import BrokenFraming, LimitExceeded
from simpleconsumer.types import Buffer

SIZE_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Default limit of one frame. Well above a fetch of 200 partitions with 1 MiB each, well below the memory of a host;
a size field read out of step (text, a TLS alert) is nearly always above it."""

_SIZE = Struct(">i")


def frame_size(header: Buffer, max_frame_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return the size that the first four bytes of a frame announce, header not counted.

    Raises:
        BrokenFraming: It is negative.
        LimitExceeded: It is larger than `max_frame_bytes`.
    """
    size: int = _SIZE.unpack_from(header)[0]
    if size < 0:
        raise BrokenFraming(f"frame with the negative size {size}")
    if size > max_frame_bytes:
        raise LimitExceeded(f"frame of {size} bytes, at most {max_frame_bytes} are taken")
    return size


class FrameReader:
    """Frames out of chunks: `feed` what arrives, then take `next_frame` until it is None.

    Holds at most one incomplete frame and what was fed since the last `next_frame`. After an error the stream has
    lost its step: drop the reader with its connection.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._start = 0

    def feed(self, chunk: Buffer) -> None:
        """Take bytes of the stream."""
        if self._start:
            del self._pending[: self._start]
            self._start = 0
        self._pending += chunk

    def next_frame(self) -> bytes | None:
        """Return the next whole frame without its size field, or None: feed more.

        Raises:
            BrokenFraming, LimitExceeded: See `frame_size`; raised as soon as the four bytes are there.
        """
        body = self._start + SIZE_BYTES
        if len(self._pending) < body:
            return None
        end = body + frame_size(self._pending[self._start : body], self._max_frame_bytes)
        if len(self._pending) < end:
            return None
        self._start = end
        with memoryview(self._pending) as view:
            return bytes(view[body:end])
