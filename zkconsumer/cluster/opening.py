"""Opens the way to the cluster that the settings of a consumer name: by its ZooKeeper, or by some of its brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rebalance.zookeeper.port.requests import SessionChange, ZooKeeperPort
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import configured_connection
from zkconsumer.config import ConsumerConfig

__all__ = ["OpenCluster", "metadata_reader", "open_cluster"]


class OpenCluster(NamedTuple):
    """A cluster that can be asked.

    Attributes:
        cluster: Its brokers, topics and leaders.
        port: The connection to its ZooKeeper; None where the brokers alone are asked.
    """

    cluster: Cluster
    port: ZooKeeperPort | None


def metadata_reader(
    config: ConsumerConfig, timeout_s: float, *, pins_topics: bool = False
) -> MetadataReader | None:
    """Return what asks the brokers of `bootstrap.servers`; None where `zookeeper.connect` is given."""
    if config.zookeeper_connect is not None or config.bootstrap_servers is None:
        return None
    addresses = [(each.host, each.port) for each in config.bootstrap_servers]
    return MetadataReader(addresses, config.client_id, timeout_s, pins_topics=pins_topics, security=config.security)


@contextmanager
def open_cluster(
    config: ConsumerConfig,
    timeout_s: float,
    on_change: Callable[[SessionChange], None] | None = None,
    *,
    pins_topics: bool = False,
) -> Iterator[OpenCluster]:
    """Yield the cluster that the settings name; a connection to ZooKeeper is closed at the end of the block.

    Args:
        config: The settings.
        timeout_s: Longest wait for one answer of a broker, in seconds.
        on_change: Called with each change of the session with ZooKeeper, if there is one, on the port's thread.
        pins_topics: As for `MetadataReader`.

    Raises:
        What `configured_connection` raises. Brokers are first asked when something is wanted of them.
    """
    reader = metadata_reader(config, timeout_s, pins_topics=pins_topics)
    if reader is not None:
        yield OpenCluster(_cluster(reader, config, timeout_s), None)
        return
    with configured_connection(config, on_change) as port:
        cluster = _cluster(port, config, timeout_s)
        yield OpenCluster(cluster, port)


def _cluster(source: ZooKeeperPort | MetadataReader, config: ConsumerConfig, timeout_s: float) -> Cluster:
    return Cluster(
        source, config.client_id, timeout_s, forced_generation=config.kafka_generation, security=config.security
    )
