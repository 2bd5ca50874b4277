"""Lists the groups that brokers coordinate: each broker has a list of its own, and describes the groups in it.

Rules, and which failure each prevents:
- All brokers are asked, at the same time, each over one connection.
- A broker that does not answer leaves its groups unknown, which is said; the groups of the others are listed. One that
  is away is not asked: then partitions of `__consumer_offsets` have no leader, which is said, too.
- A group that may not be described is listed with what the list says of it.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.listGroups (4.3).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rebalance.subscription import OFFSETS_TOPIC
from simpleconsumer.described_groups import ListedGroup
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError
from simpleconsumer.groups_client import GroupsClient
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.admin.coordinated_groups import (
    CLASSIC,
    CONSUMER,
    DEAD,
    CoordinatedGroup,
    of_classic_protocol,
    of_newest_protocol,
)
from zkconsumer.admin.group_coordinators import ASK_AGAIN, BACKOFF_S, DEADLINE_S, GroupCoordinators
from zkconsumer.admin.phrases import count_of
from zkconsumer.cluster.daemon_threads import run_together

__all__ = ["GroupsOfBrokers", "read_groups_of_brokers"]

_MOST_BROKERS: Final = 16
_GROUPS_A_REQUEST: Final = 100


@dataclass(frozen=True)
class GroupsOfBrokers:
    """The groups that brokers coordinate.

    Attributes:
        groups: Name -> group.
        offsets: Name -> the offsets that it has stored, by partition.
        unknown_offsets: Name -> why it is not known whether it has offsets, a clause.
        unlisted: Why groups may be missing, a sentence for each broker that does not answer, and one for those that are
            away.
    """

    groups: Mapping[str, CoordinatedGroup] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    unknown_offsets: Mapping[str, str] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()


def read_groups_of_brokers(coordinators: GroupCoordinators) -> GroupsOfBrokers:
    """Return all groups that brokers coordinate, with their members and their offsets.

    Raises:
        ClusterSilent: Neither ZooKeeper nor a broker answers in time.
    """
    brokers = coordinators.brokers()
    if not brokers or not coordinators.exist():
        return GroupsOfBrokers()
    groups: dict[str, CoordinatedGroup] = {}
    offsets: dict[str, Mapping[TopicPartition, int]] = {}
    unknown: dict[str, str] = {}
    unlisted = _without_coordinator(coordinators)
    calls = [partial(_of_broker, coordinators, broker) for broker in brokers]
    for found in run_together(calls, _MOST_BROKERS, "zkconsumer-coordinators"):
        groups |= found.groups
        offsets |= found.offsets
        unknown |= found.unknown_offsets
        unlisted += found.unlisted
    return GroupsOfBrokers(groups, offsets, unknown, tuple(unlisted))


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


def _of_broker(coordinators: GroupCoordinators, broker: Broker) -> GroupsOfBrokers:
    """Return the groups that one broker coordinates."""
    deadline = time.monotonic() + DEADLINE_S
    groups: dict[str, CoordinatedGroup] = {}
    offsets: dict[str, Mapping[TopicPartition, int]] = {}
    unknown: dict[str, str] = {}
    try:
        with coordinators.client(broker) as client:
            if not client.lists_groups():
                return GroupsOfBrokers()
            for found in _described(client, broker, _listed(client, deadline)):
                groups[found.group] = found
            partitions = coordinators.all_partitions() if groups and not coordinators.lists_offsets(client) else []
            for group in groups:
                code, rows = coordinators.committed(client, group, partitions)
                if code:
                    unknown[group] = str(BrokerError(code, None, None))
                offsets[group] = {name: row.offset for name, (_, row) in rows.items() if row.offset >= 0}
    except (SimpleConsumerError, AuthenticationFailed) as error:
        sentence = f"groups that broker {broker.id} coordinates may be missing: {error}"
        unknown |= {group: str(error) for group in groups.keys() - offsets.keys()}
        return GroupsOfBrokers(groups, offsets, unknown, (sentence,))
    return GroupsOfBrokers(groups, offsets, unknown)


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
    client: GroupsClient, broker: Broker, listed: Sequence[ListedGroup]
) -> list[CoordinatedGroup]:
    """Return the groups of a list; those that cannot be described have the state of the list, and no members."""
    types = {row.group: row.group_type or CLASSIC for row in listed}
    found: dict[str, CoordinatedGroup] = {}
    for first in range(0, len(listed), _GROUPS_A_REQUEST):
        names = [row.group for row in listed[first : first + _GROUPS_A_REQUEST]]
        for each in client.describe_groups([name for name in names if types[name] == CLASSIC]):
            if not each.error_code:
                found[each.group] = of_classic_protocol(each, broker)
        for newest in client.describe_consumer_groups([name for name in names if types[name] == CONSUMER]):
            if not newest.error_code:
                found[newest.group] = of_newest_protocol(newest, broker)
    for row in listed:
        if row.group not in found:
            found[row.group] = CoordinatedGroup(
                row.group, row.state or "Unknown", row.protocol_type, types[row.group], None, broker, None
            )
    return [each for each in found.values() if each.state != DEAD]  # it has moved since, and is listed elsewhere
