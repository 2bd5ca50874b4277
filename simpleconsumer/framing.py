"""Frames of requests and answers: `int32 size` and as many bytes, the same in every Kafka version.

`frame_size` checks a size field before memory is allocated for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from simpleconsumer.errors import BrokenFraming, LimitExceeded
from simpleconsumer.types import Buffer

SIZE_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Default limit of one frame. Well above a fetch of 200 partitions with 1 MiB each, well below the memory of a host;
bytes that are no size field (text, a TLS alert) nearly always give a larger number."""
MAX_OPENING_FRAME_BYTES: Final = 64 * 1024
"""Limit of an answer before the first request of a connection, while nobody has shown who he is: lists of versions and
of mechanisms, and tokens of SASL."""

_MOST_JOINED_BYTES = 64 * 1024
"""Largest request whose pieces are sent as one."""
_SIZE = Struct(">i")

Frame = bytes | Sequence[bytes]
"""A whole request with its size, or the pieces of one."""


def packets(frame: Frame) -> Sequence[bytes]:
    """Return what is sent at once each: every piece of a large frame, as new memory costs more than a packet."""
    if isinstance(frame, bytes):
        return [frame]
    return frame if sum(map(len, frame)) > _MOST_JOINED_BYTES else [b"".join(frame)]


def frame_size(header: Buffer, max_frame_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return the size in the first four bytes of a frame, which does not count these four.

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
