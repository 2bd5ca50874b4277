"""An embedded broker whose partitions are given to it by a controller: Kafka 0.8 and later.

`Broker08` here and `kafka011.broker.Broker011` add the requests of their generation.

An embedded broker of Kafka 0.8.2: its answers, and faults in them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded import protocol as protocol
from zkconsumer.testing.embedded.broker import HOST, EmbeddedBroker, Part, send
from zkconsumer.testing.embedded.cluster_image import Cluster
from zkconsumer.testing.embedded.disk.log import LogSettings, PartitionLog
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.disk.storage import LogStorage
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.mishaps import Befallen, Mishaps
from zkconsumer.testing.embedded.protocol import BrokerAddress, Request, TopicPartition
from zkconsumer.testing.embedded.requests import RequestHandler
from zkconsumer.testing.embedded.server import Connection
from zkconsumer.testing.embedded.settings import BrokerSettings
from zkconsumer.testing.errors import KitError
from zkconsumer_error import ErrorCode

Log = TypeVar("Log", bound=PartitionLog)


class MovesLeaders(Cluster, Protocol):
    """A cluster that can move a leader and end a broker, which a fault may ask for."""

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition."""

    def kill_broker(self, broker_id: int, *, expire: bool) -> None:
        """End a broker as SIGKILL does; with `expire` its session ends at once."""


class LeadingBroker(EmbeddedBroker, Generic[Log]):
    """A broker of a cluster with a controller.

    Threads: every method from any thread.
    """

    def __init__(
        self, broker_id: int, folder: Path, cluster: MovesLeaders, settings: BrokerSettings, plan: FaultPlan,
        make_log: Callable[..., Log], *, port: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            broker_id, folder, plan, port=port, max_connections=settings.max_connections,
            max_request_bytes=settings.socket_request_max_bytes,
        )  # fmt: skip
        self._cluster = cluster
        self._settings = settings
        self._make_log = make_log
        self._storage: LogStorage[Log] | None = None
        self._led: dict[TopicPartition, Log] = {}
        self._once_led: set[TopicPartition] = set()
        self._mishaps = Mishaps(
            plan, broker_id, self.stopping, cluster.move_leader, lambda each: cluster.kill_broker(each, expire=True)
        )

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""
        return self._cluster

    @property
    def log_settings(self) -> LogSettings:
        """The settings of its logs where their topics have none."""
        return self._settings.log

    @property
    def registration(self) -> BrokerAddress:
        """Its address as registered."""
        return BrokerAddress(self.broker_id, HOST, self.advertised_port or self.port)

    # ---- start and end

    def _open_logs(self) -> None:
        self._once_led.clear()
        interval_s = self._settings.log_retention_check_interval_ms / 1000
        self._storage = LogStorage(self.folder, self._make_log, check_interval_s=interval_s)

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

    def lead(
        self,
        topic: str,
        partition: int,
        config: dict[str, object],
        *,
        clean: bool | None = None,
        epoch: int = 0,
        end_offset: int | None = None,
    ) -> None:
        """Open the log of a partition and answer for it.

        Args:
            config: settings of the topic.
            clean: whether its files were closed in order; None: as the whole folder was.
            epoch: of the leader.
            end_offset: everything from there on is lost, as by an unclean election.
        """
        if self._storage is None:
            raise KitError(f"broker {self.broker_id} does not run")
        log = self._storage.open(topic, partition, self._settings.log.with_topic(config), clean=clean)
        if end_offset is not None:
            log.truncate(end_offset)
        self._begin_epoch(log, epoch)
        self._led[topic, partition] = log
        self._once_led.add((topic, partition))

    def stay_leader(self, topic: str, partition: int, epoch: int) -> None:
        """Go on leading in another epoch, or the same one."""
        log = self._led.get((topic, partition))
        if log is not None:
            self._begin_epoch(log, epoch)

    def configure(self, topic: str, partition: int, config: dict[str, object]) -> None:
        """Have a log keep to the settings of its topic from now on."""
        log = self._led.get((topic, partition))
        if log is not None:
            log.settings = self._settings.log.with_topic(config)

    @abstractmethod
    def _begin_epoch(self, log: Log, epoch: int) -> None:
        """Tell a log the epoch of its leader."""

    def resign(self, topic: str, partition: int, *, delete: bool = False) -> None:
        """Close the log of a partition, flushed; clients that wait for its messages learn that the leader moved."""
        self._led.pop((topic, partition), None)
        if self._storage is not None:
            self._storage.release(topic, partition, delete=delete)
        if delete:
            self._once_led.discard((topic, partition))

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition that is led here.

        Raises:
            Refusal: 6 it is led elsewhere, and here is, or was, a replica; 3 otherwise.
        """
        log = self._led.get((topic, partition))
        if log is not None:
            return log
        replicas, _ = self._cluster.image.topics.get(topic, {}).get(partition, ((), None))
        if self.broker_id in replicas or (topic, partition) in self._once_led:
            raise Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}/{partition} is not led by broker {self.broker_id}"
            )
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}/{partition} is not on broker {self.broker_id}")


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
        """The parts of a request that faults are matched with."""
        fetched: list[tuple[TopicPartition, int]] = []
        if isinstance(request.body, protocol.Fetch):
            positions = request.body.positions
            fetched = [(where, positions[where].offset) for where in protocol.by_topic(positions)]
        return Befallen(request.api, request.client_id, self._partitions_of(request), fetched)

    def _partitions_of(self, request: Request) -> list[TopicPartition]:
        """The partitions that faults are matched with; partition -1 means a whole topic."""
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
    """The bytes before the body of an answer; under another correlation id if a fault wants it."""
    size = sum(part.length if isinstance(part, LogSlice) else len(part) for part in parts)
    return protocol.frame(faults.correlation_id(request.correlation_id, after), size)
