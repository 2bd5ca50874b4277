"""The statistics of a member as a frozen value: rebalances, requests, errors, bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rebalance.rebalance_statistics import RebalanceFigures
from zkconsumer.status import ConnectorStatus

__all__ = ["ConnectorStatistics"]


@dataclass(frozen=True, slots=True)
class ConnectorStatistics:
    """A member at one moment, and what it has counted since its streams were created.

    Attributes:
        group: the group's name.
        uptime_s: seconds since the streams were created, 0 before.
        status: state, lease age, blocked claims, and each partition that is held with position, lag and rate.
        rebalances: how many, how long, and what they moved.
        queued_bytes: fetched and not yet read, against `queued.max.bytes`.
        zookeeper_requests: kind -> requests sent (a multi is one).
        broker_requests: kind -> requests sent (fetch, offsets, epochs, metadata, consumer_metadata, offset_fetch,
            offset_commit).
        throttled: request -> answers that say that a broker throttles this client (client quotas).
        throttle_ms: request -> for how long, in total.
        errors: kind -> how many; docs/OPERATIONS.md says what each means.
    """

    group: str
    uptime_s: float
    status: ConnectorStatus
    rebalances: RebalanceFigures = field(default_factory=RebalanceFigures)
    queued_bytes: int = 0
    zookeeper_requests: Mapping[str, int] = field(default_factory=dict)
    broker_requests: Mapping[str, int] = field(default_factory=dict)
    throttled: Mapping[str, int] = field(default_factory=dict)
    throttle_ms: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists with the same names."""
        return asdict(self)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)
