"""A TCP proxy on loopback that can stall, drop, refuse, delay, throttle, and change what passes."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from simpleconsumer.closing import Closing
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.proxy.kafka_frames import KafkaRewriter, Rewrite
from zkconsumer.testing.proxy.pipes import Connection, Direction, Rules
from zkconsumer.testing.proxy.zookeeper_exchanges import RequestReader, ZooKeeperRequest

BOTH: frozenset[Direction] = frozenset({"up", "down"})
SEEN_REQUESTS = 100_000
BACKGROUND = frozenset({"ping", "connect", "close", "four_letter"})
JOIN_TIMEOUT_S = 10.0
T = TypeVar("T")
Tap = Callable[[], tuple[Callable[[bytes], object], Callable[[bytes], object]]]
"""Called for each new connection; the two functions are shown the bytes that go up, and the bytes that go down."""


class TcpProxy(Closing):
    """Stands between clients and one server; faults are switched on and off by method calls.

    "up" is from the client to the server, "down" the other way. A method that changes what passes is in force when it
    returns. `clear()` ends every fault except broken connections.

    Threads: one, however many connections; every method may be called from any thread.
    """

    def __init__(
        self,
        upstream: tuple[str, int] | str,
        *,
        port: int = 0,
        rewrite: Rewrite | None = None,
        generation_07: bool = False,
        count_zookeeper: bool = False,
        tap: Tap | None = None,
    ) -> None:
        """Listen at once.

        Args:
            upstream: `(host, port)` or `"host:port"` of the server.
            port: to listen on; 0 chooses a free one.
            rewrite: called in the proxy's thread with each Kafka exchange; see `kafka_frames`.
            generation_07: what `rewrite` sees is the protocol of Kafka 0.7.
            count_zookeeper: read the ZooKeeper requests that pass; see `requests`.
            tap: is shown the bytes of each connection, in the proxy's thread, as they are read; without `rewrite`
                and `count_zookeeper` only.
        """
        self._lock = threading.RLock()
        self._upstream = _address(upstream)
        self._rewrite = rewrite
        self._generation_07 = generation_07
        self._count_zookeeper = count_zookeeper
        self._tap = tap
        self._rules = Rules()
        self._connections: list[Connection] = []
        self._seen: deque[ZooKeeperRequest] = deque(maxlen=SEEN_REQUESTS)
        self._counts: Counter[str] = Counter()
        self._listeners: list[Callable[[ZooKeeperRequest], object]] = []
        self.accepted = 0
        self._listening = True
        self._commands: deque[Callable[[], None]] = deque()
        self._closed = False
        self._fault: BaseException | None = None
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    # ---- counts

    @property
    def address(self) -> str:
        """`127.0.0.1:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._connections)

    def moved_bytes(self, direction: Direction) -> int:
        """Bytes sent on in one direction so far."""
        with self._lock:
            return self._rules.moved_bytes[direction]

    @property
    def requests(self) -> Counter[str]:
        """How many ZooKeeper requests of each kind passed so far; a multi is counted by its parts."""
        with self._lock:
            return Counter(self._counts)

    @property
    def request_count(self) -> int:
        """ZooKeeper requests so far, without pings and without opening and closing sessions."""
        return sum(count for kind, count in self.requests.items() if kind not in BACKGROUND)

    def seen_requests(self) -> list[ZooKeeperRequest]:
        """The last 100,000 ZooKeeper requests with their paths, in the order in which they came."""
        with self._lock:
            return list(self._seen)

    def forget_requests(self) -> None:
        """Count ZooKeeper requests from zero."""
        with self._lock:
            self._counts.clear()
            self._seen.clear()

    def add_listener(self, listener: Callable[[ZooKeeperRequest], object]) -> None:
        """Call a function with each ZooKeeper request when it was read and is not sent on yet.

        Threads: it is called in the proxy's thread and must not wait; it may call this proxy, and so hold the request
        back (see `zookeeper_trace`).

        Raises:
            KitError: this proxy was made without `count_zookeeper`.
        """
        if not self._count_zookeeper:
            raise KitError(f"the proxy on port {self.port} reads no ZooKeeper requests: count_zookeeper=True is needed")
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[ZooKeeperRequest], object]) -> None:
        """Call it no more; nothing happens if it was never added."""
        with self._lock:
            self._listeners = [each for each in self._listeners if each != listener]

    # ---- faults

    def stall(self, direction: Direction | None = None) -> None:
        """Keep all sockets open and move no byte any more, in one direction or in both. New connections stall too."""
        self._change(lambda rules: rules.stalled.update([direction] if direction else BOTH))

    def half(self, open_direction: Direction) -> None:
        """Let bytes pass in one direction only."""
        self.stall("down" if open_direction == "up" else "up")

    def stall_after(self, count_bytes: int, direction: Direction = "down") -> None:
        """Move exactly `count_bytes` more bytes in a direction, over all connections, then stall both."""
        if count_bytes <= 0:
            self.stall()
        else:
            self._change(lambda rules: rules.budget_bytes.update({direction: count_bytes}))

    def delay(self, seconds: float) -> None:
        """Send what is read from now on `seconds` later, in both directions."""
        self._change(lambda rules: setattr(rules, "delay_s", seconds))

    def throttle(self, bytes_per_s: float | None) -> None:
        """Send at most so many bytes per second, connection and direction; None takes the limit away."""
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"{bytes_per_s} bytes per second: must be above 0; stall() stops the flow")
        self._change(lambda rules: setattr(rules, "bytes_per_s", bytes_per_s))

    def drop(self) -> int:
        """How many connections were broken, both ends of each by a reset."""
        return self._do(self._drop)

    def _drop(self) -> int:
        broken = len(self._connections)
        for connection in self._connections:
            connection.close(reset=True)
        self._connections.clear()
        return broken

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED); the port stays reserved and open connections stay open."""
        self._do(self._refuse)

    def _refuse(self) -> None:
        if self._listening:
            self._listening = False
            self._listener.close()
            self._listener = _bound(self.port)  # bound but not listening

    def cut(self) -> None:
        """`refuse()` and `drop()`: the server is gone."""
        self.refuse()
        self.drop()

    def clear(self) -> None:
        """End all faults: bytes pass and connections are accepted. Broken connections stay broken."""
        self._do(self._clear)

    def _clear(self) -> None:
        self._rules.stalled.clear()
        self._rules.budget_bytes.clear()
        self._rules.delay_s = 0.0
        self._rules.bytes_per_s = None
        if not self._listening:
            self._listener.listen(256)
            self._listening = True

    def rewrite(self, function: Rewrite | None) -> None:
        """Another rewriting function (or none) for connections made from now on."""
        with self._lock:
            self._rewrite = function

    def connect_to(self, upstream: tuple[str, int] | str) -> None:
        """Another upstream server for connections made from now on."""
        with self._lock:
            self._upstream = _address(upstream)

    def move(self, port: int = 0) -> int:
        """The new port after listening on another one; open connections stay."""
        return self._do(lambda: self._move(port))

    def _move(self, port: int) -> int:
        listener = socket.create_server(("127.0.0.1", port), backlog=256)
        listener.setblocking(False)
        self._listener.close()
        self._listener = listener
        self._listening = True
        self.port = int(listener.getsockname()[1])
        return self.port

    def close(self) -> None:
        """Close the port and all connections and end the thread.

        Raises:
            KitError: the proxy's thread had ended by an error, for example of the rewriting function.
        """
        with self._lock:
            self._closed = True
        self._wake()
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            raise KitError(f"the thread of the proxy on port {self.port} did not end within {JOIN_TIMEOUT_S:g} s")
        for end in (self._wake_read, self._wake_write):
            end.close()
        if self._fault is not None:
            raise KitError(f"the proxy on port {self.port} failed: {self._fault!r}") from self._fault

    # ---- the thread

    def _change(self, change: Callable[[Rules], object]) -> None:
        self._do(lambda: change(self._rules))

    def _do(self, command: Callable[[], T]) -> T:
        """The result of a command carried out between two turns of the thread.

        A socket must not be closed while the thread waits on it: the kernel would keep it, and its port, until the
        wait ends.
        """
        if threading.current_thread() is self._thread:  # called by the rewriting function
            return command()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(command())
            except OSError as error:
                future.set_exception(error)

        with self._lock:
            if self._closed or not self._thread.is_alive():
                raise KitError(f"the proxy on port {self.port} is closed: {self._fault!r}")
            self._commands.append(run)
        self._wake()
        return future.result(JOIN_TIMEOUT_S)

    def _wake(self) -> None:
        try:
            self._wake_write.send(b"x")
        except BlockingIOError:
            pass  # enough wake-ups wait already
        except OSError:
            pass  # closed

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # noqa: BLE001 - top of the thread: close() reports it
            self._fault = error
        finally:
            with self._lock:
                self._listener.close()
                for connection in self._connections:
                    connection.close(reset=True)
                self._connections.clear()

    def _turn(self) -> bool:
        """Wait for something to do and do it; False when the proxy was closed."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        with self._lock:
            if self._closed:
                return False
            while self._commands:
                self._commands.popleft()()
            now = time.monotonic()
            next_at: float | None = None
            if self._listening:
                poll.register(self._listener, select.POLLIN)
            for connection in self._connections:
                wanted, change_at = connection.interest(now)
                for descriptor, mask in wanted.items():
                    poll.register(descriptor, mask)
                if change_at is not None:
                    next_at = change_at if next_at is None else min(next_at, change_at)
        events = dict(poll.poll(None if next_at is None else max(1.0, (next_at - now) * 1000)))
        with self._lock:
            self._drain_wake()
            now = time.monotonic()
            self._connections = [each for each in list(self._connections) if self._served(each, events, now)]
            if self._listening:
                self._accept()
        return True

    def _served(self, connection: Connection, events: dict[int, int], now: float) -> bool:
        if connection.client.fileno() < 0:
            return False  # dropped meanwhile
        try:
            if connection.serve(events, now):
                return True
        except OSError:
            connection.close(reset=True)
            return False
        connection.close()
        return False

    def _drain_wake(self) -> None:
        try:
            self._wake_read.recv(4096)
        except BlockingIOError:
            pass

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            self.accepted += 1
            self._connections.append(Connection(client, self._upstream, self._rules, self._transforms()))

    def _transforms(self) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
        if self._rewrite is not None:
            rewriter = KafkaRewriter(self._rewrite, self._generation_07)
            return rewriter.upstream, rewriter.downstream
        if self._count_zookeeper:
            reader = RequestReader()

            def count(chunk: bytes) -> bytes:
                for request in reader.feed(chunk):
                    self._counts[request.kind] += 1
                    self._seen.append(request)
                    for listener in list(self._listeners):
                        listener(request)
                return chunk

            return count, bytes
        if self._tap is not None:
            up, down = self._tap()
            return _shown(up), _shown(down)
        return bytes, bytes


def _shown(show: Callable[[bytes], object]) -> Callable[[bytes], bytes]:
    def passed(chunk: bytes) -> bytes:
        show(chunk)
        return chunk

    return passed


def _address(upstream: tuple[str, int] | str) -> tuple[str, int]:
    if isinstance(upstream, str):
        host, _, port = upstream.rpartition(":")
        return host, int(port)
    return upstream


def _bound(port: int) -> socket.socket:
    """A socket that reserves a port without listening, so that connecting to it is refused."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", port))
    holder.setblocking(False)
    return holder
