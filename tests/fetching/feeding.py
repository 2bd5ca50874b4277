"""Shared by the tests of fetching and streams: a lease, message sets to feed, and a broker that answers by script."""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

from rebalance.lease import lease_clock
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.kafka08.message_set import encode_message_set
from simpleconsumer.types import Broker, Message, TopicPartition
from tests.fetching.frame_server import FrameServer
from zkconsumer.config import ConsumerConfig
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.partition_queue import Chunk, PartitionQueue
from zkconsumer.streams.stream import KafkaStream, StreamParts

MIB = 1024 * 1024


class HeldLease:
    """A lease that lasts until the test says otherwise."""

    def __init__(self) -> None:
        self.until = math.inf


def config_of(**settings: object) -> ConsumerConfig:
    return ConsumerConfig("localhost:1", "group", **settings)


def values(first: int, last: int) -> list[bytes]:
    return [b"value %d" % offset for offset in range(first, last)]


def message_set(first: int, last: int, codec: str = "none", topic: str = "t") -> bytes:
    """A message set with the offsets from first up to, not including, last; the value of each names its offset."""
    messages = [
        Message(topic, 0, offset, offset + 1, None, value)
        for offset, value in zip(range(first, last), values(first, last), strict=True)
    ]
    return bytes(encode_message_set(messages, codec, offsets=list(range(first, last))))


def chunk(first: int, last: int, codec: str = "none") -> Chunk:
    return Chunk(message_set(first, last, codec), last, KAFKA08)


def with_bad_crc(data: bytes, offset: int) -> bytes:
    """The set with one byte changed in the value of the (uncompressed) message at an offset."""
    damaged = bytearray(data)
    position = 0
    while position < len(damaged):
        at, size = struct.unpack_from(">qi", damaged, position)
        if at == offset:
            damaged[position + 12 + size - 1] ^= 0xFF
            return bytes(damaged)
        position += 12 + size
    raise AssertionError(f"no message at {offset}")


class Feed:
    """A stream with queues of its own, fed by the test in place of a fetcher."""

    def __init__(self, lease: HeldLease | None = None, **settings: object) -> None:
        self.lease = lease or HeldLease()
        decoders = {name: settings.pop(name) for name in ("key_decoder", "value_decoder") if name in settings}
        settings.setdefault("consumer_timeout_ms", 0)
        self.stream = KafkaStream(StreamParts("thread-0", config_of(**settings), self.lease, lease_clock, **decoders))
        self.budget = ByteBudget(64 * MIB)

    def queue(self, partition: int = 0, position: int = 0, topic: str = "t") -> PartitionQueue:
        return PartitionQueue(TopicPartition(topic, partition), position, self.stream, self.budget)


def take(stream: KafkaStream, count: int) -> list[Message]:
    return [next(stream) for _ in range(count)]


def offsets(messages: Sequence[Message]) -> list[int]:
    return [message.offset for message in messages]


class Drained:
    """A callback that collects the positions it is called with."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.was_called = threading.Event()

    def __call__(self, position: int) -> None:
        self.positions.append(position)
        self.was_called.set()


# -- a broker by script ------------------------------------------------------------------------------------------------

FETCH, OFFSETS, METADATA = 1, 2, 3


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class ScriptedBroker(FrameServer):
    """Speaks Kafka 0.8 as far as a test says, over a real socket: for the answers that real brokers refuse to give.

    Attributes:
        fetched: (topic, partition, offset, max bytes) of every partition of every fetch.
        requests: Counts by API key.
        metadata_at: When each metadata request came (time.monotonic).
        on_fetch: (topic, partition, offset, max bytes) -> (error code, high watermark, message set).
        on_offsets: (topic, partition, time) -> (error code, offsets).
        on_metadata: topics -> body of the answer.
        on_request: API key -> True when the connection is to be closed instead of an answer.
        instead_of: API key -> bytes to send instead of an answer, None for the answer.
    """

    def __init__(self, broker_id: int = 0) -> None:
        self.on_fetch: Callable[[str, int, int, int], tuple[int, int, bytes]] = lambda *_: (0, 0, b"")
        self.on_offsets: Callable[[str, int, int], tuple[int, list[int]]] = lambda *_: (0, [0])
        self.on_metadata: Callable[[list[str]], bytes] = lambda topics: self.metadata({name: {} for name in topics})
        self.on_request: Callable[[int], bool] = lambda _: False
        self.instead_of: Callable[[int], bytes | None] = lambda _: None
        self.fetched: list[tuple[str, int, int, int]] = []
        self.fetches: list[tuple[int, int]] = []
        self.metadata_topics: list[list[str]] = []
        self.requests: Counter[int] = Counter()
        self.metadata_at: list[float] = []
        super().__init__()
        self.broker = Broker(broker_id, "127.0.0.1", self.port)

    def metadata(self, topics: dict[str, dict[int, tuple[int, int]]], brokers: Sequence[Broker] = ()) -> bytes:
        """The body of a metadata answer: topic -> partition -> (error code, leader)."""
        known = brokers or [self.broker]
        body = struct.pack(">i", len(known))
        for broker in known:
            body += struct.pack(">i", broker.id) + _text(broker.host) + struct.pack(">i", broker.port)
        body += struct.pack(">i", len(topics))
        for topic, partitions in topics.items():
            body += struct.pack(">h", 0) + _text(topic) + struct.pack(">i", len(partitions))
            for partition, (code, leader) in partitions.items():
                body += struct.pack(">hiiii", code, partition, leader, 0, 0)
        return body

    def _answer(self, connection: socket.socket, request: bytes) -> bool:
        asked = _Reader(request)
        key, _, correlation_id = asked.take(">hhi")
        asked.text()
        self.requests[key] += 1
        if self.on_request(key):
            return False
        other = self.instead_of(key)
        if other is not None:
            connection.sendall(other)
            return True
        body = {FETCH: self._fetch, OFFSETS: self._offsets, METADATA: self._metadata}[key](asked)
        connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)
        return True

    def _fetch(self, request: _Reader) -> bytes:
        _, wait_ms, _ = request.take(">iii")
        (topics,) = request.take(">i")
        body = struct.pack(">i", topics)
        has_data = False
        count = 0
        for _ in range(topics):
            topic = request.text()
            (partitions,) = request.take(">i")
            body += _text(topic) + struct.pack(">i", partitions)
            for _ in range(partitions):
                partition, offset, max_bytes = request.take(">iqi")
                self.fetched.append((topic, partition, offset, max_bytes))
                count += 1
                code, high_watermark, data = self.on_fetch(topic, partition, offset, max_bytes)
                has_data = has_data or bool(data) or code != 0
                body += struct.pack(">ihqi", partition, code, high_watermark, len(data)) + data
        self.fetches.append((count, wait_ms))
        if not has_data:
            self._closed.wait(wait_ms / 1000)  # the long poll of a broker that has nothing
        return body

    def _offsets(self, request: _Reader) -> bytes:
        request.take(">i")
        (topics,) = request.take(">i")
        body = struct.pack(">i", topics)
        for _ in range(topics):
            topic = request.text()
            (partitions,) = request.take(">i")
            body += _text(topic) + struct.pack(">i", partitions)
            for _ in range(partitions):
                partition, time_ms, _ = request.take(">iqi")
                code, found = self.on_offsets(topic, partition, time_ms)
                body += struct.pack(f">ihi{len(found)}q", partition, code, len(found), *found)
        return body

    def _metadata(self, request: _Reader) -> bytes:
        (count,) = request.take(">i")
        topics = [request.text() for _ in range(count)]
        self.metadata_topics.append(topics)
        self.metadata_at.append(time.monotonic())
        return self.on_metadata(topics)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return found

    def text(self) -> str:
        (size,) = self.take(">h")
        self._position += size
        return self._data[self._position - size : self._position].decode()


class ScriptedLog:
    """A log for a ScriptedBroker: serves message sets of a few messages by offset, cut at the size asked for."""

    def __init__(self, end: int, start: int = 0, value_bytes: int = 20, batch: int = 10) -> None:
        self.start = start
        self._batch = batch
        self.end = end
        self._value_bytes = value_bytes

    def value(self, offset: int) -> bytes:
        return (b"%d " % offset).ljust(self._value_bytes, b".")

    def fetch(self, _topic: str, _partition: int, offset: int, max_bytes: int) -> tuple[int, int, bytes]:
        if not self.start <= offset <= self.end:
            return 1, -1, b""
        data = b"".join(_entry(at, self.value(at)) for at in range(offset, min(offset + self._batch, self.end)))
        return 0, self.end, data[:max_bytes]

    def offsets(self, _topic: str, _partition: int, time_ms: int) -> tuple[int, list[int]]:
        return 0, [self.end if time_ms == -1 else self.start]


def _entry(offset: int, value: bytes) -> bytes:
    body = struct.pack(">bbii", 0, 0, -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message
