"""The methods of `Admin` that read how far groups are behind."""

from __future__ import annotations

from rebalance.zookeeper.requests import ZooKeeperPort
from zkconsumer.admin.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.lag_monitor import LagChoice, LagMonitor
from zkconsumer.admin.lag_report import LagReport
from zkconsumer.cluster.cluster import Cluster

__all__ = ["LagAdministration"]


class LagAdministration:
    """Reads the lag of all groups without joining any; a part of `Admin`."""

    _port: ZooKeeperPort
    _cluster: Cluster
    _in_kafka: OffsetsInKafka
    _zookeeper: str

    def lag(self, *groups: str) -> LagReport:
        """Return how far groups are behind, all groups of the cluster when none is named.

        Each leader is asked once for the ends of the logs of all groups. Rates are not known: `lag_monitor` has them.

        Raises:
            NotFound: There is no such group.
        """
        return self.lag_monitor(LagChoice(groups)).read()

    def lag_monitor(self, choice: LagChoice | None = None) -> LagMonitor:
        """Return a monitor, whose `read()` returns the lag of now, and from the second call on also rates.

        Args:
            choice: Which groups and topics it reads; all without one.
        """
        return LagMonitor(self._port, self._cluster, self._in_kafka, self._zookeeper, choice or LagChoice())
