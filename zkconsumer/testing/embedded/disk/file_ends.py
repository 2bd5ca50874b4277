"""Writes to the end of a segment's file: all of the bytes, or none."""

from __future__ import annotations

import os

from zkconsumer.testing.embedded.disk.messages import Bytes


def append_bytes(fd: int, end: int, data: Bytes) -> None:
    """Write data behind the first `end` bytes of a file.

    Raises:
        OSError: The disk refused; the file is cut back to `end` bytes.
    """
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], end + written)
    except OSError:
        os.ftruncate(fd, end)
        raise
