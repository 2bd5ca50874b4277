"""Groups that brokers coordinate, as values, for tests of what is reported and found."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from rebalance.brokers.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from simpleconsumer.types import (
    Broker,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    TopicPartition,
)
from zkconsumer.admin.groups.broker_group_report import (
    BrokerGroupState,
    CoordinatedGroup,
    LogRange,
    of_classic_protocol,
    of_newest_protocol,
)

COORDINATOR = Broker(3, "b3", 9092, 2, "kafka011", 2)
ZERO, ONE, TWO = (TopicPartition("clicks", number) for number in range(3))


def member(name: str, topics: Sequence[str] = ("clicks",), has: Sequence[TopicPartition] = ()) -> DescribedMember:
    """A member of the classic protocol."""
    assignment = encode_assignment(Assignment(tuple((each.topic, int(each.partition)) for each in has)))
    return DescribedMember(
        f"{name}-1", None, name, "/10.0.0.1", encode_subscription(Subscription(tuple(topics)), 0), assignment
    )


def classic(*members: DescribedMember, state: str = "Stable", protocol_type: str = "consumer") -> CoordinatedGroup:
    protocol = "range" if state == "Stable" else ""
    return of_classic_protocol(DescribedGroup(0, "billing", state, protocol_type, protocol, members), COORDINATOR)


def newest(
    has: Sequence[TopicPartition], target: Sequence[TopicPartition], state: str = "Stable", regex: str | None = None
) -> CoordinatedGroup:
    """A group of the protocol of KIP-848 with one member."""
    one = DescribedConsumer(
        "m", "i-1", "r1", 4, "one", "/10.0.0.1", () if regex else ("clicks",), regex, tuple(has), tuple(target), False
    )
    return of_newest_protocol(DescribedConsumerGroup(0, "billing", state, 5, 5, "uniform", (one,)), COORDINATOR)


def state(
    group: CoordinatedGroup,
    offsets: Mapping[TopicPartition, int] | None = None,
    logs: Mapping[TopicPartition, LogRange] | None = None,
    partitions: Mapping[str, Sequence[int | str]] | None = None,
) -> BrokerGroupState:
    """What is known of a group; the topic `clicks` has two partitions, with the offsets 5 to 20."""
    return BrokerGroupState(
        group, offsets or {}, {"clicks": (0, 1)} if partitions is None else partitions,
        {ZERO: (5, 20), ONE: (5, 20)} if logs is None else logs,
    )  # fmt: skip


NONSENSE = struct.pack(">hi", 0, 99)
"""A subscription that ends too early."""
