"""The topics in which brokers keep what they coordinate: offsets of groups, and states of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zkconsumer.testing.embedded.cluster_image import Cluster
from zkconsumer.testing.embedded.offsets import OFFSETS_CONFIG, OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import BrokerAddress

TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final[Mapping[str, dict[str, object]]] = {
    OFFSETS_TOPIC: OFFSETS_CONFIG,
    TRANSACTIONS_TOPIC: {"segment.bytes": 100 * 1024 * 1024, "cleanup.policy": "compact"},
}
"""Settings by name; each has one partition, so one broker coordinates all groups, or all transactions."""


def make_internal(cluster: Cluster, topic: str) -> None:
    """Make one of these topics; its leader follows."""
    cluster.create_automatically(topic, partitions=1, config=INTERNAL_TOPICS[topic])


def coordinator_by(cluster: Cluster, topic: str) -> BrokerAddress | None:
    """Return the leader of the only partition of one of these topics.

    The topic is made if there is none; None until it has a leader.
    """
    image = cluster.image
    if topic not in image.topics:
        make_internal(cluster, topic)
        return None
    return image.brokers.get(image.topics[topic][0][1].leader)
