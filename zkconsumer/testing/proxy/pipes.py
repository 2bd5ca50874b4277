"""The connections of a `TcpProxy`: two pipes each, moved by the proxy's one thread."""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Literal

Direction = Literal["up", "down"]
CHUNK_BYTES = 256 * 1024
PENDING_BYTES = 1024 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SLICE_S = 0.01


class Rules:
    """The rules of the proxy for bytes; changed under the proxy's lock."""

    def __init__(self) -> None:
        self.stalled: set[Direction] = set()
        self.budget_bytes: dict[Direction, int] = {}
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self.moved_bytes: dict[Direction, int] = {"up": 0, "down": 0}

    def spend(self, direction: Direction, count: int) -> None:
        """Note moved bytes; the link stalls altogether when a budget is used up."""
        self.moved_bytes[direction] += count
        if direction in self.budget_bytes:
            self.budget_bytes[direction] -= count
            if self.budget_bytes[direction] <= 0:
                self.budget_bytes.clear()
                self.stalled = {"up", "down"}


class Pipe:
    """One direction of one connection."""

    def __init__(
        self,
        direction: Direction,
        source: socket.socket,
        sink: socket.socket,
        rules: Rules,
        transform: Callable[[bytes], bytes],
    ) -> None:
        self.direction = direction
        self.source = source
        self.sink = sink
        self.rules = rules
        self.transform = transform
        self.pending: deque[tuple[float, memoryview]] = deque()
        self.pending_bytes = 0
        self.next_send_at = 0.0
        self.ended = False
        self.done = False

    @property
    def stalled(self) -> bool:
        """True while no byte moves this way."""
        return self.direction in self.rules.stalled

    def wants_read(self) -> bool:
        """True if bytes may be taken from the source now."""
        return not self.ended and not self.stalled and self.pending_bytes < PENDING_BYTES

    def send_at(self) -> float | None:
        """When the next bytes may be sent; None if there are none."""
        if self.stalled or not self.pending:
            return None
        return max(self.pending[0][0], self.next_send_at)

    def read(self, now: float) -> None:
        """Take what is there; OSError if the connection broke."""
        try:
            chunk = self.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.ended = True
            return
        moved = self.transform(chunk)
        if moved:
            self.pending.append((now + self.rules.delay_s, memoryview(moved)))
            self.pending_bytes += len(moved)

    def write(self, now: float) -> None:
        """Send what may be sent now; OSError if the connection broke."""
        due, data = self.pending[0]
        allowed = len(data)
        rate = self.rules.bytes_per_s
        if rate is not None:
            allowed = min(allowed, max(1, int(rate * SLICE_S)))
        allowed = min(allowed, self.rules.budget_bytes.get(self.direction, allowed))
        try:
            sent = self.sink.send(data[:allowed])
        except BlockingIOError:
            return
        if rate is not None:
            self.next_send_at = now + sent / rate
        self.pending_bytes -= sent
        if sent == len(data):
            self.pending.popleft()
        else:
            self.pending[0] = (due, data[sent:])
        self.rules.spend(self.direction, sent)

    def finish(self) -> None:
        """Pass an end of stream on, once everything before it was sent."""
        if self.ended and not self.pending and not self.done and not self.stalled:
            self.done = True
            self.sink.shutdown(socket.SHUT_WR)


class Connection:
    """A client's socket, the socket to the upstream server, and a pipe each way."""

    def __init__(
        self,
        client: socket.socket,
        upstream: tuple[str, int],
        rules: Rules,
        transforms: tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]],
    ) -> None:
        self.client = client
        self.server = socket.socket()
        self.connected = False
        for end in (client, self.server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.connect_ex(upstream)  # the outcome shows when it becomes writable
        self.up = Pipe("up", client, self.server, rules, transforms[0])
        self.down = Pipe("down", self.server, client, rules, transforms[1])

    def interest(self, now: float) -> tuple[dict[int, int], float | None]:
        """File descriptor -> poll events to wait for now, and the next moment at which that changes by itself."""
        if not self.connected:
            return {self.server.fileno(): select.POLLOUT}, None
        events: dict[int, int] = {}
        next_at: float | None = None
        for pipe in (self.up, self.down):
            if pipe.wants_read():
                events[pipe.source.fileno()] = events.get(pipe.source.fileno(), 0) | select.POLLIN
            send_at = pipe.send_at()
            if send_at is not None and send_at <= now:
                events[pipe.sink.fileno()] = events.get(pipe.sink.fileno(), 0) | select.POLLOUT
            elif send_at is not None:
                next_at = send_at if next_at is None else min(next_at, send_at)
        return events, next_at

    def serve(self, events: dict[int, int], now: float) -> bool:
        """Move bytes after a poll; False when the connection is over in order; OSError when it broke."""
        if not self.connected:
            if self.server.fileno() in events:
                error = self.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise ConnectionRefusedError(error, "upstream")
                self.connected = True
            return True
        for pipe in (self.up, self.down):
            if events.get(pipe.source.fileno(), 0) & ~select.POLLOUT and pipe.wants_read():
                pipe.read(now)
            send_at = pipe.send_at()
            if send_at is not None and send_at <= now and events.get(pipe.sink.fileno(), 0) & ~select.POLLIN:
                pipe.write(now)
            pipe.finish()
        return not (self.up.done and self.down.done)

    def close(self, reset: bool = False) -> None:
        """Close both sockets; with `reset` the peers see ECONNRESET instead of an end of stream."""
        for end in (self.client, self.server):
            if reset:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                except OSError:
                    pass  # the peer was faster
            end.close()
