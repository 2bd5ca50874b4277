"""Shows and holds back the requests of one ZooKeeper client through a proxy.

Records the requests and replies of one ZooKeeper client through a proxy, and prints them as lines of text.

Holds a chosen request of a ZooKeeper client back, so that a fault can happen at exactly that point.

    with TcpProxy(server.connect, count_zookeeper=True) as link:
        with Hold(link, "get_data", "/offsets/") as hold:   # between claim and offset read
            ...                                             # a member joins through the link
            hold.wait()
            server.end_session(session_id)
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from simpleconsumer.closing import Closing
from zkconsumer.testing.proxy.tcp_proxy import TcpProxy
from zkconsumer.testing.proxy.zookeeper_exchanges import (
    Connected,
    Entry,
    Exchange,
    ExchangeReader,
    Fired,
    ZooKeeperRequest,
)
from zkconsumer.testing.waiting import wait_until


class ZooKeeperRecorder(Closing):
    """A proxy in front of a ZooKeeper server that keeps what passes.

    `with ZooKeeperRecorder(server) as recorder:` let one client connect to `recorder.proxy.address`; then
    `print("\\n".join(format_trace(recorder.entries())))`. Several clients at once would be mixed.
    Connections without a session are left out: members ask a slow server what it speaks. TLS cannot be read.

    Attributes:
        proxy: with the faults of any `TcpProxy`.
    """

    def __init__(self, upstream: tuple[str, int] | str) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self.proxy = TcpProxy(upstream, tap=self._connection)

    def entries(self) -> list[Entry]:
        """The exchanges so far, in the order in which they passed the proxy."""
        with self._lock:
            return list(self._entries)

    def close(self) -> None:
        """End the proxy; KitError if something passed that is not ZooKeeper's protocol."""
        self.proxy.close()

    def _connection(self) -> tuple[Callable[[bytes], object], Callable[[bytes], object]]:
        reader = ExchangeReader(self._found)
        return reader.up, reader.down

    def _found(self, entry: Entry) -> None:
        with self._lock:
            self._entries.append(entry)


def format_trace(entries: Iterable[Entry], names: Mapping[str, str] | None = None) -> list[str]:
    """One line an entry; each key of `names` is replaced by its value.

    What differs from run to run is left out: session ids, versions, times, addresses of brokers, replicas, and the
    order in which a server lists children.
    """
    lines = [format_entry(entry) for entry in entries]
    for old, new in (names or {}).items():
        lines = [line.replace(old, new) for line in lines]
    return lines


def format_entry(entry: Entry) -> str:
    """The entry as one line, see `format_trace`."""
    if isinstance(entry, Fired):
        return f"* {entry.path} {entry.happened}"
    if isinstance(entry, Connected):
        resumed = entry.asked_id and entry.session_id == entry.asked_id
        return "connect -> " + ("resumed" if resumed else "new session" if entry.session_id else "session is over")
    asked = " ".join((entry.kind, *([entry.path] if entry.path else ()), *entry.paths, *entry.flags))
    if entry.kind in ("create", "set"):
        asked += f" {_text(entry.data)}"
    if entry.kind == "multi":
        asked += "".join(f" [{format_entry(part)}]" for part in entry.parts)
    return f"{asked} -> {_answer(entry)}"


def _answer(exchange: Exchange) -> str:
    if not exchange.is_answered:
        return "no answer"
    if exchange.fault is not None:
        return exchange.fault.value
    if exchange.kind == "get":
        return _canonical(exchange.data)
    if exchange.kind == "children":
        return ", ".join(sorted(exchange.children)) or "none"
    return "ok"


_TIME = re.compile(r'("timestamp":)"\d+"')
_MOVING = {"timestamp": "<ms>", "host": "<host>", "port": 0, "jmx_port": 0, "endpoints": []}


def _text(data: bytes | None) -> str:
    """Data as it was written."""
    return "null" if data is None else _TIME.sub(r'\1"<ms>"', data.decode("utf-8", "backslashreplace"))


def _canonical(data: bytes | None) -> str:
    """Data as it was read: JSON with its keys in order, since its writers order them as they like."""
    if data is None or not data.startswith(b"{"):
        return _text(data)
    try:
        value = json.loads(data)
    except ValueError:
        return _text(data)
    shown = {key: _MOVING.get(key, held) for key, held in value.items()}
    partitions = shown.get("partitions")
    if isinstance(partitions, dict):
        shown["partitions"] = sorted(partitions, key=lambda name: (len(name), name))
    return json.dumps(shown, sort_keys=True, separators=(",", ":"))


class Hold:
    """Stops a link towards the server when a request of a kind is read, before it is sent on.

    Later requests of the client wait too, pings included; answers and events go on coming. Bytes that were read in one
    piece with the request are held with it.

    Threads: every method from any thread.
    """

    def __init__(self, link: TcpProxy, kind: str, path: str = "", *, number: int = 1) -> None:
        """Lie in wait at once.

        Args:
            link: with `count_zookeeper`.
            kind: as `TcpProxy.requests` names it, such as `create`; a part of a multi is as good.
            path: a part of the path of the request.
            number: the first, second ... such request; parts of one multi are one.
        """
        self.held: ZooKeeperRequest | None = None
        self._link = link
        self._kind = kind
        self._path = path
        self._left = number
        self._last_frame: int | None = None
        self._lock = threading.Lock()
        link.add_listener(self._see)

    def _see(self, request: ZooKeeperRequest) -> None:
        with self._lock:
            if self._left == 0 or request.kind != self._kind or self._path not in request.path:
                return
            if request.frame != self._last_frame:
                self._last_frame = request.frame
                self._left -= 1
            if self._left == 0:
                self.held = request
                self._link.stall("up")

    def wait(self, timeout_s: float = 30.0) -> ZooKeeperRequest:
        """The request that is held, once it has come.

        Raises:
            WaitTimeout: it did not in time.
        """
        what = f"request {self._kind} {self._path} on the link at {self._link.address}"
        wait_until(lambda: self.held is not None, timeout_s, what, state=lambda: self._link.seen_requests()[-5:])
        assert self.held is not None
        return self.held

    def release(self) -> None:
        """Let everything pass, now and later; a second call does nothing."""
        self._link.remove_listener(self._see)
        with self._lock:
            was_held, self._left = self.held is not None, 0
        if was_held:
            self._link.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
