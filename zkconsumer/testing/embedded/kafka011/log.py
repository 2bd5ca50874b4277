"""The log of one partition with record batches; entries of older formats, from before an upgrade, may stand among
them.

Batches are kept as they were produced. What brokers keep in files beside the log (producers, aborted transactions) is
read from the batches themselves when the log is opened; epochs of leaders are in their file.

Source: kafka.log.Log, kafka.server.ReplicaManager (2.8).

Reads and writes records of logs in which brokers keep what they coordinate, in the format of each log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.kafka011.batch_head import CODEC_MASK, HEAD_BYTES, IS_CONTROL, MAGIC, MAGIC_AT, OVERHEAD, read_head
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import AbortedTransaction, ActiveProducer, Message, OffsetAndTimestamp
from zkconsumer.testing.embedded.disk.log import LogSettings, Numbered, PartitionLog
from zkconsumer.testing.embedded.disk.messages import Bytes, Refusal, check, entries
from zkconsumer.testing.embedded.disk.segment import LogSlice, Segment, last_offset
from zkconsumer.testing.embedded.kafka011 import batches
from zkconsumer.testing.embedded.kafka011.batches import FILE, KEPT_BATCHES, LeaderEpochs, Producers
from zkconsumer.testing.embedded.kafka011.conversion import NO_TIMESTAMP, OldMessage, encode_set, numbered_set
from zkconsumer_error import ErrorCode

FENCED_EPOCH: Final = 74
UNKNOWN_EPOCH: Final = 75
START_FILE: Final = "log-start-offset"
_ANY_EPOCH: Final = -1
_HEAD_AND_MARKER_BYTES: Final = HEAD_BYTES + 32
_MARKER_TYPES: Final = {False: b"\0\0\0\0", True: b"\0\0\0\1"}
_MARKER_VALUE: Final = b"\0\0" + bytes(4)


class Read(NamedTuple):
    """What a fetch reads of a partition.

    Attributes:
        data: whole entries, of which the last one may be cut off.
        high_watermark: the end of the log.
        last_stable_offset: the first message of an open transaction, or the end.
        start_offset: the first message that is there.
        aborted: the aborted transactions among the data; None unless they were asked for.
    """

    data: LogSlice
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    aborted: list[AbortedTransaction] | None = None


class AppendedBatch(NamedTuple):
    """What an answer to Produce says of messages that are in the log.

    Attributes:
        base_offset: of the first one.
        append_time_ms: the time that the broker gave them; of a batch that is sent again its newest time, whoever set
            it; else -1.
    """

    base_offset: int
    append_time_ms: int


class BatchLog(PartitionLog):
    """One partition on disk.

    Threads: every method from any thread.
    """

    def __init__(
        self, folder: Path, topic: str, partition: int, settings: LogSettings | None = None, **more: Any
    ) -> None:
        self._deleted_below = 0
        super().__init__(folder, topic, partition, settings, **more)
        self._deleted_below = int(self._start_text())
        self._epochs = LeaderEpochs(self._epochs_text())
        self._epoch = self._epochs.latest
        self._producers = Producers()
        self._read_producers()

    def _epochs_text(self) -> str:
        try:
            return (self.folder / FILE).read_text()
        except OSError:
            return ""

    def _read_producers(self) -> None:
        self._producers = Producers()
        for _, _, _, head in self._heads():
            self._note(head)

    def _note(self, entry: Bytes) -> None:
        """Take note of the producer of an entry, of which at least the head is there."""
        if entry[MAGIC_AT] == MAGIC:
            head = read_head(entry, 0)
            self._producers.note(head, is_abort=bool(head.attributes & IS_CONTROL) and batches.is_abort(entry))

    def _heads(self) -> Iterator[tuple[Segment, int, int, bytes]]:
        """Yield segment, position, size and first bytes of each entry."""
        for segment in self._segments:
            for position, _, size in segment.walk():
                yield segment, position, size, segment.entry(position, min(size, _HEAD_AND_MARKER_BYTES))

    # ---- its start

    @property
    def start_offset(self) -> int:
        """Smallest offset that can be read: where the first segment starts, or below which all was deleted."""
        with self._lock:
            return min(max(super().start_offset, self._deleted_below), self._end_offset)

    def delete_records(self, offset: int) -> int:
        """Return the start of the log after everything before an offset was deleted; whole segments also on the disk.

        Raises:
            Refusal: 1 the offset is negative, or after the end; 6 the log was closed.
        """
        with self._lock:
            self._require_open()
            if not 0 <= offset <= self._end_offset:
                raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self!r}: offset {offset}")
            if offset > self.start_offset:
                self._deleted_below = offset
                (self.folder / START_FILE).write_text(str(offset))
                self.delete_head(offset)
            return self.start_offset

    def _start_text(self) -> str:
        try:
            return (self.folder / START_FILE).read_text()
        except OSError:
            return "0"

    def active_producers(self) -> list[ActiveProducer]:
        """Return the producers with an id that have written to the log."""
        with self._lock:
            self._require_open()
            return self._producers.active()

    # ---- epochs

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader; -1 before the first one."""
        return self._epoch

    def begin_epoch(self, epoch: int) -> None:
        """Lead in an epoch from now on; does nothing in the same one."""
        with self._lock:
            self._epoch = max(epoch, self._epoch)
            if self._epochs.begin(epoch, self._end_offset):
                (self.folder / FILE).write_text(self._epochs.text())

    def require_epoch(self, known: int) -> None:
        """Return if a client knows the epoch of the leader, or says nothing about it (-1).

        Raises:
            Refusal: 74 it knows an older one, 75 it knows one that is not here yet.
        """
        if known not in (_ANY_EPOCH, self._epoch):
            code = FENCED_EPOCH if known < self._epoch else UNKNOWN_EPOCH
            raise Refusal(code, f"{self!r} is led in epoch {self._epoch}, not {known}")

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch up to that one, and the offset at which it ended; -1 and -1 if that is not known."""
        with self._lock:
            self._require_open()
            return self._epochs.end_of(epoch, self._end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which an offset was written; -1 if it is not known."""
        with self._lock:
            return self._epochs.epoch_at(offset)

    # ---- writing

    def append_time(self) -> int | None:
        """Return the time that messages get which are appended now, in ms; None: that of their producer."""
        return self._clock() if self.settings.message_timestamp_type == "LogAppendTime" else None

    def append_batch(self, data: Bytes) -> int:
        """Return the offset of the first message of a batch; as `append_produced`."""
        return self.append_produced(data).base_offset

    def append_produced(
        self, data: Bytes, *, takes_zstd: bool = True, append_time_ms: int | None = None,
        remembered: int = KEPT_BATCHES, unknown_code: int = 0,
    ) -> AppendedBatch:  # fmt: skip
        """Return where a produced batch is, once it is in the file.

        A batch that its producer sends again is not stored twice.

        Args:
            takes_zstd: whether the request may have brought zstd.
            append_time_ms: the time of all its messages; None: that which each has.
            remembered, unknown_code: as for `Producers.stored`.

        Raises:
            Refusal: 76 zstd in an old request; and what `batches.check_batch`, `Producers.stored` and
                `PartitionLog.append` have.
        """
        head = batches.check_batch(data, self.settings.max_message_bytes)
        if head.attributes & CODEC_MASK == batches.ZSTD and not takes_zstd:
            raise Refusal(batches.UNSUPPORTED_CODEC, f"{self!r}: zstd in a request of before version 7")
        with self._lock:
            self._require_open()
            stored = self._producers.stored(head, remembered, unknown_code)
            if stored is not None:
                return AppendedBatch(stored.base_offset, stored.newest_time_ms)
            if append_time_ms is None:
                return AppendedBatch(self._append_entry(data, head.last_delta), NO_TIMESTAMP)
            timed = batches.with_append_time(data, append_time_ms)
            return AppendedBatch(self._append_entry(timed, head.last_delta), append_time_ms)

    def append_set(self, message_set: Bytes, magic: int = MAGIC, append_time_ms: int | None = None) -> int:
        """Return the offset of the first message of a produced set of magic 0 and 1, stored in the format of the log.

        Args:
            magic: of the log.
            append_time_ms: as for `append_produced`; magic 0 has no times.

        Raises:
            Refusal: as for `PartitionLog.append`.
        """
        checked = check(message_set, self.settings.max_message_bytes)
        if not checked.positions:
            return -1

        def number(first: int) -> Numbered:
            data, next_offset, positions = numbered_set(checked, first, magic, self._epoch, append_time_ms)
            is_plain = len(positions) == next_offset - first
            return Numbered(data, next_offset, positions, range(first, next_offset) if is_plain else [first])

        return self._append(number)

    def _append_entry(self, data: Bytes, last_delta: int) -> int:
        stored = bytearray()

        def number(first: int) -> Numbered:
            stored[:] = batches.numbered(data, first, self._epoch)
            return Numbered(stored, first + last_delta + 1, [0], [first])

        with self._lock:
            offset = self._append(number)
            self._note(stored)
        return offset

    def append_marker(self, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> int:
        """Return the offset of a control batch that ends a transaction, as a transaction coordinator writes it."""
        producer = BatchProducer(producer_id, producer_epoch, -1, is_transactional=True)
        record = (_MARKER_TYPES[commit], _MARKER_VALUE)
        stamp = self._clock()
        batch = encode_record_batch([record], timestamp_ms=stamp, producer=producer, is_control=True)
        return self._append_entry(batch, 0)

    def append_as_is(self, data: Bytes) -> None:
        """Append entries of any format with the offsets and epochs that stand in them, unchecked, in one segment.

        Raises:
            ValueError: they do not begin behind the end of the log, or are not whole.
        """
        found = list(entries(data))
        ends = [last_offset(data, position) for position, _ in found]
        if not found or found[-1][0] + OVERHEAD + found[-1][1] != len(data):
            raise ValueError(f"{len(data)} bytes are no whole entries")

        def number(first: int) -> Numbered:
            starts = [read_offset(data, position) for position, _ in found]
            if starts[0] < first:
                raise ValueError(f"offset {starts[0]} of {self!r}")
            return Numbered(data, ends[-1] + 1, [position for position, _ in found], starts)

        with self._lock:
            self._append(number)
            for position, size in found:
                self._note(data[position : position + OVERHEAD + size])

    def truncate(self, offset: int) -> None:
        """Drop this offset and all later ones, as an unclean leader election does."""
        with self._lock:
            super().truncate(offset)
            self._epochs.cut(self._end_offset)
            self._read_producers()

    # ---- reading

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return whether a producer has a transaction open here."""
        with self._lock:
            return self._producers.has_open(producer_id)

    @property
    def last_stable_offset(self) -> int:
        """The first message of the oldest open transaction, or the end."""
        with self._lock:
            first = self._producers.first_open_offset
            return self._end_offset if first is None else first

    def read_batches(
        self, offset: int, max_bytes: int, *, whole_first: bool, is_committed: bool, may_cut_first: bool = False
    ) -> Read:
        """Return the entries from the one that holds an offset on, within one segment.

        Args:
            max_bytes: the last entry may be cut off there; nothing comes if the first one is larger.
            whole_first: whether the first entry comes whole, however large.
            may_cut_first: whether it is cut off, too, if it is larger.
            is_committed: nothing from the first open transaction on, and what was aborted before.

        Raises:
            Refusal: 1 the offset is beyond the end or before the start, 6 the log was closed.
        """
        with self._lock:
            self._require_open()
            if not self.start_offset <= offset <= self._end_offset:
                raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self!r}: offset {offset}")
            stable = self.last_stable_offset
            limit = stable if is_committed else self._end_offset
            data = self._slice(offset, limit, max(max_bytes, 0), whole_first, may_cut_first)
            aborted = self._aborted(offset, data) if is_committed else None
            return Read(data, self._end_offset, stable, self.start_offset, aborted)

    def _slice(self, offset: int, limit: int, max_bytes: int, whole_first: bool, may_cut_first: bool) -> LogSlice:
        if offset >= limit:
            return LogSlice()
        for segment in self._segments[self._index_of(offset) :]:
            position = segment.find(offset)
            if position is None:
                continue
            first = 0 if may_cut_first else next((size + OVERHEAD for _, _, size in segment.walk(position)), 0)
            if first > max_bytes and not whole_first:
                return LogSlice()
            end = segment.find(limit) if limit < self._end_offset else None
            wanted = max(max_bytes, first)
            return segment.slice(position, wanted if end is None else min(wanted, end - position))
        return LogSlice()

    def _aborted(self, offset: int, data: LogSlice) -> list[AbortedTransaction]:
        end = offset
        whole = data.read()
        for position, _ in entries(whole):
            end = last_offset(whole, position) + 1
        return [AbortedTransaction(*each[:2]) for each in self._producers.aborted_between(offset, end)]

    def at_time(self, time_ms: int) -> OffsetAndTimestamp | None:
        """Return the first message with a timestamp at or after a time; None without one."""
        with self._lock:
            self._require_open()
            for segment, position, size, head in self._heads():
                if _may_hold(head, time_ms):
                    found = _first_at(segment.entry(position, size), time_ms, self.start_offset)
                    if found is not None:
                        return found
        return None


def read_offset(data: Bytes, at: int) -> int:
    """Return the offset field of an entry."""
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _may_hold(entry: bytes, time_ms: int) -> bool:
    """Return whether an entry may hold a message that is as young; of older formats the head does not tell."""
    if entry[MAGIC_AT] != MAGIC:
        return True
    return read_head(entry, 0).max_timestamp_ms >= time_ms


def _first_at(entry: bytes, time_ms: int, start_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record of an entry at or after a time and an offset; as in Kafka also the mark of a
    transaction's end."""
    if entry[MAGIC_AT] == MAGIC and (head := read_head(entry, 0)).attributes & IS_CONTROL:
        if head.base_offset < start_offset:
            return None
        return OffsetAndTimestamp(head.base_offset, head.max_timestamp_ms)
    try:
        for message in KAFKA011.decode_messages(entry, "", 0, 0):
            if message.timestamp_ms is not None and message.timestamp_ms >= time_ms and message.offset >= start_offset:
                return OffsetAndTimestamp(message.offset, message.timestamp_ms)
    except SimpleConsumerError:
        pass  # damaged on purpose: it has no time
    return None


_READ_BYTES: Final = 1024 * 1024


def records_from(log: BatchLog, topic: str, offset: int) -> Iterator[Message]:
    """Yield the messages of a log from an offset on, up to its end.

    Raises:
        Refusal: 6 the log was closed.
    """
    while offset < log.end_offset:
        before = offset
        read = log.read_batches(before, _READ_BYTES, whole_first=True, is_committed=False)
        with read.data as part:
            data = part.read()
        for message in KAFKA011.decode_messages(data, topic, 0, before):
            offset = message.next_offset
            yield message
        if offset == before:
            return


def append_records(
    log: BatchLog, records: Sequence[tuple[bytes, bytes | None]], now_ms: int, magic: int = MAGIC
) -> None:
    """Append keys and values, which come into the log together.

    Args:
        magic: the format of entries.

    Raises:
        Refusal: 6 the log was closed, 10 they are too large.
    """
    if magic == MAGIC:
        log.append_batch(encode_record_batch(records, timestamp_ms=now_ms))
        return
    messages = [OldMessage(number, key, value, now_ms, magic) for number, (key, value) in enumerate(records)]
    log.append_set(encode_set(messages, magic, 0, 0), magic)
