"""Watches the node of a topic in ZooKeeper: a topic that is deleted, or deleted and created again, is not read on.

Rules, and which failure each prevents:
- The incarnation of the topic is compared (`created_zxid`), not only its existence: the offsets of a topic that was
  created again belong to other messages.
- The node is looked up again after each reconnection: a watch does not outlive its session.
- Nothing is concluded from an answer that did not come: reading goes on while ZooKeeper is away.

Threads: The port's callback thread sets `reason`; any thread reads it.
"""

from __future__ import annotations

from collections.abc import Callable

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, Reply, SessionChange, Stat, WatchEvent, ZooKeeperPort

__all__ = ["TopicWatch"]


class TopicWatch:
    """Notices that a topic has gone.

    Args:
        topic: Its name.
        gone: Called once, on the port's callback thread; must return at once.

    Attributes:
        reason: Why the topic that was there at first is not there any more, a clause; empty while it is.
    """

    def __init__(self, topic: str, gone: Callable[[], None]) -> None:
        self.reason = ""
        self._topic = topic
        self._gone = gone
        self._port: ZooKeeperPort | None = None
        self._created_zxid: int | None = None
        self._round = 0

    def start(self, port: ZooKeeperPort, created_zxid: int) -> None:
        """Watch the incarnation of the topic that was created by this transaction."""
        self._port = port
        self._created_zxid = created_zxid
        self._look()

    def session_changed(self, change: SessionChange) -> None:
        """Look again after a reconnection."""
        if change.what == "connected":
            self._look()

    def _look(self) -> None:
        if self._port is None or self.reason:
            return
        self._round += 1
        this_round = self._round

        def changed(event: WatchEvent) -> None:
            if self._round == this_round:
                self._look()

        self._port.send(Exists(znodes.topic_path(self._topic), changed), self._answered)

    def _answered(self, reply: Reply) -> None:
        if reply.fault is not None or self.reason:
            return
        if reply.value is None:
            self.reason = f"topic {self._topic!r} was deleted"
        elif isinstance(reply.value, Stat) and reply.value.czxid != self._created_zxid:
            self.reason = f"topic {self._topic!r} was deleted and created again"
        if self.reason:
            self._gone()
