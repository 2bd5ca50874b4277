"""Links and connections between clients and servers of the simulated ZooKeeper, and records of its log."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from rebalance.zookeeper.port.requests import (
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Request,
    SetData,
    Sync,
)
from tests.simulator.pipe import Latency, Pipe
from tests.simulator.schedule import Schedule
from tests.simulator.tree import Change, ChangeKind

__all__ = [
    "CLOSE",
    "Client",
    "CloseSession",
    "Connection",
    "Link",
    "LinkedServer",
    "Mishaps",
    "Pending",
    "Read",
    "Record",
    "WatchKind",
    "Write",
]


class CloseSession:
    """The last request of a client: end my session."""

    path = ""


CLOSE: Final = CloseSession()

Read: TypeAlias = Exists | GetData | GetChildren
"""What every server answers itself."""

Write: TypeAlias = Create | SetData | Delete | Multi | Sync | CloseSession
"""What the leader has to see."""

WatchKind: TypeAlias = ChangeKind | None
"""What a watch event reports: what happened to the node, or None: to its children."""


class Mishaps:
    """What is to go wrong once with a client's connection, see `SimulatedZooKeeper`; None for nothing."""

    __slots__ = ("late_watch", "lose_reply", "lose_request", "move")

    def __init__(self) -> None:
        self.lose_reply: Callable[[Request], bool] | None = None
        self.lose_request: Callable[[Request], bool] | None = None
        self.late_watch: tuple[Callable[[str], bool], float] | None = None
        self.move: float | None = None

    def loses_request(self, request: Request | CloseSession) -> bool:
        """Whether this is the request to be lost."""
        matches = self.lose_request
        if matches is None or isinstance(request, CloseSession) or not matches(request):
            return False
        self.lose_request = None
        return True

    def loses_reply(self, request: Write) -> bool:
        """Whether the reply to this write is the one to be lost."""
        matches = self.lose_reply
        if matches is None or isinstance(request, CloseSession) or not matches(request):
            return False
        self.lose_reply = None
        return True

    def moves_s(self, request: Request | CloseSession | None) -> float | None:
        """If the session counts as moved at this request: how late the client comes anew, else None."""
        late_s = self.move
        if late_s is None or not isinstance(request, Multi):
            return None
        self.move = None
        return late_s

    def watch_delay_s(self, path: str) -> float:
        """How late the event of a watch on `path` is to be."""
        if self.late_watch is None or not self.late_watch[0](path):
            return 0.0
        delay_s = self.late_watch[1]
        self.late_watch = None
        return delay_s


class Client(Protocol):
    """What a server sends to a client; each call comes through the link.

    Attributes:
        lost_goodbye: whether the server had hung up before the client's last request arrived: it may not know.
    """

    mishaps: Mishaps
    lost_goodbye: bool

    def accepted(self, connection: Connection, session_id: int, timeout_s: float) -> None: ...

    def answered(self, connection: Connection, value: Any, fault: Fault | None, zxid: int) -> None: ...

    def ponged(self, connection: Connection) -> None: ...

    def watch_fired(self, connection: Connection, kind: WatchKind, path: str) -> None: ...

    def hung_up(self, connection: Connection, listening: bool) -> None: ...


class LinkedServer(Protocol):
    """What a client sends to a server; each call comes through the link.

    Attributes:
        number: its number, from 0.
        links: of all clients to it.
    """

    number: int
    is_frozen: bool
    links: dict[Link, None]

    def connect(self, connection: Connection, session_id: int, last_zxid: int, asked_s: float) -> None: ...

    def receive(self, connection: Connection, request: Request | CloseSession) -> None: ...

    def ping(self, connection: Connection) -> None: ...

    def hung_up(self, connection: Connection) -> None: ...

    def forget_link(self, link: Link) -> None: ...


class Link:
    """Between one client process and one server: two pipes, and whether bytes and connections get through.

    One pipe serves all connections in turn, so a connection's last bytes arrive before the next one's first.
    """

    __slots__ = ("down", "is_cut", "server", "stalled_down", "stalled_up", "up")

    def __init__(self, schedule: Schedule, rng: random.Random, latency: Latency, server: LinkedServer) -> None:
        self.server = server
        self.up = Pipe(schedule, rng, latency)
        self.down = Pipe(schedule, rng, latency)
        self.is_cut = self.stalled_up = self.stalled_down = False

    def stall(self, answers_only: bool) -> None:
        """Let no byte arrive, or none of the server's, until `heal`."""
        if not self.stalled_down:
            self.stalled_down = True
            self.down.hold()
        if not self.stalled_up and not answers_only:
            self.stalled_up = True
            self.up.hold()

    def cut(self) -> None:
        """Lose what is under way and let no connection be made until `heal`."""
        self.is_cut = True
        self.up.clear()
        self.down.clear()

    def heal(self) -> None:
        """Let everything through again."""
        self.is_cut = False
        if self.stalled_up:
            self.stalled_up = False
            self.up.release()
        if self.stalled_down:
            self.stalled_down = False
            self.down.release()


class Connection:
    """One connection of a client to a server.

    Attributes:
        open: whether the server holds it open; the client keeps its own state.
        session_id: 0 until the server has accepted the session.
        queue: requests in their order that wait for a write before them, writes included.
        data_watches, child_watches: the paths this connection has watches on.
    """

    __slots__ = ("child_watches", "client", "data_watches", "link", "open", "queue", "session_id", "timeout_s")

    def __init__(self, client: Client, link: Link) -> None:
        self.client = client
        self.link = link
        self.open = False
        self.session_id = 0
        self.timeout_s = 0.0
        self.queue: deque[Read | Pending] = deque()
        self.data_watches: set[str] = set()
        self.child_watches: set[str] = set()


class Pending:
    """A request that the leader has to see before it can be answered, and the leader's answer."""

    __slots__ = ("connection", "fault", "is_moved", "request", "value")

    def __init__(self, connection: Connection, request: Write) -> None:
        self.connection = connection
        self.request = request
        self.value: Any = None
        self.fault: Fault | None = None
        self.is_moved = False


class Record:
    """One entry of the replicated log.

    Attributes:
        zxid: its number.
        session_id: on whose behalf; 0 for operators.
        changes: what it did to the tree; nothing for a request that failed.
        closes: whether it ends that session.
        pending: the request that is answered by it.
        opened: the connection whose session it opens.
    """

    __slots__ = ("changes", "closes", "opened", "pending", "session_id", "zxid")

    def __init__(
        self,
        zxid: int,
        session_id: int,
        changes: tuple[Change, ...] = (),
        *,
        closes: bool = False,
        pending: Pending | None = None,
        opened: Connection | None = None,
    ) -> None:
        self.zxid = zxid
        self.session_id = session_id
        self.changes = changes
        self.closes = closes
        self.pending = pending
        self.opened = opened
