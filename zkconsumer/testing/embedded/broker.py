"""An embedded broker without its protocol: the socket, start, stop, pause, and the loop that answers requests.

`leading_broker.LeadingBroker` and `kafka07.broker.Broker07` add the logs and the requests of their generation.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.protocol import BadRequest
from zkconsumer.testing.embedded.registries.registry import RegistryUnavailable
from zkconsumer.testing.embedded.server import BrokerServer, Connection
from zkconsumer.testing.errors import KitError

HOST: Final = "127.0.0.1"
Part = bytes | LogSlice
_log = logging.getLogger(__name__)


class NoAnswer(Exception):  # noqa: N818
    """The connection is to be closed instead of an answer."""


class EmbeddedBroker(ABC):
    """One broker of an `EmbeddedCluster`.

    Threads: every method from any thread.

    Attributes:
        broker_id: its id.
        folder: its data folder.
        port: where it listens; 0 has it choose at its start.
        advertised_port: the port that clients get instead of `port`, from the next start on.
    """

    def __init__(
        self, broker_id: int, folder: Path, plan: FaultPlan, *, port: int, max_connections: int, max_request_bytes: int
    ) -> None:
        self.broker_id = broker_id
        self.folder = folder
        self.port = port
        self.advertised_port: int | None = None
        self.stopping = threading.Event()
        self._faults = plan
        self._max_connections = max_connections
        self._max_request_bytes = max_request_bytes
        self._flowing = threading.Event()
        self._flowing.set()
        self._server: BrokerServer | None = None

    # ---- where it is

    @property
    def running(self) -> bool:
        """True between its start and its end."""
        return self._server is not None

    @property
    def address(self) -> str:
        """`host:port` as advertised to clients."""
        return f"{HOST}:{self.advertised_port or self.port}"

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
        self._open_logs()
        try:
            self._server = BrokerServer(
                HOST, self.port, f"embedded broker {self.broker_id}", self._serve,
                max_connections=self._max_connections, max_request_bytes=self._max_request_bytes,
            )  # fmt: skip
        except BaseException:
            self._close_logs(clean=True)
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
        self._leave_logs(clean=clean)
        if server is not None:
            server.close(abruptly=not clean)
        self._close_logs(clean=clean)

    def pause(self) -> None:
        """Answer nothing until `resume()`; connections are still accepted, and the ZooKeeper session lives on."""
        self._flowing.clear()

    def resume(self) -> None:
        """Go on after `pause()`."""
        self._flowing.set()

    @abstractmethod
    def _open_logs(self) -> None:
        """Take the data folder; KitError if another broker has it."""

    @abstractmethod
    def _leave_logs(self, *, clean: bool) -> None:
        """Called before connections are closed; not `clean`: nothing more may be stored from here on."""

    @abstractmethod
    def _close_logs(self, *, clean: bool) -> None:
        """Give the data folder back; does nothing without one."""

    # ---- requests

    def _serve(self, connection: Connection) -> None:
        """Answer one request after the other until the client leaves, or one is answered by closing."""
        try:
            while not self.stopping.is_set():
                frame = connection.read_frame()
                if frame is None:
                    return
                self._flowing.wait()
                if self.stopping.is_set() or not self._serve_one(connection, frame):
                    return
        except (BadRequest, NoAnswer, RegistryUnavailable) as reason:
            _log.info("broker %d closes a connection: %s", self.broker_id, reason)
        except OSError as error:
            _log.debug("broker %d lost a connection: %s", self.broker_id, error)
        except Exception:  # noqa: BLE001 - top of the thread; as in Java, it costs this connection alone
            _log.exception("broker %d closes a connection", self.broker_id)

    @abstractmethod
    def _serve_one(self, connection: Connection, frame: bytearray) -> bool:
        """Answer a request; False if the connection is to be closed.

        Raises:
            BadRequest, NoAnswer, RegistryUnavailable: the connection is to be closed.
        """


def send(
    connection: Connection,
    parts: Sequence[Part],
    after: Sequence[Fault],
    wait_out: Callable[[Fault], object] = lambda stall: None,
) -> bool:
    """Send an answer, or what faults make of it; False if the connection is to be closed.

    Args:
        wait_out: returns when the time of a fault is over, or the broker stops.
    """
    by_kind = {fault.kind: fault for fault in after}
    if faults.GARBAGE in by_kind:
        connection.send([by_kind[faults.GARBAGE].data])
        return True
    if faults.CLOSE in by_kind:
        connection.send([_whole(parts)[: by_kind[faults.CLOSE].count_bytes]])
        return False
    if faults.STALL in by_kind:
        stall, whole = by_kind[faults.STALL], _whole(parts)
        connection.send([whole[: stall.count_bytes]])
        wait_out(stall)
        parts = [whole[stall.count_bytes :]]
    connection.send(parts)
    return True


def _whole(parts: Sequence[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, LogSlice) else part for part in parts)


def size_of(part: Part) -> int:
    """Return how many bytes a part of an answer has."""
    return part.length if isinstance(part, LogSlice) else len(part)


def materialize(part: Part) -> bytes:
    """Return the bytes of a part of an answer; a slice is closed."""
    if not isinstance(part, LogSlice):
        return part
    try:
        return part.read()
    finally:
        part.close()
