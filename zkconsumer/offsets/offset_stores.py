"""Chooses where the offsets of a member are kept: in ZooKeeper, in Kafka, or in both (`offsets.storage`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import OFFSETS_TOPIC
from rebalance.zookeeper.claims import Ask
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.offsets.kafka_offsets import KafkaOffsets, KafkaOffsetTimes
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager
from zkconsumer.offsets.two_stores import Intent, OffsetComparison, TwoStores
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets

_LONGEST_BACKOFF_S: Final = 10.0
_COMPARE_S: Final = 1.0
"""Longest time that a group with its offsets in ZooKeeper waits to compare them with those in Kafka."""


def member_offsets(
    config: ConsumerConfig, ask: Ask, loop: Loop, lease: Lease, cluster: Cluster, counters: Counters
) -> TwoStores:
    """Return the offsets of a member, as its settings say.

    The other store is read in any case, if the cluster has one, and differences are reported: members that keep their
    offsets in different stores skip or repeat each other's messages.
    """
    settings = ChannelSettings(
        config.client_id,
        Backoff.of_ms(config.offsets_channel_backoff_ms, _LONGEST_BACKOFF_S).first_s,
        config.offsets_channel_socket_timeout_ms / 1000,
        config.offsets_commit_max_retries,
        security=config.security,
    )

    def has_lease() -> bool:
        return lease_clock() < lease.until

    def has_offsets() -> bool:
        return cluster.reader.topic_exists(OFFSETS_TOPIC)

    zookeeper = ZooKeeperOffsets(ask, loop, config.group_id)
    intent = Intent(config.offsets_intent)
    if config.offsets_storage == "zookeeper":
        comparison = OffsetComparison(
            config.group_id, cluster.brokers, replace(settings, timeout_s=_COMPARE_S), counters,
            has_offsets=has_offsets, is_required=intent is Intent.REFUSE,
        )  # fmt: skip
        kafka = KafkaOffsets(comparison, loop, has_lease, KafkaOffsetTimes(load_s=_COMPARE_S))
        return TwoStores(kafka, zookeeper, intent, (zookeeper,), loop, config.auto_offset_reset)
    times = KafkaOffsetTimes(
        load_s=settings.timeout_s,
        commit_s=settings.timeout_s + settings.max_retries * settings.backoff_s,
        answer_s=settings.timeout_s,
    )
    manager = OffsetManager(config.group_id, cluster.brokers, settings, counters)
    kafka = KafkaOffsets(manager, loop, has_lease, times)
    written = (kafka, zookeeper) if config.dual_commit_enabled else (kafka,)
    return TwoStores(kafka, zookeeper, intent, written, loop, config.auto_offset_reset)
