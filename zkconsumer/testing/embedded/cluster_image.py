"""The view that an embedded broker of Kafka 0.8 or later has of its cluster, and its calls to the cluster."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from zkconsumer.testing.embedded.access_rules import AccessLists
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.leadership import PartitionState
from zkconsumer.testing.embedded.protocol import BrokerAddress, TopicPartition
from zkconsumer.testing.embedded.registries.registry import Registry

Codes = dict[TopicPartition, int]
"""Error codes that faults want, by partition; -1: the topic, or the group."""


@dataclass(frozen=True)
class ClusterImage:
    """The view that brokers have of the cluster.

    Attributes:
        brokers: the running brokers.
        topics: by topic and partition, replicas and state.
        topic_ids: of the topics that have one, 16 bytes each.
    """

    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    topics: dict[str, dict[int, tuple[tuple[int, ...], PartitionState]]] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)


class Cluster(Protocol):
    """The interface of a cluster to its brokers."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""

    @property
    def registry(self) -> Registry:
        """Where offsets of version 0 are kept."""

    @property
    def auto_create_topics(self) -> bool:
        """Whether asking for a topic makes it."""

    @property
    def num_partitions(self) -> int:
        """Of a topic for which nobody says how many."""

    @property
    def access_lists(self) -> AccessLists | None:
        """The rules of the cluster; None without an authorizer."""

    def look_again(self) -> None:
        """Have the controller compare soon what is registered with what is led."""

    def create_automatically(self, topic: str, *, partitions: int | None = None, config: dict[str, object]) -> None:
        """Register a topic unless it exists; its leaders follow."""

    def leading_log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition at its leader; Refusal 3, 5 or 6 without one."""

    def next_producer_id(self) -> int:
        """Return an id that no producer of the cluster has had."""


class Host(Protocol):
    """The interface of a broker for the code that answers its requests."""

    @property
    def broker_id(self) -> int:
        """Its id."""

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""

    @property
    def stopping(self) -> threading.Event:
        """Set when the broker ends."""

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition that is led here; Refusal 3 or 6 otherwise."""
