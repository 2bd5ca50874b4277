"""Cuts what was fetched from the source into batches for the target: whole ones, or ones encoded anew. Pure.

A record batch of Kafka 0.11 and later is copied whole where it can be: nothing is decompressed. It is decoded and
encoded anew, with its neighbours, if it is small, has holes, was read in part, or belongs to a set with aborted
transactions. Targets before Kafka 0.11 get message sets, which have no headers: a record with some is refused.

Source: `simpleconsumer.kafka011.whole_batches` says what brokers accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from simpleconsumer import codecs
from simpleconsumer.dialect import (
    KAFKA011,
    KAFKA08,
    RECORD_BATCH,
    BatchHead,
    encode_producer_batch,
    encode_producer_set,
    head_with,
    newest_ms,
)
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import Buffer, Message, TopicPartition
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.compared_records import hash_of
from zkconsumer.mirror.errors import HeadersRefused

WHOLE_BYTES: Final = 16_384
"""Smaller batches are merged: each is a request of its own, and requests are the limit then, not bytes."""
_FRAME_BYTES: Final = 20
"""Lengths and numbers of a record, or of a header, take less."""
_OVERHEAD: Final = 12
"""The size in the head of a batch does not count its first bytes."""
_HEAD_BYTES: Final = 61
_HEAD_MARGIN: Final = 128
"""The head of a batch takes less, with what its records need more than they are counted for."""
_CODEC_MASK: Final = 7
_HAS_BROKER_TIME: Final = 8
_IS_TRANSACTIONAL: Final = 16
_IS_CONTROL: Final = 32
_NO_TIME: Final = -1
_CODEC_NAMES: Final = {number: name for name, number in codecs.BATCH_CODECS.items()}


class BatchLimits(NamedTuple):
    """How large the batches become that are encoded anew.

    Attributes:
        batch_bytes: Size of one batch before it is compressed, at most, unless a single record is larger.
        batch_records: Records of one batch, at most.
        decoded_max_bytes: The size of a decompressed batch, at most.
        codec: The codec for records that came without a batch of Kafka 0.11.
        takes_zstd: Whether the target takes zstd.
        sets_times: Records get the time at which they are copied.
        magic: The format of the target: 2 for record batches, 1 for message sets of Kafka 0.10, 0 for those before.
        most_bytes: A batch that is larger is not copied whole, as the target does not take it.
        hashes: Batches that are encoded anew get the hashes of their records.
    """

    batch_bytes: int = 524_288
    batch_records: int = 4_000
    decoded_max_bytes: int = 1 << 30
    codec: str = "none"
    takes_zstd: bool = True
    sets_times: bool = False
    magic: int = RECORD_BATCH
    most_bytes: int = 1 << 31
    hashes: bool = False


def limits_of(limits: BatchLimits, settings: Mapping[str, str]) -> BatchLimits:
    """Return the limits for a topic of the target, which takes no batches that are larger than its own limit.

    Args:
        limits: Of all topics.
        settings: Those of the topic that are in force, as far as they are known.
    """
    most = settings.get("max.message.bytes", "")
    if not most.isdigit():
        return limits
    batch_bytes = min(limits.batch_bytes, max(1, int(most) - _HEAD_MARGIN))
    return limits._replace(batch_bytes=batch_bytes, most_bytes=int(most))


class CopiedBatch(NamedTuple):
    """Records at consecutive offsets of the source, as one batch.

    Attributes:
        first_offset: The offset of the first record in the source.
        records: How many records.
        data: One whole record batch, or a message set of the format of the target.
        is_whole: Whether it is the batch of the source.
        skip: How many records of the entry at `first_offset` come before the first one; 0 but in Kafka 0.7.
        time_ms: The time of the first record at the source; -1 if it has none.
        digests: The hashes of its records, if it was encoded anew and they are wanted.
    """

    first_offset: int
    records: int
    data: bytes
    is_whole: bool
    skip: int = 0
    time_ms: int = -1
    digests: bytes = b""


class LogSpan(NamedTuple):
    """A part of a log: one batch that could be copied whole, or others, which have to be decoded to be compared.

    Attributes:
        first_offset: Of the batch; -1 for what has to be decoded.
        records: Of the batch.
        codecs: The bit of its codec; 0 for what has to be decoded.
        section: The records of the batch as they are stored.
        messages: Returns the messages.
    """

    first_offset: int
    records: int
    codecs: int
    section: Buffer
    messages: Callable[[], Iterator[Message]]


class _Span(NamedTuple):
    """A part of a fetched set: one batch to copy whole, or neighbours to decode."""

    start: int
    end: int
    head: BatchHead | None
    codec: str


def has_transactions(chunk: Chunk) -> bool:
    """Return whether a set has batches of transactions, or their markers: holes in it are theirs."""
    return bool(chunk.aborted) or any(head.attributes & (_IS_CONTROL | _IS_TRANSACTIONAL) for _, head in _heads(chunk))


def pieces(
    chunk: Chunk, name: TopicPartition, position: int, limits: BatchLimits, now_ms: int
) -> Iterator[CopiedBatch]:
    """Yield the batches of a set, from an offset of the source on.

    Args:
        chunk: What was fetched.
        name: The partition of the source.
        position: The first offset that is wanted.
        limits: How large batches become.
        now_ms: Milliseconds since 1970.

    Raises:
        MessageError: A message cannot be read.
        BrokenFraming: Nothing after a place can be read.
        HeadersRefused: A record has headers, which the format of the target has not.
    """
    for span in _spans(chunk, position, limits):
        if span.head is not None:
            data = chunk.data[span.start : span.end]
            yield CopiedBatch(span.head.base_offset, span.head.records, data, True, 0, _first_ms(span.head))
            continue
        messages = _decoded(chunk, span, name, position, limits)
        if limits.magic != RECORD_BATCH:
            messages = _without_headers(messages)
        for batch in _batches(messages, limits, _follows):
            yield _encoded(batch, span.codec, limits, now_ms)


class EntryPieces:
    """Cuts sets of Kafka 0.7 into batches, from a place on that may be within a compressed entry.

    Args:
        skip: How many messages are left out at first.

    Attributes:
        left: How many of them are still to come.
    """

    def __init__(self, skip: int) -> None:
        self.left = skip

    def of(
        self, chunk: Chunk, name: TopicPartition, position: int, limits: BatchLimits, now_ms: int
    ) -> Iterator[CopiedBatch]:  # fmt: skip
        """Yield the batches of the next set; arguments and errors as for `pieces`."""
        wanted = self._wanted(_decoded(chunk, _Span(0, len(chunk.data), None, ""), name, position, limits))
        for batch in _batches(wanted, limits, lambda before, message: True):
            yield _encoded(batch, limits.codec, limits, now_ms)

    def _wanted(self, messages: Iterator[Message]) -> Iterator[Message]:
        for message in messages:
            if self.left:
                self.left -= 1
            else:
                yield message


def _encoded(batch: list[Message], codec: str, limits: BatchLimits, now_ms: int) -> CopiedBatch:
    own = now_ms if limits.sets_times else None
    rows = [(each.key, each.value, each.headers, _time_of(each) if own is None else own) for each in batch]
    if limits.magic == RECORD_BATCH:
        data = encode_producer_batch([(rows, (0.0,))], codec, 0.0)
    else:
        data = message_set(rows, codec, limits.magic)
    digests = b"".join(map(hash_of, batch)) if limits.hashes else b""
    return CopiedBatch(batch[0].offset, len(batch), data, False, batch[0].index, _time_of(batch[0]), digests)


def message_set(rows: Sequence[tuple[bytes | None, bytes | None, Any, int]], codec: str, magic: int) -> bytes:
    """Return a message set for brokers before Kafka 0.11.

    Args:
        rows: Key, value, no headers and time in ms of each message; -1 for no time, and magic 0 has none.
        codec: none, gzip, snappy or lz4.
        magic: 0, or 1 for Kafka 0.10.
    """
    if magic:
        return encode_producer_set([(rows, (0.0,))], codec, 0.0)
    return KAFKA08.encode_messages([(key, value) for key, value, _, _ in rows], codec, magic, None)


def _without_headers(messages: Iterator[Message]) -> Iterator[Message]:
    """Yield messages as they are; raise at the first one with headers."""
    for message in messages:
        if message.headers:
            raise HeadersRefused(TopicPartition(message.topic, message.partition), message.offset,
                                 [name for name, _ in message.headers])  # fmt: skip
        yield message


def log_spans(chunk: Chunk, name: TopicPartition, position: int) -> Iterator[LogSpan]:
    """Yield the parts of a set that was fetched, from an offset on; see `pieces` for the arguments."""
    if chunk.dialect is None:
        return
    limits = BatchLimits()
    data = memoryview(chunk.data)
    for span in _spans(chunk, position, limits):
        messages = partial(_decoded, chunk, span, name, position, limits)
        if span.head is None:
            yield LogSpan(-1, 0, 0, b"", messages)
        else:
            section = records_section(data[span.start : span.end])
            yield LogSpan(span.head.base_offset, span.head.records, codec_bit(span.head), section, messages)


def records_section(batch: Buffer) -> Buffer:
    """Return the records of a batch as they are stored: what comes after its head."""
    return memoryview(batch)[_HEAD_BYTES:]


def codec_bit(head: BatchHead) -> int:
    """Return the bit of the codec of a batch: 1 for none, 2 for gzip, and so on."""
    return 1 << (head.attributes & _CODEC_MASK)


def _heads(chunk: Chunk) -> Iterator[tuple[int, BatchHead]]:
    """Yield position and head of each batch of a set, up to the first bytes of another format."""
    at, data = 0, memoryview(chunk.data)
    while chunk.dialect is KAFKA011 and at < len(data):
        rest = data[at:]
        head = head_with(rest, int.from_bytes(rest[:8], "big", signed=True))
        if head is None or head.last_delta < 0 or _OVERHEAD + head.size > len(rest):
            return
        yield at, head
        at += _OVERHEAD + head.size


def _spans(chunk: Chunk, position: int, limits: BatchLimits) -> Iterator[_Span]:
    """Yield the parts of a set in order."""
    start = at = 0
    codec = limits.codec
    for at, head in _heads(chunk):
        end = at + _OVERHEAD + head.size
        if not _is_whole(chunk, head, position, limits):
            codec = _codec(head, limits)
            at = end
            continue
        if start < at:
            yield _Span(start, at, None, codec)
        yield _Span(at, end, head, codec)
        start = at = end
    if start < len(chunk.data):
        yield _Span(start, len(chunk.data), None, codec)


def _codec(head: BatchHead, limits: BatchLimits) -> str:
    name = _CODEC_NAMES.get(head.attributes & _CODEC_MASK, limits.codec)
    return limits.codec if name == "zstd" and not limits.takes_zstd else name


def _is_whole(chunk: Chunk, head: BatchHead, position: int, limits: BatchLimits) -> bool:
    """Return whether a batch may be copied as it is."""
    codec = head.attributes & _CODEC_MASK
    is_known = chunk.high_watermark is None or head.last_offset < chunk.high_watermark
    return (
        limits.magic == RECORD_BATCH
        and WHOLE_BYTES <= _OVERHEAD + head.size <= limits.most_bytes
        and head.records == head.last_delta + 1
        and head.base_offset >= position
        and is_known
        and not chunk.aborted
        and not limits.sets_times
        and not head.attributes & _IS_CONTROL
        and codec in _CODEC_NAMES
        and (codec != codecs.ZSTD or limits.takes_zstd)
    )


def _decoded(chunk: Chunk, span: _Span, name: TopicPartition, position: int, limits: BatchLimits) -> Iterator[Message]:
    part = chunk
    if (span.start, span.end) != (0, len(chunk.data)):
        part = Chunk(
            chunk.data[span.start : span.end], chunk.next_offset, chunk.dialect, high_watermark=chunk.high_watermark,
            aborted=chunk.aborted,
        )  # fmt: skip
    assert chunk.dialect is not None
    return part.opened(chunk.dialect.decode_messages, name, position, 0, limits.decoded_max_bytes, None)


def _follows(before: Message, message: Message) -> bool:
    return message.offset == before.offset + 1


def _batches(
    messages: Iterator[Message], limits: BatchLimits, follows: Callable[[Message, Message], bool]
) -> Iterator[list[Message]]:  # fmt: skip
    """Yield messages without a hole between them, as many as fit into a batch."""
    batch: list[Message] = []
    size_bytes = 0
    try:
        for message in messages:
            more_bytes = _size_bytes(message)
            is_full = size_bytes + more_bytes > limits.batch_bytes or len(batch) >= limits.batch_records
            if batch and (is_full or not follows(batch[-1], message)):
                yield batch
                batch, size_bytes = [], 0
            batch.append(message)
            size_bytes += more_bytes
    except (MessageError, BrokenFraming, HeadersRefused):
        if batch:
            yield batch  # what comes before the error is copied
        raise
    if batch:
        yield batch


def _size_bytes(message: Message) -> int:
    headers = sum(len(name) + len(value or b"") + _FRAME_BYTES for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers + _FRAME_BYTES


def _first_ms(head: BatchHead) -> int:
    """Return the time of the first record, as far as the head tells: brokers that set times set one for all."""
    return newest_ms(head) if head.attributes & _HAS_BROKER_TIME else head.base_timestamp_ms


def _time_of(message: Message) -> int:
    return _NO_TIME if message.timestamp_ms is None else message.timestamp_ms
