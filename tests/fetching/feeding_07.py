"""A delivery with a stream of Kafka 0.7, and a broker that answers as a test says, over a real socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rebalance.lease import lease_clock
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import Broker, TopicPartition
from tests.fetching.feeding import HeldLease, config_of
from tests.fetching.frame_server import FrameServer
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.member.delivery import Delivery
from zkconsumer.streams.stream import KafkaStream, StreamParts

FETCH, MULTI_FETCH, OFFSETS = 1, 2, 4
DEADLINE_S = 15.0
P0, P1 = TopicPartition("t", "0-0"), TopicPartition("t", "0-1")


class ByteLog:
    """The log of a partition: entries from a position on.

    Attributes:
        data: The entries.
        start: Position of the first of them.
    """

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data = data
        self.start = start

    def fetch(self, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Error code and bytes, as a real broker answers."""
        if not self.start <= position <= self.start + len(self.data):
            return 1, b""
        return 0, self.data[position - self.start :][:max_bytes]

    def offsets(self, time_ms: int) -> tuple[int, list[int]]:
        """Error code and positions, the largest first; there is one segment."""
        ends = [self.start + len(self.data), self.start]
        return 0, ends if time_ms == -1 else ends[1:]


def part(code: int, data: bytes) -> bytes:
    """One part of a multifetch answer."""
    return struct.pack(">ih", 2 + len(data), code) + data


def framed(body: bytes) -> bytes:
    """A whole answer."""
    return struct.pack(">i", len(body)) + body


class ScriptedBroker07(FrameServer):
    """Speaks Kafka 0.7 as far as a test says.

    Attributes:
        logs: By number of the partition.
        fetched: (number, position, max bytes) of every partition of every fetch.
        kinds: Of every request.
        on_fetch: (number, position, max bytes) -> (error code, message set).
        on_offsets: (number, time, most) -> (error code, positions).
        instead_of: (kind, whole answer) -> the bytes to send, and whether to keep the connection.
    """

    def __init__(self, *logs: ByteLog) -> None:
        self.logs = list(logs)
        self.fetched: list[tuple[int, int, int]] = []
        self.kinds: list[int] = []
        self.on_fetch: Callable[[int, int, int], tuple[int, bytes]] = lambda number, position, size: self.logs[
            number
        ].fetch(position, size)
        self.on_offsets: Callable[[int, int, int], tuple[int, list[int]]] = lambda number, time_ms, _: self.logs[
            number
        ].offsets(time_ms)
        self.instead_of: Callable[[int, bytes], tuple[bytes, bool]] = lambda kind, answer: (answer, True)
        super().__init__()
        self.broker = Broker(0, "127.0.0.1", self.port, generation="kafka07")

    def _answer(self, connection: socket.socket, request: bytes) -> bool:
        (kind,) = struct.unpack_from(">h", request)
        self.kinds.append(kind)
        sent, goes_on = self.instead_of(kind, framed(self._body(kind, request)))
        connection.sendall(sent)
        return goes_on

    def _body(self, kind: int, request: bytes) -> bytes:
        if kind == OFFSETS:
            number, time_ms, most, _ = _asked(request, 2)
            code, found = self.on_offsets(number, time_ms, most)
            return struct.pack(f">hi{len(found)}q", code, len(found), *found)
        if kind == FETCH:
            code, data = self._fetch(*_asked(request, 2)[:3])
            return struct.pack(">h", code) + data
        assert kind == MULTI_FETCH, kind
        (count,) = struct.unpack_from(">h", request, 2)
        body, at = struct.pack(">h", 0), 4
        for _ in range(count):
            number, position, max_bytes, at = _asked(request, at)
            body += part(*self._fetch(number, position, max_bytes))
        return body

    def _fetch(self, number: int, position: int, max_bytes: int) -> tuple[int, bytes]:
        self.fetched.append((number, position, max_bytes))
        return self.on_fetch(number, position, max_bytes)


def _asked(request: bytes, at: int) -> tuple[int, int, int, int]:
    """What a request says from a byte on, behind the topic; and where it ends."""
    (length,) = struct.unpack_from(">h", request, at)
    number, wide, narrow = struct.unpack_from(">iqi", request, at + 2 + length)
    return number, wide, narrow, at + 2 + length + 16


class Rig07:
    """What a connector wires, without ZooKeeper and without a group, for one broker."""

    def __init__(self, broker: Broker, settings: dict[str, object]) -> None:
        settings = {
            "consumer_timeout_ms": int(DEADLINE_S * 1000),
            "fetch_message_max_bytes": 64 * 1024,
            "refresh_leader_backoff_ms": 20,
            "fetcher_backoff_ms": 20,
            **settings,
        }
        config = config_of(**settings)
        self.stream: KafkaStream[bytes, bytes] = KafkaStream(
            StreamParts("thread-0", config, HeldLease(), lease_clock, None, None)
        )
        self.directory = BrokerDirectory(config.client_id, 3.0, lambda: [broker], set, lambda names: {})
        self.delivery = Delivery(
            config, {("t", "thread-0"): self.stream}, self.directory, lease_clock, lambda partition, gone, restart: None
        )

    def start(self, partition: TopicPartition = P0, position: int = 0) -> None:
        """Have a partition read."""
        self.delivery.start(partition, "thread-0", position)

    def values(self, count: int) -> list[bytes]:
        """The values of so many messages."""
        return [next(self.stream).value for _ in range(count)]

    def next_within(self, seconds: float) -> list[bytes]:
        """The value of the next message, or nothing if none comes in time."""
        before, self.stream._timeout_ms = self.stream._timeout_ms, int(1000 * seconds)
        try:
            return [next(self.stream).value]
        except ConsumerTimeout:
            return []
        finally:
            self.stream._timeout_ms = before

    def is_silent(self) -> bool:
        """Whether no message comes for a while."""
        return not self.next_within(0.3)


@contextmanager
def rigged_07(broker: Broker, **settings: object) -> Iterator[Rig07]:
    """A rig, which is closed at the end."""
    rig = Rig07(broker, settings)
    try:
        yield rig
    finally:
        rig.delivery.stop(None, lease_clock())
        rig.delivery.close(lease_clock() + DEADLINE_S)


def plain(values: Sequence[bytes]) -> bytes:
    """A set of plain entries."""
    return bytes(KAFKA07.encode_messages(values, "none", None, None))
