"""As what records are taken out of fetched chunks: as records with their deserializers, or as batches of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from simpleconsumer.dialect import Dialect
from simpleconsumer.types import Message
from zkconsumer.errors import DecoderFailed
from zkconsumer.polling.records import NULL_SIZE, ConsumerRecord, TimestampType
from zkconsumer.streams.batches import MessageBatch, StreamBatches

__all__ = ["TakenBatches", "TakenItem", "TakenItems", "TakenRecords"]

Deserializer = Callable[[bytes], Any]


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

    def decoded(self, dialect: Dialect, *place: Any, **how: Any) -> Iterator[Message[bytes, bytes]]:
        """Yield messages."""
        return dialect.decode_messages(*place, **how)

    def count(self, item: Any) -> int:
        """Return 1."""
        return 1

    def made_of(self, messages: Sequence[Message[bytes, bytes]], records: list[object]) -> None:
        """Add the records of messages to a list.

        Raises:
            DecoderFailed: A deserializer has failed; the records before are added.
        """
        if self._key is not None or self._value is not None:
            for message in messages:
                records.append(self.made(message))
            return
        new, created, none = tuple.__new__, TimestampType.CREATE_TIME, TimestampType.NO_TIMESTAMP_TYPE
        # A call for each record would take as long as the rest.
        records += [
            new(ConsumerRecord, (
                each.topic, each.partition, each.offset, each.timestamp_ms,
                none if each.timestamp_ms is None else created, each.key, each.value, each.headers, None,
                NULL_SIZE if each.key is None else len(each.key), NULL_SIZE if each.value is None else len(each.value),
            )) for each in messages
        ]  # fmt: skip

    def made(self, item: Message[bytes, bytes]) -> ConsumerRecord[Any, Any]:
        """Return the record of a message."""
        key, value = item.key, item.value
        try:
            found_key = key if key is None or self._key is None else self._key(key)
            found_value = value if value is None or self._value is None else self._value(value)
        except Exception as error:  # whatever the application's code raises is about this record
            raise DecoderFailed(item.topic, item.partition, item.offset, key, value) from error
        stamp = item.timestamp_ms
        return tuple.__new__(ConsumerRecord, (
            item.topic, item.partition, item.offset, stamp,
            TimestampType.NO_TIMESTAMP_TYPE if stamp is None else TimestampType.CREATE_TIME,
            found_key, found_value, item.headers, None,
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
