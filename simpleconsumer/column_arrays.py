"""Fields and checksums of many entries of a message set at once, and Arrow arrays of them.

All checksums are compared by one call. Between two bodies that checksums cover is a head, which ends with the CRC of
the second one. In a copy of the message set each head is overwritten by the CRC that the message before states, and
constant bytes. A body that is followed by its right CRC brings the register of the checksum into a state that is the
same for all bodies, and the constant bytes bring it from there into the start state of a checksum. So if all messages
are right, the checksum of the whole copy equals that of the last body alone. One wrong message is detected as surely as
by its own comparison; that the faults of several cancel each other out has the probability of any checksum collision,
one to four thousand million.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32
from numpy.typing import NDArray

__all__ = ["Fields", "Ints", "binary_array", "checksums_match", "column_schema", "joined", "number_array"]

Ints = NDArray[np.int64]

# Behind any body and its right CRC the register is the same. The last four of these bytes, by the number of all,
# cancel that state, with the effect of the zeros before them, and set the state behind the 4 bytes 9d 0a d9 6d, whose
# own CRC is 0.
CLOSING: Final = {
    12: bytes.fromhex("0000000000000000 f2cc0c16"),
    6: bytes.fromhex("0000 3eab1bdc"),
    5: bytes.fromhex("00 80fdfbab"),
}


class Fields:
    """Reads one field of all entries; `step` is their size if all have the same, else 0."""

    def __init__(self, stretch: NDArray[np.uint8], starts: Ints, step: int) -> None:
        self.stretch = stretch
        self.starts = starts
        self.step = step

    def at(self, delta: Any, kind: Any) -> NDArray[Any]:
        """Return the field `delta` bytes behind the start of each entry; it must end within its entry."""
        if self.step and isinstance(delta, int):
            return np.ndarray((len(self.starts),), kind, self.stretch, delta, (self.step,))
        room = len(self.stretch) - np.dtype(kind).itemsize + 1
        anywhere: NDArray[Any] = np.ndarray((room,), kind, self.stretch, 0, (1,))
        found: NDArray[Any] = anywhere[self.starts + delta]
        return found


def checksums_match(
    stretch: NDArray[np.uint8],
    starts: Ints,
    crc: NDArray[np.uint32],
    step: int,
    head_bytes: int,
    closing: bytes | None = None,
    checksum: Callable[[Any], int] = crc32,
) -> bool:
    """Compare all checksums in one call (see the module docstring); the heads are overwritten.

    Args:
        stretch: Entries back to back.
        starts: Where each one starts.
        crc: What each one states.
        step: Size of all entries if they have the same, else 0.
        head_bytes: How many bytes are before the body of each entry; the last ones are its CRC.
        closing: The constant bytes; None for those of `CLOSING`.
        checksum: Returns the CRC of a buffer.
    """
    gap = f"V{head_bytes}"
    gaps = np.empty(len(starts) - 1, [("crc", "<u4"), ("closing", f"V{head_bytes - 4}")])
    gaps["crc"] = crc[:-1]
    gaps["closing"] = np.void(CLOSING[head_bytes - 4] if closing is None else closing)
    if step:
        heads: NDArray[Any] = np.ndarray((len(gaps),), gap, stretch, step, (step,))
        heads[:] = gaps.view(gap)
    elif len(gaps):
        anywhere: NDArray[Any] = np.ndarray((len(stretch) - head_bytes + 1,), gap, stretch, 0, (1,))
        anywhere[starts[1:]] = gaps.view(gap)
    return bool(checksum(stretch[head_bytes:]) == int(crc[-1]))


def joined(pieces: Sequence[memoryview], padding: int) -> NDArray[np.uint8]:
    """Return a copy of some bytes, which can be written to, and some bytes of 0.

    Its memory is Arrow's, which keeps it for the next stretch. That of Python goes back to the system each time, and
    to have it again takes longer than everything else.
    """
    size = sum(map(len, pieces))
    whole = memoryview(pa.allocate_buffer(size + padding)).cast("B")
    at = 0
    for piece in pieces:
        whole[at : at + len(piece)] = piece
        at += len(piece)
    whole[size:] = bytes(padding)
    return np.frombuffer(whole, np.uint8)


def column_schema(columns: Sequence[str], known: Mapping[str, Any]) -> Any:
    """Return the schema of batches with these columns.

    Raises:
        ValueError: No column is named, one is not known, or one is named twice.
    """
    unknown = [name for name in columns if name not in known]
    if isinstance(columns, str) or not columns or unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns is {columns!r}: some of {', '.join(known)}, each once")
    return pa.schema([(name, known[name]) for name in columns])


def number_array(kind: Any, values: NDArray[Any]) -> Any:
    """Return numbers as an Arrow array without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def binary_array(stretch: NDArray[np.uint8], positions: Ints, start: Ints, length: Ints, step: int) -> Any:
    """Return keys or values as an array of their own.

    Args:
        positions: Where the entries start, and where the last one ends.
        start: Where the field of each entry starts.
        length: How long it is; -1 for null.
        step: Size of all entries if all sizes and all lengths of the field are equal, else 0.
    """
    count = len(start)
    longest = int(length.max())
    if longest == -1:
        return pa.nulls(count, pa.binary())
    if step:
        rows: NDArray[np.uint8] = np.ndarray((count, longest), np.uint8, stretch, int(start[0]), (step, 1))
        ends = np.arange(count + 1, dtype=np.int32) * np.int32(longest)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
        return pa.Array.from_buffers(pa.binary(), count, buffers)
    if longest == int(length.min()) > 0:
        anywhere: NDArray[Any] = np.ndarray((len(stretch) - longest + 1,), f"V{longest}", stretch, 0, (1,))
        ends = np.arange(count + 1, dtype=np.int32) * np.int32(longest)
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(anywhere[start])])
    # The stretch as an array of, by turns, the bytes before a field and the field; then every second one is taken.
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = positions[:-1]
    bounds[1::2] = start
    bounds[2::2] = start + np.maximum(length, 0)
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(stretch)])
    wanted = np.arange(1, 2 * count, 2, dtype=np.int64)
    return whole.take(pa.array(wanted, mask=length < 0) if int(length.min()) < 0 else pa.array(wanted))
