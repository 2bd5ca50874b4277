"""Records the requests and replies of one ZooKeeper client through a proxy, and prints them as lines of text."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping

from simpleconsumer.closing import Closing
from zkconsumer.testing.proxy.tcp_proxy import TcpProxy
from zkconsumer.testing.proxy.zookeeper_exchanges import Connected, Entry, Exchange, ExchangeReader, Fired

__all__ = ["ZooKeeperRecorder", "format_entry", "format_trace"]


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
        """What passed so far, in the order in which it passed the proxy."""
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
