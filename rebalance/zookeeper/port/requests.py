"""Requests to ZooKeeper and its replies as plain values, and the interface of the port that carries them. Pure.

The coordination uses these alone and no client library, so that a simulated ZooKeeper can replace the real one. The
port to the real one is `rebalance.zookeeper.port.kazoo_port`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Fault(enum.Enum):
    """The reason why ZooKeeper refused a request."""

    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "version moved"
    NOT_EMPTY = "node has children"
    NO_CHILDREN_FOR_EPHEMERALS = "an ephemeral node cannot have children"
    NO_AUTH = "not authorised"
    CONNECTION_LOSS = "connection lost, result unknown"
    SESSION_EXPIRED = "session expired"
    ROLLED_BACK = "another operation of the multi failed"
    OTHER = "refused by ZooKeeper"

    @property
    def is_unknown(self) -> bool:
        """Whether the operation may have been applied all the same."""
        return self is Fault.CONNECTION_LOSS

    @property
    def is_lost(self) -> bool:
        """Whether nothing was answered, because the connection or the session ended."""
        return self in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED)

    @property
    def is_refusal(self) -> bool:
        """Whether a read was refused: the content of the node stays unknown, even if it is read again soon."""
        return self is not Fault.NO_NODE and not self.is_lost

    @property
    def needs_rights(self) -> bool:
        """Whether the session has no right to do it: an administrator can grant it."""
        return self is Fault.NO_AUTH


class Stat(NamedTuple):
    """The fields of a znode's stat that this project needs."""

    version: int
    cversion: int
    ephemeral_owner: int
    czxid: int
    pzxid: int
    mzxid: int = 0
    created_ms: int = 0


class WatchEvent(NamedTuple):
    """A watch that fired on `path`."""

    path: str


Watch = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True)
class Exists:
    """Answer: `Stat`, or `None` without such a node (not a fault)."""

    path: str
    watch: Watch | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GetData:
    """Answer: `(bytes, Stat)`."""

    path: str
    watch: Watch | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GetChildren:
    """Answer: `(list of names, Stat)`."""

    path: str
    watch: Watch | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Create:
    """Answer: the path; `sequence` has ZooKeeper add a number to it."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Answer: the new `Stat`. Version -1 means any."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Answer: `True`. Version -1 means any."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Answer: `True`; only inside a multi."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Answer: the path; the server has caught up with its leader by then."""

    path: str


@dataclass(frozen=True, slots=True)
class Multi:
    """Answer: a list with one result or `Fault` an operation; a fault anywhere means that nothing was done."""

    operations: tuple[Create | SetData | Delete | Check, ...]


Read = Exists | GetData | GetChildren
Request = Read | Create | SetData | Delete | Sync | Multi


class Reply(NamedTuple):
    """The answer to one request.

    `sent_at` is the clock just before the request was sent: a lease may count from it. `path` is the node of a fault,
    where one reply stands for several requests.
    """

    value: Any
    fault: Fault | None
    sent_at: float
    reason: str = ""
    path: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether our side has closed the connection, so that no later request is answered either."""
        return self.fault is not None and self.fault.is_lost and "Connection has been closed" in self.reason


class FailedAttempt(NamedTuple):
    """An attempt to connect that failed.

    Attributes:
        server: host, as it was given, and port.
        stage: "connect" (TCP and TLS), "session", or "credentials".
        error: the error that ended it, without kazoo's wrapping.
    """

    server: tuple[str, int]
    stage: str
    error: BaseException


class SessionChange(NamedTuple):
    """A change of the session: "connected" (with id and granted time-out), "suspended", "expired", "refused"."""

    what: str
    session_id: int = 0
    timeout_s: float = 0.0
    reason: str = ""


class ZooKeeperPort(Protocol):
    """The interface to ZooKeeper; every call returns at once.

    Threads: `done`, watches and `on_session` are called on the port's one callback thread, in the order in which the
        server's answers arrived; they must only enqueue.
    """

    def start(self, on_session: Callable[[SessionChange], None]) -> None: ...

    def send(self, request: Request, done: Callable[[Reply], None]) -> None: ...

    def read(self, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
        """Send reads without watches together; `done` gets their replies, in their order, when all are there."""

    def drop_connection(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...


def read_singly(port: ZooKeeperPort, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
    """Send reads one by one, for ports that cannot send them together. Source: `ZooKeeperPort.read`."""
    replies: dict[int, Reply] = {}

    def answered(number: int, reply: Reply) -> None:
        replies[number] = reply
        if len(replies) == len(requests):
            done([replies[each] for each in range(len(requests))])

    for number, request in enumerate(requests):
        port.send(request, lambda reply, number=number: answered(number, reply))  # type: ignore[misc]
