"""The status of a member, and its statistics, as frozen values.

The status of a member as a frozen value: state, owned partitions, blocked claims, warnings.

The statistics of a member as a frozen value: rebalances, requests, errors, bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rebalance.rebalance_statistics import RebalanceFigures


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition that this member owns.

    Attributes:
        topic: Of the partition.
        partition: Its number.
        thread_id: The stream that it is delivered to.
        state: "owned", "draining" and so on, as in docs/REBALANCE.md.
        position: next offset that is not done yet, `None` before it is known.
        committed: stored offset as last seen or written by this member.
        log_end: end of the log as the broker last reported, `None` before.
        lag: `log_end - position`.
        error: what delays the partition, `None` when nothing does.
        paused: whether the application paused it; `log_end` and `lag` are as they were then.
        queued_bytes: fetched and not yet read.
        fetched_messages, fetched_bytes: by this member so far; messages are counted by their offsets, in
            Kafka 0.7 by their entries, where a compressed one counts once.
        messages_per_s, bytes_per_s: fetched in the last ten to twenty seconds.
    """

    topic: str
    partition: int | str
    thread_id: str
    state: str
    position: int | None
    committed: int | None
    log_end: int | None
    lag: int | None
    error: str | None = None
    paused: bool = False
    queued_bytes: int = 0
    fetched_messages: int = 0
    fetched_bytes: int = 0
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockedClaim:
    """A partition that is assigned to this member, but has been held by another member for `since_s` seconds.

    Attributes:
        topic: Of the partition.
        partition: Its number.
        path: The owner node that another member has.
        holder: The thread id in that node.
        holder_session: The ZooKeeper session of that node.
        since_s: For how many seconds the claim has waited.
    """

    topic: str
    partition: int | str
    path: str
    holder: str
    holder_session: int
    since_s: float


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """A member at one moment.

    Attributes:
        consumer_id: as in `/consumers/[group]/ids`.
        state: of the group's machine: disconnected, registering, reading, settling, stable, failed; in groups that
            brokers coordinate joining, syncing, stable, giving back, failed; leaving, unregistering and out while
            `max.processing.interval.ms` is exceeded; created before there are streams, busy when the member did not
            answer within 2 s, closed after the end.
        since_s: seconds in that state.
        generation: group version, the zxid of the last join or leave that this member has seen, or the generation of a
            group that brokers coordinate; equal in members that see the same group.
        registrations: the members of the group as last read; in a group that brokers coordinate the leader knows all
            members, and the others only themselves.
        owned: partitions held.
        blocked: partitions that another member still holds.
        lease_age_s: seconds since the request of the newest proof of the membership, `None` without one.
        session_timeout_s: as the ZooKeeper server granted it, or `session.timeout.ms`.
        warnings: the problems of the group, as sentences.
        error: why the member is out, `None` while it is not.
    """

    consumer_id: str
    state: str
    since_s: float
    generation: int
    registrations: tuple[str, ...]
    owned: tuple[OwnedPartition, ...]
    blocked: tuple[BlockedClaim, ...]
    lease_age_s: float | None
    session_timeout_s: float
    warnings: tuple[str, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists with the same names."""
        return asdict(self)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ConnectorStatistics:
    """A member at one moment, and its counters since its streams were created.

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
