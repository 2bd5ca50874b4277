"""As what records are taken out of fetched chunks: as records with their deserializers, or as batches of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from simpleconsumer import kernel
from simpleconsumer.dialect import Dialect
from simpleconsumer.dialect_types import Appended
from simpleconsumer.types import MAX_INT64, Message
from zkconsumer.errors import DecoderFailed
from zkconsumer.polling.records import NULL_SIZE, ConsumerRecord, TimestampType
from zkconsumer.streams.batches import MessageBatch, StreamBatches

__all__ = ["TakenBatches", "TakenItem", "TakenItems", "TakenRecords"]

Deserializer = Callable[[bytes], Any]


_CREATED, _APPENDED = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
_UNKNOWN: Final = Appended(MAX_INT64, None, False)


class DecodedMessages:
    """The messages of a chunk.

    Args:
        messages: The messages.
        runs: How they were appended.
    """

    __slots__ = ("messages", "runs")

    def __init__(self, messages: Iterator[Message[bytes, bytes]], runs: Sequence[Appended]) -> None:
        self.messages, self.runs = messages, runs

    def __iter__(self) -> Iterator[Message[bytes, bytes]]:
        return self.messages

    def __next__(self) -> Message[bytes, bytes]:
        return next(self.messages)


class TakenItem(Protocol):
    """What is decoded at once: a message, or a batch of messages."""

    @property
    def offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def index(self) -> int: ...

    @property
    def _done_in_entry(self) -> int: ...


class TakenItems(Protocol):
    """Decodes chunks."""

    def decoded(self, dialect: Dialect, *place: Any, **how: Any) -> Iterator[Any]:
        """Yield what a chunk holds; arguments and errors are those of `Dialect.decode_messages`."""

    def count(self, item: Any) -> int:
        """Return how many records an item is."""

    def made(self, item: Any) -> object:
        """Return what the application gets.

        Raises:
            DecoderFailed: A deserializer has failed.
        """


class TakenRecords:
    """Each record by itself.

    Args:
        key, value: Deserializers; None for bytes.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def decoded(self, dialect: Dialect, *place: Any, **how: Any) -> DecodedMessages:
        """Return messages, with how they were appended."""
        return DecodedMessages(dialect.decode_messages(*place, **how), dialect.appended(place[0]))

    def count(self, item: Any) -> int:
        """Return 1."""
        return 1

    def made_of(
        self, messages: Sequence[Message[bytes, bytes]], records: list[object], runs: Sequence[Appended] = ()
    ) -> None:
        """Add the records of messages to a list.

        Args:
            messages: In the order of the log.
            records: The list.
            runs: How they were appended, in the same order.

        Raises:
            DecoderFailed: A deserializer has failed; the records before are added.
        """
        first = 0
        for number, (last_offset, epoch, has_append_time) in enumerate(runs or [_UNKNOWN]):
            if first == len(messages):
                return
            if number < len(runs) - 1 and messages[first].offset > last_offset:
                continue
            behind = first + 1 if number < len(runs) - 1 else len(messages)
            while behind < len(messages) and messages[behind].offset <= last_offset:
                behind += 1
            part = messages if behind - first == len(messages) else messages[first:behind]
            self._add(part, records, epoch, _APPENDED if has_append_time else _CREATED)
            first = behind

    def _add(
        self, messages: Sequence[Message[bytes, bytes]], records: list[object], epoch: int | None, kind: TimestampType
    ) -> None:
        if self._key is not None or self._value is not None:
            for message in messages:
                records.append(self._record(message, epoch, kind))
            return
        none = TimestampType.NO_TIMESTAMP_TYPE
        if kernel.compiled is not None:
            kernel.compiled.add_records(ConsumerRecord, messages, records, epoch, kind, none)
            return
        new = tuple.__new__
        # A call for each record would take as long as the rest.
        records += [
            new(ConsumerRecord, (
                each.topic, each.partition, each.offset, each.timestamp_ms,
                none if each.timestamp_ms is None else kind, each.key, each.value, each.headers, epoch,
                NULL_SIZE if each.key is None else len(each.key), NULL_SIZE if each.value is None else len(each.value),
            )) for each in messages
        ]  # fmt: skip

    def made(self, item: Message[bytes, bytes]) -> ConsumerRecord[Any, Any]:
        """Return the record of a message of which nothing else is known."""
        return self._record(item, None, _CREATED)

    def _record(self, item: Message[bytes, bytes], epoch: int | None, kind: TimestampType) -> ConsumerRecord[Any, Any]:
        key, value = item.key, item.value
        try:
            found_key = key if key is None or self._key is None else self._key(key)
            found_value = value if value is None or self._value is None else self._value(value)
        except Exception as error:  # whatever the application's code raises is about this record
            raise DecoderFailed(item.topic, item.partition, item.offset, key, value) from error
        stamp = item.timestamp_ms
        return tuple.__new__(ConsumerRecord, (
            item.topic, item.partition, item.offset, stamp,
            TimestampType.NO_TIMESTAMP_TYPE if stamp is None else kind,
            found_key, found_value, item.headers, epoch,
            NULL_SIZE if key is None else len(key), NULL_SIZE if value is None else len(value),
        ))  # fmt: skip


class TakenBatches:
    """Batches of Arrow, of up to so many records.

    Args:
        max_records: Most records of a batch.
        columns: Which columns it has; None for all that the brokers' version knows.
    """

    def __init__(self, max_records: int, columns: Sequence[str] | None) -> None:
        self._max_records = max_records
        self._columns = columns
        self._by_dialect: dict[Dialect, StreamBatches] = {}

    def decoded(self, dialect: Dialect, *place: Any, **how: Any) -> Iterator[MessageBatch]:
        """Yield batches."""
        batches = self._by_dialect.get(dialect)
        if batches is None:
            batches = StreamBatches(_never, dialect, self._max_records, None, self._columns)
            self._by_dialect[dialect] = batches
        return batches._decode(dialect, *place, **how)

    def count(self, item: MessageBatch) -> int:
        """Return the number of rows."""
        return len(item)

    def made(self, item: MessageBatch) -> MessageBatch:
        """Return the batch itself."""
        return item


def _never(batches: StreamBatches) -> MessageBatch:
    raise StopIteration
