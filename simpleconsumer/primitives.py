"""Kafka's primitive types: every reader takes `(buffer, offset)` and returns `(value, next offset)`. Pure.

All integers are big-endian and signed. A field that ends after the end of the buffer is a `BufferUnderflow` with its
place; an impossible length or count is a `DecodeError` before memory is allocated for it.

A frame is `int32 size` and as many bytes, the same in every Kafka version. `frame_size` checks a size field before
memory is allocated for it.

Source: kafka.api.ApiUtils, kafka.common (0.8.2.2).

Rows of partitions in requests and answers: `[topic [partition]]`, written by topic and read in the order asked.

`check_numbers` checks that partitions can exist before a broker is asked for them.

Finds the whole entries of a message set by their sizes, without reading any message.

A fetcher needs it for each set, to know where to fetch next before anything is decoded. The kernel has the same in
compiled form (`simpleconsumer/kernel/entry_walk.pxi`). Whoever changes one changes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from simpleconsumer import kernel
from simpleconsumer.errors import BrokenFraming, BufferUnderflow, DecodeError, LimitExceeded
from simpleconsumer.types import Buffer

T = TypeVar("T")
_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def read_int8(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 8 bit integer at offset and the offset after it."""
    return _read(_INT8, buffer, offset)


def read_int16(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 16 bit integer at offset and the offset after it."""
    return _read(_INT16, buffer, offset)


def read_int32(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 32 bit integer at offset and the offset after it."""
    return _read(_INT32, buffer, offset)


def read_int64(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 64 bit integer at offset and the offset after it."""
    return _read(_INT64, buffer, offset)


def read_string(buffer: Buffer, offset: int) -> tuple[str, int]:
    """Return the string at offset (int16 byte count, UTF-8) and the offset after it.

    Raises:
        DecodeError: The string is null, its length is negative, or it is not UTF-8.
        BufferUnderflow: It ends after the end of the buffer.
    """
    length, start = read_int16(buffer, offset)
    if length < 0:
        raise DecodeError(f"string at byte {offset} has length {length}")
    end = start + length
    _require(buffer, start, length, "string")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"string at byte {offset} is not UTF-8: {error.reason}") from error


def read_nullable_string(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """Return the string at offset, or None for length -1, and the offset after it."""
    length, start = read_int16(buffer, offset)
    return (None, start) if length == -1 else read_string(buffer, offset)


def read_bytes(buffer: Buffer, offset: int) -> tuple[memoryview, int]:
    """Return a view (not a copy) of the bytes at offset (int32 count), and the offset after them.

    Raises:
        DecodeError: The length is negative (no field that this reads may be null).
        BufferUnderflow: They end after the end of the buffer.
    """
    length, start = read_int32(buffer, offset)
    if length < 0:
        raise DecodeError(f"bytes at byte {offset} have length {length}")
    _require(buffer, start, length, "bytes")
    return memoryview(buffer)[start : start + length], start + length


def read_array(
    buffer: Buffer, offset: int, read: Callable[[Buffer, int], tuple[T, int]], smallest_item: int
) -> tuple[list[T], int]:
    """Return the items at offset (int32 count, then the items) and the offset after them.

    Args:
        read: Reader of one item.
        smallest_item: Bytes that the shortest possible item takes, at least 1. A count that cannot fit into the
            rest of the buffer is refused at once, so a corrupt count costs neither time nor memory.
    """
    count, offset = read_int32(buffer, offset)
    left = len(buffer) - offset
    if count < 0 or count * smallest_item > left:
        raise DecodeError(f"array at byte {offset - 4} says {count} items, but {left} bytes are left")
    items: list[T] = []
    for _ in range(count):
        item, offset = read(buffer, offset)
        items.append(item)
    return items, offset


def require_end(buffer: Buffer, offset: int, what: str) -> None:
    """Raise DecodeError when bytes follow the end of an answer."""
    if offset != len(buffer):
        raise DecodeError(f"{what}: {len(buffer) - offset} bytes after its end at byte {offset}")


def encode_int16(value: int) -> bytes:
    """Return the 2 bytes of a 16 bit integer."""
    return _INT16.pack(value)


def encode_int32(value: int) -> bytes:
    """Return the 4 bytes of a 32 bit integer."""
    return _INT32.pack(value)


def encode_int64(value: int) -> bytes:
    """Return the 8 bytes of a 64 bit integer."""
    return _INT64.pack(value)


def encode_string(text: str) -> bytes:
    """Return the string with its int16 byte count; more than 32767 bytes of UTF-8, or no UTF-8, are a ValueError."""
    data = encode_text(text)
    if len(data) > 0x7FFF:
        raise ValueError(f"string of {len(data)} bytes; the limit is 32767: {text[:40]!r}...")
    return _INT16.pack(len(data)) + data


def encode_text(text: str) -> bytes:
    """Return the bytes of a text; ValueError for halves of characters, as bytes that are no UTF-8 become."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:40]!r} cannot be encoded as UTF-8: {error.reason}") from None


def encode_nullable_string(text: str | None) -> bytes:
    """Return the string with its int16 byte count, -1 for None."""
    return b"\xff\xff" if text is None else encode_string(text)


def encode_bytes(data: bytes | None) -> bytes:
    """Return the bytes with their int32 count, -1 for None."""
    return b"\xff\xff\xff\xff" if data is None else _INT32.pack(len(data)) + data


def encode_array(items: list[bytes]) -> bytes:
    """Return the int32 count and the encoded items."""
    return _INT32.pack(len(items)) + b"".join(items)


def _read(layout: Struct, buffer: Buffer, offset: int) -> tuple[int, int]:
    _require(buffer, offset, layout.size, f"int{layout.size * 8}")
    return layout.unpack_from(buffer, offset)[0], offset + layout.size


def _require(buffer: Buffer, offset: int, size: int, what: str) -> None:
    left = len(buffer) - offset
    if size > left:
        raise BufferUnderflow(f"{what} at byte {offset} needs {size} bytes, {left} are left")


SIZE_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Default limit of one frame. Well above a fetch of 200 partitions with 1 MiB each, well below the memory of a host;
bytes that are no size field (text, a TLS alert) nearly always give a larger number."""
MAX_OPENING_FRAME_BYTES: Final = 64 * 1024
"""Limit of an answer before the first request of a connection, while nobody has shown who he is: lists of versions and
of mechanisms, and tokens of SASL."""
_MOST_JOINED_BYTES = 64 * 1024
"""Largest request whose pieces are sent as one."""
_SIZE = Struct(">i")
Frame = bytes | Sequence[bytes]
"""A whole request with its size, or the pieces of one."""


def packets(frame: Frame) -> Sequence[bytes]:
    """Return the packets of a frame: every piece of a large frame by itself, as new memory costs more than a packet."""
    if isinstance(frame, bytes):
        return [frame]
    return frame if sum(map(len, frame)) > _MOST_JOINED_BYTES else [b"".join(frame)]


def frame_size(header: Buffer, max_frame_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return the size in the first four bytes of a frame, which does not count these four.

    Raises:
        BrokenFraming: It is negative.
        LimitExceeded: It is larger than `max_frame_bytes`.
    """
    size: int = _SIZE.unpack_from(header)[0]
    if size < 0:
        raise BrokenFraming(f"frame with the negative size {size}")
    if size > max_frame_bytes:
        raise LimitExceeded(f"frame of {size} bytes, at most {max_frame_bytes} are accepted")
    return size


Partition = tuple[str, int]
Values = dict[str, Any]
_SMALLEST_TOPIC = 6  # string length, partition count


def by_topic(rows: Iterable[tuple[str, bytes]]) -> bytes:
    """Return `[topic [partition]]` of encoded partitions, topics in the order of first mention."""
    topics: dict[str, list[bytes]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return encode_array([encode_string(topic) + encode_array(parts) for topic, parts in topics.items()])


def read_topics(
    answer: Buffer, offset: int, read: Callable[[Buffer, int], tuple[tuple[int, T], int]], smallest_partition: int
) -> tuple[list[tuple[str, list[tuple[int, T]]]], int]:
    """Return `[topic [partition number and result]]` and the offset after it."""

    def read_topic(buffer: Buffer, offset: int) -> tuple[tuple[str, list[tuple[int, T]]], int]:
        topic, offset = read_string(buffer, offset)
        partitions, offset = read_array(buffer, offset, read, smallest_partition)
        return (topic, partitions), offset

    return read_array(answer, offset, read_topic, _SMALLEST_TOPIC)


def in_order(what: str, topics: list[tuple[str, list[tuple[int, T]]]], asked: Sequence[Partition]) -> list[T]:
    """Return the results in the order asked, exactly one for each."""
    wanted = set(asked)
    results: dict[Partition, T] = {}
    for topic, partitions in topics:
        for number, result in partitions:
            if (topic, number) not in wanted:
                raise DecodeError(f"{what} response: {topic}/{number} was not requested")
            if (topic, number) in results:
                raise DecodeError(f"{what} response: {topic}/{number} appears twice")
            results[topic, number] = result
    missing = [partition for partition in asked if partition not in results]
    if missing:
        topic, number = missing[0]
        raise DecodeError(f"{what} response: {topic}/{number} and {len(missing) - 1} more are missing")
    return [results[partition] for partition in asked]


def topics_of(rows: Iterable[tuple[str, Any]]) -> list[Values]:
    """Return the topics of a request, in the order of first mention, each with its rows of partitions."""
    topics: dict[str, list[Any]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def results_of(
    what: str, topics: Iterable[Values], asked: Sequence[Partition], result: Callable[[Values], T]
) -> list[T]:
    """Return the result of each partition in the topics of an answer, in the order asked.

    Args:
        result: Returns the result of a partition's row.

    Raises:
        DecodeError: A partition was not asked for, appears twice or is missing.
    """
    rows = [(topic["name"], [(row["partition_index"], result(row)) for row in topic["partitions"]]) for topic in topics]
    return in_order(what, rows, asked)


_MAX_PARTITION: Final = 0x7FFFFFFF


def check_numbers(partitions: Iterable[tuple[str, int | str]]) -> None:
    """Raise for partitions that no broker can have; Kafka 0.7 names them by texts, which are not checked.

    Raises:
        ValueError: A number below 0 or above 2^31-1.
    """
    for topic, number in partitions:
        if isinstance(number, int) and not 0 <= number <= _MAX_PARTITION:
            raise ValueError(f"{topic}/{number}: partition numbers are 0 to {_MAX_PARTITION}")


_BLOCK: Final = 4
"""The tail of a walk starts with the block before the one that the last entry is in."""


class EntryLayout:
    """How the entries of a generation are framed.

    Attributes:
        size_at: Where the int32 size is in an entry.
        overhead: How many bytes of an entry its size does not count.
        smallest: The least size that a message can have.
        size: Reads the size of the entry at a byte of a buffer.
    """

    def __init__(self, size_at: int, overhead: int, smallest: int) -> None:
        self.size_at = size_at
        self.overhead = overhead
        self.smallest = smallest
        self.size = Struct(f">{size_at}xi")


class Walk(NamedTuple):
    """The whole entries of a set.

    Attributes:
        end: Where they end.
        last: Where the last one starts.
        entries: How many there are.
        tail: Where one of the last ones starts, which is the first one or has some after it.
        tail_entries: How many there are from that one on: all of them, or more than a block and at most two.
    """

    end: int
    last: int
    entries: int
    tail: int
    tail_entries: int


def walk_entries(view: Buffer, layout: EntryLayout) -> Walk:
    """Return the whole entries of a set; `view` holds bytes (`plain`).

    Raises:
        BrokenFraming: A size field is negative or below the least size of a message.
    """
    walk = plain_walk if kernel.compiled is None else kernel.compiled.walk_entries
    *found, size = walk(view, layout.size_at, layout.overhead, layout.smallest, _BLOCK)
    if size < layout.smallest:
        raise BrokenFraming(f"entry at byte {found[0]}, after {found[2]} entries, has size {size}")
    return Walk(*found)


def plain_walk(
    view: Buffer, size_at: int, overhead: int, smallest: int, block: int
) -> tuple[int, int, int, int, int, int]:
    """Return the fields of a `Walk`, and a size that is impossible, or `smallest`."""
    length, size_of = len(view), Struct(f">{size_at}xi").unpack_from
    position = last = entries = tail = before_tail = block_start = 0
    while position + overhead <= length:
        (size,) = size_of(view, position)
        if size < smallest:
            return position, last, entries, tail, entries - before_tail, size
        end = position + overhead + size
        if end > length:
            break
        if entries % block == 0 and entries:
            tail, before_tail, block_start = block_start, entries - block, position
        last, position = position, end
        entries += 1
    return position, last, entries, tail, entries - before_tail, smallest


def plain(buffer: Buffer) -> Buffer:
    """Return the buffer itself, as bytes if it is a view of something larger than bytes."""
    return buffer.cast("B") if isinstance(buffer, memoryview) and buffer.format != "B" else buffer
