"""A broker of Kafka 0.7 on loopback for tests that always run: logs in memory, registered in a real ZooKeeper.

It answers fetch, offsets and produce requests as the real broker answers them (tests/golden/kafka-0.7.2).
`tests/admin/on_kafka_07/test_admin_07.py` and `tests/cli/test_cli_07.py` run the same with the real broker.
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient

PRODUCE, FETCH, MULTIPRODUCE, OFFSETS = 0, 1, 3, 4
LATEST, EARLIEST = -1, -2


class Broker07:
    """One broker.

    Args:
        zookeeper: host:port/chroot; the chroot exists.
        topics: Topic -> number of its partitions.

    Attributes:
        logs: (topic, number) -> bytes of the log.
        segments: (topic, number) -> starts of its segments, if there are more than one.
        closes: So many produce and multiproduce requests still are answered by a closed connection, and stored nowhere.
        requests: Kind -> how many came.
    """

    def __init__(self, zookeeper: str, broker_id: int, topics: dict[str, int]) -> None:
        self.logs = {(topic, number): bytearray() for topic, count in topics.items() for number in range(count)}
        self.segments: dict[tuple[str, int], list[int]] = {}
        self.closes = 0
        self.requests: Counter[int] = Counter()
        broker = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while head := self.rfile.read(4):
                    request = self.rfile.read(*struct.unpack(">i", head))
                    answer = broker.answer(request)
                    if answer is None:
                        return
                    self.wfile.write(answer)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self._client = KazooClient(zookeeper)
        self._client.start()
        port = self._server.server_address[1]
        self._client.create(f"/brokers/ids/{broker_id}", b"127.0.0.1-1400000000000:127.0.0.1:%d" % port, makepath=True,
                            ephemeral=True)  # fmt: skip
        for topic, count in topics.items():
            self._client.create(f"/brokers/topics/{topic}/{broker_id}", b"%d" % count, makepath=True, ephemeral=True)

    def answer(self, request: bytes) -> bytes | None:
        """The answer with its size, nothing for a produce request; None to close the connection."""
        kind, size = struct.unpack_from(">hh", request)
        if kind == MULTIPRODUCE:
            return self._take_all(request, size)
        topic, at = request[4 : 4 + size].decode(), 4 + size
        (number,) = struct.unpack_from(">i", request, at)
        self.requests[kind] += 1
        if kind == PRODUCE and self.closes:
            self.closes -= 1
            return None
        log = self.logs[topic, number]
        if kind == PRODUCE:
            log += request[at + 8 :]
            return b""
        if kind == FETCH:
            offset, most = struct.unpack_from(">qi", request, at + 4)
            is_there = 0 <= offset <= len(log)
            data = bytes(log[offset : offset + most]) if is_there else b""
            return struct.pack(">ih", 2 + len(data), 0 if is_there else 1) + data
        assert kind == OFFSETS, kind
        time_ms, most = struct.unpack_from(">qi", request, at + 4)
        starts = self.segments.get((topic, number), [0])
        found = {LATEST: [*([len(log)] if log else []), *starts[::-1]], EARLIEST: starts[:1]}.get(time_ms, [])[:most]
        body = struct.pack(f">hi{len(found)}q", 0, len(found), *found)
        return struct.pack(">i", len(body)) + body

    def _take_all(self, request: bytes, count: int) -> bytes | None:
        """The answer to a multiproduce request."""
        self.requests[MULTIPRODUCE] += 1
        if self.closes:
            self.closes -= 1
            return None
        at = 4
        for _ in range(count):
            (size,) = struct.unpack_from(">h", request, at)
            topic, at = request[at + 2 : at + 2 + size].decode(), at + 2 + size
            number, size = struct.unpack_from(">ii", request, at)
            self.logs[topic, number] += request[at + 8 : at + 8 + size]
            at += 8 + size
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
