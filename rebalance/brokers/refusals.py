"""What coordinators say when a member is out of its group for good, as errors that name the setting. Pure."""

from __future__ import annotations

from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.brokers.reactions import Asked
from rebalance.errors import GroupRefused

__all__ = ["refusal"]


def refusal(member: BrokerGroupMember, asked: Asked, code: int, reason: str) -> GroupRefused:
    """Return the error of a member whose request was answered with a final error code."""
    names = ", ".join(each.name for each in member.assignors)
    known = {
        23: f"no assignor of partition.assignment.strategy ({names}) is common to all members of the group, or it is "
            "not a group of consumers",
        24: "the coordinator does not allow this group.id",
        26: f"session.timeout.ms is {member.session_s * 1000:.0f}, which the coordinator does not allow "
            "(group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers; 6000 and 30000 before "
            "Kafka 0.10.1)",
        30: "the coordinator denies access to the group",
        35: "the coordinator does not serve a request of this member; static members (group.instance.id) need Kafka "
            "2.3",
        81: "the group has as many members as the coordinator allows (group.max.size)",
        82: f"another member has joined with the same group.instance.id, {member.instance_id!r}",
    }
    said = known.get(code, reason or f"error {code}")
    return GroupRefused(member.group, f"{asked.value}: {said}" if code in known else f"{asked.value} failed: {said}")
