"""What a connector reads of the brokers' side of ZooKeeper: who is there, which dialect they speak, who leads what.

Source: docs/COMPATIBILITY.md; node formats in `rebalance.znodes`.
"""

from __future__ import annotations

import logging

from rebalance import znodes
from rebalance.errors import GroupRefused, Kafka07Node, NoPlaintextListener, RebalanceError, UnreadableNode
from rebalance.requests import Exists, Fault, GetChildren, GetData, Reply, Request, ZooKeeperPort
from rebalance.zookeeper import call
from simpleconsumer.types import Broker

__all__ = ["ClusterReader", "ZooKeeperSilent"]

log = logging.getLogger(__name__)


class ZooKeeperSilent(RebalanceError):  # noqa: N818 - like its siblings, it says what happened
    """ZooKeeper did not answer a read in time, or refused it."""


class ClusterReader:
    """Reads `/brokers` with a deadline a read.

    Args:
        port: a started ZooKeeper port.
        timeout_s: for each read.

    Threads: any but the coordinator's; each call blocks its caller alone.
    """

    def __init__(self, port: ZooKeeperPort, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s

    def _call(self, request: Request, path: str) -> Reply:
        reply = call(self._port, request, self._timeout_s)
        if reply.fault not in (None, Fault.NO_NODE):
            raise ZooKeeperSilent(f"{path} cannot be read: {reply.reason or reply.fault.value}")
        return reply

    def brokers(self) -> list[Broker]:
        """The brokers that are registered and can be reached in plain text.

        Raises:
            ZooKeeperSilent: no answer in time.
        """
        found, _ = self._brokers()
        return found

    def _brokers(self) -> tuple[list[Broker], list[UnreadableNode]]:
        listing = self._call(GetChildren(znodes.BROKERS), znodes.BROKERS)
        names = [name for name in listing.value[0] if name.isdigit()] if listing.fault is None else []
        brokers: list[Broker] = []
        unreadable: list[UnreadableNode] = []
        for broker_id in sorted(int(name) for name in names):
            reply = self._call(GetData(znodes.broker_path(broker_id)), znodes.broker_path(broker_id))
            if reply.fault is Fault.NO_NODE:
                continue
            try:
                node = znodes.parse_broker(broker_id, reply.value[0])
            except UnreadableNode as error:
                unreadable.append(error)
            else:
                # Only fetch 2 brings timestamps; brokers tell by their registration that they are of 0.10 or later.
                fetch_version = 2 if node.registration_version >= 3 else 0
                brokers.append(Broker(node.id, node.host, node.port, fetch_version))
        return brokers, unreadable

    def refuse_foreign_generation(self, group: str) -> None:
        """Raise when the cluster cannot be spoken to, before anything is registered.

        Raises:
            GroupRefused: Kafka 0.7 brokers, or brokers of which none has a PLAINTEXT listener.
            ZooKeeperSilent: no answer in time.
        """
        brokers, unreadable = self._brokers()
        for error in unreadable:
            if isinstance(error, Kafka07Node):
                reason = f"the cluster runs Kafka 0.7, which this release does not speak yet ({error})"
                raise GroupRefused(group, reason)
            log.warning("a broker is left out: %s", error)
        if not brokers and any(isinstance(error, NoPlaintextListener) for error in unreadable):
            raise GroupRefused(group, "no broker of the cluster has a PLAINTEXT listener, and TLS and SASL "
                                      "listeners are not spoken yet")
        if not brokers:
            log.warning("no broker is registered under %s; waiting for one", znodes.BROKERS)

    def topic_exists(self, topic: str) -> bool:
        """Whether the topic stands in ZooKeeper; brokers must not be asked about one that does not: they make it."""
        path = znodes.topic_path(topic)
        return self._call(Exists(path), path).value is not None

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker id in the partition's state node, `None` without a leader."""
        path = znodes.partition_state_path(topic, partition)
        reply = self._call(GetData(path), path)
        if reply.fault is Fault.NO_NODE:
            return None
        try:
            state = znodes.parse_partition_state(path, reply.value[0])
        except UnreadableNode as error:
            log.warning("%s", error)
            return None
        return state.leader if state.leader is not None and state.leader >= 0 else None
