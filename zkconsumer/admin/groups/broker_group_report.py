"""Reports a group that brokers coordinate: members, their partitions, offsets, lag, and problems. Pure.

Which member leads a group of the classic protocol is not reported: brokers tell it to members alone.

Source: kafka.admin.ConsumerGroupCommand, org.apache.kafka.tools.consumer.group.ConsumerGroupCommand (0.9.0.1 to 4.3).

The groups that brokers coordinate, as administration sees them, whichever protocol they have.

There are two protocols. In the classic one (Kafka 0.9) a member leads, and the coordinator passes on what members wrote
without reading it; only in state Stable does it show that. In that of KIP-848 (Kafka 4.0) the coordinator assigns.

Source: org.apache.kafka.clients.admin.ConsumerGroupDescription, org.apache.kafka.common.GroupState (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rebalance.brokers.consumer_protocol import decode_assignment, decode_subscription
from rebalance.errors import UnreadableMetadata
from simpleconsumer.types import (
    CONSUMER_PROTOCOL,
    Broker,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    TopicPartition,
)
from zkconsumer.admin.values import JsonValue
from zkconsumer_error import first_few

CLASSIC: Final = "classic"
"""The type of groups whose members join, and of whom one assigns."""
CONSUMER: Final = "consumer"
"""The type of groups of the protocol of KIP-848."""
STATES: Final = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "AwaitingSync", "Assigning", "Reconciling", "Stable", "Dead",
    "NotReady", "Unknown",
)  # fmt: skip
"""The states of groups, of every type and version; `AwaitingSync` is the older name of `CompletingRebalance`."""
STABLE: Final = "Stable"
DEAD: Final = "Dead"
_UNDER_WAY: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "AwaitingSync", "Assigning", "Reconciling"})


@dataclass(frozen=True)
class CoordinatedMember:
    """A member of a group that brokers coordinate.

    Attributes:
        member_id: As its coordinator, or in the protocol of KIP-848 the member itself, has named it.
        instance_id: Of a static member; None for a dynamic one, and where the broker does not say (before Kafka 2.4).
        client_id: Its `client.id`.
        host: The address from which it came.
        topics: That it subscribes to by name; None if that is not known, as while the group rebalances.
        regex: By which it subscribes to topics; None without one.
        assigned: The partitions that it has.
        target: The partitions that the coordinator wants it to have; None where a member assigns.
        epoch: Of its assignment; None in the classic protocol.
        rack: Where it runs; None if it does not say.
        problem: Why its subscription or assignment cannot be understood, a clause.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    regex: str | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    rack: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class CoordinatedGroup:
    """A group that brokers coordinate.

    Attributes:
        group: Its name.
        state: As the coordinator names it; `Dead` for a group that it does not know.
        protocol_type: `consumer` for consumers; empty for a group that has stored offsets and never had a member.
        group_type: `classic` or `consumer`; others, such as `share`, are listed alone.
        assignor: By which partitions are assigned; None while nothing is assigned.
        coordinator: The broker that coordinates it.
        members: By client id and member id; None if they were not asked for.
        epoch: Of a group of the protocol of KIP-848; None for others.
        assignment_epoch: Of its target assignment; lower than `epoch` until it is computed.
        reason: The coordinator's text about a group that it does not know; None if it says nothing.
    """

    group: str
    state: str
    protocol_type: str
    group_type: str
    assignor: str | None
    coordinator: Broker
    members: tuple[CoordinatedMember, ...] | None
    epoch: int | None = None
    assignment_epoch: int | None = None
    reason: str | None = None

    @property
    def is_rebalancing(self) -> bool:
        """Whether its partitions are being assigned anew."""
        return self.state in _UNDER_WAY

    @property
    def owners(self) -> dict[TopicPartition, list[CoordinatedMember]]:
        """Partition -> the members that have it: one, if nothing is wrong."""
        found: dict[TopicPartition, list[CoordinatedMember]] = {}
        for member in self.members or ():
            for name in member.assigned:
                found.setdefault(name, []).append(member)
        return found

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that members subscribe to by name, or have partitions of."""
        members = self.members or ()
        named = {topic for member in members for topic in member.topics or ()}
        return tuple(sorted(named | {name.topic for name in self.owners}))


def of_classic_protocol(found: DescribedGroup, coordinator: Broker) -> CoordinatedGroup:
    """Return a group of the classic protocol."""
    shows_all = found.state == STABLE
    members = [_coordinated_member(each, found.protocol_type, shows_all) for each in found.members]
    return CoordinatedGroup(
        found.group, found.state, found.protocol_type, CLASSIC, found.protocol or None, coordinator,
        tuple(sorted(members, key=_place)), reason=found.error_message,
    )  # fmt: skip


def of_newest_protocol(found: DescribedConsumerGroup, coordinator: Broker) -> CoordinatedGroup:
    """Return a group of the protocol of KIP-848."""
    members = [
        CoordinatedMember(
            each.member_id, each.instance_id, each.client_id, _host(each.client_host), tuple(sorted(each.topics)),
            each.regex or None, tuple(sorted(each.assigned)), tuple(sorted(each.target)), each.epoch, each.rack,
        )
        for each in found.members
    ]  # fmt: skip
    return CoordinatedGroup(
        found.group, found.state, CONSUMER_PROTOCOL, CONSUMER, found.assignor or None, coordinator,
        tuple(sorted(members, key=_place)), found.epoch, found.assignment_epoch, found.error_message,
    )  # fmt: skip


def shown_members(members: tuple[CoordinatedMember, ...]) -> str:
    """Return how many members there are and the first of them, for the sentence of an error."""
    return first_few(*[f"{each.member_id} of {each.host}" for each in members])


def _coordinated_member(found: DescribedMember, protocol_type: str, shows_all: bool) -> CoordinatedMember:
    topics: tuple[str, ...] | None = None
    assigned: tuple[TopicPartition, ...] = ()
    problem: str | None = None
    if shows_all and protocol_type == CONSUMER_PROTOCOL:
        try:
            topics = tuple(sorted(decode_subscription(found.metadata).topics))
        except UnreadableMetadata as error:
            problem = f"its subscription cannot be read: {error}"
        try:
            assigned = tuple(sorted(TopicPartition(*each) for each in decode_assignment(found.assignment).partitions))
        except UnreadableMetadata as error:
            problem = f"its assignment cannot be read: {error}"
    return CoordinatedMember(
        found.member_id, found.instance_id, found.client_id, _host(found.client_host), topics, None, assigned,
        problem=problem,
    )  # fmt: skip


def _place(member: CoordinatedMember) -> tuple[str, str]:
    return member.client_id, member.member_id


def _host(address: str) -> str:
    """Return an address without the slash that Java writes before it."""
    return address.removeprefix("/")


BROKERS: Final = "brokers"
"""The coordination of a group other than `zookeeper`."""
LogRange = tuple[int, int] | str
"""Start and end of a log, or why they are not known."""


@dataclass(frozen=True)
class BrokerGroupState:
    """Everything that is known of a group that brokers coordinate.

    Attributes:
        group: The group with its members.
        offsets: Partition -> offset that it has stored.
        partitions: Topic -> numbers of its partitions, of the topics that exist and that the group has to do with.
        logs: Partition -> its log, for partitions that exist; missing ones were not asked for.
    """

    group: CoordinatedGroup
    offsets: Mapping[TopicPartition, int]
    partitions: Mapping[str, Sequence[int | str]]
    logs: Mapping[TopicPartition, LogRange] = field(default_factory=dict)

    @property
    def concerned(self) -> list[TopicPartition]:
        """The partitions that members have or subscribe to, and those with an offset, by topic and number."""
        subscribed = self.subscribed
        owned = [name for name in self.group.owners if name not in subscribed]
        stored = [name for name in self.offsets if name not in subscribed and name not in self.group.owners]
        return sorted([*subscribed, *owned, *stored])

    @property
    def subscribed(self) -> set[TopicPartition]:
        """The partitions of the topics that members subscribe to by name, or have a partition of by a filter."""
        return {TopicPartition(topic, number) for topic in self.group.topics
                for number in self.partitions.get(topic, ())}  # fmt: skip

    def exists(self, name: TopicPartition) -> bool:
        """Return whether there is such a partition."""
        return name.partition in self.partitions.get(name.topic, ())


@dataclass(frozen=True)
class BrokerMemberRow:
    """A member of a group that brokers coordinate.

    Attributes:
        member_id: As the group names it.
        instance_id: Of a static member; None for a dynamic one.
        client_id: Its `client.id`.
        host: The address from which it came.
        assignor: By which the group's partitions are assigned; None while nothing is assigned.
        subscribed: Topics that it subscribes to by name; None if they are not known, as while the group rebalances.
        regex: By which it subscribes, in the protocol of KIP-848; None without one.
        assigned: The partitions that it has, as `topic-number`.
        target: The partitions that the coordinator wants it to have (KIP-848); None where a member assigns.
        epoch: Of its assignment (KIP-848).
        rack: Where it runs (KIP-848); None if it does not say.
        problem: Why it cannot be understood, a clause.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignor: str | None
    subscribed: tuple[str, ...] | None
    regex: str | None
    assigned: tuple[str, ...]
    target: tuple[str, ...] | None = None
    epoch: int | None = None
    rack: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class BrokerPartitionRow:
    """A partition that the group reads or has an offset of; None stands for nothing or unknown.

    Attributes:
        topic: Its topic.
        partition: Its number.
        offset: The committed offset, the next one to be read.
        log_end: The offset that the next message will get.
        lag: `log_end - offset`; None if one of them is not known, and if the offset is beyond the end.
        owner: Id of the member that has it.
        client_id: Of that member.
        host: Of that member.
        log_start: The first offset that the log still has.
        problems: The problems, a clause each.
    """

    topic: str
    partition: int | str
    offset: int | None
    log_end: int | None
    lag: int | None
    owner: str | None
    client_id: str | None
    host: str | None
    log_start: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class BrokerGroupReport(JsonValue):
    """Members, partitions and lag of a group that brokers coordinate.

    Attributes:
        group: Its name.
        state: As its coordinator names it, such as `Stable`.
        protocol_type: `consumer` for consumers; empty for a group that has stored offsets and never had a member.
        group_type: `classic`, or `consumer` for the protocol of KIP-848.
        assignor: By which partitions are assigned; None while nothing is assigned.
        coordinator: Id of the broker that coordinates it.
        coordinator_address: Its address, `host:port`.
        members: By client id and member id.
        partitions: By topic and number.
        lag: Sum of the known lags; None if there are partitions and no lag is known.
        lag_unknown: Number of partitions whose lag is not known.
        problems: The problems, as sentences.
        epoch: Of a group of the protocol of KIP-848; None for others.
        assignment_epoch: Of its target assignment.
        coordination: `brokers`.
        lag_unit: `messages`.
    """

    group: str
    state: str
    protocol_type: str
    group_type: str
    assignor: str | None
    coordinator: int
    coordinator_address: str
    members: tuple[BrokerMemberRow, ...]
    partitions: tuple[BrokerPartitionRow, ...]
    lag: int | None
    lag_unknown: int
    problems: tuple[str, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    coordination: str = BROKERS
    lag_unit: str = "messages"

    @property
    def unassigned(self) -> tuple[BrokerPartitionRow, ...]:
        """The partitions that no member has."""
        return tuple(row for row in self.partitions if row.owner is None)


def broker_group_report(found: BrokerGroupState) -> BrokerGroupReport:
    """Return the report about a group."""
    group = found.group
    owners = group.owners
    problems = [f"{each.member_id}: {each.problem}" for each in group.members or () if each.problem]
    if group.is_rebalancing:
        problems.insert(0, f"the group is in state {group.state}: its partitions may move")
    problems += [f"{topic}: the topic does not exist" for topic in group.topics if topic not in found.partitions]
    rows = [_row(found, name, owners.get(name, [])) for name in found.concerned]
    problems += [f"{row.topic}-{row.partition}: {problem}" for row in rows for problem in row.problems]
    lags = [row.lag for row in rows if row.lag is not None]
    return BrokerGroupReport(
        group.group, group.state, group.protocol_type, group.group_type, group.assignor, group.coordinator.id,
        f"{group.coordinator.host}:{group.coordinator.port}",
        tuple(_member(each, group.assignor) for each in group.members or ()), tuple(rows),
        None if rows and not lags else sum(lags), len(rows) - len(lags), tuple(problems), group.epoch,
        group.assignment_epoch,
    )  # fmt: skip


def _member(found: CoordinatedMember, assignor: str | None) -> BrokerMemberRow:
    return BrokerMemberRow(
        found.member_id, found.instance_id, found.client_id, found.host, assignor, found.topics, found.regex,
        _names(found.assigned), None if found.target is None else _names(found.target), found.epoch, found.rack,
        found.problem,
    )  # fmt: skip


def _names(partitions: Sequence[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{name.topic}-{name.partition}" for name in partitions)


def _row(found: BrokerGroupState, name: TopicPartition, owners: Sequence[CoordinatedMember]) -> BrokerPartitionRow:
    group = found.group
    problems: list[str] = []
    offset, log = found.offsets.get(name), found.logs.get(name)
    start, end = log if isinstance(log, tuple) else (None, None)
    if not found.exists(name):
        problems.append("the partition does not exist")
    elif isinstance(log, str):
        problems.append(f"its log could not be read: {log}")
    if offset is not None and end is not None and offset > end:
        problems.append(f"its offset {offset} is beyond the end of its log, {end}")
    elif offset is not None and start is not None and offset < start:
        problems.append(f"its offset {offset} is before the start of its log, {start}: messages were deleted unread")
    if len(owners) > 1:
        problems.append(f"{len(owners)} members own it: {', '.join(each.member_id for each in owners)}")
    is_read = name in found.subscribed and bool(group.members)
    if not owners and is_read and not group.is_rebalancing:
        problems.append("unassigned: a member subscribes to the topic, but no member has the partition")
    owner = owners[0] if owners else None
    who: tuple[str | None, str | None, str | None] = (None, None, None)
    if owner is not None:
        who = owner.member_id, owner.client_id, owner.host
    lag = None if offset is None or end is None or offset > end else end - offset
    return BrokerPartitionRow(name.topic, name.partition, offset, end, lag, *who, start, tuple(problems))
