"""Decodes message sets into Arrow record batches: the messages of `decode_messages`, several times as fast.

A set is decoded stretch by stretch, about a megabyte each:

    uncompressed messages  copied into a new buffer, and read as arrays
    several small wrappers decompressed one behind the other (with the messages between them), then the same
    one large wrapper      decompressed, and the same for one part of it after the other
    all others             one message at a time, by the slow path of `decode_messages`

There is one implementation of all checks: a stretch with any fault (one wrong byte is enough) is read again from its
start in the last way. So values, errors, their places and `resume` are those of `decode_messages`.

Memory is bounded by the message set, `max_decoded_bytes` for the wrapper that is being read, and some times
`max_batch_bytes`.

This module needs numpy and pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from simpleconsumer.column_arrays import Ints, column_schema
from simpleconsumer.column_walk import entry_positions
from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka08.column_batches import COLUMNS, KNOWN, Rows, size_of, to_batch
from simpleconsumer.kafka08.column_entries import Part, read_entries, wrappers_among
from simpleconsumer.kafka08.message_set import REACHED, Entry, next_entry, open_levels
from simpleconsumer.kafka08.message_shapes import Level
from simpleconsumer.kafka08.offset_order import PLAIN, why_damaged
from simpleconsumer.kafka08.shallow import LAYOUT
from simpleconsumer.types import Buffer

__all__ = ["COLUMNS", "MAX_BATCH_BYTES", "check_batch_bytes", "decode_columns"]

_LARGEST_BATCH_BYTES = 256 * 1024 * 1024
_WORTH_ARRAYS = 32
_FIRST_WINDOW_AFTER_ERROR = 4096


def decode_columns(
    message_set: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    end_offset: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    max_batch_bytes: int = MAX_BATCH_BYTES,
    high_watermark: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    resume: object = None,
) -> Iterator[Any]:
    """Yield the messages of a set from `start_offset` on as `pyarrow.RecordBatch`es, none of them empty.

    Columns: `key` and `value` (binary, null for None), `offset` (int64), `timestamp_ms` (int64, null for none) and
    `timestamp_type` (int32: -1 none, 0 of creation, 1 of the append). What is wrong with a message is raised after all
    messages before it were yielded. Small sets are decoded faster if they are joined first: `b"".join` of sets
    of one partition, in their order, each without the entry that is cut off at its end.

    Args:
        start_offset: As for `decode_messages`.
        end_offset: The first message from there on is not yielded, and nothing behind it is looked at.
        columns: Which columns, in which order; `headers`, too, which are null.
        max_batch_bytes: Bytes of message set, inflated, that a batch is made of; a larger message has one for itself.
        high_watermark: As for `decode_messages`.
        max_decoded_bytes: As for `decode_messages`.
        resume: `MessageError.resume` of an earlier call with the same arguments, of `decode_messages` too.

    Raises:
        ValueError: Unknown columns, or an impossible size of batches.
        CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge, BrokenFraming: As by
            `decode_messages`.

    Threads: Any number at once, each with its own generator.
    """
    schema = column_schema(columns, KNOWN)
    check_batch_bytes(max_batch_bytes)
    levels = open_levels(message_set, start_offset, high_watermark, max_decoded_bytes, resume)
    reading = _Reading(topic, partition, schema, start_offset, end_offset, max_batch_bytes)
    if resume is not None:
        reading.window_bytes = min(_FIRST_WINDOW_AFTER_ERROR, max_batch_bytes)
    return reading.batches(levels)


def check_batch_bytes(max_batch_bytes: int) -> None:
    """Raise ValueError unless batches may be of that size."""
    if not 1 <= max_batch_bytes <= _LARGEST_BATCH_BYTES:
        raise ValueError(f"max_batch_bytes is {max_batch_bytes}: from 1 to {_LARGEST_BATCH_BYTES} are possible")


class _Reading:
    """The state of one call of `decode_columns`.

    Attributes:
        start_offset: REACHED once the first message was found.
        window_bytes: Size of the next stretch. Small behind an error: if every message is wrong, only little must be
            read in vain for each of them.
    """

    def __init__(
        self, topic: str, partition: int | str, schema: Any, start_offset: int, end_offset: int | None, limit_bytes: int
    ) -> None:
        self.start_offset = start_offset
        self.window_bytes = limit_bytes
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._last_offset = None if end_offset is None else end_offset - 1
        self._limit_bytes = limit_bytes
        self._is_over = end_offset is not None and start_offset >= end_offset

    def batches(self, levels: list[Level]) -> Iterator[Any]:
        """Yield the rest of the levels, the innermost one first."""
        while levels and not self._is_over:
            level = levels[-1]
            window = memoryview(level.buffer)[level.position : level.position + self.window_bytes]
            positions = entry_positions(window, LAYOUT)
            end = int(positions[-1])
            parts = [Part(0, level, window[:end])]
            wrappers = wrappers_among(window, positions)
            if len(wrappers):
                depth = len(levels)
                parts, end = self._opened(levels, window, positions, wrappers)
                if len(levels) > depth:
                    continue
            elif len(positions) <= _WORTH_ARRAYS:
                parts.clear()
            batch = self._together(parts, None if len(wrappers) else positions, level, end)
            if batch is None:
                yield from self._one_by_one(levels, level.position + max(end, 1))
            else:
                level.position += end
                if batch.num_rows:
                    yield batch
            self.window_bytes = min(2 * self.window_bytes, self._limit_bytes)

    # -- together ------------------------------------------------------------------------------------------------------

    def _opened(
        self, levels: list[Level], window: memoryview, positions: Ints, wrappers: Ints
    ) -> tuple[list[Part], int]:
        """Return the messages of a window and of its wrappers, in their order, and where they end in the window.

        They end before a wrapper that cannot be opened, and as soon as they fill a batch. A wrapper that exceeds a
        batch, or that is the only entry, becomes the innermost level instead.
        """
        level = levels[-1]
        parts: list[Part] = []
        if len(levels) > 1:  # no writer nests them; to look at a window for each of them would take long
            return parts, int(positions[-1])
        done = size = 0
        for index in wrappers.tolist():
            start, end = positions[index : index + 2].tolist()
            if start > done:
                parts.append(Part(size, level, window[done:start]))
                size += start - done
            inside = self._open(level, level.position + start)
            if inside is None:
                return parts, start
            data = inside.buffer
            if len(data) > self._limit_bytes or len(positions) == 2:
                if not parts:
                    level.position += end
                    levels.append(inside)
                return parts, start
            parts.append(Part(size, inside, data))
            size += len(data)
            done = end
            if size >= self._limit_bytes:
                return parts, end
        end = int(positions[-1])
        return ([*parts, Part(size, level, window[done:end])] if end > done else parts), end

    def _open(self, level: Level, position: int) -> Level | None:
        """Return the inside of an outermost wrapper; None if anything is wrong with it."""
        at = copy(level)
        at.position = position
        levels = [at]
        try:
            next_entry(levels, self._topic, self._partition)
        except (MessageError, BrokenFraming):
            return None
        return levels[-1]

    def _together(self, parts: Sequence[Part], positions: Ints | None, level: Level, end: int) -> Any:
        """Return the messages of the parts as a batch, perhaps an empty one; None if they must be read one by one.

        Args:
            end: Where they end in the level, behind its position.
        """
        if not parts:
            return None
        joined = bytearray().join([part.data for part in parts])
        stretch = np.frombuffer(joined, np.uint8)
        if positions is None:
            positions = entry_positions(joined, LAYOUT)
            if len(positions) == 1 or positions[-1] != len(joined):
                return None
        entries = read_entries(stretch, positions, parts, level.floor + level.base)
        if entries is None or not self._pass_on(parts[-1], entries.offset, level, level.position + end):
            return None
        first, count = self._wanted(entries.offset)
        batch = to_batch(self._schema, stretch, positions, entries)
        return batch if count == batch.num_rows else batch.slice(first, count)

    def _pass_on(self, last: Part, offsets: Ints, level: Level, end: int) -> bool:
        """Move the floor behind the messages, if the last one fits what is behind it; return whether it does."""
        offset, before = int(offsets[-1]) - level.base, level.floor
        if last.level is level:  # for a wrapper `_open` has checked this
            if len(offsets) > 1:
                level.floor = int(offsets[-2]) + 1 - level.base
            if why_damaged(level, offset, end, PLAIN) is not None:
                level.floor = before
                return False
        level.floor = offset + 1
        return True

    def _wanted(self, offsets: Ints) -> tuple[int, int]:
        """Return which messages are asked for, as index of the first and number; note the end of the range."""
        first, end = 0, len(offsets)
        if self.start_offset != REACHED:
            is_reached = offsets >= self.start_offset
            if not is_reached.any():
                return 0, 0
            self.start_offset = REACHED
            first = int(is_reached.argmax())
        if self._last_offset is not None:
            is_beyond = offsets[first:] >= self._last_offset
            if is_beyond.any():
                self._is_over = True
                end = first + int(is_beyond.argmax())
                end += int(offsets[end]) == self._last_offset
        return first, end - first

    # -- one by one ----------------------------------------------------------------------------------------------------

    def _one_by_one(self, levels: list[Level], until: int) -> Iterator[Any]:
        """Yield the messages of the innermost level up to a position, and of its wrappers up to a large one."""
        depth = len(levels)
        rows = Rows(self._schema)
        trouble: Exception | None = None
        while not self._is_over and (len(levels) > depth or (len(levels) == depth and levels[-1].position < until)):
            level = levels[-1]
            try:
                entry = next_entry(levels, self._topic, self._partition)
                if entry is None and len(levels) > depth and len(levels[-1].buffer) > self.window_bytes:
                    break  # a wrapper larger than a window is read as arrays
                if entry is None or not self._is_wanted(level, entry):
                    continue
            except (MessageError, BrokenFraming) as error:
                if isinstance(error, MessageError) and error.offset < self.start_offset:
                    continue
                trouble = error
                break
            if rows.size_bytes and rows.size_bytes + size_of(entry) > self._limit_bytes:
                yield rows.take()
            rows.add(level, entry)
        if rows.size_bytes:
            yield rows.take()
        if trouble is not None:
            try:
                raise trouble
            finally:
                trouble = None  # its traceback holds this frame: a cycle for each error otherwise

    def _is_wanted(self, level: Level, entry: Entry) -> bool:
        offset = entry.offset + level.base
        if offset < self.start_offset:
            return False
        self.start_offset = REACHED
        if self._last_offset is None:
            return True
        self._is_over = offset >= self._last_offset
        return offset <= self._last_offset
