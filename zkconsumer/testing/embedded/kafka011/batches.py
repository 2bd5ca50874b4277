"""Handles produced record batches as a broker does: checks them, and gives them their offsets. Pure.

The records of a batch stay as they are, compressed or not: base offset and leader epoch stand outside of its checksum.

Source: kafka.log.LogValidator, org.apache.kafka.common.requests.ProduceRequest (2.8).

The epochs of a partition's leaders, and where each began.

File (`leader-epoch-checkpoint`): version 0, number of lines, then `epoch start-offset`.

Source: kafka.server.epoch.LeaderEpochFileCache (2.8).

Idempotent and transactional producers of a partition: which batch comes next, open and aborted transactions.

Source: kafka.log.ProducerStateManager, ProducerAppendInfo, kafka.log.TransactionIndex (2.8).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from struct import Struct, error
from typing import Final, NamedTuple

from simpleconsumer import codecs
from simpleconsumer.codecs import crc32c
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.batch_head import (
    CODEC_MASK,
    CRC_BODY_AT,
    HEAD_BYTES,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    SMALLEST_SIZE,
    BatchHead,
    has_batch_checksum,
    read_head,
)
from simpleconsumer.kafka011.records import read_varint, read_varlong
from simpleconsumer.types import ActiveProducer
from zkconsumer.testing.embedded.disk.messages import Bytes, Refusal
from zkconsumer_error import ErrorCode

UNSUPPORTED_CODEC: Final = 76
_MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_EPOCH_AT: Final = 12
_ATTRIBUTES = Struct(">H")
_NEWEST_TIME_AT: Final = 35
_CRC = Struct(">I")
_MARKER = Struct(">hh")
_ABORT: Final = 0
ZSTD: Final = 4


def check_batch(data: Bytes, max_message_bytes: int) -> BatchHead:
    """Return the head of the only batch of a produced set, whose checksum is right and whose records are whole.

    Raises:
        Refusal: 2 it is cut off, or its checksum is wrong; 10 it is too large; 87 it is no single batch, or holds
            something that no producer sends.
    """
    if len(data) < HEAD_BYTES:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE if data else ErrorCode.INVALID_RECORD, f"a batch of {len(data)} bytes")
    if data[MAGIC_AT] != MAGIC:
        raise Refusal(
            ErrorCode.INVALID_RECORD, f"magic {data[MAGIC_AT]}: from version 3 on Produce takes record batches alone"
        )
    head = read_head(data, 0)
    end = head.size + OVERHEAD
    if head.size < SMALLEST_SIZE or end > len(data):
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch says {end} bytes, and {len(data)} came")
    if end < len(data):
        raise Refusal(ErrorCode.INVALID_RECORD, "more than one batch in a set")
    if end > max_message_bytes:
        raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {end} bytes, at most {max_message_bytes} are stored")
    if not has_batch_checksum(data, 0, end):
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    if head.attributes & IS_CONTROL or head.records < 1 or head.records != head.last_delta + 1:
        raise Refusal(
            ErrorCode.INVALID_RECORD, f"{head.records} records up to {head.last_delta}, attributes {head.attributes}"
        )
    _check_records(head, memoryview(data)[HEAD_BYTES:end])
    return head


def _check_records(head: BatchHead, area: Bytes) -> None:
    """Return if the records of a batch are as many as it says, one offset each.

    Raises:
        Refusal: 87.
    """
    codec = head.attributes & CODEC_MASK
    if codec > ZSTD:
        raise Refusal(ErrorCode.INVALID_RECORD, f"codec {codec} is unknown")
    try:
        records = codecs.decompress(codec, area, _MAX_INFLATED_BYTES) if codec else bytes(area)
        position = 0
        for number in range(head.records):
            size, start = read_varint(records, position)
            _, behind = read_varlong(records, start + 1)
            delta, _ = read_varint(records, behind)
            position = start + size
            if size < 0 or position > len(records) or delta != number:
                raise Refusal(ErrorCode.INVALID_RECORD, f"record {number} of {head.records} has offset delta {delta}")
    except (DecodeError, IndexError) as reason:
        raise Refusal(ErrorCode.INVALID_RECORD, f"the records of the batch cannot be read: {reason}") from reason
    if position != len(records):
        raise Refusal(ErrorCode.INVALID_RECORD, f"{len(records) - position} bytes behind the last record")


def numbered(data: Bytes, base_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch with the offset of its first record, and the epoch of the leader that stores it."""
    stored = bytearray(data)
    _OFFSET.pack_into(stored, 0, base_offset)
    _EPOCH.pack_into(stored, _EPOCH_AT, leader_epoch)
    return stored


def with_append_time(data: Bytes, time_ms: int) -> bytearray:
    """Return a batch as a broker stores it whose time holds for all messages: the times of the records stay in it."""
    head = read_head(data, 0)
    stored = bytearray(data)
    _ATTRIBUTES.pack_into(stored, CRC_BODY_AT, head.attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(stored, _NEWEST_TIME_AT, time_ms)
    _CRC.pack_into(stored, CRC_BODY_AT - _CRC.size, crc32c(memoryview(stored)[CRC_BODY_AT : OVERHEAD + head.size]))
    return stored


def is_abort(batch: Bytes) -> bool:
    """Return whether a control batch is the marker of an aborted transaction."""
    try:
        _, position = read_varint(batch, HEAD_BYTES)
        _, position = read_varlong(batch, position + 1)
        _, position = read_varint(batch, position)
        _, position = read_varint(batch, position)
        return bool(_MARKER.unpack_from(batch, position)[1] == _ABORT)
    except (DecodeError, IndexError, error):
        return False


FILE: Final = "leader-epoch-checkpoint"
UNKNOWN_EPOCH: Final = -1


class _Start(NamedTuple):
    epoch: int
    offset: int


class LeaderEpochs:
    """Where the epochs of a log began.

    Threads: guarded by its log's lock.
    """

    def __init__(self, text: str = "") -> None:
        """Take what a file holds; anything else than such a file is no epoch."""
        self._starts: list[_Start] = []
        for line in text.splitlines()[2:]:
            fields = line.split()
            if len(fields) == 2 and all(field.isdigit() for field in fields):
                self.begin(int(fields[0]), int(fields[1]))

    @property
    def latest(self) -> int:
        """The newest epoch; -1 without one."""
        return self._starts[-1].epoch if self._starts else UNKNOWN_EPOCH

    def text(self) -> str:
        """Return the content of the file."""
        lines = ["0", str(len(self._starts)), *(f"{start.epoch} {start.offset}" for start in self._starts)]
        return "\n".join(lines) + "\n"

    def begin(self, epoch: int, offset: int) -> bool:
        """Return whether an epoch is new; it begins at an offset, and epochs without a message are forgotten."""
        if epoch <= self.latest:
            return False
        self._starts = [*takewhile(lambda start: start.offset < offset, self._starts), _Start(epoch, offset)]
        return True

    def cut(self, end_offset: int) -> None:
        """Forget the epochs from an offset on, behind which everything was lost."""
        self._starts = list(takewhile(lambda start: start.offset < end_offset, self._starts))

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the newest epoch up to the one asked for, and where it ended; -1 and -1 if that is not known.

        Args:
            end_offset: of the log, where its newest epoch ends.
        """
        if epoch == UNKNOWN_EPOCH or not self._starts or epoch > self.latest:
            return UNKNOWN_EPOCH, -1
        if epoch == self.latest:
            return epoch, end_offset
        later = next(start for start in self._starts if start.epoch > epoch)
        earlier = [start.epoch for start in self._starts if start.epoch <= epoch]
        return (earlier[-1] if earlier else epoch), later.offset

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which an offset was written; -1 if it is not known."""
        found = [start.epoch for start in self._starts if start.offset <= offset]
        return found[-1] if found else UNKNOWN_EPOCH


INVALID_EPOCH: Final = 47
KEPT_BATCHES: Final = 5
_SEQUENCES: Final = 1 << 31


class StoredBatch(NamedTuple):
    """What a log remembers of a producer's batch.

    Attributes:
        first_sequence, last_sequence: its numbers.
        base_offset: of its first message.
        newest_time_ms: of its messages, as it is stored.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    newest_time_ms: int


@dataclass
class _Producer:
    epoch: int
    last_timestamp_ms: int = -1
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    open_since: int | None = None


class AbortedSpan(NamedTuple):
    """A transaction that was aborted.

    Attributes:
        producer_id: whose.
        first_offset: of its first message.
        marker_offset: of its marker.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


class Producers:
    """The producers of a log.

    Threads: guarded by its log's lock.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Producer] = {}
        self.aborted: list[AbortedSpan] = []

    @property
    def first_open_offset(self) -> int | None:
        """The first message of the oldest open transaction; None without one."""
        return min((each.open_since for each in self._known.values() if each.open_since is not None), default=None)

    def has_open(self, producer_id: int) -> bool:
        """Return whether a producer has a transaction open."""
        known = self._known.get(producer_id)
        return known is not None and known.open_since is not None

    def stored(self, head: BatchHead, remembered: int = KEPT_BATCHES, unknown_code: int = 0) -> StoredBatch | None:
        """Return what is stored of a batch that is sent again; None for the next batch of its producer.

        Args:
            remembered: so many batches are known again.
            unknown_code: refuses a batch that is not the first one of a producer of which no batch is known; 0: it is
                the next one.

        Raises:
            Refusal: `unknown_code`; 45 batches are missing before it; 47 a newer producer has the id; 48 it belongs to
                no transaction while one is open.
        """
        if head.producer_id < 0:
            return None
        known = self._known.get(head.producer_id)
        if unknown_code and head.base_sequence and (known is None or not known.batches):
            raise Refusal(unknown_code, f"no batch of producer {head.producer_id} is known")
        if known is None:
            return None
        if head.producer_epoch < known.epoch:
            raise Refusal(INVALID_EPOCH, f"producer {head.producer_id} has epoch {known.epoch}")
        if head.producer_epoch > known.epoch:
            if head.base_sequence:
                raise Refusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"the first batch of an epoch has sequence {head.base_sequence}",
                )
            return None
        if known.open_since is not None and not head.attributes & IS_TRANSACTIONAL:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"producer {head.producer_id} has a transaction open")
        last = (head.base_sequence + head.last_delta) % _SEQUENCES
        for batch in list(known.batches)[-remembered:]:
            if (batch.first_sequence, batch.last_sequence) == (head.base_sequence, last):
                return batch
        if known.batches:
            expected = (known.batches[-1].last_sequence + 1) % _SEQUENCES
            if head.base_sequence != expected:
                raise Refusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"sequence {head.base_sequence} of {head.producer_id}, not {expected}",
                )
        return None

    def note(self, head: BatchHead, *, is_abort: bool = False) -> None:
        """Take note of a stored batch.

        Args:
            is_abort: of a control batch, whether it ends its transaction by an abort.
        """
        if head.producer_id < 0:
            return
        known = self._known.get(head.producer_id)
        if known is None or known.epoch != head.producer_epoch:
            since = None if known is None else known.open_since
            known = self._known[head.producer_id] = _Producer(head.producer_epoch, open_since=since)
        if head.attributes & IS_CONTROL:
            if is_abort and known.open_since is not None:
                self.aborted.append(AbortedSpan(head.producer_id, known.open_since, head.base_offset))
            known.open_since = None
            return
        if head.attributes & IS_TRANSACTIONAL and known.open_since is None:
            known.open_since = head.base_offset
        last = (head.base_sequence + head.last_delta) % _SEQUENCES
        known.last_timestamp_ms = head.max_timestamp_ms
        known.batches.append(StoredBatch(head.base_sequence, last, head.base_offset, head.max_timestamp_ms))

    def active(self) -> list[ActiveProducer]:
        """Return all producers with an id that have written to the log, by id."""
        return [
            ActiveProducer(
                number, each.epoch, each.batches[-1].last_sequence if each.batches else -1, each.last_timestamp_ms,
                each.open_since,
            )
            for number, each in sorted(self._known.items())
        ]  # fmt: skip

    def aborted_between(self, start: int, end: int) -> list[AbortedSpan]:
        """Return the aborted transactions that reach into the offsets from start up to end."""
        return [each for each in self.aborted if each.marker_offset >= start and each.first_offset < end]
