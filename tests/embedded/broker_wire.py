"""Requests and message sets of Kafka 0.8 written byte by byte, for tests of the embedded broker."""

from __future__ import annotations

import gzip
import socket
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-0.8.2.2"
PATIENCE_S = 20.0


def golden(name: str) -> bytes:
    """A recorded frame, size field included."""
    return bytes.fromhex("".join((GOLDEN / f"{name}.hex").read_text().splitlines()[1:]))


def string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def entry(offset: int, value: bytes | None, key: bytes | None = None, codec: int = 0) -> bytes:
    """One entry of magic 0."""
    body = struct.pack(">bb", 0, codec)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(*values: bytes) -> bytes:
    """Plain messages with the offsets that producers write."""
    return b"".join(entry(number, value) for number, value in enumerate(values))


def gzipped(inside: bytes, offset: int = 0) -> bytes:
    """A wrapper around a message set."""
    return entry(offset, gzip.compress(inside, mtime=0), codec=1)


def offsets_and_values(data: bytes) -> list[tuple[int, bytes]]:
    """The whole entries of an uncompressed set (keys must be null)."""
    found, at = [], 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        if at + 12 + size > len(data):
            break
        found.append((offset, data[at + 26 : at + 12 + size]))
        at += 12 + size
    return found


def unpacked(data: bytes, codec_name: str) -> list[tuple[int, list[tuple[int, bytes]]]]:
    """Offset of each wrapper, and offset and bytes of the messages inside, by way of the codec itself."""
    from simpleconsumer import codecs

    found, at = [], 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        message = data[at + 12 : at + 12 + size]
        assert zlib.crc32(message[4:]) == struct.unpack_from(">I", message)[0]
        inside = codecs.decompress(codecs.CODECS[codec_name], message[14:], 1 << 20)
        messages, inner = [], 0
        while inner < len(inside):
            inner_offset, inner_size = struct.unpack_from(">qi", inside, inner)
            messages.append((inner_offset, inside[inner + 12 : inner + 12 + inner_size]))
            inner += 12 + inner_size
        found.append((offset, messages))
        at += 12 + size
    return found


def request(api: int, body: bytes, *, version: int = 0, correlation_id: int = 7, client_id: str = "c") -> bytes:
    """A whole frame."""
    data = struct.pack(">hhi", api, version, correlation_id) + string(client_id) + body
    return struct.pack(">i", len(data)) + data


def one(topic: str, partition: int, rest: bytes) -> bytes:
    """`[topic [partition rest]]` with one of each."""
    return struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, partition) + rest


def fetch_request(
    topic: str, partition: int, offset: int, max_bytes: int = 65536, *, wait_ms: int = 100, min_bytes: int = 1
) -> bytes:
    head = struct.pack(">iii", -1, wait_ms, min_bytes)
    return request(1, head + one(topic, partition, struct.pack(">qi", offset, max_bytes)))


def produce_request(topic: str, partition: int, data: bytes, *, acks: int = 1, timeout_ms: int = 1000) -> bytes:
    head = struct.pack(">hi", acks, timeout_ms)
    return request(0, head + one(topic, partition, struct.pack(">i", len(data)) + data))


def offsets_request(topic: str, partition: int, time_ms: int, count: int) -> bytes:
    return request(2, struct.pack(">i", -1) + one(topic, partition, struct.pack(">qi", time_ms, count)))


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    data: bytes


class Wire:
    """A connection on which frames are sent and received as they are."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def receive(self) -> bytes:
        """The next frame, size field included."""
        head = self._exactly(4)
        return head + self._exactly(struct.unpack(">i", head)[0])

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 65536, **more: int) -> Fetched:
        answer = self.ask(fetch_request(topic, partition, offset, max_bytes, **more))
        at = 8 + 4 + 2 + len(topic.encode()) + 4 + 4
        error, high_watermark, size = struct.unpack_from(">hqi", answer, at)
        assert len(answer) == at + 14 + size
        return Fetched(error, high_watermark, answer[at + 14 :])

    def produce(self, topic: str, partition: int, data: bytes, **more: int) -> tuple[int, int]:
        """Error and base offset."""
        answer = self.ask(produce_request(topic, partition, data, **more))
        error, base = struct.unpack_from(">hq", answer, 8 + 4 + 2 + len(topic.encode()) + 4 + 4)
        return int(error), int(base)

    def offsets(self, topic: str, partition: int, time_ms: int, count: int) -> tuple[int, Sequence[int]]:
        """Error and offsets."""
        answer = self.ask(offsets_request(topic, partition, time_ms, count))
        at = 8 + 4 + 2 + len(topic.encode()) + 4 + 4
        error, found = struct.unpack_from(">hi", answer, at)
        return error, struct.unpack_from(f">{found}q", answer, at + 6)

    def is_closed(self) -> bool:
        """True if the broker closes the connection without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += chunk
        return data
