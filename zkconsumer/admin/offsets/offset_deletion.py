"""Finds the offsets that shall be deleted, and refuses those of topics that the group consumes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.admin.errors import GroupHasMembers, NotFound
from zkconsumer.admin.groups.group_nodes import read_group
from zkconsumer.admin.groups.group_report import members_of
from zkconsumer.admin.groups.group_state import Name
from zkconsumer.admin.offsets.group_offsets import StoredOffsets
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER
from zkconsumer.admin.phrases import nearest
from zkconsumer.cluster.cluster import Cluster

__all__ = ["check_not_consumed", "chosen_offsets"]


def chosen_offsets(
    stored: StoredOffsets, stores: Sequence[str], topic: str | None, partitions: Sequence[int | str]
) -> list[Name]:
    """Return the partitions whose offset shall be deleted.

    Args:
        stores: The stores that are changed.
        topic: This topic alone; None: all.
        partitions: These partitions alone; all when there are none.

    Raises:
        NotFound: The group has no such offset there.
    """
    there = {ZOOKEEPER: stored.zookeeper, KAFKA: stored.kafka}
    names = [name for name in stored.names() if any(name in there[store] for store in stores)]
    where = " or ".join({ZOOKEEPER: "ZooKeeper", KAFKA: "Kafka"}[store] for store in sorted(stores, reverse=True))
    if topic is not None:
        topics = sorted({name[0] for name in names})
        names = [name for name in names if name[0] == topic]
        if not names:
            raise NotFound(
                f"group {stored.group!r} has no offset for topic {topic!r} in {where}", nearest(topic, topics, "topic")
            )
    missing = sorted(set(map(str, partitions)) - {name for _, name in names})
    if missing:
        having = ", ".join(name for _, name in names)
        raise NotFound(
            f"group {stored.group!r} has no offset of partition {', '.join(missing)} of topic {topic!r} in {where}",
            f"it has offsets for {having}",
        )
    return [name for name in names if not partitions or name[1] in set(map(str, partitions))]


def check_not_consumed(
    port: ZooKeeperPort, cluster: Cluster, zookeeper: str, group: str, topics: Collection[str]
) -> list[str]:
    """Raise if the group consumes one of the topics: its members would store the offsets again.

    An owner node of no session is a leftover: nobody works under it, and it does not prevent the deletion.

    Returns:
        A sentence about each topic with such leftovers.

    Raises:
        GroupHasMembers: Names the member, or the owner.
    """
    nodes = read_group(port, cluster, zookeeper, group, must_exist=False)
    found = members_of(nodes)
    owners = {topic for (topic, _), (_, session) in nodes.owners.items() if session}
    leftovers = {topic: name for (topic, name), (_, session) in nodes.owners.items() if not session}
    notes: list[str] = []
    for topic in sorted(topics):
        names = [
            row.consumer_id for row in found.rows
            if row.problem or found.subscriptions[row.consumer_id].matches(topic)
        ]  # fmt: skip
        if names:
            what = f"{names[0]} subscribes to {topic!r}"
            if names[0] in found.unclear:
                what = f"the subscription of {names[0]} is not known"
        elif topic in owners:
            what = f"partitions of {topic!r} have an owner"
        else:
            if topic in leftovers:
                path = znodes.owner_path(group, topic, leftovers[topic])
                notes.append(f"group {group!r}: {path} belongs to no session and does not prevent the deletion")
            continue
        raise GroupHasMembers(
            f"no offset of group {group!r} is deleted: {what}, so the offsets would be stored again",
            "stop the members of the group first",
        )
    return notes
