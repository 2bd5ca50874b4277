"""Finds offsets that differ between the stores, and members that keep theirs in different stores. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebalance.subscription import consumer_id_of
from rebalance.zookeeper import znodes
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.verify.findings import Finding

__all__ = ["OFFSETS_IN_KAFKA", "storage_findings"]

OFFSETS_IN_KAFKA: Final = "__consumer_offsets"
"""The place of what is wrong with offsets in Kafka, where other findings have the path of a node."""


def storage_findings(nodes: GroupNodes) -> Iterator[Finding]:
    """Yield what is wrong, or worth knowing, about the stores of a group's offsets."""
    if nodes.kafka_unknown is not None:
        has_none = not nodes.offsets
        what = f"the offsets in Kafka cannot be read: {nodes.kafka_unknown}"
        if has_none:
            what += "; ZooKeeper has no offset of the group, so it is not known where its members would continue"
        else:  # a group that has never used Kafka looks the same, and nothing is wrong with it
            what += "; it is not known whether the group still uses its offsets in ZooKeeper"
        yield Finding("unknown-offsets", OFFSETS_IN_KAFKA, what, "check the broker logs: the leader of the group's "
                                                                 "partition of __consumer_offsets has to "
                                                                 "answer", passing=True, fault=has_none)  # fmt: skip
    yield from _mixed(nodes)
    yield from _differing(nodes)


def _mixed(nodes: GroupNodes) -> Iterator[Finding]:
    """Yield a finding if some members seem to keep their offsets in ZooKeeper, and others in Kafka."""
    examples: dict[str, dict[str, str]] = {"zookeeper": {}, "kafka": {}}
    for (topic, name), (data, _) in sorted(nodes.owners.items()):
        storage = nodes.storage_of((topic, name))
        if storage is not None:
            examples[storage].setdefault(consumer_id_of(znodes.parse_owner(data)), f"{topic}-{name}")
    in_zookeeper, in_kafka = examples["zookeeper"], examples["kafka"]
    if not in_zookeeper or not in_kafka or in_zookeeper.keys() == in_kafka.keys():
        return
    one, other = min(in_zookeeper.items()), min(in_kafka.items())
    yield Finding(
        "mixed-storage", znodes.ids_path(nodes.group),
        f"members seem to store their offsets in different stores: {one[0]} in ZooKeeper (as of {one[1]}), {other[0]} "
        f"in Kafka (as of {other[1]}); when a partition moves between them, messages are skipped or read again",
        "give all members the same offsets.storage and dual.commit.enabled, and restart them", passing=True,
    )  # fmt: skip


def _differing(nodes: GroupNodes) -> Iterator[Finding]:
    differing = [
        (name, zookeeper, kafka) for name, kafka in sorted(nodes.kafka_offsets.items())
        if (zookeeper := nodes.offset_in_zookeeper(name)) is not None and zookeeper != kafka
    ]  # fmt: skip
    if not differing:
        return
    (topic, number), zookeeper, kafka = differing[0]
    verb = "differs" if len(differing) == 1 else "differ"
    subject = "the offset" if len(differing) == 1 else "the offsets"
    yield Finding(
        "offsets-differ", znodes.offset_path(nodes.group, topic, number),
        f"{subject} of {count_of(len(differing), 'partition')} {verb} between the stores, first of {topic}-{number}: "
        f"{zookeeper} in ZooKeeper and {kafka} in Kafka",
        "offsets.storage of the members decides which one counts; zkconsumer offsets delete --store deletes the "
        "offsets of the other store, and offsets set --store both makes them equal", fault=False,
    )  # fmt: skip
