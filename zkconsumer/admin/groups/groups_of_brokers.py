"""Lists the groups that brokers coordinate: each broker has a list of its own, and describes the groups in it.

Rules, and which failure each prevents:
- All brokers are asked, at the same time, each over one connection.
- A broker that does not answer leaves its groups unknown, which is said; the groups of the others are listed. One that
  is away is not asked: then partitions of `__consumer_offsets` have no leader, which is said, too.
- A group that may not be described is listed with what the list says of it.
- After a coordinator has moved, the broker that it has left may list its groups for a while, or for ever, and can say
  nothing of them. The broker that can describe a group counts. If no broker that lists it can, or more
  than one, the coordinator is looked up: a group would be listed without members and offsets, as if it had no lag.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.listGroups (4.3).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from rebalance.subscription import OFFSETS_TOPIC
from simpleconsumer.calls.coordinator_client import GroupsClient
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, ListedGroup, OffsetAndMetadata, TopicPartition
from zkconsumer.admin.groups.broker_group_report import (
    CLASSIC,
    CONSUMER,
    DEAD,
    CoordinatedGroup,
    of_classic_protocol,
    of_newest_protocol,
)
from zkconsumer.admin.groups.group_coordinators import ASK_AGAIN, BACKOFF_S, DEADLINE_S, GroupCoordinators
from zkconsumer.admin.values import AdminError, count_of
from zkconsumer.cluster.log_ends import run_together

log = logging.getLogger(__name__)

_MOST_BROKERS: Final = 16
_GROUPS_A_REQUEST: Final = 100
_MOVED_S: Final = 3.0
"""Longest wait for coordinators of groups that no broker which lists them coordinates."""


@dataclass(frozen=True)
class GroupsOfBrokers:
    """The groups that brokers coordinate.

    Attributes:
        groups: Name -> group.
        offsets: Name -> the offsets that it has stored, by partition.
        unknown_offsets: Name -> why it is not known whether it has offsets, a clause.
        unlisted: Why groups may be missing, a sentence for each broker that does not answer, and one for brokers that
            are away.
    """

    groups: Mapping[str, CoordinatedGroup] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    unknown_offsets: Mapping[str, str] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()


class _Row(NamedTuple):
    """The answer of one broker about a group that it lists.

    Attributes:
        group: The group; without members if it cannot be described.
        offsets: The offsets that it has stored, by partition.
        unknown: Why they are not known, a clause; None if they are.
        is_settled: False if the broker does not coordinate the group, or not yet.
    """

    group: CoordinatedGroup
    offsets: Mapping[TopicPartition, int]
    unknown: str | None
    is_settled: bool

    @property
    def worth(self) -> tuple[bool, bool, bool]:
        """Of the answers of two brokers the one that is worth more counts."""
        return self.is_settled, self.group.members is not None, self.unknown is None


class _Answer(NamedTuple):
    """The answer of one broker: its groups by name, and why some may be missing, a sentence."""

    rows: Mapping[str, _Row]
    unlisted: tuple[str, ...] = ()


def read_groups_of_brokers(coordinators: GroupCoordinators) -> GroupsOfBrokers:
    """Return all groups that brokers coordinate, with their members and their offsets.

    Raises:
        ClusterSilent: Neither ZooKeeper nor a broker answers in time.
    """
    brokers = coordinators.brokers()
    if not brokers or not coordinators.exist():
        return GroupsOfBrokers()
    unlisted = _without_coordinator(coordinators)
    rows: dict[str, _Row] = {}
    calls = [partial(_of_broker, coordinators, broker) for broker in brokers]
    for answer in run_together(calls, _MOST_BROKERS, "zkconsumer-coordinators"):
        unlisted += answer.unlisted
        for name, row in answer.rows.items():
            rows[name] = _of_two(rows[name], row) if name in rows else row
    _settle(coordinators, rows)
    return GroupsOfBrokers(
        {name: row.group for name, row in rows.items()},
        {name: row.offsets for name, row in rows.items()},
        {name: row.unknown for name, row in rows.items() if row.unknown is not None},
        tuple(unlisted),
    )


def _of_two(one: _Row, other: _Row) -> _Row:
    """Return what counts of a group that two brokers list."""
    if one.worth == other.worth and one.group.members is not None:
        return one._replace(is_settled=False)
    return max(one, other, key=lambda row: row.worth)


def _settle(coordinators: GroupCoordinators, rows: dict[str, _Row]) -> None:
    """Ask the coordinators of groups of which it is not clear who coordinates them, for some seconds.

    Groups that their coordinators do not know are taken out: another broker lists what it has had.
    """
    deadline = time.monotonic() + _MOVED_S
    while moved := [row.group for row in rows.values() if not row.is_settled]:
        by_coordinator: dict[Broker, list[ListedGroup]] = {}
        for group in moved:
            if time.monotonic() < deadline and (broker := _coordinator(coordinators, group.group)) is not None:
                listed = ListedGroup(group.group, group.protocol_type, group.state, group.group_type)
                by_coordinator.setdefault(broker, []).append(listed)
        calls = [partial(_of_broker, coordinators, broker, listed) for broker, listed in by_coordinator.items()]
        answers = run_together(calls, _MOST_BROKERS, "zkconsumer-coordinators")
        for asked, answer in zip(by_coordinator.values(), answers, strict=True):
            for name in [] if answer.unlisted else [each.group for each in asked]:
                if name not in answer.rows:
                    del rows[name]
                elif answer.rows[name].is_settled:
                    rows[name] = answer.rows[name]
        if time.monotonic() + BACKOFF_S >= deadline:
            return
        if not all(row.is_settled for row in rows.values()):
            time.sleep(BACKOFF_S)


def _coordinator(coordinators: GroupCoordinators, group: str) -> Broker | None:
    try:
        return coordinators.find(group)
    except (SimpleConsumerError, AuthenticationFailed, AdminError) as error:
        log.debug("the coordinator of group %r is not known: %s", group, error)
        return None


def _without_coordinator(coordinators: GroupCoordinators) -> list[str]:
    """Return a sentence if some groups have no coordinator now: that of their partition's leader, which is away."""
    cluster = coordinators.cluster
    numbers = cluster.partitions([OFFSETS_TOPIC]).get(OFFSETS_TOPIC, ())
    names = [TopicPartition(OFFSETS_TOPIC, number) for number in numbers]
    unled = sorted(set(names) - cluster.leaders(names).keys())
    if not unled:
        return []
    what = f"{count_of(len(unled), 'partition')} of {OFFSETS_TOPIC} {'has' if len(unled) == 1 else 'have'} no leader"
    return [f"groups may be missing: {what}, such as {unled[0].partition}"]


def _of_broker(coordinators: GroupCoordinators, broker: Broker, listed: Sequence[ListedGroup] | None = None) -> _Answer:
    """Return the groups that one broker coordinates.

    Args:
        listed: Those to ask about; None for all that it lists.
    """
    deadline = time.monotonic() + DEADLINE_S
    groups: dict[str, CoordinatedGroup] = {}
    moved: set[str] = set()
    rows: dict[str, _Row] = {}
    try:
        with coordinators.client(broker) as client:
            if not client.serves_list_groups():
                return _Answer({})
            for found in _described(client, broker, _listed(client, deadline) if listed is None else listed, moved):
                groups[found.group] = found
            needs_partitions = groups and not coordinators.serves_fetch_all_offsets(client)
            partitions = coordinators.all_partitions() if needs_partitions else []
            for group, found in groups.items():
                rows[group] = _row(found, *coordinators.fetch_rows(client, group, partitions), group in moved)
    except (SimpleConsumerError, AuthenticationFailed) as error:
        sentence = f"groups that broker {broker.id} coordinates may be missing: {error}"
        for group in groups.keys() - rows.keys():
            rows[group] = _Row(groups[group], {}, str(error), group not in moved)
        return _Answer(rows, (sentence,))
    return _Answer(rows)


def _row(
    group: CoordinatedGroup, code: int, found: Mapping[TopicPartition, tuple[int, OffsetAndMetadata]], has_moved: bool
) -> _Row:
    """Return a group with its offsets; older versions of the answer have a code for each partition alone."""
    code = code or next((of_partition for of_partition, _ in found.values() if of_partition in ASK_AGAIN), 0)
    offsets = {name: row.offset for name, (_, row) in found.items() if row.offset >= 0}
    unknown = str(BrokerError(code, None, None)) if code else None
    return _Row(group, offsets, unknown, not has_moved and code not in ASK_AGAIN)


def _listed(client: GroupsClient, deadline: float) -> list[ListedGroup]:
    while True:
        code, listed = client.list_groups()
        if code in ASK_AGAIN and time.monotonic() + BACKOFF_S < deadline:
            time.sleep(BACKOFF_S)
            continue
        if code:
            raise BrokerError(code, None, None)
        return listed


def _described(
    client: GroupsClient, broker: Broker, listed: Sequence[ListedGroup], moved: set[str]
) -> list[CoordinatedGroup]:
    """Return the groups of a list; groups that cannot be described have the state of the list, and no members.

    Args:
        moved: Gets the names of groups that the broker does not coordinate, or not yet.
    """
    types = {row.group: row.group_type or CLASSIC for row in listed}
    found: dict[str, CoordinatedGroup] = {}
    for first in range(0, len(listed), _GROUPS_A_REQUEST):
        names = [row.group for row in listed[first : first + _GROUPS_A_REQUEST]]
        for each in client.describe_groups([name for name in names if types[name] == CLASSIC]):
            if not each.error_code:
                found[each.group] = of_classic_protocol(each, broker)
            elif each.error_code in ASK_AGAIN:
                moved.add(each.group)
        for newest in client.describe_consumer_groups([name for name in names if types[name] == CONSUMER]):
            if not newest.error_code:
                found[newest.group] = of_newest_protocol(newest, broker)
            elif newest.error_code in ASK_AGAIN:
                moved.add(newest.group)
    for row in listed:
        if row.group not in found:
            found[row.group] = CoordinatedGroup(
                row.group, row.state or "Unknown", row.protocol_type, types[row.group], None, broker, None
            )
    return [each for each in found.values() if each.state != DEAD]  # it has moved since, and is listed elsewhere
