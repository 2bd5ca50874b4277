"""Kafka requests written byte by byte, so that the kit is not tested with the code that it tests."""

from __future__ import annotations

import struct
import zlib

from zkconsumer.testing.kafka.probe import ask


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def produce(port: int, topic: str, partition: int, value: bytes) -> int:
    """Error code of a produce request v0 with one message of magic 0."""
    message = struct.pack(">bbii", 0, 0, -1, len(value)) + value
    entry = struct.pack(">qiI", 0, len(message) + 4, zlib.crc32(message)) + message
    body = struct.pack(">hhi", 0, 0, 5) + string("t") + struct.pack(">hii", 1, 5000, 1) + string(topic)
    reply = ask(port, body + struct.pack(">iii", 1, partition, len(entry)) + entry)
    return int(struct.unpack_from(">h", reply, 4 + 4 + 2 + len(topic) + 4 + 4)[0])


def fetch(port: int, topic: str, partition: int, offset: int = 0) -> tuple[int, bytes]:
    """Error code and message set of a fetch request v0."""
    body = struct.pack(">hhi", 1, 0, 6) + string("t") + struct.pack(">iiii", -1, 500, 1, 1) + string(topic)
    reply = ask(port, body + struct.pack(">iiqi", 1, partition, offset, 1 << 20))
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    error, _, size = struct.unpack_from(">hqi", reply, at)
    return int(error), reply[at + 14 : at + 14 + size]
