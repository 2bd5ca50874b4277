"""Finds what is wrong with a group that brokers coordinate, and how to fix it. Pure.

A finding that a rebalance under way explains is passing: it is a fault when it stays.

Finds that brokers coordinate a group which has the name of one in ZooKeeper.

The two do not know each other: members of both would each read all partitions, and use the same offsets in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebalance.zookeeper import znodes
from simpleconsumer.types import CONSUMER_PROTOCOL, TopicPartition
from zkconsumer.admin.groups.broker_group_report import BrokerGroupState, CoordinatedGroup, shown_members
from zkconsumer.admin.groups.group_report import members_of
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.values import count_of
from zkconsumer.admin.verify.findings import Finding, Verification
from zkconsumer.admin.verify.offset_findings import OFFSETS_IN_KAFKA
from zkconsumer_error import first_few

_ASSIGNED_BY_COORDINATOR = "see the logs of the members and of the coordinator; restart a member that does not catch up"


def verify_broker_group(found: BrokerGroupState, least_members: int) -> Verification:
    """Return everything that is found in one look at a group.

    Args:
        least_members: Fewer members are a fault.
    """
    group = found.group
    findings = [
        *_state(found, least_members),
        *_members(found),
        *_partitions(found),
        *_offsets(found),
        *_uncommitted(found),
    ]
    members = None if group.members is None else len(group.members)
    return Verification(group.group, members, len(found.subscribed), group.assignor, tuple(findings))


def _state(found: BrokerGroupState, least_members: int) -> Iterator[Finding]:
    group = found.group
    where = f"broker {group.coordinator.id}"
    count = len(group.members or ())
    if count < least_members:
        sentence = f"{count} of {least_members} members are in the group" if count else "the group has no members"
        yield Finding("too-few-members", where, f"{sentence}; its state is {group.state}", "start the consumers")
    if group.is_rebalancing:
        remedy = _ASSIGNED_BY_COORDINATOR
        if group.epoch is None:
            remedy = (
                "find the member that does not join: the coordinator waits for it until its rebalance time-out "
                "(max.poll.interval.ms) is over; its log, or a stack trace, shows what it does instead of polling"
            )
        yield Finding("rebalancing", where, f"the group is in state {group.state}", remedy, passing=True)
    if count and group.protocol_type != CONSUMER_PROTOCOL:
        yield Finding(
            "no-consumers", where,
            f"the members are of the type {group.protocol_type!r}, whose assignments this client does not know",
            "see the program that they belong to", fault=False,
        )  # fmt: skip


def _members(found: BrokerGroupState) -> Iterator[Finding]:
    group = found.group
    for member in group.members or ():
        path = member.member_id
        if member.problem is not None:
            yield Finding("unreadable-subscription", path, f"{member.member_id}: {member.problem}",
                          "find out what client it is; the group's leader may assign nothing to it")  # fmt: skip
        for topic in member.topics or ():
            if topic not in found.partitions:
                yield Finding("missing-topic", path, f"{member.member_id} waits for topic {topic!r}, which does not "
                              "exist", "create the topic, or correct its name", fault=False)  # fmt: skip
        if member.target is not None and set(member.target) != set(member.assigned):
            away = sorted(set(member.assigned) - set(member.target))
            what = (
                f"still has {_first(away)}, which it has to give up"
                if away
                else f"does not have {_first(sorted(set(member.target) - set(member.assigned)))} yet"
            )
            yield Finding("not-reconciled", path, f"{member.member_id} {what}", _ASSIGNED_BY_COORDINATOR, passing=True)
        elif not member.assigned and member.topics and not group.is_rebalancing and group.assignor is not None:
            yield Finding("idle-member", path, f"{member.member_id} of {member.host} has no partition",
                          "nothing, if there are more members than partitions", fault=False)  # fmt: skip


def _partitions(found: BrokerGroupState) -> Iterator[Finding]:
    group = found.group
    if not group.members or group.is_rebalancing or group.protocol_type != CONSUMER_PROTOCOL:
        return  # who has what is not known
    owners = group.owners
    for name in sorted(found.subscribed):
        where = _shown(name)
        if name not in owners:
            yield Finding(
                "unowned", where, f"{where} is assigned to no member, although {_subscriber(found, name)} subscribes "
                                  "to it",
                "check whether the topic has grown, which members notice within metadata.max.age.ms; if that does "
                "not help, restart one of them", passing=True,
            )  # fmt: skip
    for name, members in sorted(owners.items()):
        where = _shown(name)
        if len(members) > 1:
            names = ", ".join(each.member_id for each in members)
            yield Finding("two-owners", where, f"{where} is assigned to {len(members)} members: {names}",
                          "stop the leader of the group, whose client has made this "
                          "assignment", passing=True)  # fmt: skip
        if not found.exists(name):
            yield Finding("no-such-partition", where, f"{where} is assigned to {members[0].member_id}, but the "
                          "partition does not exist", "restart that member if this lasts", passing=True)  # fmt: skip


def _subscriber(found: BrokerGroupState, name: TopicPartition) -> str:
    members = found.group.members or ()
    return next((each.member_id for each in members if name.topic in (each.topics or ())), "a filter of a member")


def _offsets(found: BrokerGroupState) -> Iterator[Finding]:
    for name, offset in sorted(found.offsets.items()):
        where = _shown(name)
        set_it = (
            f"zkconsumer offsets set {found.group.group} --topic {name.topic} --partition {name.partition} --to "
            "earliest, while the group has no members, or the member continues where auto.offset.reset says"
        )
        log = found.logs.get(name)
        if not found.exists(name):
            yield Finding(
                "stale-offset", OFFSETS_IN_KAFKA, f"{where}: an offset is stored, but the partition does not exist",
                f"nothing; zkconsumer offsets delete {found.group.group} --topic {name.topic} deletes it", fault=False,
            )  # fmt: skip
        elif isinstance(log, str):
            yield Finding("unknown-log", OFFSETS_IN_KAFKA, f"{where}: its log could not be read: {log}",
                          "check the leader of the partition with zkconsumer topics", passing=True)  # fmt: skip
        elif log is not None and offset > log[1]:
            yield Finding("offset-beyond-log", OFFSETS_IN_KAFKA, f"{where}: its stored offset {offset} is "
                          f"{offset - log[1]} beyond the end of its log", set_it)  # fmt: skip
        elif log is not None and offset < log[0]:
            yield Finding(
                "offset-before-log", OFFSETS_IN_KAFKA, f"{where}: its stored offset {offset} is {log[0] - offset} "
                "before the start of its log: messages were deleted before they were read", set_it, passing=True,
            )  # fmt: skip


def _uncommitted(found: BrokerGroupState) -> Iterator[Finding]:
    for name, members in sorted(found.group.owners.items()):
        log = found.logs.get(name)
        if name in found.offsets or not found.exists(name):
            continue
        where = _shown(name)
        has_messages = isinstance(log, tuple) and log[1] > log[0]
        what = f"{where}: {members[0].member_id} has it, but no offset is stored"
        if has_messages:
            what += ", although its log has messages: the next member starts where auto.offset.reset says"
        yield Finding("uncommitted", OFFSETS_IN_KAFKA, what,
                      "check that the member commits (enable.auto.commit) and makes progress", fault=False)  # fmt: skip


def _shown(name: TopicPartition) -> str:
    return f"{name.topic}-{name.partition}"


def _first(names: list[TopicPartition]) -> str:
    return _shown(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")


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
