"""An embedded broker of Kafka 0.8.2: its answers, and faults in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded import protocol as protocol
from zkconsumer.testing.embedded.broker import Part, send
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.leading_broker import LeadingBroker, MovesLeaders
from zkconsumer.testing.embedded.mishaps import Befallen
from zkconsumer.testing.embedded.protocol import Request
from zkconsumer.testing.embedded.reading import TopicPartition
from zkconsumer.testing.embedded.requests import RequestHandler
from zkconsumer.testing.embedded.server import Connection
from zkconsumer.testing.embedded.settings import BrokerSettings


class Broker08(LeadingBroker[PartitionLog]):
    """A broker of the protocol of Kafka 0.8.2.

    Threads: every method from any thread.
    """

    def __init__(
        self, broker_id: int, folder: Path, cluster: MovesLeaders, settings: BrokerSettings, plan: FaultPlan,
        *, port: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(broker_id, folder, cluster, settings, plan, PartitionLog, port=port)
        self._handler = RequestHandler(self)

    def _begin_epoch(self, log: PartitionLog, epoch: int) -> None:
        """The logs of Kafka 0.8 know no epochs."""

    def _serve_one(self, connection: Connection, frame: bytearray) -> bool:
        request = protocol.decode_request(frame)
        befallen = self._befallen(request)
        self._mishaps.before(befallen)
        parts = self._handler.answer(request, self._mishaps.errors(befallen))
        if parts is None:
            return True
        try:
            after = self._mishaps.after(befallen)
            parts = self._mishaps.spoil(befallen, parts, after)
            if self.stopping.is_set():
                return False
            whole = [_head(request, parts, after), *parts]
            return send(connection, whole, after, lambda stall: self._faults.wait_out(stall, self.stopping))
        finally:
            for part in parts:
                if isinstance(part, LogSlice):
                    part.close()

    def _befallen(self, request: Request) -> Befallen:
        """What faults go by."""
        fetched: list[tuple[TopicPartition, int]] = []
        if isinstance(request.body, protocol.Fetch):
            positions = request.body.positions
            fetched = [(where, positions[where].offset) for where in protocol.by_topic(positions)]
        return Befallen(request.api, request.client_id, self._partitions_of(request), fetched)

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


def _head(request: Request, parts: Sequence[Part], after: Sequence[Fault]) -> bytes:
    """What precedes the body of an answer; under another correlation id if a fault wants it."""
    size = sum(part.length if isinstance(part, LogSlice) else len(part) for part in parts)
    return protocol.frame(faults.correlation_id(request.correlation_id, after), size)
