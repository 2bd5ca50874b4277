"""Finds the partitions and the new offsets of a change, before anything is written. Pure.

The target of `zkconsumer offsets set` is the start or end of the log, an offset, a time, or a shift of what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from rebalance.errors import UnreadableNode
from rebalance.subscription import sort_partitions
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_state import Name
from zkconsumer.admin.offsets.group_offsets import StoredOffsets
from zkconsumer.admin.offsets.offset_changes import OffsetChange, PartitionName, plan_changes, plan_kafka_changes
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER
from zkconsumer.admin.values import NotFound, OffsetsNotSet, count_of, nearest, partition_number
from zkconsumer.admin.verify.entry_faults import entry_starts, moved_note
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.registry import no_partition
from zkconsumer.cluster.time_search import refuse_seconds
from zkconsumer_error import first_few


class OffsetTarget(NamedTuple):
    """Where offsets shall be set.

    Attributes:
        text: The target as it was given.
        offset: The offset that was given, None for other targets.
        time_ms: Milliseconds since 1970, `EARLIEST` or `LATEST`; None for an offset.
    """

    text: str
    offset: int | None
    time_ms: int | None

    @classmethod
    def of(cls, given: str | int | OffsetTarget) -> OffsetTarget:
        """Return a target that may be given as text or as an offset.

        Raises:
            ValueError: It is none; see `parse_target`.
        """
        return given if isinstance(given, OffsetTarget) else parse_target(str(given))

    @property
    def times_ms(self) -> list[int]:
        """The times for which the leaders have to be asked: those of the bounds of the log, and the target's."""
        return [EARLIEST, LATEST, *([] if self.time_ms is None else [self.time_ms])]

    def resolve(self, found: LogOffsets, force: bool) -> int:
        """Return the offset in one partition.

        Args:
            found: The answers to `times_ms`.
            force: Take an offset as it is, also outside of the log.

        Raises:
            ValueError: The log does not have it; a clause.
        """
        if self.offset is not None and force:
            return self.offset
        earliest, latest = _bounds(found)
        if self.offset is None:
            at = found[2] if not isinstance(found, str) else None
            return latest if at is None else min(max(at, earliest), latest)  # None: no message is that recent
        if not earliest <= self.offset <= latest:
            raise ValueError(f"its log has {earliest} to {latest}")
        return self.offset


def _bounds(found: LogOffsets) -> tuple[int, int]:
    """Return start and end of a log.

    Raises:
        ValueError: They are not known; a clause.
    """
    if isinstance(found, str):
        raise ValueError(f"its log could not be read ({found})")
    earliest, latest = found[0], found[1]
    if earliest is None or latest is None:
        raise ValueError("its log could not be read (the leader reports no offsets)")
    return earliest, latest


def shifted(offset: int, by: int, found: LogOffsets) -> tuple[int, str | None]:
    """Return an offset moved by a number of messages, and a clause about what was cut off at a bound of the log.

    >>> shifted(5, 10, (0, 8))
    (8, 'cut off at the end of its log, 8; 5+10 would be 15')

    Args:
        found: Start and end of the log.

    Raises:
        ValueError: The log is not known; a clause.
    """
    earliest, latest = _bounds(found)
    new = offset + by
    if new < earliest:
        return earliest, f"cut off at the start of its log, {earliest}; {offset}{by:+d} would be {new}"
    if new > latest:
        return latest, f"cut off at the end of its log, {latest}; {offset}{by:+d} would be {new}"
    return new, None


_NAMED: Final = {"earliest": EARLIEST, "beginning": EARLIEST, "smallest": EARLIEST,
                 "latest": LATEST, "end": LATEST, "largest": LATEST}  # fmt: skip
"""The words of Kafka's tools, of `consume --offset` and of `auto.offset.reset`."""
_TIME_DIGITS: Final = 16


def parse_target(text: str) -> OffsetTarget:
    """Return the target that a text names.

    >>> parse_target("42").offset, parse_target("2014-03-01T12:00:00Z").time_ms
    (42, 1393675200000)

    Raises:
        ValueError: It is none of the four.
    """
    if text in _NAMED:
        return OffsetTarget(text, None, _NAMED[text])
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit() and len(text) <= _TIME_DIGITS:
        refuse_seconds(text[1:])
        return OffsetTarget(text, None, int(text[1:]))
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        if int(digits[:20]) > znodes.MAX_OFFSET:
            raise ValueError(f"{text} is larger than the largest offset, 2^63-1")
        return OffsetTarget(text, int(digits), None)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not earliest, latest, an offset, or a time such as 2014-03-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if time_ms < 0:
        raise ValueError(f"{text} is before 1970")
    return OffsetTarget(text, None, time_ms)


_LOOK: Final = "set it to earliest, latest or a position that `zkconsumer consume --print-offset` shows"
_New = TypeVar("_New")


class Wanted(NamedTuple):
    """The new offsets of some partitions.

    Attributes:
        offsets: Partition -> store -> new offset.
        notes: Differences from the request, a sentence each.
    """

    offsets: dict[TopicPartition, dict[str, int]]
    notes: tuple[str, ...] = ()


def topic_partitions(cluster: Cluster, topic: str, chosen: Sequence[int | str]) -> list[TopicPartition]:
    """Return the chosen partitions of a topic, all of them when none is chosen.

    Raises:
        NotFound: There is no such topic or partition.
        UnreadableNode: The node of the topic cannot be understood.
    """
    known = cluster.partitions([topic]).get(topic)
    if known is None:
        raise NotFound(f"topic {topic!r} does not exist", nearest(topic, cluster.topics(), "topic"))
    if not known:
        raise NotFound(f"topic {topic!r} has no partitions now: no broker that has it is registered",
                       "start its brokers first; their partitions are then back")  # fmt: skip
    missing = sort_partitions(set(chosen) - set(known))
    if missing:
        raise NotFound(no_partition(topic, missing, known), f"it has {', '.join(map(str, known))}")
    return [TopicPartition(topic, number) for number in sort_partitions(set(chosen) or known)]


def target_offsets(
    cluster: Cluster, stores: Sequence[str], names: Sequence[TopicPartition], target: OffsetTarget, force: bool
) -> Wanted:
    """Return the offsets for which a target stands.

    Args:
        stores: Where they shall be set.
        force: Do not ask whether the log has an offset that was given as a number.

    Raises:
        OffsetsNotSet: A log does not have the target, or is not known.
    """
    needs_logs = target.offset is None or not force
    logs = cluster.log_ends(names, target.times_ms) if needs_logs else {}
    remedy = "try again when a broker leads it"
    if target.offset is not None:
        remedy = "choose an offset that the log has, or set it nevertheless: force=True, --force"
    found = _each(names, target.text, remedy, lambda name: target.resolve(logs.get(name, ""), force))
    notes: list[str] = []
    if target.offset is not None and not force:
        found = _at_starts(cluster, found, target.text, notes)
    return Wanted({name: dict.fromkeys(stores, offset) for name, offset in found.items()}, tuple(notes))


def _at_starts(
    cluster: Cluster, positions: Mapping[TopicPartition, int], text: str, notes: list[str]
) -> dict[TopicPartition, int]:
    """Return the positions, those of Kafka 0.7 at the starts of entries; `notes` gets a sentence for each that moved.

    Raises:
        OffsetsNotSet: The start of an entry is not known.
    """
    starts = entry_starts(cluster, positions)

    def start(name: TopicPartition) -> int:
        found = starts[name]
        if isinstance(found, str):
            raise ValueError(found)
        note = moved_note(name, positions[name], found)
        if found != positions[name] and note not in notes:
            notes.append(note)
        return found

    return _each(list(positions), text, _LOOK, start)


def shift_offsets(
    cluster: Cluster, stored: StoredOffsets, stores: Sequence[str], names: Sequence[TopicPartition], by: int,
    may_differ: bool,
) -> Wanted:  # fmt: skip
    """Return the stored offsets moved by a number of messages, at most to the bounds of the log.

    In Kafka 0.7 they are moved by bytes, and then to the start of the entry there.

    Each store is moved from its own offset. A store skips partitions of which it has no offset; `notes` names the
    partitions without any.

    Args:
        may_differ: The stores were chosen, so their offsets may differ.

    Raises:
        OffsetsNotSet: A log is not known, no partition has an offset, or the stores differ.
    """
    if not may_differ:
        check_stores_agree(stored, stores, [(name.topic, str(name.partition)) for name in names])
    notes: list[str] = []
    known: dict[TopicPartition, dict[str, int]] = {}
    for name in names:
        found = _own_offsets(stored, stores, name, notes)
        if found:
            known[name] = found
    if not known:
        raise OffsetsNotSet(
            f"no offset was set: group {stored.group!r} has no stored offset to shift, of "
            f"{count_of(len(names), 'partition')}", "set them to earliest, latest, an offset or a time",
        )  # fmt: skip
    left_out = [f"{name.topic}-{name.partition}" for name in names if name not in known]
    if left_out:
        notes.append(f"left out, because they have no stored offset: {first_few(*left_out, most=3)}")
    logs = cluster.log_ends(list(known), [EARLIEST, LATEST])

    def moved(name: TopicPartition) -> dict[str, int]:
        new: dict[str, int] = {}
        for store, offset in known[name].items():
            new[store], cut_off = shifted(offset, by, logs[name])
            note = f"{name.topic}-{name.partition}: {cut_off}"
            if cut_off is not None and note not in notes:
                notes.append(note)
        return new

    shifts = _each(list(known), f"{by:+d}", "try again when a broker leads it", moved)
    for store in stores:
        at_starts = _at_starts(
            cluster, {name: new[store] for name, new in shifts.items() if store in new}, f"{by:+d}", notes
        )
        for name, start in at_starts.items():
            shifts[name][store] = start
    return Wanted(shifts, tuple(notes))


def _own_offsets(
    stored: StoredOffsets, stores: Sequence[str], name: TopicPartition, notes: list[str]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for store in stores:
        try:
            offset = stored.offset(store, (name.topic, str(name.partition)))
        except UnreadableNode as error:
            notes.append(f"left out in ZooKeeper: {error}")
            continue
        if offset is not None:
            found[store] = offset
    return found


def check_stores_agree(stored: StoredOffsets, stores: Sequence[str], names: Sequence[Name]) -> None:
    """Raise if both stores would be changed from one offset, and they differ: the older one could be the one taken.

    Raises:
        OffsetsNotSet: Names the partitions, with both offsets.
    """
    if len(stores) < 2:
        return
    differing = [
        f"{topic}-{name}: {stored.offset(ZOOKEEPER, (topic, name))} in ZooKeeper, {stored.kafka[topic, name]} in Kafka"
        for topic, name in names if stored.differs((topic, name))
    ]  # fmt: skip
    if differing:
        shown = first_few(*differing, most=3, between="; ")
        raise OffsetsNotSet(
            f"no offset was set: the stores of group {stored.group!r} differ ({shown})",
            "choose the store that the group uses: --store zookeeper or kafka (store=...); --store both changes each "
            "of them",
        )


def _each(
    names: Sequence[TopicPartition], text: str, remedy: str, resolve: Callable[[TopicPartition], _New]
) -> dict[TopicPartition, _New]:
    offsets: dict[TopicPartition, _New] = {}
    refused: list[str] = []
    for name in names:
        try:
            offsets[name] = resolve(name)
        except ValueError as error:
            refused.append(f"{name.topic}-{name.partition}: {error}")
    if refused:
        shown = first_few(*refused, most=3, between="; ")
        raise OffsetsNotSet(f"no offset was set: {text} cannot be set for {shown}", remedy)
    return offsets


def changes_of(
    port: ZooKeeperPort | None,
    stored: Mapping[str, StoredOffsets],
    wanted: Sequence[tuple[PartitionName, Mapping[str, int] | Mapping[str, None]]],
) -> list[OffsetChange]:
    """Return the changes in each store, the changes of one partition next to each other.

    Args:
        port: None where all offsets are in Kafka.
        stored: Group -> its offsets.
        wanted: Group, topic and name of the partition's node, and the new offset in each store; None to delete it.

    Raises:
        OffsetsNotSet: Kafka cannot have an offset of a partition whose name is no number.
    """
    in_zookeeper = (
        {}
        if port is None
        else {
            change.path: change
            for change in plan_changes(port, [(name, new[ZOOKEEPER]) for name, new in wanted if ZOOKEEPER in new])
        }
    )
    changes: list[OffsetChange] = []
    for (group, topic, name), new in wanted:
        if ZOOKEEPER in new:
            changes.append(in_zookeeper[znodes.offset_path(group, topic, name)])
        if KAFKA not in new:
            continue
        number = partition_number(name)
        if number is None:
            raise OffsetsNotSet(
                f"no offset was set: partition {name!r} of {topic} in group {group!r} cannot be stored in Kafka, where "
                "partitions are numbers", "leave it out" if port is None else "choose the store: zookeeper",
            )  # fmt: skip
        changes += plan_kafka_changes(group, {TopicPartition(topic, number): new[KAFKA]}, stored[group].kafka)
    return changes
