"""Builds the status of a member from its coordinator, delivery, offsets and cluster.

Reports the statistics to the application periodically, on a thread of its own.

Rule: nothing that the application does there can harm the consumer. A call that fails is logged, once; one that takes
long delays the next one; one that never returns is abandoned at the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rebalance import partition as steps
from rebalance.subscription import Partition
from rebalance.takeover import MemberPartition
from simpleconsumer.types import TopicPartition
from zkconsumer.member.coordination import Coordination
from zkconsumer.member.delivery import Delivery, PartitionStatus
from zkconsumer.status import ConnectorStatus, OwnedPartition

_FETCHED = ("queued_bytes", "fetched_messages", "fetched_bytes", "messages_per_s", "bytes_per_s")
_HELD = (steps.PartitionState.OWNED, steps.PartitionState.DRAINING, steps.PartitionState.RELEASING)


def read_status(coordination: Coordination, delivery: Delivery, now: float) -> ConnectorStatus:
    """The status of a running member. Threads: the coordinator's."""
    coordinator, offsets = coordination.coordinator, coordination.offsets
    partitions = sorted(coordinator.partitions.items(), key=lambda item: (item[0][0], str(item[0][1]).zfill(12)))
    # Each is read once: the coordinator renews nothing meanwhile, and there may be thousands of partitions.
    statuses, committed = delivery.partition_status(), offsets.committed()
    unknown = {**offsets.refused, **delivery.unknown_starts()}
    owned = tuple(
        _owned(
            partition, entry, statuses.get(TopicPartition(*partition)), committed.get(partition), unknown.get(partition)
        )
        for partition, entry in partitions
        if entry.machine.state in _HELD
    )
    # Nodes of brokers that may not be read do not matter while every leader is known.
    refused = coordination.refused_nodes() if delivery.lacks_leaders() else ()
    lost = [_lost(name, status.lost) for name, status in statuses.items() if status.lost]
    return ConnectorStatus(
        consumer_id=coordinator.member.consumer_id,
        state=coordinator.state,
        since_s=round(now - coordinator.since, 3),
        generation=coordination.generation(),
        registrations=coordination.registrations(),
        owned=owned,
        blocked=coordination.blocked(now),
        lease_age_s=coordinator.lease.age_s(now),
        session_timeout_s=coordinator.session_timeout_s,
        warnings=tuple(sorted(coordinator.warnings.union(refused, offsets.warnings, lost))),
        error=str(coordinator.error) if coordinator.error is not None else None,
    )


def _lost(name: TopicPartition, offsets: range) -> str:
    return (
        f"{name.topic}/{name.partition}: its log was truncated: messages {offsets.start} to {offsets.stop - 1}, "
        "which were read, are lost"
    )


def _owned(
    partition: Partition,
    entry: MemberPartition,
    status: PartitionStatus | None,
    committed: int | None,
    refused: str | None,
) -> OwnedPartition:
    position = status.position if status is not None else entry.position
    log_end = status.high_watermark if status is not None else None
    # After the start an offset that cannot be read concerns only the commits.
    error = status.last_error if status is not None else refused
    fetched = {} if status is None else {name: getattr(status, name) for name in _FETCHED}
    return OwnedPartition(
        topic=partition[0],
        partition=partition[1],
        thread_id=entry.machine.held or "",
        state=entry.machine.state.value,
        position=position,
        committed=committed,
        log_end=log_end,
        lag=None if log_end is None or position is None else max(0, log_end - position),
        error=str(error) if error else None,
        paused=status is not None and status.is_paused,
        **fetched,
    )


log = logging.getLogger(__name__)


class StatisticsThread:
    """Calls `report` every `interval_s` seconds, from `start` to `stop`.

    Args:
        report: makes the statistics, and passes them to the application's callback; it keeps neither alive.
        failed: called for each call that failed.
    """

    def __init__(
        self,
        report: Callable[[], object],
        interval_s: float,
        failed: Callable[[], None],
    ) -> None:
        self._report = report
        self._interval_s = interval_s
        self._failed = failed
        self._over = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="zkconsumer-statistics", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Make no further call."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the present call returns, for `timeout_s` at most."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                self._report()
            except BaseException:  # sys.exit() too ends the call and nothing more
                self._failed()
                if not self._has_failed:
                    log.exception("on_statistics failed; continuing, and logging no further failure of it")
                self._has_failed = True
