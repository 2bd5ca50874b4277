"""Decodes message sets of Kafka 0.7 into Arrow record batches, several times as fast as into messages.

A set is decoded stretch by stretch, about a megabyte each:

    uncompressed messages    copied into a new buffer, and read as arrays
    several small compressed inflated one behind the other (with the messages between them), then the same
    one large compressed     inflated, and the same for one part of it after the other
    all others               one message at a time, by the slow path of `decode_messages`

There is one implementation of all checks: a stretch with any fault (one wrong byte is enough) is read again from its
start in the last way. So values, places, errors and `resume` are those of `decode_messages`.

A batch may end within a large compressed entry; `next_offset` and `entry_index` of its last row say where to continue.

Memory is bounded by the message set, `max_decoded_bytes` for the compressed entry that is being read, and some times
`max_batch_bytes`.

This module needs numpy and pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simpleconsumer.column_arrays import Ints, column_schema
from simpleconsumer.column_walk import entry_positions
from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka07.column_batches import COLUMNS, Part, Rows, size_of, to_batch
from simpleconsumer.kafka07.column_entries import compressed_among, read_entries
from simpleconsumer.kafka07.message_set import LAYOUT, Reading, next_entry, open_entry_at, open_reading
from simpleconsumer.kafka07.message_shapes import shapes_at
from simpleconsumer.types import Buffer

__all__ = ["COLUMNS", "decode_columns"]

_LARGEST_BATCH_BYTES = 256 * 1024 * 1024
_WORTH_ARRAYS = 32
_FIRST_WINDOW_AFTER_ERROR = 4096


def decode_columns(
    message_set: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    start_index: int = 0,
    data_offset: int | None = None,
    end_offset: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    max_batch_bytes: int = MAX_BATCH_BYTES,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    resume: object = None,
) -> Iterator[Any]:
    """Yield the messages of a set as `pyarrow.RecordBatch`es, none of them empty.

    Columns: `key` (binary, always null), `value` (binary), `offset` (int64: where the entry starts), `entry_index`
    (int32: number of the message in its entry), `next_offset` (int64: what to commit behind it), `timestamp_ms` (int64,
    always null) and `timestamp_type` (int32, always -1). What is wrong with a message is raised after all messages
    before it were yielded.

    Args:
        start_offset, start_index, data_offset, max_decoded_bytes, resume: As for `message_set.decode_messages`.
        end_offset: Entries that start there or behind are not read.
        columns: Which columns, in which order.
        max_batch_bytes: Bytes of message set, inflated, that a batch is made of; a larger message has one for itself.

    Raises:
        ValueError: Unknown columns, an impossible size of batches, or a position outside of the data.
        CrcMismatch, UnknownCodec, CorruptMessage, MessageTooLarge, BrokenFraming: As by `message_set.decode_messages`.

    Threads: Any number at once, each with its own generator.
    """
    schema = column_schema(columns, COLUMNS)
    if not 1 <= max_batch_bytes <= _LARGEST_BATCH_BYTES:
        raise ValueError(f"max_batch_bytes is {max_batch_bytes}: from 1 to {_LARGEST_BATCH_BYTES} are possible")
    reading = open_reading(message_set, start_offset, start_index, data_offset, max_decoded_bytes, resume)
    columns_of = _Columns(reading, topic, partition, schema, end_offset, max_batch_bytes)
    if resume is not None:
        columns_of.window_bytes = min(_FIRST_WINDOW_AFTER_ERROR, max_batch_bytes)
    return columns_of.batches()


class _Columns:
    """The state of one call of `decode_columns`.

    Attributes:
        window_bytes: Size of the next stretch. Small behind an error: if every message is wrong, only little must be
            read in vain for each of them.
    """

    def __init__(
        self,
        reading: Reading,
        topic: str,
        partition: int | str,
        schema: Any,
        end_offset: int | None,
        limit_bytes: int,
    ) -> None:
        self.window_bytes = limit_bytes
        self._reading = reading
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._end_offset = end_offset
        self._limit_bytes = limit_bytes

    def batches(self) -> Iterator[Any]:
        """Yield the rest of the levels, the innermost one first."""
        reading = self._reading
        levels = reading.levels
        while levels and not self._is_over():
            depth, level = len(levels), levels[-1]
            window = memoryview(level.buffer)[level.position : level.position + self.window_bytes]
            batch, until = None, level.position + 1
            if depth == 1 and not reading.skips_here():
                batch, until = self._of_log(window)
                if len(levels) > depth:
                    continue
            elif depth == 2:
                batch, until = self._of_entry(window)
            elif depth > 2:  # where an error has left off
                until = level.position + self.window_bytes
            if batch is None:
                yield from self._one_by_one(until)
            elif batch.num_rows:
                yield batch
            self.window_bytes = min(2 * self.window_bytes, self._limit_bytes)

    def _is_over(self) -> bool:
        """Return whether the next entry of the log starts at the end of the range, or behind it."""
        reading, end = self._reading, self._end_offset
        return end is not None and len(reading.levels) == 1 and reading.base + reading.levels[0].position >= end

    # -- together ------------------------------------------------------------------------------------------------------

    def _of_log(self, window: memoryview) -> tuple[Any, int]:
        """Return a batch of the outermost set, or None, and up to where the set must be read one by one instead.

        A compressed entry that exceeds a batch, or that is the only entry, becomes the innermost level instead.
        """
        reading, level = self._reading, self._reading.levels[0]
        here = reading.base + level.position
        positions = entry_positions(window, LAYOUT)
        if self._end_offset is not None:
            positions = positions[: int(np.searchsorted(positions, self._end_offset - here)) + 1]
        compressed = compressed_among(window, positions)
        end = int(positions[-1])
        until = level.position + max(end, 1)
        if len(compressed):
            depth = len(reading.levels)
            parts, end = self._opened(window, positions, compressed)
            until = level.position + max(end, 1)
            if len(reading.levels) > depth or not parts:
                return None, until
            batch = self._together(parts, None)
        elif len(positions) <= _WORTH_ARRAYS:
            return None, until
        else:
            batch = self._together([Part(0, window[:end], here)], positions)
        if batch is not None:
            level.position += end
        return batch, until

    def _opened(self, window: memoryview, positions: Ints, compressed: Ints) -> tuple[list[Part], int]:
        """Return the messages of a window and of its compressed entries, and where they end in the window.

        They end before an entry that cannot be opened, and as soon as they fill a batch.
        """
        reading, level = self._reading, self._reading.levels[0]
        here = reading.base + level.position
        parts: list[Part] = []
        done = size = 0
        for number in compressed.tolist():
            start, end = positions[number : number + 2].tolist()
            if start > done:
                parts.append(Part(size, window[done:start], here + done))
                size += start - done
            inside = open_entry_at(level, level.position + start)
            if inside is None:
                return parts, start
            data = inside.buffer
            if len(data) > self._limit_bytes or len(positions) == 2:
                if not parts:
                    reading.entry.start, reading.entry.end, reading.entry.index = here + start, here + end, 0
                    level.position += end
                    reading.levels.append(inside)
                return parts, start
            if len(data):
                parts.append(Part(size, bytes(data), here + start, 0, here + end))
                size += len(data)
            done = end
            if size >= self._limit_bytes:
                return parts, end
        end = int(positions[-1])
        return ([*parts, Part(size, window[done:end], here + done)] if end > done else parts), end

    def _of_entry(self, window: memoryview) -> tuple[Any, int]:
        """Return a batch of the compressed entry that is open, or None, as `_of_log` does."""
        reading, entry, level = self._reading, self._reading.entry, self._reading.levels[1]
        positions = entry_positions(window, LAYOUT)
        end = int(positions[-1])
        until = level.position + max(end, 1)
        if len(positions) <= _WORTH_ARRAYS:
            return None, until
        before, is_last = level.position, level.position + end == len(level.buffer)
        if not is_last:
            # Only if a message follows for certain, the last one of the window is not the last one of the entry.
            level.position += end
            is_followed = shapes_at(level) is not None
            level.position = before
            if not is_followed:
                return None, until
        part = Part(0, window[:end], entry.start, entry.index, entry.end if is_last else entry.start)
        batch = self._together([part], positions)
        if batch is None:
            return None, until
        skipped = max(reading.skip - entry.index, 0) if entry.start == reading.skip_in else 0
        level.position += end
        entry.index += batch.num_rows
        if is_last:
            reading.levels.pop()
        return batch.slice(min(skipped, batch.num_rows)), until

    def _together(self, parts: Sequence[Part], positions: Ints | None) -> Any:
        """Return the messages of the parts as a batch; None if they must be read one by one."""
        joined = bytearray().join([part.data for part in parts])
        if positions is None:
            positions = entry_positions(joined, LAYOUT)
            if len(positions) == 1 or positions[-1] != len(joined):
                return None
        stretch = np.frombuffer(joined, np.uint8)
        entries = read_entries(stretch, positions, [part.start for part in parts])
        return None if entries is None else to_batch(self._schema, stretch, positions, parts, entries)

    # -- one by one ----------------------------------------------------------------------------------------------------

    def _one_by_one(self, until: int) -> Iterator[Any]:
        """Yield the messages of the innermost level up to a position, and of its compressed entries up to a large one.

        It does not end between a message and what may be nothing at the end of its entry: the message has its end then.
        """
        reading, entry, levels = self._reading, self._reading.entry, self._reading.levels
        depth = len(levels)
        rows = Rows(self._schema)
        trouble: Exception | None = None
        is_followed = True
        while levels and not self._is_over() and (
            len(levels) > depth or (len(levels) == depth and levels[-1].position < until) or not is_followed
        ):  # fmt: skip
            opened = len(levels)
            try:
                found = next_entry(reading, self._topic, self._partition)
            except (MessageError, BrokenFraming) as error:
                trouble = error
                break
            if found is None:
                if len(levels) == 1 < opened:
                    rows.close_entry(entry.start, entry.end)
                    is_followed = True
                if opened == 1 and len(levels) == 2 and len(levels[1].buffer) > self.window_bytes:
                    break  # a compressed entry larger than a window is read as arrays
                continue
            if rows.size_bytes and rows.size_bytes + size_of(found.payload) > self._limit_bytes:
                yield rows.take()
            if len(levels) == 1:
                rows.add(found.payload, entry.start, 0, entry.end)
            else:
                rows.add(found.payload, entry.start, entry.index - 1, entry.start)
                is_followed = shapes_at(levels[-1]) is not None
        if rows.size_bytes:
            yield rows.take()
        if trouble is not None:
            try:
                raise trouble
            finally:
                trouble = None  # its traceback holds this frame: a cycle for each error otherwise
