"""As what records are taken out of fetched chunks: as records with their deserializers, or as batches of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from simpleconsumer import kernel
from simpleconsumer.dialect import Dialect
from simpleconsumer.dialect_types import Appended
from simpleconsumer.types import MAX_INT64, Message
from zkconsumer.errors import DecoderFailed
from zkconsumer.polling.records import NULL_SIZE, ConsumerRecord, TimestampType
from zkconsumer.streams.batches import MessageBatch, StreamBatches

Deserializer = Callable[[bytes], Any]


_CREATED, _APPENDED = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
_UNKNOWN: Final = Appended(MAX_INT64, None, False)
_NOWHERE: Final = (-1, 0)
_TIME_TYPES: Final = (TimestampType.NO_TIMESTAMP_TYPE, _CREATED, _APPENDED)


class OpenItems(Protocol):
    """The records of a chunk that no poll has taken yet.

    Attributes:
        count: How many records the last call of `add_to` has added.
        first: Offset of the first of them, and its number in its entry (Kafka 0.7).
        next_place: The offset after the last of them, and how many messages of the entry there are done then.
    """

    count: int
    first: tuple[int, int]
    next_place: tuple[int, int]

    def add_to(self, items: list[Any], wanted: int) -> bool:
        """Add records, or batches of up to so many records, to a list; return whether the chunk is at its end.

        Raises:
            MessageError, BrokenFraming, DecoderFailed: The next record cannot be read; those before it are added.
        """


class TakenItems(Protocol):
    """Opens chunks."""

    def opened(self, dialect: Dialect, data: bytes, *place: Any, **how: Any) -> OpenItems:
        """Return what a chunk holds; arguments are those of `Dialect.decode_messages`."""


class TakenRecords:
    """Each record by itself.

    Args:
        key, value: Deserializers; None for bytes.

    Attributes:
        is_plain: Whether keys and values are bytes.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value
        self.is_plain = key is None and value is None

    def opened(self, dialect: Dialect, data: bytes, *place: Any, **how: Any) -> OpenRecords:
        """Return the records of a chunk; arguments are those of `Dialect.decode_messages`."""
        return OpenRecords(self, dialect, data, dialect.decode_runs(data, *place, **how))

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
            run_end = first + 1 if number < len(runs) - 1 else len(messages)
            while run_end < len(messages) and messages[run_end].offset <= last_offset:
                run_end += 1
            part = messages if run_end - first == len(messages) else messages[first:run_end]
            self._add(part, records, epoch, _APPENDED if has_append_time else _CREATED)
            first = run_end

    def _add(
        self, messages: Sequence[Message[bytes, bytes]], records: list[object], epoch: int | None, kind: TimestampType
    ) -> None:
        if not self.is_plain:
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


class OpenRecords:
    """The records of a chunk that no poll has taken yet; attributes are those of `OpenItems`.

    Args:
        kind: The kind of items that messages become.
        dialect: Decodes the chunk.
        data: The chunk.
        runs: Its messages from a position on.
    """

    __slots__ = ("_appended", "_data", "_dialect", "_kind", "_run", "_runs", "count", "first", "next_place")

    def __init__(
        self, kind: TakenRecords, dialect: Dialect, data: bytes, runs: Iterator[Iterable[Message[bytes, bytes]]]
    ) -> None:
        self._kind, self._dialect, self._data, self._runs = kind, dialect, data, runs
        self._run: Iterator[Message[bytes, bytes]] | None = None
        self._appended: Sequence[Appended] | None = None
        self.count = 0
        self.first = self.next_place = _NOWHERE

    def add_to(self, items: list[Any], wanted: int) -> bool:
        """Add up to so many records to a list; see `OpenItems`."""
        compiled = kernel.compiled
        self.count = 0
        while self.count < wanted:
            if self._run is None:
                run = next(self._runs, None)
                if run is None:
                    return True
                self._run = iter(run)
            if compiled is not None and self._kind.is_plain and type(self._run) is compiled.RecordRows:
                is_over = self._add_rows(compiled, items, wanted - self.count)
            else:
                is_over = self._add_messages(self._run, items, wanted - self.count)
            if is_over:
                self._run = None
        return False

    def _add_rows(self, compiled: Any, records: list[Any], wanted: int) -> bool:
        """Have the kernel add records; return whether there are no more in the run."""
        before = len(records)
        is_over: bool = compiled.add_records_of_run(self._run, records, wanted, ConsumerRecord, _TIME_TYPES)
        if len(records) > before:
            self._take_note(len(records) - before, (records[before].offset, 0), (records[-1].offset + 1, 0))
        return is_over

    def _add_messages(self, run: Iterator[Message[bytes, bytes]], records: list[Any], wanted: int) -> bool:
        """Add records of messages, many at a time; return whether there are no more in the run."""
        messages: list[Message[bytes, bytes]] = []
        before = len(records)
        try:
            messages.extend(islice(run, wanted))  # items before an error are kept
        finally:
            if self._appended is None:
                self._appended = self._dialect.appended(self._data)
            try:
                self._kind.made_of(messages, records, self._appended)
            finally:
                added = len(records) - before
                if added:
                    first, last = messages[0], messages[added - 1]
                    self._take_note(added, (first.offset, first.index), (last.next_offset, last._done_in_entry))
        return len(messages) < wanted

    def _take_note(self, added: int, first: tuple[int, int], next_place: tuple[int, int]) -> None:
        if not self.count:
            self.first = first
        self.count += added
        self.next_place = next_place


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

    def opened(self, dialect: Dialect, data: bytes, *place: Any, **how: Any) -> OpenBatches:
        """Return the batches of a chunk; arguments are those of `Dialect.decode_messages`."""
        batches = self._by_dialect.get(dialect)
        if batches is None:
            batches = StreamBatches(_never, dialect, self._max_records, None, self._columns)
            self._by_dialect[dialect] = batches
        return OpenBatches(batches._decode(dialect, data, *place, **how))


class OpenBatches:
    """The batches of a chunk that no poll has taken yet; attributes are those of `OpenItems`."""

    __slots__ = ("_batches", "_held", "count", "first", "next_place")

    def __init__(self, batches: Iterator[MessageBatch]) -> None:
        self._batches = batches
        self._held: MessageBatch | None = None
        self.count = 0
        self.first = self.next_place = _NOWHERE

    def add_to(self, items: list[Any], wanted: int) -> bool:
        """Add batches of up to so many records together; see `OpenItems`."""
        self.count = 0
        while self.count < wanted:
            batch = self._held if self._held is not None else next(self._batches, None)
            if batch is None:
                return True
            if self.count + len(batch) > wanted:
                self._held = batch
                return False
            items.append(batch)
            if not self.count:
                self.first = batch.offset, batch.index
            self._held = None
            self.count += len(batch)
            self.next_place = batch.next_offset, batch._done_in_entry
        return False


def _never(batches: StreamBatches) -> MessageBatch:
    raise StopIteration
