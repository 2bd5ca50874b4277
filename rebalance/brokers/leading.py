"""Leads a broker group: reads the subscriptions of all members, and assigns partitions. Pure.

The application may bring assignors: if they raise, or return another form, the error names them.

Source: ConsumerCoordinator.onLeaderElected (Kafka 3.9).
"""

from __future__ import annotations

import logging
import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence

from rebalance.brokers.assignor import Assignor
from rebalance.brokers.consumer_protocol import (
    Assignment,
    Partition,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from rebalance.brokers.events import JoinedMember
from rebalance.errors import RebalanceError, UnreadableMetadata
from zkconsumer_error import shown

log = logging.getLogger(__name__)


class AssignmentRefused(RebalanceError):  # noqa: N818 - like its siblings, it says what happened
    """An assignor has failed, or its result would lose or double partitions.

    Attributes:
        assignor: Its name.
    """

    remedy = "fix the assignor, or choose another one (partition.assignment.strategy)"

    def __init__(self, assignor: str, reason: str) -> None:
        super().__init__(assignor, reason)
        self.assignor = assignor

    def __str__(self) -> str:
        return f"assignor {self.args[0]!r} {self.args[1]}; {self.remedy}"


def subscriptions_of(members: Iterable[JoinedMember]) -> dict[str, Subscription]:
    """Return the subscription of each member, by member id; one that cannot be read is to no topic."""
    found: dict[str, Subscription] = {}
    for each in members:
        try:
            found[each.member_id] = decode_subscription(each.metadata, each.instance_id)
        except UnreadableMetadata as error:
            log.warning("subscription of member %s cannot be read and counts as empty: %s", each.member_id, error)
            found[each.member_id] = Subscription((), instance_id=each.instance_id)
    return found


def topics_of(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    """Return the topics that any member wants."""
    return frozenset(topic for each in subscriptions.values() for topic in each.topics)


def assign(
    assignor: Assignor, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
) -> dict[str, bytes]:
    """Return the assignment of each member, by member id, also of members that get nothing.

    Raises:
        AssignmentRefused: The assignor raises an error, returns no partitions by member, or gives a partition to two
            members, to one that does not want the topic, or one that does not exist.
    """
    try:
        returned: object = assignor.assign(partitions_per_topic, subscriptions)
    except Exception as error:
        raise AssignmentRefused(assignor.name, f"has failed: {shown(error)}") from error
    found = _partitions_in(assignor.name, returned)
    _check(assignor.name, found, partitions_per_topic, subscriptions)
    return {member: encode_assignment(Assignment(tuple(found.get(member, ())))) for member in subscriptions}


def user_data_of(assignor: Assignor, topics: Iterable[str]) -> bytes | None:
    """Return the data that a member adds to its subscription for an assignor.

    Raises:
        AssignmentRefused: The assignor raises an error, or returns something else than bytes.
    """
    try:
        found: object = assignor.subscription_user_data(topics)
    except Exception as error:
        raise AssignmentRefused(assignor.name, f"has failed in subscription_user_data: {shown(error)}") from error
    if found is not None and not isinstance(found, bytes):
        raise AssignmentRefused(
            assignor.name, f"returns {reprlib.repr(found)} from subscription_user_data, which is neither bytes nor None"
        )
    return found


def take_over(assignor: Assignor, assignment: Assignment, generation: int) -> None:
    """Tell an assignor what its member has got.

    Raises:
        AssignmentRefused: The assignor raises an error: its view of the assignment may be wrong from now on.
    """
    try:
        assignor.on_assignment(assignment, generation)
    except Exception as error:
        raise AssignmentRefused(assignor.name, f"has failed in on_assignment: {shown(error)}") from error


def _partitions_in(name: str, returned: object) -> dict[str, list[Partition]]:
    """Return the result of an assignor: the partitions of each member in order, each once."""
    form = "it must map member ids to lists of partitions, such as [('clicks', 0)]"
    if not isinstance(returned, Mapping):
        raise AssignmentRefused(name, f"returns {reprlib.repr(returned)}; {form}")
    found: dict[str, list[Partition]] = {}
    for member, partitions in returned.items():
        try:
            found[member] = sorted({(topic, operator.index(number)) for topic, number in partitions})
        except (TypeError, ValueError):
            raise AssignmentRefused(name, f"returns {reprlib.repr(partitions)} for {member!r}; {form}") from None
    return found


def _check(
    name: str,
    found: Mapping[str, Sequence[Partition]],
    partitions_per_topic: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
) -> None:
    owners: dict[Partition, str] = {}
    for member, partitions in found.items():
        if member not in subscriptions:
            raise AssignmentRefused(name, f"assigns to {member!r}, which is not a member of the group")
        for topic, number in partitions:
            shown = f"{topic}-{number}"
            if not 0 <= number < partitions_per_topic.get(topic, 0):
                raise AssignmentRefused(
                    name, f"assigns {shown}, but the topic has {partitions_per_topic.get(topic, 0)} partitions"
                )
            if topic not in subscriptions[member].topics:
                raise AssignmentRefused(name, f"assigns {shown} to {member!r}, which does not subscribe to the topic")
            other = owners.setdefault((topic, number), member)
            if other != member:
                raise AssignmentRefused(name, f"assigns {shown} to both {other!r} and {member!r}")
