"""`BrokerGroupOffsets`: shows, sets, deletes, exports and imports the offsets of groups that brokers coordinate.

Rules, and which failure each prevents:
- A group with members is refused before anything is looked up: its coordinator takes commits of members alone (25).
- All offsets of a call are checked before the first one is written, those of all groups.
- Offsets are read again just before they are written, and nothing is written if one has changed: the protocol has no
  other way to notice what somebody else has stored meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simpleconsumer.errors import BrokerError
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.broker_group_report import (
    BROKERS,
    DEAD,
    BrokerGroupState,
    BrokerPartitionRow,
    CoordinatedGroup,
    broker_group_report,
)
from zkconsumer.admin.groups.group_coordinators import NOT_AUTHORIZED, GroupCoordinators, check_code
from zkconsumer.admin.groups.group_deletion import check_without_members
from zkconsumer.admin.groups.groups_of_brokers import read_groups_of_brokers
from zkconsumer.admin.offsets.group_offsets import StoredOffsets, chosen_offsets
from zkconsumer.admin.offsets.offset_changes import OffsetChange, OffsetChanges, plan_kafka_changes, shown_offset
from zkconsumer.admin.offsets.offset_changing import OffsetChanging, check_partitions
from zkconsumer.admin.offsets.offset_lines import OffsetLine, fault_of_group
from zkconsumer.admin.offsets.offset_plans import OffsetTarget
from zkconsumer.admin.offsets.store_choice import KAFKA
from zkconsumer.admin.offsets.stored_offsets import ExportedOffsets, lines_of
from zkconsumer.admin.values import GroupHasMembers, JsonValue, NotFound, OffsetsNotSet, count_of
from zkconsumer_error import ErrorCode

_NOT_SET: Final = "no offset was set"
_TOO_OLD: Final = "is older than Kafka 2.4 and cannot delete single offsets"
_WITHOUT_NAME: Final = "cannot delete single offsets of a group without a name"
_REFUSED_FOR_MEMBERS: Final = (22, 25, 27)
"""Codes of a commit of nobody while a group has members."""


@dataclass(frozen=True)
class BrokerOffsets(JsonValue):
    """The stored offsets of a group that brokers coordinate.

    Attributes:
        group: Its name.
        state: As its coordinator names it.
        partitions: By topic and number; also partitions without a stored offset that a member has or subscribes to.
        coordination: `brokers`.
        lag_unit: `messages`.
    """

    group: str
    state: str
    partitions: tuple[BrokerPartitionRow, ...]
    coordination: str = BROKERS
    lag_unit: str = "messages"


class BrokerGroupOffsets(OffsetChanging):
    """The methods of `BrokerGroups` for stored offsets."""

    _port = None
    _coordinators: GroupCoordinators

    @abstractmethod
    def read(self, group: str, *, with_logs: bool = True) -> BrokerGroupState:
        """Return everything that is known of a group."""

    def offsets(self, group: str, topic: str | None = None) -> BrokerOffsets:
        """Return the stored offsets of a group and their lag, of one topic or of all.

        Raises:
            NotFound: There is no such group, or it has nothing to do with the topic.
        """
        state = self.read(group)
        rows = broker_group_report(state).partitions
        if topic is not None:
            topics = sorted({row.topic for row in rows})
            rows = tuple(row for row in rows if row.topic == topic)
            if not rows:
                known = f"its topics are {', '.join(topics)}" if topics else "it has no topics"
                raise NotFound(f"group {group!r} neither reads topic {topic!r} nor has offsets for it", known)
        return BrokerOffsets(group, state.group.state, rows)

    def export_offsets(self, *groups: str) -> ExportedOffsets:
        """Return the stored offsets of groups, of all that brokers coordinate when none is named, as lines of text.

        A group whose name cannot stand in a line is left out, and `problems` says so.

        Raises:
            NotFound: There is no such group.
        """
        problems: tuple[str, ...] = ()
        if groups:
            found = {group: self.read(group, with_logs=False).offsets for group in groups}
        else:
            listed = read_groups_of_brokers(self._coordinators)
            problems = listed.unlisted
            found = {group: self._offsets_of(group) for group in sorted(listed.groups)}
        faults = {group: fault for group, offsets in found.items() if offsets and (fault := fault_of_group(group))}
        lines = [
            OffsetLine(group, name.topic, str(name.partition), offset, KAFKA)
            for group, offsets in found.items() if group not in faults for name, offset in sorted(offsets.items())
        ]  # fmt: skip
        problems += tuple(
            f"offsets of a group whose name cannot be written in a line: {fault}" for fault in faults.values()
        )
        return ExportedOffsets(tuple(lines), problems, store=KAFKA)

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_offsets(
        self,
        group: str,
        topic: str | None,
        target: str | int | OffsetTarget,
        partitions: Sequence[int | str] = (),
        *,
        force: bool = False,
        dry_run: bool = False,
        on_new_group: Callable[[str], object] = lambda _: None,
    ) -> OffsetChanges:
        """Set the stored offsets of a topic; all are checked before the first one is written.

        Args:
            group: The group; it need not exist, unless its name is empty.
            topic: The topic; None: all topics that the group has offsets of, and that exist.
            target: `earliest`, `latest`, an offset, or a time such as `2014-03-01T12:00:00Z` (UTC without a zone).
            partitions: These partitions alone; all of the topic when there are none.
            force: Also beyond the bounds of the log.
            dry_run: Check everything, and write nothing.
            on_new_group: Called with the group, before anything is written, if it does not exist yet.

        Raises:
            ValueError: The target is none, or partitions are given without a topic.
            NotFound: There is no such topic or partition, or no such group if no topic is given.
            GroupHasMembers: Members are in the group.
            OffsetsNotSet: A log does not have the target, somebody else has changed an offset meanwhile, or a new group
                would have no name.
        """
        wanted = OffsetTarget.of(target)
        check_partitions(topic, partitions)
        stored = self._without_members(group)
        if stored.is_empty and not group:  # brokers would make one, when a script names it by a variable without value
            raise OffsetsNotSet(f"{_NOT_SET}: the name of the group is empty",
                                "give the name of the group")  # fmt: skip
        return self._set(stored, topic, wanted, partitions, KAFKA, force, dry_run, on_new_group)

    def shift_offsets(
        self,
        group: str,
        topic: str | None,
        by: int,
        partitions: Sequence[int | str] = (),
        *,
        dry_run: bool = False,
    ) -> OffsetChanges:
        """Move the stored offsets of a topic by a number of messages, at most to the bounds of the log.

        Args:
            by: Messages forward; backward if negative.

        Other arguments and errors as for `set_offsets`. `notes` of the result says what was cut off, and which
        partitions have no offset and are left out.
        """
        check_partitions(topic, partitions)
        return self._shift(self._without_members(group), topic, by, partitions, KAFKA, dry_run)

    def delete_offsets(
        self,
        group: str,
        topic: str | None = None,
        partitions: Sequence[int | str] = (),
        *,
        dry_run: bool = False,
    ) -> OffsetChanges:
        """Delete stored offsets of a group, of topics that no member subscribes to.

        Brokers before Kafka 2.4 delete no single offsets, and later ones none of a group whose name is empty: there the
        group must have no members, and -1 is stored, which every member takes for no offset; `notes` says so.

        Args:
            topic: Of this topic alone; None: of all topics.
            partitions: These partitions of the topic alone; all that have an offset when there are none.
            dry_run: Check everything, and delete nothing.

        Raises:
            ValueError: Partitions are given without a topic.
            NotFound: There is no such group, or it has no such offsets.
            GroupHasMembers: A member subscribes to one of the topics.
            OffsetsNotSet: The coordinator has not deleted an offset.
        """
        check_partitions(topic, partitions)
        state = self.read(group, with_logs=False)
        stored = _stored(state.group, state.offsets)
        chosen = chosen_offsets(stored, (KAFKA,), topic, partitions)
        names = [TopicPartition(name, int(number)) for name, number in chosen]
        for name in names:
            _check_not_subscribed(state, name.topic)
        changes = plan_kafka_changes(group, dict.fromkeys(names), stored.kafka)
        if dry_run:
            return OffsetChanges(tuple(changes), False)
        are_gone, codes = self._coordinators.delete_offsets(group, names)
        _check_codes(group, codes, len(names), "deleted")
        notes = () if are_gone else (
            f"the coordinator {_TOO_OLD if group else _WITHOUT_NAME}: -1 is stored instead, which members regard as "
            "no offset, and which expires like any offset",
        )  # fmt: skip
        return OffsetChanges(tuple(changes), True, (), notes)

    def import_offsets(
        self, text: str, *, source: str = "the text", force: bool = False, dry_run: bool = False
    ) -> OffsetChanges:
        """Set the offsets that lines of text name, as `export_offsets` and Kafka's ExportZkOffsets write them.

        Lines of offsets in ZooKeeper are taken, too: a group that moves from ZooKeeper to the brokers takes its offsets
        along so. Where the text has both, the offset in Kafka counts.

        Args:
            text: One line for each offset: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`.
            source: Where the text comes from, for the messages of errors.
            force: Also of partitions that do not exist, and beyond the bounds of a log.
            dry_run: Check everything, and write nothing.

        Raises:
            GroupHasMembers: Members are in one of the groups.
            OffsetsNotSet: A line cannot be used, a log does not have an offset, or somebody else has changed an offset
                meanwhile.
        """
        lines = lines_of(text, source)
        stored = {group: self._without_members(group) for group in dict.fromkeys(line.group for line in lines)}
        return self._import(lines, stored, KAFKA, force, dry_run)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _without_members(self, group: str) -> StoredOffsets:
        """Return the offsets of a group, which need not exist.

        Raises:
            GroupHasMembers: Members are in it.
        """
        found = self._coordinators.describe(group)
        check_without_members(found, f"{_NOT_SET} of group {group!r}")
        return _stored(found, self._offsets_of(group))

    def _offsets_of(self, group: str) -> dict[TopicPartition, int]:
        return {name: row.offset for name, row in self._coordinators.fetch_offsets(group).items()}

    def _partitions_of_group(
        self, stored: StoredOffsets, store: str | None
    ) -> tuple[list[TopicPartition], tuple[str, ...]]:
        topics = sorted({name for name, _ in stored.kafka})
        names = self._listed_partitions(topics)
        if not names:
            raise OffsetsNotSet(f"{_NOT_SET}: group {stored.group!r} has no offsets for an existing topic",
                                "name an existing topic: --topic (topic=...)")  # fmt: skip
        gone = sorted(set(topics) - {name.topic for name in names})
        return names, (f"left out, because the topic does not exist: {', '.join(gone)}",) if gone else ()

    def _listed_partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        known = self._cluster.partitions(topics)
        return [TopicPartition(topic, number) for topic in topics for number in known.get(topic, ())]

    def _store_changes(self, changes: Sequence[OffsetChange]) -> None:
        groups: dict[str, dict[TopicPartition, OffsetChange]] = {}
        for change in changes:
            if change.is_needed:
                groups.setdefault(change.group, {})[TopicPartition(change.topic, int(change.partition))] = change
        for group, needed in groups.items():
            self._check_unchanged(group, needed)
        for group, needed in groups.items():
            new = {name: change.new for name, change in needed.items() if change.new is not None}
            _check_codes(group, self._coordinators.commit_offsets(group, new), len(new), "set")

    def _check_unchanged(self, group: str, needed: Mapping[TopicPartition, OffsetChange]) -> None:
        now = self._coordinators.fetch_offsets(group)
        for name, change in needed.items():
            offset = now[name].offset if name in now else None
            if offset != change.old:
                raise OffsetsNotSet(
                    f"{_NOT_SET}: the offset of {name.topic}-{name.partition} in group {group!r} was changed by "
                    f"another client in the meantime: it was {shown_offset(change.old)}, it is {shown_offset(offset)}",
                    "find out which client commits there, and set the offsets again",
                )


def _stored(group: CoordinatedGroup, offsets: Mapping[TopicPartition, int]) -> StoredOffsets:
    """Return the offsets as those functions take them that know both stores."""
    return StoredOffsets(
        group.group, group.state != DEAD, {},
        {(name.topic, str(name.partition)): offset for name, offset in offsets.items()},
    )  # fmt: skip


def _check_not_subscribed(state: BrokerGroupState, topic: str) -> None:
    for member in state.group.members or ():
        is_known = member.topics is not None
        if not is_known or topic in (member.topics or ()) or any(name.topic == topic for name in member.assigned):
            what = "subscribes to it" if is_known else "may subscribe to it, because its subscription is not known now"
            raise GroupHasMembers(
                f"no offset of group {state.group.group!r} is deleted: {member.member_id} of {member.host} {what} "
                f"(topic {topic!r}), and would store it again", "stop the members that read the topic first",
            )  # fmt: skip


def _check_codes(group: str, codes: Mapping[TopicPartition, int], total: int, verb: str) -> None:
    """Raise if the coordinator has refused a partition.

    Args:
        total: Number of offsets that were to be changed; those without a code were not sent.
        verb: The change that was asked for.
    """
    failed = {name: code for name, code in codes.items() if code}
    if not failed:
        return
    name, code = next(iter(failed.items()))
    done = len(codes) - len(failed)
    sentence = f"the offset of {name.topic}-{name.partition} of group {group!r} is not {verb}"
    rest = f"; {done} of {count_of(total, 'offset')} {'was' if total == 1 else 'were'} {verb}"
    if code in _REFUSED_FOR_MEMBERS:
        raise GroupHasMembers(f"{sentence}: members have joined the group in the meantime{rest}", "stop them first")
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        raise GroupHasMembers(f"{sentence}: a member subscribes to the topic{rest}", "stop the members that read it")
    if code in NOT_AUTHORIZED:
        check_code(code, group)
    raise OffsetsNotSet(f"{sentence}: {BrokerError(code, name.topic, name.partition)}{rest}",
                        "check that the topic exists and the coordinator answers")  # fmt: skip
