"""Reads the bytes of ZooKeeper connections: requests alone, or both directions. Pure.

Reads both directions of a ZooKeeper connection: requests, replies, and watches that fired.

Source: ZooKeeper 3.4.6, zookeeper.jute, ZooDefs.java (OpCode), KeeperException.java (Code), MultiResponse.java.

Reads ZooKeeper requests out of a byte stream, to count them.

A frame is a 4-byte length, then `int xid, int type`, then the record. A multi is counted by its parts.
Source: ZooKeeper 3.4.6, zookeeper.jute, ZooDefs.java (OpCode), MultiTransactionRecord.java.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from rebalance.zookeeper.port.requests import Fault

MAX_FRAME_BYTES = 16 * 1024 * 1024
_START_BYTES = 4
_Start = Literal["session", "word", "tls"]
_WORD = re.compile(rb"[a-z]{4}")  # as the length of a frame it would be above MAX_FRAME_BYTES, like the next one
_TLS_HANDSHAKE = b"\x16\x03"
_EVENT, _PING = -1, -2
_MULTI = 14
_KINDS = {
    1: "create", 2: "delete", 3: "exists", 4: "get", 5: "set", 6: "get_acl", 7: "set_acl", 8: "children", 9: "sync",
    11: "ping", 12: "children", 13: "check", _MULTI: "multi", 15: "create", 100: "auth", 101: "set_watches",
    -11: "close",
}  # fmt: skip
_FLAGS = {0: (), 1: ("ephemeral",), 2: ("sequence",), 3: ("ephemeral", "sequence")}
_HAPPENED = {1: "created", 2: "deleted", 3: "data changed", 4: "children changed"}
_FAULTS = {
    -101: Fault.NO_NODE, -110: Fault.NODE_EXISTS, -103: Fault.BAD_VERSION, -111: Fault.NOT_EMPTY,
    -108: Fault.NO_CHILDREN_FOR_EPHEMERALS, -102: Fault.NO_AUTH, -4: Fault.CONNECTION_LOSS,
    -118: Fault.CONNECTION_LOSS, -112: Fault.SESSION_EXPIRED, -2: Fault.ROLLED_BACK, 0: None,
}  # fmt: skip


@dataclass(slots=True)
class Exchange:
    """A request and its answer.

    Attributes:
        kind: `create`, `delete`, `exists`, `get`, `set`, `children`, `check`, `sync`, `multi`, `set_watches`, ...
        flags: of `ephemeral`, `sequence` (creates) and `watch` (reads).
        data: the data that is written, or the data that a `get` was answered.
        version: that a `set`, `delete` or `check` demands; -1 for any.
        children: the names that `children` was answered, in the server's order.
        paths: of `set_watches`.
        parts: of a `multi`.
        is_answered: whether the answer was seen; without it `fault` means nothing.
        fault: why it was refused, None if it was done. `exists` without a node is `Fault.NO_NODE`, as on the wire; a
            multi has that of the operation that failed.
    """

    kind: str
    path: str = ""
    flags: tuple[str, ...] = ()
    data: bytes | None = None
    version: int = -1
    children: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    parts: tuple[Exchange, ...] = ()
    is_answered: bool = False
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Fired:
    """A watch event: the node was `created`, `deleted`, or its `data changed` or `children changed`."""

    happened: str
    path: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A connect request and its answer.

    Attributes:
        session_id: the session it is in; 0 when the server refused to go on with an old one, which is over.
        asked_id: the session that the client had, 0 for none.
        timeout_ms: what the server grants.
    """

    session_id: int
    asked_id: int
    timeout_ms: int


Entry = Exchange | Fired | Connected


class ExchangeReader:
    """One client connection: feed it both directions as the bytes pass.

    Each entry is passed on when it starts (a request when it is sent, its answer is filled in later), so entries come
    in the order in which their bytes passed. Pings are left out.

    A connection that opens no session is left out, too: a four-letter word (`srvr`), or the start of a TLS handshake
    that the server does not answer. A member sends both when a server is slow, to find out what speaks at the port.
    """

    def __init__(self, found: Callable[[Entry], object]) -> None:
        self._found = found
        self._first = b""
        self._starts: _Start | None = None
        self._up, self._down = _Frames(), _Frames()
        self._asked: Connected | None = None
        self._greeted = False
        self._waiting: deque[Exchange] = deque()

    def up(self, chunk: bytes) -> None:
        """Take bytes of the client; ValueError for what is no request."""
        if self._starts is None:
            self._first += chunk
            if len(self._first) < _START_BYTES:
                return
            self._starts, chunk = _start(self._first), self._first
        if self._starts != "session":
            return
        for frame in self._up.feed(chunk):
            if self._asked is None:
                frame.skip(4 + 8)
                timeout_ms, session_id = frame.int32(), frame.int64()
                self._asked = Connected(0, session_id, timeout_ms)
                continue
            frame.skip(4)
            exchange = _request(frame, frame.int32())
            if exchange.kind != "ping":
                self._waiting.append(exchange)
                self._found(exchange)

    def down(self, chunk: bytes) -> None:
        """Take bytes of the server; ValueError for an answer to no request, and for TLS."""
        if self._starts == "tls":
            raise ValueError("client and server speak TLS, which cannot be read: record a port without TLS")
        if self._starts == "word":
            return
        for frame in self._down.feed(chunk):
            if not self._greeted:
                self._greeted = True
                frame.skip(4)
                timeout_ms, session_id = frame.int32(), frame.int64()
                asked_id = self._asked.asked_id if self._asked else 0
                self._found(Connected(session_id if timeout_ms > 0 else 0, asked_id, timeout_ms))
                continue
            xid = frame.int32()
            frame.skip(8)
            code = frame.int32()
            if xid == _EVENT:
                happened = frame.int32()
                frame.skip(4)
                if happened in _HAPPENED:
                    self._found(Fired(_HAPPENED[happened], frame.text()))
            elif xid != _PING:
                self._answer(frame, code)

    def _answer(self, frame: _Frame, code: int) -> None:
        if not self._waiting:
            raise ValueError("ZooKeeper answered a request that was not seen")
        exchange = self._waiting.popleft()
        exchange.fault = _FAULTS.get(code, Fault.OTHER)
        exchange.is_answered = True
        if code == 0:
            _fill(exchange, frame)


def _start(first: bytes) -> _Start:
    """Classify a connection by the first bytes of its client."""
    if _WORD.match(first):
        return "word"
    return "tls" if first.startswith(_TLS_HANDSHAKE) else "session"


def _request(frame: _Frame, code: int) -> Exchange:
    """The request whose record comes next in a frame."""
    kind = _KINDS.get(code, f"type {code}")
    if kind == "multi":
        return Exchange(kind, parts=_parts(frame))
    if kind == "set_watches":
        frame.skip(8)
        return Exchange(kind, paths=tuple(path for _ in range(3) for path in frame.texts()))
    if kind in ("ping", "close", "auth") or code not in _KINDS:
        return Exchange(kind)
    exchange = Exchange(kind, frame.text())
    if kind in ("exists", "get", "children"):
        exchange.flags = ("watch",) if frame.boolean() else ()
    elif kind == "create":
        exchange.data = frame.buffer()
        for _ in range(max(frame.int32(), 0)):
            frame.skip(4)
            frame.buffer(), frame.buffer()
        exchange.flags = _FLAGS.get(frame.int32(), ("unknown",))
    elif kind in ("set", "delete", "check"):
        exchange.data = frame.buffer() if kind == "set" else None
        exchange.version = frame.int32()
    return exchange


def _parts(frame: _Frame) -> tuple[Exchange, ...]:
    parts: list[Exchange] = []
    while True:
        code, done = frame.int32(), frame.boolean()
        frame.skip(4)
        if done:
            return tuple(parts)
        parts.append(_request(frame, code))


def _fill(exchange: Exchange, frame: _Frame) -> None:
    """Put into an exchange what the server sent."""
    if exchange.kind == "get":
        exchange.data = frame.buffer()
    elif exchange.kind == "children":
        exchange.children = tuple(frame.texts())
    elif exchange.kind == "multi":
        for part in exchange.parts:
            _fill_part(part, frame)
        refused = [part.fault for part in exchange.parts if part.fault not in (None, Fault.ROLLED_BACK)]
        exchange.fault = refused[0] if refused else None


def _fill_part(part: Exchange, frame: _Frame) -> None:
    code = frame.int32()
    frame.skip(1 + 4)
    part.is_answered = True
    if code == -1:
        # Without an error of its own it was undone, or not started, because of another.
        part.fault = _FAULTS.get(frame.int32(), Fault.OTHER) or Fault.ROLLED_BACK
    elif part.kind == "create":
        frame.text()
    elif part.kind == "set":
        frame.skip(_STAT_BYTES)


_STAT_BYTES = 4 * 8 + 3 * 4 + 8 + 2 * 4 + 8


class _Frames:
    """The length-prefixed frames of one direction."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[_Frame]:
        """The frames that `chunk` completes."""
        self._buffer += chunk
        found = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">i", self._buffer)
            if not 0 <= length <= MAX_FRAME_BYTES:
                raise ValueError(f"a ZooKeeper frame of {length} bytes, at most {MAX_FRAME_BYTES} are expected")
            if len(self._buffer) < 4 + length:
                break
            found.append(_Frame(bytes(self._buffer[4 : 4 + length])))
            del self._buffer[: 4 + length]
        return found


class _Frame:
    """Reads one frame from its start; ValueError where it ends too early."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def skip(self, count_bytes: int) -> None:
        self._take(count_bytes)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def boolean(self) -> bool:
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def text(self) -> str:
        return (self.buffer() or b"").decode("utf-8", "replace")

    def texts(self) -> list[str]:
        return [self.text() for _ in range(max(self.int32(), 0))]

    def _take(self, count_bytes: int) -> bytes:
        taken = self._body[self._at : self._at + count_bytes]
        if len(taken) < count_bytes:
            raise ValueError(f"a ZooKeeper frame of {len(self._body)} bytes ends {count_bytes - len(taken)} too early")
        self._at += count_bytes
        return taken


KINDS = {
    1: "create", 2: "delete", 3: "exists", 4: "get_data", 5: "set_data", 6: "get_acl", 7: "set_acl", 8: "get_children",
    9: "sync", 11: "ping", 12: "get_children", 13: "check", 14: "multi", 15: "create", 19: "create", 21: "create",
    100: "auth", 101: "set_watches", 105: "set_watches", -11: "close",
}  # fmt: skip
MULTI = 14
WITH_PATH = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 19, 21}
CREATES = {1, 15, 19, 21}
CREATE_TTL = 21


@dataclass(frozen=True)
class ZooKeeperRequest:
    """One request or one part of a multi: what kind, on which path (empty where it has none).

    `frame` counts the frames of its connection; the parts of a multi share it.
    """

    kind: str
    path: str = ""
    in_multi: bool = False
    frame: int = field(default=0, compare=False)


class RequestReader:
    """Requests of one client connection, fed as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._greeted = False
        self._deaf = False
        self._frames = 0

    def feed(self, chunk: bytes) -> list[ZooKeeperRequest]:
        """The requests that `chunk` completes.

        The first frame is the connect request (kind `connect`). A four-letter word, or a length out of bounds, ends the
        reading of this connection.
        """
        if self._deaf:
            return []
        self._buffer += chunk
        found: list[ZooKeeperRequest] = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">i", self._buffer)
            if not 0 <= length <= MAX_FRAME_BYTES:
                self._deaf = True
                found.append(ZooKeeperRequest("four_letter" if not self._greeted else "unreadable"))
                break
            if len(self._buffer) < 4 + length:
                break
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            if self._greeted:
                self._frames += 1
                found += [replace(each, frame=self._frames) for each in parse_request(body)]
            else:
                self._greeted = True
                found.append(ZooKeeperRequest("connect"))
        return found


def parse_request(body: bytes) -> list[ZooKeeperRequest]:
    """The request in one frame (without its length); the parts of a multi.

    Raises:
        ValueError: the frame ends too early, or a multi has a part of unknown type.
    """
    try:
        _, kind = struct.unpack_from(">ii", body)
        if kind == MULTI:
            return _request_parts(body, 8)
        path = _string(body, 8)[0] if kind in WITH_PATH else ""
    except struct.error as error:
        raise ValueError(f"ZooKeeper request of {len(body)} bytes: {error}") from error
    return [ZooKeeperRequest(KINDS.get(kind, f"type {kind}"), path)]


def _request_parts(body: bytes, at: int) -> list[ZooKeeperRequest]:
    parts: list[ZooKeeperRequest] = []
    while True:
        kind, done, _ = struct.unpack_from(">i?i", body, at)
        at += 9
        if done:
            return parts
        path, at = _string(body, at)
        parts.append(ZooKeeperRequest(KINDS.get(kind, f"type {kind}"), path, in_multi=True))
        if kind in CREATES:
            at = _skip_string(body, at)
            (entries,) = struct.unpack_from(">i", body, at)
            at += 4
            for _ in range(max(entries, 0)):
                at = _skip_string(body, _skip_string(body, at + 4))
            at += 4 + (8 if kind == CREATE_TTL else 0)
        elif KINDS.get(kind) == "set_data":
            at = _skip_string(body, at) + 4
        elif KINDS.get(kind) in ("delete", "check"):
            at += 4
        else:
            raise ValueError(f"part of type {kind} in a multi of {len(body)} bytes")


def _string(body: bytes, at: int) -> tuple[str, int]:
    end = _skip_string(body, at)
    return body[at + 4 : end].decode("utf-8", "replace"), end


def _skip_string(body: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">i", body, at)
    return at + 4 + max(int(length), 0)
