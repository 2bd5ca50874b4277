"""Finds stored offsets, in ZooKeeper and in Kafka, from which no member could go on. Pure.

They cannot be parsed, lie outside the log, or are positions of Kafka 0.7 at which no entry starts.

Rule: while the offsets in Kafka cannot be read, one in ZooKeeper may be a leftover of a group that has moved to Kafka.
It is no fault then, unless the present owner has written it.

Finds offsets that differ between the stores, and members that keep theirs in different stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rebalance.errors import UnreadableNode
from rebalance.subscription import consumer_id_of
from rebalance.zookeeper import znodes
from zkconsumer.admin.groups.group_state import EntryFault, FaultIs, GroupNodes, Name
from zkconsumer.admin.values import count_of
from zkconsumer.admin.verify.findings import Finding
from zkconsumer.admin.verify.verification import partitions_of

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


_NEGATIVE = re.compile(rb"-0*[1-9][0-9]{0,17}")
LogRange = tuple[int, int] | str
"""Start and end of a log, or why they are not known."""


def offset_findings(nodes: GroupNodes, logs: Mapping[Name, LogRange]) -> Iterator[Finding]:
    """Yield a finding for each offset, in either store, from which a member could not go on.

    Args:
        logs: (topic, partition's name) -> its log, as it was after the offsets were read; partitions that are missing
            are not compared.
    """
    partitions, _ = partitions_of(nodes)
    in_both = [(name, "zookeeper") for name in nodes.offsets] + [(name, "kafka") for name in nodes.kafka_offsets]
    for (topic, name), store in sorted(in_both, key=lambda each: (each[0], each[1] == "kafka")):
        path = znodes.offset_path(nodes.group, topic, name) if store == "zookeeper" else OFFSETS_IN_KAFKA
        set_it = f"zkconsumer offsets set {nodes.group} --topic {topic} --partition {name} --to earliest --force"
        noun = "stored offset"
        if nodes.kafka_offsets:
            set_it += f" --store {store}"
            noun = "offset in ZooKeeper" if store == "zookeeper" else "offset in Kafka"
        offset = nodes.kafka_offsets.get((topic, name))
        may_be_leftover = store == "zookeeper" and nodes.may_be_leftover((topic, name))
        if store == "zookeeper":
            try:
                offset = znodes.parse_offset(path, nodes.offsets[topic, name])
            except UnreadableNode as error:
                what = f"{topic}-{name}: its {noun} {error.excerpt!r} is not valid"
                # Java takes any negative number for no offset, and its rebalance fails at anything that is no number.
                java = "" if _NEGATIVE.fullmatch(nodes.offsets[topic, name] or b"") else (
                    "; Java members fail their rebalance because of it")  # fmt: skip
                yield Finding("unreadable-offset", path, what + _LEFTOVER * may_be_leftover,
                              f"{set_it}, or the next owner starts where auto.offset.reset says{java}",
                              fault=not may_be_leftover)  # fmt: skip
                continue
        is_topic_known = znodes.topic_path(topic) not in nodes.refused
        is_there = topic in nodes.known_topics and nodes.partition_of(name) in partitions.get(topic, (None,))
        if is_topic_known and not is_there:
            of_07 = nodes.topics_07.get(topic)
            missing = "the partition does not exist" if of_07 is None else of_07.why_missing(name)
            yield Finding("stale-offset", path, f"{topic}-{name}: an offset is stored, but {missing}",
                          "nothing; if the partition is created again, reading starts at that offset"
                          if of_07 is None else "nothing; when the partition is back, reading starts there",
                          fault=False)  # fmt: skip
            continue
        log = logs.get((topic, name))
        found = None if log is None or offset is None else _place(offset, log, noun, nodes.counted_in)
        if found is not None:
            kind, what = found
            # A member that goes on reading commits soon, and a leader is elected soon.
            passing = kind != "offset-beyond-log"
            # A store that the owner does not use is worth a note, and keeps nobody from work.
            is_fault = nodes.storage_of((topic, name)) in (None, store)
            if may_be_leftover and kind != "unknown-log":  # a log without a leader is a fault, whatever the offset is
                is_fault = False
                what += _LEFTOVER
            remedy = _OF_REFUSED if isinstance(log, str) and "does not let this client" in log else _REMEDIES[kind]
            yield Finding(kind, path, f"{topic}-{name}: {what}", remedy.format(set_it=set_it), passing, is_fault)
        elif (topic, name) in nodes.entry_faults and offset is not None:
            set_to = f"zkconsumer offsets set {nodes.group} --topic {topic} --partition {name} --force --to"
            yield _entry_finding(path, f"{topic}-{name}", offset, nodes.entry_faults[topic, name], set_to)


_LEFTOVER = "; it is not known whether the group still uses its offset in ZooKeeper"


def _place(offset: int, log: LogRange, noun: str, counted_in: str) -> tuple[str, str] | None:
    """Return kind and clause of what is wrong with an offset, None if it lies inside the log."""
    if isinstance(log, str):
        return "unknown-log", f"its log could not be read: {log}"
    start, end = log
    if offset > end:
        return "offset-beyond-log", f"its {noun} {offset} is {offset - end}{counted_in} beyond the end of its log"
    if offset < start:
        what = f"its {noun} {offset} is {start - offset}{counted_in} before the start of its log"
        return "offset-before-log", f"{what}: messages were deleted before they were read"
    return None


def _entry_finding(path: str, partition: str, offset: int, fault: EntryFault, set_to: str) -> Finding:
    """Return the finding about a stored position of Kafka 0.7 at which no sound entry starts.

    Args:
        set_to: A command to which a position has to be appended.
    """
    if fault.fault_is is FaultIs.WITHIN:
        what = f"its stored offset {offset} is inside the entry from {fault.start} to {fault.end}"
        remedy = (f"{set_to} {fault.start}, or the next owner continues at {fault.start}; a Java member does not "
                  "recover there")  # fmt: skip
        # A member that goes on reading commits soon.
        return Finding("offset-within-entry", path, f"{partition}: {what}", remedy, passing=True)
    if fault.fault_is is FaultIs.DAMAGED:
        end = "a position after it" if fault.end < 0 else fault.end
        what = f"the entry at its stored offset {offset} is damaged: {fault.reason}"
        remedy = f"{set_to} {end} skips it; zkconsumer members do what on.message.error says"
        return Finding("damaged-entry", path, f"{partition}: {what}", remedy)
    if fault.fault_is is FaultIs.NO_ENTRY:
        what = f"no entry seems to start at its stored offset {offset}: {fault.reason}"
        remedy = f"{set_to} earliest, latest, or a position that zkconsumer consume --print-offset prints"
        return Finding("no-entry-at-offset", path, f"{partition}: {what}", remedy)
    what = f"it is not known whether an entry starts at its stored offset {offset}: {fault.reason}"
    return Finding("unknown-entry", path, f"{partition}: {what}", "verify the group again", fault=False)


_OF_REFUSED = "give this command credentials for that node, or change the access list of the node (setAcl)"
_REMEDIES = {
    "unknown-log": "check the leader of the partition with zkconsumer topics",
    "offset-beyond-log": "{set_it}, or the next owner starts where auto.offset.reset says",
    "offset-before-log": "{set_it}, or the next owner starts where auto.offset.reset says",
}
