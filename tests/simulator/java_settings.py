"""The settings of a Java consumer, as far as they matter to its group."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.subscription import Subscription

__all__ = ["ConnectorSettings"]


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """The settings of a consumer.

    Attributes:
        order: of roundrobin: "0.8" as up to 0.11, "1.0" as in 1.0 and 1.1.
        storage: of its offsets: "zookeeper", "kafka", or "dual".
        reset: `auto.offset.reset`.
        auto_commit_s: `auto.commit.interval.ms`; 0 for `auto.commit.enable=false`.
        session_s: `zookeeper.session.timeout.ms`, and the limit for the first connection.
    """

    group: str
    consumer_id: str
    subscription: Subscription
    strategy: str = "range"
    order: str = "0.8"
    storage: str = "zookeeper"
    session_s: float = 6.0
    auto_commit_s: float = 60.0
    backoff_s: float = 2.0
    max_retries: int = 4
    reset: str = "smallest"
