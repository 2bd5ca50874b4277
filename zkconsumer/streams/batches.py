"""Batches of messages as Arrow record batches, and the iterator of the batches of a stream.

This module turns a chunk into batches. The stream decides when a batch may be handed over and when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simpleconsumer.dialect import Dialect
from simpleconsumer.types import Buffer


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Consecutive messages of one partition.

    Attributes:
        topic: Of all its messages.
        partition: Of all its messages.
        offset: Offset of the first message.
        next_offset: Offset after the last message, to commit when the batch is done. In Kafka 0.7 the
            start of an entry: where a compressed entry does not fit into one batch, that of this entry.
        record_batch: A `pyarrow.RecordBatch` with the columns that were asked for. It shares no memory with others.
        index: Number of the first message in its compressed entry of Kafka 0.7; else 0.
    """

    topic: str
    partition: int | str
    offset: int
    next_offset: int
    record_batch: Any = field(repr=False)
    index: int = field(default=0, repr=False)
    _done_in_entry: int = field(default=0, repr=False)
    _last_offset: int = field(default=-1, repr=False)

    @property
    def last_offset(self) -> int:
        """Offset of the last message."""
        return self._last_offset if self._last_offset >= 0 else self.next_offset - 1

    def __len__(self) -> int:
        """How many messages there are, at least 1; fewer than the offsets span where a log was compacted."""
        return int(self.record_batch.num_rows)


class StreamBatches:
    """Iterator of the batches of one stream, as `KafkaStream.batches` returns it."""

    def __init__(
        self,
        next_batch: Callable[[StreamBatches], MessageBatch],
        dialect: Dialect,
        max_messages: int | None,
        max_bytes: int | None,
        columns: Sequence[str] | None,
    ) -> None:
        try:
            from simpleconsumer import columns as decoding
        except ImportError as error:
            error.add_note("batches need numpy and pyarrow: pip install 'zkconsumer[columns]'")
            raise
        for name, limit in (("max_messages", max_messages), ("max_bytes", max_bytes)):
            if limit is not None and not isinstance(limit, int):
                raise TypeError(f"{name} is {limit!r}; it must be a whole number, or None")
        if max_messages is not None and max_messages < 1:
            raise ValueError(f"max_messages is {max_messages}; it must be at least 1, or None for no limit")
        self._next_batch = next_batch
        self._max_messages = max_messages
        self._max_bytes = decoding.MAX_BATCH_BYTES if max_bytes is None else max_bytes
        self._wanted = tuple(dialect.columns) if columns is None else columns
        # Wrong arguments are reported here, not by the first batch.
        dialect.decode_columns(b"", "", 0, 0, columns=self._wanted, max_batch_bytes=self._max_bytes)

    def __iter__(self) -> StreamBatches:
        return self

    def __next__(self) -> MessageBatch:
        return self._next_batch(self)

    def _decode(
        self, dialect: Dialect, data: Buffer, topic: str, partition: int | str, start_offset: int, **how: Any
    ) -> Iterator[MessageBatch]:
        """Yield the messages of a set in batches; arguments and errors are those of `decode_messages`."""
        added = [name for name in dialect.place_columns if name not in self._wanted]
        for batch in dialect.decode_columns(
            data, topic, partition, start_offset, columns=[*self._wanted, *added], max_batch_bytes=self._max_bytes,
            **how,
        ):  # fmt: skip
            wanted = batch.select(self._wanted) if added else batch
            for first, end in dialect.cuts(batch, self._max_messages):
                offset, index = dialect.place_of(batch, first)
                last_offset, _ = dialect.place_of(batch, end - 1)
                following, done = dialect.place_behind(batch, end - 1)
                part = wanted.slice(first, end - first)
                yield MessageBatch(topic, partition, offset, following, part, index, done, last_offset)
