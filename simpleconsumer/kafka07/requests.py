"""Encodes requests and decodes responses of Kafka 0.7, which have neither versions nor correlation ids.

A request is `int32 size, int16 type` and its body. An answer is `int32 size, int16 error code` and its body; produce
requests have none. Only the order on the connection shows which answer belongs to which request, so a connection on
which anything went wrong is closed (`simpleconsumer.connection`). A string is an int16 count and UTF-8.

The count of a string: the Java client writes the number of characters, the broker reads as many bytes. Both are equal
in ASCII. This module writes the number of bytes, which the broker reads correctly for all names.

Source: kafka.api.FetchRequest, MultiFetchRequest, ProducerRequest, MultiProducerRequest, OffsetRequest,
MultiMessageSetSend, kafka.utils.Utils (0.7.2).

Encodes message sets of Kafka 0.7 as its Java producer does.

An entry is `int32 size`, then a message of that size:

    magic 0: int8 0, uint32 CRC of the payload, payload; never compressed
    magic 1: int8 1, int8 attributes (codec in the lowest two bits), uint32 CRC of the payload, payload

The payload of a compressed entry is a compressed message set. Messages have neither keys nor timestamps.

Source: kafka.message.Message, ByteBufferMessageSet, CompressionUtils (0.7.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final

from isal.isal_zlib import crc32

from simpleconsumer import codecs, kernel
from simpleconsumer.primitives import (
    encode_bytes,
    encode_int16,
    encode_string,
    read_array,
    read_bytes,
    read_int16,
    read_int64,
    require_end,
)
from simpleconsumer.types import Buffer, Encodable, FetchedPartition, FetchRequest, Message, TopicPartition

PRODUCE: Final = 0
FETCH: Final = 1
MULTI_FETCH: Final = 2
MULTI_PRODUCE: Final = 3
OFFSETS: Final = 4
_HEADER = Struct(">ih")
_FETCH_TAIL = Struct(">iqi")
_OFFSETS_TAIL = Struct(">iqi")
_PARTITION = Struct(">i")
_CODE = Struct(">h")
_MOST_PARTITIONS: Final = 0x7FFF
_LARGEST: Final = 0x7FFFFFFF


def frame_request(kind: int, body: bytes) -> bytes:
    """Return a whole request: `int32 size, int16 type`, body."""
    return _HEADER.pack(_CODE.size + len(body), kind) + body


def partition_number(partition: int | str) -> int:
    """Return the number of a partition on its broker: of the name `broker-partition`, or the number itself.

    Raises:
        ValueError: The text is no such name.
    """
    if isinstance(partition, int):
        return partition
    broker, dash, number = partition.partition("-")
    if not (dash and broker.isdecimal() and number.isdecimal() and partition.isascii()) or int(number) > _LARGEST:
        raise ValueError(f"{partition!r} is not a partition of Kafka 0.7; it must be broker-number, such as '0-3'")
    return int(number)


def encode_fetch(request: FetchRequest) -> bytes:
    """Return the body of a fetch of one partition."""
    number = partition_number(request.partition)
    return encode_string(request.topic) + _FETCH_TAIL.pack(number, request.offset, request.max_bytes)


def encode_multi_fetch(requests: Sequence[FetchRequest]) -> bytes:
    """Return the body of a fetch of several partitions of one broker.

    Raises:
        ValueError: More partitions than the request can count.
    """
    return _count(requests, "fetched") + b"".join(encode_fetch(request) for request in requests)


def decode_fetch(answer: Buffer, request: FetchRequest) -> FetchedPartition:
    """Return the answer to a fetch; its message set is a view of `answer`. No high watermark is known."""
    code, start = read_int16(answer, 0)
    return FetchedPartition(request.topic, request.partition, code, -1, memoryview(answer)[start:])


def decode_multi_fetch(answer: Buffer, requests: Sequence[FetchRequest]) -> list[FetchedPartition]:
    """Return one answer for each request, in the order of the requests: the answer names neither topic nor partition.

    An error code of the whole answer stands for each partition.

    Raises:
        DecodeError: The answer holds fewer or more parts than partitions were asked for.
    """
    code, offset = read_int16(answer, 0)
    if code and offset == len(answer):
        return [FetchedPartition(each.topic, each.partition, code, -1, memoryview(b"")) for each in requests]
    found: list[FetchedPartition] = []
    for request in requests:
        part, offset = read_bytes(answer, offset)
        found.append(decode_fetch(part, request))
    require_end(answer, offset, "multifetch response")
    return found


def encode_produce(partition: TopicPartition, message_set: bytes) -> bytes:
    """Return the body of a produce request; partition -1 lets the broker choose. No answer comes."""
    number = _PARTITION.pack(partition_number(partition.partition))
    return encode_string(partition.topic) + number + encode_bytes(message_set)


def encode_multi_produce(message_sets: Mapping[TopicPartition, bytes]) -> bytes:
    """Return the body of a produce request for several partitions of one broker. No answer comes.

    Raises:
        ValueError: More partitions than the request can count.
    """
    head = _count(message_sets, "produced to")
    return head + b"".join(encode_produce(partition, data) for partition, data in message_sets.items())


def encode_offsets(partition: TopicPartition, time_ms: int, max_offsets: int) -> bytes:
    """Return the body of a request for segment starts, and the end, before a time; -1 latest, -2 earliest."""
    number = partition_number(partition.partition)
    return encode_string(partition.topic) + _OFFSETS_TAIL.pack(number, time_ms, max_offsets)


def decode_offsets(answer: Buffer) -> tuple[int, list[int]]:
    """Return error code and positions, the largest first."""
    code, offset = read_int16(answer, 0)
    if code and offset == len(answer):
        return code, []
    offsets, end = read_array(answer, offset, read_int64, 8)
    require_end(answer, end, "offsets response")
    return code, offsets


def _count(partitions: Sequence[object] | Mapping[TopicPartition, bytes], what: str) -> bytes:
    if len(partitions) > _MOST_PARTITIONS:
        raise ValueError(f"{len(partitions)} partitions {what} at once; a request can have {_MOST_PARTITIONS}")
    return encode_int16(len(partitions))


CODECS: Final = {name: number for name, number in codecs.CODECS.items() if name in ("none", "gzip", "snappy")}
"""The codecs of Kafka 0.7 by name."""
_ENTRY_0 = Struct(">iBI")
_ENTRY_1 = Struct(">iBBI")


def encode_message_set(messages: Iterable[Encodable], codec: str = "none", magic: int = 1) -> bytes:
    """Return a message set, empty for no messages; with a codec, all messages are in one compressed entry.

    Args:
        messages: Values; or pairs or `Message`s whose key is None. Timestamps are left out.
        codec: none, gzip or snappy.
        magic: 1, as 0.7.2 writes; 0 for the format before it.

    Raises:
        ValueError: A key or a null value, which 0.7 cannot store; an unknown codec or magic; or a codec in magic 0.
    """
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(CODECS)}, the codecs of Kafka 0.7")
    if magic not in (0, 1):
        raise ValueError(f"magic {magic} is neither 0 nor 1")
    given = list(messages)
    inside: bytes | None = None
    if kernel.compiled is not None:
        inside = kernel.compiled.message_set_07(given, magic)
    if inside is None:
        inside = b"".join(encode_entry(_payload(message, index), magic) for index, message in enumerate(given))
    if codec == "none" or not inside:
        return inside
    if magic == 0:
        raise ValueError(f"codec {codec!r} needs magic 1: messages of magic 0 are never compressed")
    return encode_wrapper(inside, codec)


def encode_wrapper(inside: bytes, codec: str) -> bytes:
    """Return one entry that holds a compressed message set."""
    number = CODECS[codec]
    return encode_entry(codecs.compress(number, inside), attributes=number)


def encode_entry(payload: bytes, magic: int = 1, attributes: int = 0) -> bytes:
    """Return one entry: `int32 size`, and the message."""
    if magic == 0:
        return _ENTRY_0.pack(len(payload) + 5, 0, crc32(payload)) + payload
    return _ENTRY_1.pack(len(payload) + 6, magic, attributes, crc32(payload)) + payload


def _payload(message: Encodable, index: int) -> bytes:
    """Return the payload of a message to encode."""
    value: bytes | None
    if isinstance(message, Message):
        key, value = message.key, message.value
    else:
        key, value = message if isinstance(message, tuple) else (None, message)
    if key is not None:
        raise ValueError(f"message {index} has a key: Kafka 0.7 stores none")
    if value is None:
        raise ValueError(f"message {index} has no value: Kafka 0.7 stores no null, only values of 0 bytes")
    return value
