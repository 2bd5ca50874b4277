"""Requests and message sets of Kafka 0.7 written byte by byte, for tests of embedded and of real brokers."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from broker_wire import Wire

from zkconsumer.testing.waiting import wait_until

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-0.7.2"


def golden(name: str) -> bytes:
    """A recorded frame, size field included."""
    return bytes.fromhex("".join((GOLDEN / f"{name}.hex").read_text().splitlines()[1:]))


def entry(value: bytes, *, magic: int = 1, attributes: int = 0, crc: int | None = None) -> bytes:
    """One entry."""
    head = struct.pack(">bb", 1, attributes) if magic == 1 else struct.pack(">b", magic)
    message = head + struct.pack(">I", zlib.crc32(value) if crc is None else crc) + value
    return struct.pack(">i", len(message)) + message


def entries(*values: bytes) -> bytes:
    """A set of plain entries."""
    return b"".join(map(entry, values))


def gzipped(inside: bytes) -> bytes:
    """One compressed entry."""
    return entry(gzip.compress(inside, mtime=0), attributes=1)


def frame(kind: int, body: bytes) -> bytes:
    """A whole request."""
    return struct.pack(">ih", 2 + len(body), kind) + body


def place(topic: str, partition: int) -> bytes:
    """Topic and partition."""
    return struct.pack(">h", len(topic.encode())) + topic.encode() + struct.pack(">i", partition)


def fetch_body(topic: str, partition: int, position: int, max_bytes: int = 65536) -> bytes:
    """What a fetch asks; a part of a multifetch."""
    return place(topic, partition) + struct.pack(">qi", position, max_bytes)


def produce_body(topic: str, partition: int, data: bytes) -> bytes:
    """What a produce request holds; a part of a multiproduce."""
    return place(topic, partition) + struct.pack(">i", len(data)) + data


def several(kind: int, bodies: Sequence[bytes]) -> bytes:
    """A multifetch (2) or multiproduce (3)."""
    return frame(kind, struct.pack(">h", len(bodies)) + b"".join(bodies))


class Fetched(NamedTuple):
    """The answer to a fetch."""

    error: int
    data: bytes


class Wire07(Wire):
    """A connection to a broker of Kafka 0.7."""

    def get(self, topic: str, partition: int, position: int, max_bytes: int = 65536) -> Fetched:
        """The answer to a fetch."""
        return Fetched(*_split(self.ask(frame(1, fetch_body(topic, partition, position, max_bytes)))[4:]))

    def get_several(self, bodies: Sequence[bytes]) -> list[Fetched]:
        """The answers to a multifetch."""
        answer = self.ask(several(2, bodies))
        assert struct.unpack_from(">h", answer, 4) == (0,)
        found, at = [], 6
        while at < len(answer):
            (size,) = struct.unpack_from(">i", answer, at)
            found.append(Fetched(*_split(answer[at + 4 : at + 4 + size])))
            at += 4 + size
        assert at == len(answer)
        return found

    def put(self, topic: str, partition: int, data: bytes) -> None:
        """Produce a set; there is no answer."""
        self.send(frame(0, produce_body(topic, partition, data)))

    def positions(self, topic: str, partition: int, time_ms: int, most: int = 10) -> list[int]:
        """The answer to an offsets request."""
        answer = self.ask(frame(4, place(topic, partition) + struct.pack(">qi", time_ms, most)))
        error, count = struct.unpack_from(">hi", answer, 4)
        assert error == 0
        return list(struct.unpack_from(f">{count}q", answer, 10))

    def end(self, topic: str, partition: int) -> int:
        """Position behind what is seen."""
        return self.positions(topic, partition, -1, 1)[0]

    def wait_end(self, topic: str, partition: int, end: int) -> None:
        """Return when the log is seen up to a position."""
        wait_until(lambda: self.end(topic, partition) == end, 10, f"{topic}-{partition} to end at {end}",
                   state=lambda: self.end(topic, partition))  # fmt: skip


def _split(answer: bytes) -> tuple[int, bytes]:
    return struct.unpack_from(">h", answer)[0], answer[2:]
