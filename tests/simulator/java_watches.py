"""The watches of a Java ZooKeeper client on a simulated port: they outlive a lost connection. Pure.

The port forgets watches with the connection, the Java client does not: it sends them all (`set_watches`), and the
server sets off those that something happened to. Here each path is read again and compared with what it was.

Source: org.apache.zookeeper.ClientCnxn and ZooKeeper 3.4.6 (ZKWatchManager), DataTree.setWatches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, Reply, Stat, WatchEvent, ZooKeeperPort

__all__ = ["Watches"]


class Watches:
    """All watches of one client: by path, with the zxid of the last change that it has seen.

    Args:
        fired: called for each that is set off: path, and "created", "data changed" (or deleted, which the port does not
            distinguish) or "children changed".
    """

    def __init__(self, port: ZooKeeperPort, fired: Callable[[str, str], None]) -> None:
        self._port = port
        self._fired = fired
        self._data: dict[str, int] = {}
        self._children: dict[str, int] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Of those on data, then of those on children."""
        return (*self._data, *self._children)

    def clear(self) -> None:
        """The session is over, and they with it."""
        self._data.clear()
        self._children.clear()

    def armed(self, request: Any, reply: Reply, is_forgotten: bool) -> None:
        """A read with a watch was answered; `is_forgotten` if the port has lost it since."""
        path: str = request.path
        if isinstance(request, GetChildren):
            self._children[path] = reply.value[1].pzxid
        else:
            stat: Stat | None = reply.value if isinstance(request, Exists) else reply.value[1]
            self._data[path] = stat.mzxid if stat is not None else 0
        if is_forgotten:
            self._look_again(path)

    def data_fired(self, event: WatchEvent) -> None:
        """The port's watch on a node."""
        mzxid = self._data.pop(event.path, None)
        if mzxid is not None:
            self._fired(event.path, "data changed" if mzxid else "created")

    def children_fired(self, event: WatchEvent) -> None:
        """The port's watch on the children of a node."""
        if self._children.pop(event.path, None) is not None:
            self._fired(event.path, "children changed")

    def look_again(self) -> None:
        """Arm all anew after a lost connection, and set off those that something happened to."""
        for path in dict.fromkeys(self.paths):
            self._look_again(path)

    def _look_again(self, path: str) -> None:
        if path in self._data:
            self._port.send(Exists(path, self.data_fired), partial(self._seen, path))
        if path in self._children:
            self._port.send(GetChildren(path, self.children_fired), partial(self._children_seen, path))

    def _seen(self, path: str, reply: Reply) -> None:
        if reply.fault is None and path in self._data:
            mzxid = 0 if reply.value is None else reply.value.mzxid
            if mzxid != self._data[path]:
                self.data_fired(WatchEvent(path))

    def _children_seen(self, path: str, reply: Reply) -> None:
        if path not in self._children:
            return
        if reply.fault is Fault.NO_NODE or (reply.fault is None and reply.value[1].pzxid != self._children[path]):
            self.children_fired(WatchEvent(path))
