"""The kit's own requests to brokers: whether one answers, which leaders it names, and whether a leader serves.

Independent of `simpleconsumer` on purpose: a test bed must not rest on the code under test.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from zkconsumer.testing.waiting import Deadline

API_OFFSETS = 2
API_METADATA = 3
API_VERSIONS = 18
OFFSETS_07 = 4
LATEST = -1
MAX_REPLY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class PartitionAnswer:
    """One broker's metadata of a partition; `error` 0 and a `leader` of 0 or more mean that it can be used."""

    error: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def ask(port: int, body: bytes, *, timeout_s: float = 5.0) -> bytes:
    """The body of a broker's answer to one request; OSError when there is none in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        return ask_on(connection, body, timeout_s=timeout_s)


def ask_on(connection: socket.socket, body: bytes, *, timeout_s: float = 5.0) -> bytes:
    """The body of the answer to one request on a connection that stands; OSError when there is none in time."""
    deadline = Deadline(timeout_s)
    connection.sendall(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", deadline.receive(connection, 4))
    if not 0 <= length <= MAX_REPLY_BYTES:
        raise ConnectionError(f"answer of {length} bytes from {connection.getpeername()}")
    return deadline.receive(connection, length)


def answers(port: int, generation_07: bool = False, *, timeout_s: float = 5.0) -> bool:
    """True if a broker answers a real request, one that creates nothing."""
    if generation_07:
        request = struct.pack(">h", OFFSETS_07) + string("zkconsumer-probe") + struct.pack(">iqi", 0, LATEST, 1)
    else:
        request = _offsets_request("zkconsumer-probe", [0])  # a metadata request would create the topic
    try:
        ask(port, request, timeout_s=timeout_s)
    except OSError:
        return False
    return True


def answers_versions(port: int, *, timeout_s: float = 5.0) -> bool:
    """True if a broker of Kafka 0.10 or later, or a controller, says which APIs it has."""
    try:
        ask(port, header(API_VERSIONS), timeout_s=timeout_s)
    except OSError:
        return False
    return True


def topic_leaders(port: int, topic: str) -> dict[int, PartitionAnswer]:
    """Partition -> this broker's metadata of it (metadata request v0); empty while it does not know the topic.

    Creates the topic where the broker does so by itself. Raises OSError when the broker does not answer.
    """
    reply = Reader(ask(port, header(API_METADATA) + struct.pack(">i", 1) + string(topic)))
    reply.int32()  # correlation id
    for _ in range(reply.int32()):  # brokers: id, host, port
        reply.int32(), reply.string(), reply.int32()
    answer: dict[int, PartitionAnswer] = {}
    for _ in range(reply.int32()):
        reply.int16(), reply.string()
        for _ in range(reply.int32()):
            partition, known = partition_answer(reply)
            answer[partition] = known
    return answer


def partition_answer(reply: Reader) -> tuple[int, PartitionAnswer]:
    """A partition and its metadata, read from an answer of a version up to 4."""
    error, partition, leader = reply.int16(), reply.int32(), reply.int32()
    return partition, PartitionAnswer(error, leader, reply.int32s(), reply.int32s())


def offset_errors(port: int, topic: str, partitions: Sequence[int], *, version: int = 0) -> dict[int, int]:
    """Partition -> error code of an offsets request, which only a leader answers with 0.

    Args:
        version: 0, or 1, which brokers have from 0.10.1 on, and those of 4.0 and later need.
    """
    reply = Reader(ask(port, _offsets_request(topic, partitions, version)))
    reply.int32()
    errors = {}
    for _ in range(reply.int32()):
        reply.string()
        for _ in range(reply.int32()):
            partition, error = reply.int32(), reply.int16()
            errors[partition] = error
            for _ in range(2 if version else reply.int32()):  # time and offset, or a list of offsets
                reply.int64()
    return errors


def _offsets_request(topic: str, partitions: Sequence[int], version: int = 0) -> bytes:
    most = b"" if version else struct.pack(">i", 1)
    entries = b"".join(struct.pack(">iq", partition, LATEST) + most for partition in partitions)
    place = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(partitions))
    return header(API_OFFSETS, version) + place + entries


def header(api: int, version: int = 0) -> bytes:
    """The header of a request, with the correlation id 1."""
    return struct.pack(">hhi", api, version, 1) + string("zkconsumer-testing")


def string(text: str) -> bytes:
    """A string as requests have it."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class Reader:
    """Reads an answer front to back; a null string is an empty one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def bool(self) -> bool:
        return self._take(">?") != 0

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.int32()))

    def string(self) -> str:
        length = self.int16()
        text = self._data[self._at : self._at + max(length, 0)].decode()
        self._at += max(length, 0)
        return text

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(">B")
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def compact_string(self) -> str:
        length = max(self.varint() - 1, 0)
        self._at += length
        return self._data[self._at - length : self._at].decode()
