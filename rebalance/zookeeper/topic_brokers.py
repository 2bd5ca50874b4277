"""Reads the partitions of one topic of Kafka 0.7: its brokers, which are its children, and the number that each has.

The list of brokers is watched, and so is each number. A broker registers its number once, in an ephemeral node, and a
broker that comes back with another number is another child; but an operator may write another number into the node.
Members that knew it and members that did not would then compute different assignments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.port.requests import Fault, GetChildren, GetData, Reply, WatchEvent

__all__ = ["BrokersReading"]

log = logging.getLogger(__name__)


class BrokersReading:
    """One read of one topic.

    Args:
        ask: sends requests.
        topic: which one.
        changed: the watch on the list of its brokers.
        number_changed: the watch on the number of each broker.
        done: called once: `done(partitions, None)`; `done(None, None)` when there is no such topic;
            `done(None, (question, reply))` when a node of it could not be read.

    Threads: the coordinator's alone, but for the watch callbacks.
    """

    def __init__(
        self,
        ask: Ask,
        topic: str,
        changed: Callable[[WatchEvent], None],
        number_changed: Callable[[WatchEvent], None],
        done: Callable[[tuple[str, ...] | None, tuple[GetData | GetChildren, Reply] | None], None],
    ) -> None:
        self._ask = ask
        self._topic = topic
        self._changed = changed
        self._number_changed = number_changed
        self._done = done
        self._counts: dict[int, int] = {}
        self._open = 0
        self._failed: tuple[GetData | GetChildren, Reply] | None = None

    def start(self) -> None:
        """Send the first request."""
        path = znodes.topic_path(self._topic)
        self._ask(GetChildren(path, self._changed), lambda reply: self._listed(GetChildren(path), reply))

    def _listed(self, question: GetChildren, reply: Reply) -> None:
        if reply.fault is Fault.NO_NODE:
            self._done(None, None)
            return
        if reply.fault is not None:
            self._done(None, (question, reply))
            return
        brokers = znodes.broker_ids(reply.value[0])
        if not brokers:
            self._done((), None)
        self._open = len(brokers)
        for broker in brokers:
            read = GetData(znodes_07.topic_broker_path(self._topic, broker), self._number_changed)
            self._ask(read, lambda reply, read=read, broker=broker: self._counted(read, broker, reply))  # type: ignore[misc]

    def _counted(self, question: GetData, broker: int, reply: Reply) -> None:
        self._open -= 1
        if reply.fault is None:
            self._take(question.path, broker, reply.value[0])
        elif reply.fault is not Fault.NO_NODE and (self._failed is None or reply.fault.is_lost):
            self._failed = (question, reply)
        # A broker that is gone by now has set off the watch on the list.
        if self._open == 0:
            self._done(None if self._failed else znodes_07.partition_names(self._counts), self._failed)

    def _take(self, path: str, broker: int, data: bytes | None) -> None:
        try:
            self._counts[broker] = znodes_07.parse_partition_count_07(path, data)
        except UnreadableNode as error:
            log.warning("broker %d counts as a broker without partitions of topic %s: %s", broker, self._topic, error)
