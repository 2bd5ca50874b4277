"""How far groups lag, as values: by partition, by topic and by group. Pure.

The lag of a partition is the end of its log less the stored offset: messages, or bytes in Kafka 0.7. It is unknown
where one of the two is not known, or the offset is beyond the end, and never counted as 0 then. Offsets that differ
between the stores are always among the problems.

Rates come from what a monitor read before. Java members commit once a minute by default, so offsets move in steps: a
rate between two rounds would be 0 and then far too high. So rates are those of a window of two minutes. Only a few
rounds of the window are kept, which bounds the memory, and a partition whose offset or log has gone back (an operator,
a topic that was created again) starts anew.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkconsumer.admin.groups.group_report import GroupReport, PartitionRow, store_difference
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.offsets.store_choice import ZOOKEEPER
from zkconsumer.admin.values import JsonValue


@dataclass(frozen=True)
class Rates:
    """How fast the offsets of a group and the ends of its logs move; None while not known.

    Attributes:
        consumed_per_s: Messages (in Kafka 0.7 bytes) a second by which the stored offsets grow.
        produced_per_s: Messages (in Kafka 0.7 bytes) a second by which the logs grow.
        catch_up_s: Seconds until the lag is 0 at these rates; None also when it is never so.
    """

    consumed_per_s: float | None = None
    produced_per_s: float | None = None
    catch_up_s: float | None = None


@dataclass(frozen=True)
class TopicLag:
    """The lag of a group in one topic.

    Attributes:
        topic: Its name.
        partition_count: Partitions that the group owns, has offsets of, or subscribes to.
        unowned: Partitions that a member subscribes to and nobody owns; None if members or owners may not be read.
        lag: Sum of the known lags; None if no lag is known.
        lag_unknown: Number of partitions whose lag is not known.
        consumed_per_s: Messages (in Kafka 0.7 bytes) a second by which the stored offsets grow; None while not known.
        produced_per_s: Messages (in Kafka 0.7 bytes) a second by which the logs grow; None while not known.
        catch_up_s: Seconds until the lag is 0 at these rates; None while not known, and when it is never so.
    """

    topic: str
    partition_count: int
    unowned: int | None
    lag: int | None
    lag_unknown: int
    consumed_per_s: float | None = None
    produced_per_s: float | None = None
    catch_up_s: float | None = None


@dataclass(frozen=True)
class GroupLag:
    """The lag of one group.

    Attributes:
        group: Its name.
        member_count: Number of registered consumers; None if they may not be read.
        owned: Number of partitions that somebody owns; None if an owner may not be read.
        unowned: Number of partitions that a member subscribes to and nobody owns; None if members or owners may not be
            read.
        lag: Sum of the known lags; None if there are partitions and no lag is known.
        lag_unknown: Number of partitions whose lag is not known; at least 1 while brokers do not show the offsets.
        topics_lag: By topic.
        partitions: By topic and number.
        problems: The problems of the group, as sentences.
        coordination: `zookeeper` or `brokers`. Of groups of brokers, owners of partitions are ids of members.
    """

    group: str
    member_count: int | None
    owned: int | None
    unowned: int | None
    lag: int | None
    lag_unknown: int
    topics_lag: tuple[TopicLag, ...]
    partitions: tuple[PartitionRow, ...]
    problems: tuple[str, ...]
    coordination: str = ZOOKEEPER


@dataclass(frozen=True)
class LagReport(JsonValue):
    """The lag of groups at one time.

    Attributes:
        read_at: When it was read, in seconds since 1970.
        duration_s: How long that took.
        groups: By name.
        problems: Groups or nodes that could not be read at all, as sentences.
        lag_unit: The unit of offsets, lags and rates: `messages`, or `bytes` in Kafka 0.7.
    """

    read_at: float
    duration_s: float
    groups: tuple[GroupLag, ...]
    problems: tuple[str, ...] = field(default=())
    lag_unit: str = "messages"


def group_lag(
    found: GroupReport,
    unowned: Iterable[tuple[str, int | str]],
    rates: Mapping[str, Rates],
    topics: Sequence[str],
    nodes: GroupNodes | None = None,
) -> GroupLag:
    """Return the lag of a group.

    Args:
        found: The report about the group.
        unowned: (topic, partition) of partitions that a member subscribes to and nobody owns.
        rates: Topic -> rates.
        topics: The topics that count.
        nodes: The nodes from which the report was made; it tells which owners may not be read.
    """
    chosen = frozenset(topics)
    rows = tuple(row for row in found.partitions if row.topic in chosen)
    difference = store_difference(found.partitions)
    differing = () if difference is None or difference.sentence in found.problems else (difference.sentence,)
    orphans = Counter(topic for topic, _ in set(unowned) if topic in chosen)
    by_topic: dict[str, list[PartitionRow]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    hidden = {topic for topic in by_topic if nodes is not None and nodes.hides_owners(topic)}
    # Without the members it is not known which topics somebody subscribes to.
    topics_lag = tuple(
        _topic_lag(
            topic, of_topic, None if found.members is None or topic in hidden else orphans[topic],
            rates.get(topic, Rates()),
        )
        for topic, of_topic in by_topic.items()
    )  # fmt: skip
    unowned_known = found.members is not None and all(each.unowned is not None for each in topics_lag)
    return GroupLag(
        found.group, None if found.members is None else len(found.members),
        None if nodes is not None and nodes.hides_any_owner else sum(row.owner is not None for row in rows),
        orphans.total() if unowned_known else None,
        known_sum([each.lag for each in topics_lag]), sum(each.lag_unknown for each in topics_lag), topics_lag, rows,
        (*differing, *found.problems),
    )  # fmt: skip


def _topic_lag(topic: str, rows: Sequence[PartitionRow], unowned: int | None, rates: Rates) -> TopicLag:
    lag = known_sum([row.lag for row in rows])
    return TopicLag(
        topic, len(rows), unowned, lag, sum(row.lag is None for row in rows),
        rates.consumed_per_s, rates.produced_per_s, catch_up_s(lag, rates.consumed_per_s, rates.produced_per_s),
    )  # fmt: skip


def known_sum(lags: Sequence[int | None]) -> int | None:
    """Return the sum of the known lags; None if there are some and none is known: a 0 would look as if all was well.

    >>> known_sum([1, None, 2]), known_sum([None]), known_sum([])
    (3, None, 0)
    """
    known = [lag for lag in lags if lag is not None]
    return None if lags and not known else sum(known)


def catch_up_s(lag: int | None, consumed_per_s: float | None, produced_per_s: float | None) -> float | None:
    """Return the seconds until a lag is 0 at these rates, None if that is never so or not known."""
    if lag == 0:
        return 0.0
    if lag is None or consumed_per_s is None or produced_per_s is None or consumed_per_s <= produced_per_s:
        return None
    return lag / (consumed_per_s - produced_per_s)


@dataclass(frozen=True)
class LagChoice:
    """Which groups and topics a monitor reads.

    Attributes:
        groups: These groups; all of the cluster when there are none.
        keeps_group: Which of all groups count.
        keeps_topic: Which topics count.
        deadline_s: Longest time for one round, in seconds.
    """

    groups: tuple[str, ...] = ()
    keeps_group: Callable[[str], bool] = lambda name: True
    keeps_topic: Callable[[str], bool] = lambda name: True
    deadline_s: float = 30.0


WINDOW_S: Final = 120.0
_KEPT: Final = 8
_Key = tuple[str, str, int | str]
"""Group, topic, partition."""


class _Round(NamedTuple):
    """The figures of one time: (group, topic, partition) -> stored offset and end of the log."""

    at: float
    numbers: Mapping[_Key, tuple[int, int]]


class RateWindow:
    """The rounds of the last two minutes, and the rates that follow from them.

    Threads: One at a time.
    """

    def __init__(self) -> None:
        self._rounds: deque[_Round] = deque()

    def add(self, at: float, rows: Iterable[tuple[str, PartitionRow]]) -> dict[tuple[str, str], Rates]:
        """Add a round; return (group, topic) -> rates since the oldest round of the window.

        Args:
            at: When it was read, in seconds on any clock that only moves forward.
            rows: The group and each of its partitions.
        """
        numbers = {
            (group, row.topic, row.partition): (row.offset, row.log_end)
            for group, row in rows
            if row.offset is not None and row.log_end is not None
        }
        while len(self._rounds) > 1 and at - self._rounds[1].at >= WINDOW_S:
            self._rounds.popleft()
        rates = self._rates(at, numbers)
        if not self._rounds or at - self._rounds[-1].at >= WINDOW_S / _KEPT:
            self._rounds.append(_Round(at, numbers))
        return rates

    def _rates(self, at: float, numbers: Mapping[_Key, tuple[int, int]]) -> dict[tuple[str, str], Rates]:
        if not self._rounds or at <= self._rounds[0].at:
            return {}
        passed_s = at - self._rounds[0].at
        sums: dict[tuple[str, str], list[int]] = {}
        for key, (offset, end) in numbers.items():
            before = self._rounds[0].numbers.get(key)
            if before is not None and offset >= before[0] and end >= before[1]:
                total = sums.setdefault(key[:2], [0, 0])
                total[0] += offset - before[0]
                total[1] += end - before[1]
        return {at_: Rates(consumed / passed_s, produced / passed_s) for at_, (consumed, produced) in sums.items()}
