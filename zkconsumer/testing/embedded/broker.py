"""A Kafka 0.8.2 broker in this process: sockets, logs, answers, and faults on demand.

Made by `EmbeddedCluster`, which assigns its partitions.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded import protocol as protocol
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.log import PartitionLog
from zkconsumer.testing.embedded.messages import (
    ENTRY_OVERHEAD,
    NOT_LEADER,
    UNKNOWN_TOPIC_OR_PARTITION,
    Refusal,
    entries,
)
from zkconsumer.testing.embedded.protocol import BadRequest, BrokerAddress, Request, TopicPartition
from zkconsumer.testing.embedded.registry import RegistryUnavailable
from zkconsumer.testing.embedded.requests import Cluster, Codes, NoAnswer, Part, RequestHandler
from zkconsumer.testing.embedded.segment import LogSlice
from zkconsumer.testing.embedded.server import BrokerServer, Connection
from zkconsumer.testing.embedded.settings import BrokerSettings
from zkconsumer.testing.embedded.storage import LogStorage
from zkconsumer.testing.errors import KitError

HOST: Final = "127.0.0.1"
_log = logging.getLogger(__name__)
_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_AFTER = (faults.CLOSE, faults.GARBAGE, faults.WRONG_CORRELATION_ID, faults.CUT_TAIL)


class MovesLeaders(Cluster, Protocol):
    """A cluster that can move a leader, which a fault may ask for."""

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition."""


class EmbeddedBroker:
    """One broker of an `EmbeddedCluster`.

    Threads: every method from any thread.

    Attributes:
        broker_id: its id.
        folder: its data folder.
        port: where it listens; 0 has it choose at its start.
        advertised_port: the port that clients get instead of `port`, from the next start on.
    """

    def __init__(
        self, broker_id: int, folder: Path, cluster: MovesLeaders, settings: BrokerSettings, plan: FaultPlan,
        *, port: int = 0,
    ) -> None:  # fmt: skip
        self.broker_id = broker_id
        self.folder = folder
        self.port = port
        self.advertised_port: int | None = None
        self.stopping = threading.Event()
        self._cluster = cluster
        self._settings = settings
        self._faults = plan
        self._flowing = threading.Event()
        self._flowing.set()
        self._storage: LogStorage | None = None
        self._server: BrokerServer | None = None
        self._led: dict[TopicPartition, PartitionLog] = {}
        self._once_led: set[TopicPartition] = set()
        self._handler = RequestHandler(self)

    # ---- where it is

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""
        return self._cluster

    @property
    def running(self) -> bool:
        """True between its start and its end."""
        return self._server is not None

    @property
    def address(self) -> str:
        """`host:port` as advertised to clients."""
        return f"{HOST}:{self.advertised_port or self.port}"

    @property
    def registration(self) -> BrokerAddress:
        """What it is registered as."""
        return BrokerAddress(self.broker_id, HOST, self.advertised_port or self.port)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._server.connections if self._server else 0

    # ---- start and end

    def start(self) -> None:
        """Open the data folder and listen.

        Raises:
            StartFailed: the port is taken. KitError: it runs, or another broker has its folder.
        """
        if self.running:
            raise KitError(f"broker {self.broker_id} runs already")
        self.stopping.clear()
        self._flowing.set()
        self._once_led.clear()
        interval_s = self._settings.log_retention_check_interval_ms / 1000
        self._storage = LogStorage(self.folder, check_interval_s=interval_s)
        try:
            self._server = BrokerServer(
                HOST, self.port, f"embedded broker {self.broker_id}", self._serve,
                max_connections=self._settings.max_connections,
                max_request_bytes=self._settings.socket_request_max_bytes,
            )  # fmt: skip
        except BaseException:
            self._storage.close()
            raise
        self.port = self._server.port

    def end(self, *, clean: bool) -> None:
        """Close connections and logs; not `clean`: as a killed process leaves them."""
        server, self._server = self._server, None
        if server is not None and not clean:
            server.break_off()  # before any thread can see that the broker ends
        self.stopping.set()
        self._faults.wake_stopped()
        self._flowing.set()
        led, self._led = self._led, {}
        if not clean:
            for log in led.values():
                log.close(flush=False)  # first of all: what a killed broker has not stored it must not store now
        if server is not None:
            server.close(abruptly=not clean)
        if self._storage is not None:
            self._storage.close(clean=clean)
            self._storage = None

    def pause(self) -> None:
        """Answer nothing until `resume()`; connections are still accepted, and the ZooKeeper session lives on."""
        self._flowing.clear()

    def resume(self) -> None:
        """Go on after `pause()`."""
        self._flowing.set()

    # ---- what it leads

    @property
    def led(self) -> set[TopicPartition]:
        """The partitions that it leads."""
        return set(self._led)

    def lead(self, topic: str, partition: int, config: dict[str, object], *, clean: bool | None = None) -> None:
        """Open the log of a partition and answer for it."""
        if self._storage is None:
            raise KitError(f"broker {self.broker_id} does not run")
        log = self._storage.open(topic, partition, self._settings.log.with_topic(config), clean=clean)
        self._led[topic, partition] = log
        self._once_led.add((topic, partition))

    def resign(self, topic: str, partition: int, *, delete: bool = False) -> None:
        """Close the log of a partition, flushed; clients that wait for its messages learn that the leader moved."""
        self._led.pop((topic, partition), None)
        if self._storage is not None:
            self._storage.release(topic, partition, delete=delete)
        if delete:
            self._once_led.discard((topic, partition))

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition that is led here.

        Raises:
            Refusal: 6 it is led elsewhere, and here is, or was, a replica; 3 otherwise.
        """
        log = self._led.get((topic, partition))
        if log is not None:
            return log
        replicas, _ = self._cluster.image.topics.get(topic, {}).get(partition, ((), None))
        if self.broker_id in replicas or (topic, partition) in self._once_led:
            raise Refusal(NOT_LEADER, f"{topic}/{partition} is not led by broker {self.broker_id}")
        raise Refusal(UNKNOWN_TOPIC_OR_PARTITION, f"{topic}/{partition} is not on broker {self.broker_id}")

    # ---- requests

    def _serve(self, connection: Connection) -> None:
        """Answer one request after the other until the client leaves, or one is answered by closing."""
        try:
            while not self.stopping.is_set():
                frame = connection.read_frame()
                if frame is None:
                    return
                self._flowing.wait()
                if self.stopping.is_set() or not self._serve_one(connection, protocol.decode_request(frame)):
                    return
        except (BadRequest, NoAnswer, RegistryUnavailable) as reason:
            _log.info("broker %d closes a connection: %s", self.broker_id, reason)
        except OSError as error:
            _log.debug("broker %d lost a connection: %s", self.broker_id, error)
        except Exception:  # noqa: BLE001 - top of the thread; as in Java, it costs this connection alone
            _log.exception("broker %d closes a connection", self.broker_id)

    def _serve_one(self, connection: Connection, request: Request) -> bool:
        """Answer a request; False if the connection is to be closed."""
        where = self._partitions_of(request)
        self._before(request, where)
        parts = self._handler.answer(request, self._errors(request, where))
        if parts is None:
            return True
        try:
            after = self._take(_AFTER, request, where)
            parts = self._spoil(request, parts, after)
            if self.stopping.is_set():
                return False
            return _send(connection, request.correlation_id, parts, after)
        finally:
            for part in parts:
                if isinstance(part, LogSlice):
                    part.close()

    def _partitions_of(self, request: Request) -> list[TopicPartition]:
        """What faults are matched with; partition -1 means a whole topic."""
        body = request.body
        if isinstance(body, protocol.Produce):
            return list(body.message_sets)
        if isinstance(body, protocol.Fetch):
            return protocol.by_topic(body.positions)
        if isinstance(body, protocol.Offsets):
            return list(body.wanted)
        if isinstance(body, protocol.Metadata):
            return [(topic, -1) for topic in body.topics or self._cluster.image.topics]
        if isinstance(body, protocol.OffsetCommit):
            return list(body.offsets)
        if isinstance(body, protocol.OffsetFetch):
            return list(body.partitions)
        return [("", -1)]

    # ---- faults

    def _take(self, kinds: Sequence[str], request: Request, where: Sequence[TopicPartition]) -> list[Fault]:
        return self._faults.take(kinds, self.broker_id, request.api, request.client_id, where)

    def _before(self, request: Request, where: Sequence[TopicPartition]) -> None:
        for fault in self._take((faults.MOVE_LEADER, faults.DELAY), request, where):
            if fault.kind == faults.MOVE_LEADER:
                self._cluster.move_leader(fault.topic or "", fault.partition or 0, fault.to_broker)
            else:
                self._faults.wait_out(fault, self.stopping)

    def _errors(self, request: Request, where: Sequence[TopicPartition]) -> Codes:
        codes: Codes = {}
        for fault in self._take((faults.ERROR,), request, where):
            for topic, partition in where:
                if fault.hits(topic, partition):
                    whole = partition == -1 and fault.partition is not None
                    codes[topic, fault.partition if whole and fault.partition is not None else partition] = fault.code
        return codes

    def _spoil(self, request: Request, parts: list[Part], after: Sequence[Fault]) -> list[Part]:
        """Damage the message sets of a fetch: the set of the n-th partition is part 2n + 1, its length ends part 2n."""
        body = request.body
        if not isinstance(body, protocol.Fetch):
            return parts
        corrupting = self._faults.pending(faults.CORRUPT)
        cutting = [fault for fault in after if fault.kind == faults.CUT_TAIL]
        for number, (topic, partition) in enumerate(protocol.by_topic(body.positions)):
            for fault in corrupting:
                if fault.matches(self.broker_id, request.api, request.client_id, [(topic, partition)]):
                    self._corrupt(fault, parts, 2 * number + 1, body.positions[topic, partition].offset)
            for fault in cutting:
                if fault.hits(topic, partition):
                    _cut(parts, 2 * number + 1, fault.count_bytes)
        return parts

    def _corrupt(self, fault: Fault, parts: list[Part], at: int, asked_offset: int) -> None:
        data = bytearray(_materialize(parts, at))
        if asked_offset > fault.offset:
            return
        for position, size in entries(data):
            if _OFFSET.unpack_from(data, position)[0] >= fault.offset:
                data[position + ENTRY_OVERHEAD + size - 1] ^= 0xFF
                parts[at] = bytes(data)
                self._faults.take_one(fault)
                return


def _send(connection: Connection, correlation_id: int, parts: Sequence[Part], after: Sequence[Fault]) -> bool:
    """Send an answer, or what faults make of it; False if the connection is to be closed."""
    size = sum(part.length if isinstance(part, LogSlice) else len(part) for part in parts)
    by_kind = {fault.kind: fault for fault in after}
    if faults.WRONG_CORRELATION_ID in by_kind:
        correlation_id ^= 0x5A5A5A
    head = protocol.frame(correlation_id, size)
    if faults.GARBAGE in by_kind:
        connection.send([by_kind[faults.GARBAGE].data])
        return True
    if faults.CLOSE in by_kind:
        whole = b"".join(part.read() if isinstance(part, LogSlice) else part for part in [head, *parts])
        connection.send([whole[: by_kind[faults.CLOSE].count_bytes]])
        return False
    connection.send([head, *parts])
    return True


def _materialize(parts: list[Part], at: int) -> bytes:
    part = parts[at]
    if isinstance(part, LogSlice):
        data = part.read()
        part.close()
        parts[at] = data
        return data
    return part


def _cut(parts: list[Part], at: int, count_bytes: int) -> None:
    data = _materialize(parts, at)
    data = data[: max(len(data) - count_bytes, 0)]
    parts[at] = data
    head = parts[at - 1]
    if isinstance(head, bytes):
        parts[at - 1] = head[: -_LENGTH.size] + _LENGTH.pack(len(data))
