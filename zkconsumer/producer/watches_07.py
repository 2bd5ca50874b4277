"""Watches the brokers and topics of Kafka 0.7 in ZooKeeper, so that a producer learns of changes at once.

Requests of one session are served in their order. So what is read after a watch was asked for is not older than the
watch, and no change is missed between the two.

Threads: any; ZooKeeper's callbacks only mark a path, and call what was given, which must not wait.

Source: kafka.producer.ZKBrokerPartitionInfo (0.7.2) watches the same nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from rebalance.zookeeper import znodes
from rebalance.zookeeper.requests import Exists, Fault, GetChildren, Reply, WatchEvent, ZooKeeperPort

__all__ = ["Watches07"]


class Watches07:
    """The watches of one producer.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
    """

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._watched: set[str] = set()
        self._changed: Callable[[], None] | None = None

    def notify(self, changed: Callable[[], None]) -> None:
        """Have this called at every change from now on."""
        self._changed = changed

    def watch(self, topics: Iterable[str]) -> None:
        """Watch the brokers, and the brokers of each of the topics; those that are watched already are left out."""
        if self._changed is None:
            return
        for path in (znodes.BROKERS, *map(znodes.topic_path, topics)):
            with self._lock:
                if path in self._watched:
                    continue
                self._watched.add(path)
            self._watch_children(path)

    def _watch_children(self, path: str) -> None:
        def fired(event: WatchEvent) -> None:
            self._forget(path)
            if self._changed is not None:
                self._changed()

        def answered(reply: Reply) -> None:
            if reply.fault is Fault.NO_NODE:
                self._port.send(Exists(path, fired), lost)
            else:
                lost(reply)

        def lost(reply: Reply) -> None:
            if reply.fault is not None:
                self._forget(path)

        self._port.send(GetChildren(path, fired), answered)

    def _forget(self, path: str) -> None:
        with self._lock:
            self._watched.discard(path)
