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
    (length,) = struct.unpack(">i", _exactly(connection, 4, deadline))
    if not 0 <= length <= MAX_REPLY_BYTES:
        raise ConnectionError(f"answer of {length} bytes from {connection.getpeername()}")
    return _exactly(connection, length, deadline)


def answers(port: int, generation_07: bool = False, *, timeout_s: float = 5.0) -> bool:
    """True if a broker answers a real request, one that creates nothing."""
    if generation_07:
        request = struct.pack(">h", OFFSETS_07) + _string("zkconsumer-probe") + struct.pack(">iqi", 0, LATEST, 1)
    else:
        request = _offsets_request("zkconsumer-probe", [0])  # a metadata request would create the topic
    try:
        ask(port, request, timeout_s=timeout_s)
    except OSError:
        return False
    return True


def topic_leaders(port: int, topic: str) -> dict[int, PartitionAnswer]:
    """Partition -> this broker's metadata of it (metadata request v0); empty while it does not know the topic.

    Creates the topic where the broker does so by itself. Raises OSError when the broker does not answer.
    """
    reply = _Reader(ask(port, _header(API_METADATA) + struct.pack(">i", 1) + _string(topic)))
    reply.int32()  # correlation id
    for _ in range(reply.int32()):  # brokers: id, host, port
        reply.int32(), reply.string(), reply.int32()
    answer: dict[int, PartitionAnswer] = {}
    for _ in range(reply.int32()):
        reply.int16(), reply.string()
        for _ in range(reply.int32()):
            error, partition, leader = reply.int16(), reply.int32(), reply.int32()
            replicas, isr = reply.int32s(), reply.int32s()
            answer[partition] = PartitionAnswer(error, leader, replicas, isr)
    return answer


def offset_errors(port: int, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Partition -> error code of an offsets request v0, which only a leader answers with 0."""
    reply = _Reader(ask(port, _offsets_request(topic, partitions)))
    reply.int32()
    errors = {}
    for _ in range(reply.int32()):
        reply.string()
        for _ in range(reply.int32()):
            partition, error = reply.int32(), reply.int16()
            errors[partition] = error
            for _ in range(reply.int32()):
                reply.int64()
    return errors


def _offsets_request(topic: str, partitions: Sequence[int]) -> bytes:
    entries = b"".join(struct.pack(">iqi", partition, LATEST, 1) for partition in partitions)
    return (
        _header(API_OFFSETS) + struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", len(partitions)) + entries
    )


def _header(api: int) -> bytes:
    return struct.pack(">hhi", api, 0, 1) + _string("zkconsumer-testing")


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _exactly(connection: socket.socket, count: int, deadline: Deadline) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(max(deadline.remaining_s, 0.001))
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionResetError(f"closed after {len(data)} of {count} bytes")
        data += chunk
    return data


class _Reader:
    """Reads an answer front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

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
