"""`BrokerAdmin`: inspects and changes the consumer groups of a cluster that is given by some of its brokers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from zkconsumer.admin.broker_groups import BrokerGroups
from zkconsumer.admin.values import GroupList
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.opening import metadata_reader
from zkconsumer.config.connection_settings import config_without_group

__all__ = ["BrokerAdmin"]

_ANSWER_S: Final = 5.0
"""Longest wait for one answer of a broker."""
_TOO_OLD: Final = "no broker is of Kafka 0.9 or later: groups are in ZooKeeper there; give --zookeeper, or use Admin"


class BrokerAdmin(BrokerGroups):
    """Inspects and changes the groups that the brokers of a cluster coordinate: Kafka 0.9 to 4.x, without ZooKeeper.

    Brokers are first asked when a method needs them, and each question has a connection of its own.

    Args:
        brokers: Some brokers of the cluster, `host:port,host:port`, as `bootstrap.servers`.
        properties: Settings of the consumer by their names in Kafka. Those for TLS and SASL are used; the others are
            only checked.
        client_id: The name under which brokers log and count the requests.

    Raises:
        ConfigError: A property has a value that is not allowed.

    Every method raises `BrokersSilent` when no broker answers, besides what `BrokerGroups` names.

    Threads: One at a time.
    """

    def __init__(
        self, brokers: str, *, properties: Mapping[str, object] | None = None, client_id: str = "zkconsumer-admin"
    ) -> None:
        given = {name: value for name, value in (properties or {}).items() if name != "zookeeper.connect"}
        config = config_without_group(None, {**given, "bootstrap.servers": brokers}, client_id)
        reader = metadata_reader(config, _ANSWER_S)
        assert reader is not None
        cluster = Cluster(reader, config.client_id, _ANSWER_S, security=config.security)
        super().__init__(cluster, config.client_id, config.where)

    def groups(self) -> GroupList:
        """Return all groups that brokers coordinate; `unlisted` says if all brokers are too old to do that."""
        found = super().groups()
        if found.groups or self._coordinators.brokers():
            return found
        return dataclasses.replace(found, unlisted=(*found.unlisted, _TOO_OLD))

    def close(self) -> None:
        """Do nothing: no connection is kept between two calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
