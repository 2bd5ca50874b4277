"""An embedded broker of Kafka 0.8.2: the partitions that it leads, its answers, and faults in them.

The cluster's controller assigns its partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded import protocol as protocol
from zkconsumer.testing.embedded.broker import HOST, EmbeddedBroker, Part, materialize, send
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.log import PartitionLog
from zkconsumer.testing.embedded.messages import (
    ENTRY_OVERHEAD,
    NOT_LEADER,
    UNKNOWN_TOPIC_OR_PARTITION,
    Refusal,
    entries,
)
from zkconsumer.testing.embedded.protocol import BrokerAddress, Request, TopicPartition
from zkconsumer.testing.embedded.requests import Cluster, Codes, RequestHandler
from zkconsumer.testing.embedded.segment import LogSlice
from zkconsumer.testing.embedded.server import Connection
from zkconsumer.testing.embedded.settings import BrokerSettings
from zkconsumer.testing.embedded.storage import LogStorage
from zkconsumer.testing.errors import KitError

_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_AFTER = (faults.CLOSE, faults.GARBAGE, faults.WRONG_CORRELATION_ID, faults.CUT_TAIL)


class MovesLeaders(Cluster, Protocol):
    """A cluster that can move a leader, which a fault may ask for."""

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition."""


class Broker08(EmbeddedBroker):
    """A broker of the protocol of Kafka 0.8.2.

    Threads: every method from any thread.
    """

    def __init__(
        self, broker_id: int, folder: Path, cluster: MovesLeaders, settings: BrokerSettings, plan: FaultPlan,
        *, port: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            broker_id, folder, plan, port=port, max_connections=settings.max_connections,
            max_request_bytes=settings.socket_request_max_bytes,
        )  # fmt: skip
        self._cluster = cluster
        self._settings = settings
        self._storage: LogStorage | None = None
        self._led: dict[TopicPartition, PartitionLog] = {}
        self._once_led: set[TopicPartition] = set()
        self._handler = RequestHandler(self)

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""
        return self._cluster

    @property
    def registration(self) -> BrokerAddress:
        """What it is registered as."""
        return BrokerAddress(self.broker_id, HOST, self.advertised_port or self.port)

    # ---- start and end

    def _open_logs(self) -> None:
        self._once_led.clear()
        interval_s = self._settings.log_retention_check_interval_ms / 1000
        self._storage = LogStorage(self.folder, check_interval_s=interval_s)

    def _leave_logs(self, *, clean: bool) -> None:
        led, self._led = self._led, {}
        if not clean:
            for log in led.values():
                log.close(flush=False)

    def _close_logs(self, *, clean: bool) -> None:
        if self._storage is not None:
            self._storage.close(clean=clean)
            self._storage = None

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

    def _serve_one(self, connection: Connection, frame: bytearray) -> bool:
        request = protocol.decode_request(frame)
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
            return send(connection, [_head(request, parts, after), *parts], after)
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
                self._cluster.move_leader(fault.topic or "", int(fault.partition or 0), fault.to_broker)
            else:
                self._faults.wait_out(fault, self.stopping)

    def _errors(self, request: Request, where: Sequence[TopicPartition]) -> Codes:
        codes: Codes = {}
        for fault in self._take((faults.ERROR,), request, where):
            for topic, partition in where:
                if fault.hits(topic, partition):
                    whole = partition == -1 and fault.partition is not None
                    codes[topic, int(fault.partition) if whole and fault.partition is not None else partition] = (
                        fault.code
                    )
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
        parts[at] = whole = materialize(parts[at])
        if asked_offset > fault.offset:
            return
        data = bytearray(whole)
        for position, size in entries(data):
            if _OFFSET.unpack_from(data, position)[0] >= fault.offset:
                data[position + ENTRY_OVERHEAD + size - 1] ^= 0xFF
                parts[at] = bytes(data)
                self._faults.take_one(fault)
                return


def _head(request: Request, parts: Sequence[Part], after: Sequence[Fault]) -> bytes:
    """What precedes the body of an answer; under another correlation id if a fault wants it."""
    size = sum(part.length if isinstance(part, LogSlice) else len(part) for part in parts)
    wrong = any(fault.kind == faults.WRONG_CORRELATION_ID for fault in after)
    return protocol.frame(request.correlation_id ^ 0x5A5A5A if wrong else request.correlation_id, size)


def _cut(parts: list[Part], at: int, count_bytes: int) -> None:
    data = materialize(parts[at])
    data = data[: max(len(data) - count_bytes, 0)]
    parts[at] = data
    head = parts[at - 1]
    if isinstance(head, bytes):
        parts[at - 1] = head[: -_LENGTH.size] + _LENGTH.pack(len(data))
