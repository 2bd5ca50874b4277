"""Finds that brokers coordinate a group which has the name of one in ZooKeeper. Pure.

The two do not know each other: members of both would each read all partitions, and use the same offsets in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebalance.zookeeper import znodes
from zkconsumer.admin.groups.coordinated_groups import CoordinatedGroup, shown_members
from zkconsumer.admin.groups.group_report import members_of
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.verify.findings import Finding
from zkconsumer_error import first_few

__all__ = ["same_name_findings"]


def same_name_findings(nodes: GroupNodes, other: CoordinatedGroup | None) -> Iterator[Finding]:
    """Yield that members of both groups read the same topics, or that only the other group has members.

    Args:
        nodes: The group in ZooKeeper.
        other: The group of that name that brokers coordinate; None if there is none, or it is not known.
    """
    if other is None or not other.members:
        return
    path = znodes.ids_path(nodes.group)
    what = (f"brokers also coordinate a group of that name, with {count_of(len(other.members), 'member')} "
            f"({shown_members(other.members)})")  # fmt: skip
    if not nodes.registrations and not nodes.hides_members:
        yield Finding("same-name", path, what,
                      f"zkconsumer verify {nodes.group} --bootstrap-server verifies that group",
                      fault=False)  # fmt: skip
        return
    shared = _shared_topics(nodes, other)
    if shared is None:
        what += "; it is not known yet whether both read the same topics"
    elif shared:
        names = first_few(*map(repr, shared), most=3)
        what += f": both groups read {names}, so each message is delivered twice, and both groups store offsets"
    else:
        yield Finding("same-name", path, f"{what}, which reads other topics", "nothing", fault=False)
        return
    yield Finding("members-of-both-kinds", path, what, "stop the members of one kind: those in ZooKeeper if the group "
                  "has moved to the brokers, see docs/MIGRATION.md", passing=True)  # fmt: skip


def _shared_topics(nodes: GroupNodes, other: CoordinatedGroup) -> list[str] | None:
    """Return the topics that members of both groups read; None if that is not known."""
    members = members_of(nodes)
    ours = {
        topic for subscription in members.subscriptions.values() for topic in subscription.topics(nodes.known_topics)
    }  # fmt: skip
    shared = sorted(ours & set(other.topics))
    is_unclear = other.is_rebalancing or nodes.hides_members or bool(members.unclear)
    return None if is_unclear and not shared else shared
