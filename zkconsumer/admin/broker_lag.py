"""How far a group that brokers coordinate is behind, in the form that groups in ZooKeeper have. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from simpleconsumer.types import TopicPartition
from zkconsumer.admin.broker_group_report import (
    BROKERS,
    BrokerGroupReport,
    BrokerGroupState,
    BrokerPartitionRow,
    broker_group_report,
)
from zkconsumer.admin.group_report import PartitionRow
from zkconsumer.admin.lag_report import GroupLag, Rates, TopicLag, catch_up_s, known_sum
from zkconsumer.admin.store_choice import KAFKA

__all__ = ["broker_group_lag", "rows_of"]


def rows_of(found: BrokerGroupState) -> list[PartitionRow]:
    """Return the partitions of a group; the owner is the id of a member."""
    return [_partition_row(row) for row in broker_group_report(found).partitions]


def broker_group_lag(
    found: BrokerGroupState, rates: Mapping[str, Rates], keeps_topic: Callable[[str], bool], unknown: str | None = None
) -> GroupLag:
    """Return the lag of a group.

    Args:
        found: The group, its offsets, and the logs of its partitions.
        rates: Topic -> rates.
        keeps_topic: Which topics count.
        unknown: Why its offsets are not known, a clause; None if they are.
    """
    report = broker_group_report(found)
    # While a group rebalances, its coordinator does not say what the members subscribe to and have.
    is_known = found.group.members is not None and not found.group.is_rebalancing
    wanted = found.subscribed if found.group.members else set()
    by_topic: dict[str, list[BrokerPartitionRow]] = {}
    for row in report.partitions:
        if keeps_topic(row.topic):
            by_topic.setdefault(row.topic, []).append(row)
    kept = [row for rows in by_topic.values() for row in rows]
    topics = tuple(_topic_lag(topic, rows, rates.get(topic, Rates()), _unowned(rows, wanted) if is_known else None)
                   for topic, rows in by_topic.items())  # fmt: skip
    lag = None if unknown is not None else known_sum([each.lag for each in topics])
    # Without its offsets it is not known of which partitions a group has some: of one at least, or there were no group.
    lag_unknown = max(sum(each.lag_unknown for each in topics), 0 if unknown is None else 1)
    return GroupLag(
        report.group, None if found.group.members is None else len(report.members),
        sum(row.owner is not None for row in kept) if is_known else None,
        _unowned(kept, wanted) if is_known else None,
        lag, lag_unknown, topics, tuple(_partition_row(row) for row in kept),
        _problems(report, unknown), BROKERS,
    )  # fmt: skip


def _problems(report: BrokerGroupReport, unknown: str | None) -> tuple[str, ...]:
    first = () if unknown is None else (f"its offsets are not known: {unknown}",)
    return (*first, *report.problems)


def _topic_lag(topic: str, rows: Sequence[BrokerPartitionRow], rates: Rates, unowned: int | None) -> TopicLag:
    lag = known_sum([row.lag for row in rows])
    return TopicLag(
        topic, len(rows), unowned, lag, sum(row.lag is None for row in rows), rates.consumed_per_s,
        rates.produced_per_s, catch_up_s(lag, rates.consumed_per_s, rates.produced_per_s),
    )  # fmt: skip


def _unowned(rows: Iterable[BrokerPartitionRow], wanted: Collection[TopicPartition]) -> int:
    """Return the number of partitions to which a member subscribes, and which nobody has."""
    return sum(row.owner is None and TopicPartition(row.topic, row.partition) in wanted for row in rows)


def _partition_row(row: BrokerPartitionRow) -> PartitionRow:
    return PartitionRow(row.topic, row.partition, row.offset, row.log_end, row.lag, row.owner, row.problems,
                        offset_in_kafka=row.offset, storage=None if row.offset is None else KAFKA)  # fmt: skip
