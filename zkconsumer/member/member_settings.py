"""Makes the settings of a member for the coordination from those of the consumer: milliseconds become seconds."""

from __future__ import annotations

from rebalance.subscription import Subscription
from rebalance.zookeeper.registered_member import RegisteredMember
from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.waits import RebalanceTimes
from zkconsumer.config import ConsumerConfig

__all__ = ["member_of"]


def member_of(config: ConsumerConfig, consumer_id: str, subscription: Subscription) -> RegisteredMember:
    """The member that these settings describe."""
    backoff_s = config.rebalance_backoff_ms / 1000
    # Java members need all their tries, and what is in their way may last as long.
    order_wait_s = max(10.0, 2 * config.rebalance_max_retries * backoff_s)
    return RegisteredMember(
        group=config.group_id,
        consumer_id=consumer_id,
        subscription=subscription,
        strategy=Strategy(
            str(config.partition_assignment_strategy), config.roundrobin_order, config.exclude_internal_topics
        ),
        chroot=config.zookeeper_address.chroot,
        auto_commit=config.auto_commit_enable,
        reset_policy=config.auto_offset_reset,
        drain_timeout_s=config.rebalance_drain_timeout_ms / 1000,
        blocked_after_s=max(0.1, config.rebalance_max_retries * backoff_s),
        max_processing_s=(
            None if config.max_processing_interval_ms is None else config.max_processing_interval_ms / 1000
        ),
        times=RebalanceTimes(
            quiet_s=config.rebalance_quiet_ms / 1000,
            quiet_max_s=config.rebalance_quiet_max_ms / 1000,
            order_wait_s=order_wait_s,
            # A drain, and the listener for as long again.
            order_dissent_s=2 * order_wait_s + 4 * config.rebalance_drain_timeout_ms / 1000,
        ),
    )
