"""Bugs of Kafka 0.7 to plant in the production code; see `seeded_bugs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from seeded_bugs import Bug

from rebalance import subscription
from rebalance.known_topics import KnownTopics
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetChildren
from rebalance.zookeeper.snapshot import GroupSnapshot
from rebalance.zookeeper.znodes import Registration
from rebalance.zookeeper.znodes_07 import GENERATION_07, BrokersReading, broker_and_number
from simpleconsumer.dialect import KAFKA07
from zkconsumer.fetching.entry_checks import EntryChecks
from zkconsumer.fetching.fetch_state import FetchState
from zkconsumer.fetching.partition_queue import PartitionQueue
from zkconsumer.member.delivery import Delivery
from zkconsumer.offsets.offset_records import OffsetRecord

# -- the registry ------------------------------------------------------------------------------------------------------


def partitions_sorted_as_numbers(right: Any) -> Any:
    """Broker 10 comes behind broker 2, as people count; Java members sort text."""

    def wrong(partitions: Iterable[str]) -> list[str]:
        return sorted(set(partitions), key=broker_and_number)

    return wrong


def topic_children_not_watched(right: Any) -> Any:
    """A broker that comes or goes with its partitions is noticed by the periodic check alone."""

    def wrong(self: BrokersReading) -> None:
        path = znodes.topic_path(self._topic)
        self._ask(GetChildren(path), lambda reply: self._listed(GetChildren(path), reply))

    return wrong


def registers_as_in_08(right: Any) -> Any:
    """The registration is JSON."""

    def wrong(self: Any, registration: Registration) -> bytes:
        return znodes.format_registration(registration)

    return wrong


# -- positions -------------------------------------------------------------------------------------------------------


def next_message_committed(right: Any) -> Any:
    """Messages of an entry count like offsets: what is done of an entry is added to its position."""

    def wrong(self: PartitionQueue) -> int:
        hand = self.in_hand
        return int(right(self)) + (self.index if hand is None else hand.index)

    return wrong


def begun_entry_counts_as_done(right: Any) -> Any:
    """Where an entry was begun, its end is reported: a revoke, or a commit, in the middle loses the rest."""

    def wrong(self: PartitionQueue) -> int:
        position = int(right(self))
        chunk = self.chunks[0] if self.chunks else None
        is_begun = self.index > 0 or (self.in_hand is not None and self.in_hand.index > 0)
        if not is_begun or chunk is None or chunk.data_offset is None:
            return position
        return KAFKA07.find_boundary(chunk.data, chunk.data_offset, position + 1).end

    return wrong


def begun_entry_not_finished(right: Any) -> Any:
    """A drain ends with the message in hand: the messages of its entry that are done are delivered again."""
    return lambda self: False


def position_within_an_entry_believed(right: Any) -> Any:
    """What comes from a position that an operator has set is taken for entries, and damaged ones."""

    def wrong(self: EntryChecks, task: Any, answer: Any, result: Any) -> bool:
        task.state.is_start_checked = task.state.is_start_walked = True
        return False

    return wrong


def entry_around_a_position_skipped(right: Any) -> Any:
    """From a position within an entry reading goes on at the end of that entry, not at its start."""

    def wrong(self: EntryChecks, task: Any, start: int, end: int) -> None:
        right(self, task, end, end)

    return wrong


def stored_offset_of_another_log_counts(right: Any) -> Any:
    """A claim behind a reset starts at the stored offset, which the log did not have."""

    def wrong(self: OffsetRecord, gone: range, restart: int) -> None:
        right(self, gone, restart)
        self.restart = None

    return wrong


def a_log_that_is_back_counts_as_another(right: Any) -> Any:
    """A broker that returns is read from the start of its log on."""

    def wrong(self: EntryChecks, task: Any, answer: Any) -> None:
        right(self, task, answer._replace(message_set=b""))

    return wrong


def another_log_counts_as_the_same(right: Any) -> Any:
    """The last entry is read again, and not compared."""

    def wrong(self: EntryChecks, task: Any, answer: Any) -> None:
        self._go_on(task)

    return wrong


def last_entry_forgotten(right: Any) -> Any:
    """Only within an ownership is the last entry read again."""
    return lambda self, state: None


def larger_entry_not_asked_for(right: Any) -> Any:
    """An answer that ends within its first entry is asked for again with the same size."""

    def wrong(self: FetchState, size_bytes: int) -> None:
        right(self, self.configured_bytes)

    return wrong


# -- streams ---------------------------------------------------------------------------------------------------------


def one_stream_of_a_filter_gets_all(right: Any) -> Any:
    """Of the streams of a filter only the last one gets messages, as in Kafka 0.7.2."""

    def wrong(self: Delivery, topic: str, thread_id: str) -> Any:
        shared = [stream for (of_topic, _), stream in self._streams_by_thread.items() if not of_topic]
        return shared[-1] if shared else right(self, topic, thread_id)

    return wrong


# -- topics ------------------------------------------------------------------------------------------------------------


def other_brokers_are_another_incarnation(right: Any) -> Any:
    """A topic that a broker has left, or come back to, counts as created anew."""
    behind_all = 2**40

    def wrong(self: KnownTopics, snapshot: GroupSnapshot) -> list[str]:
        seen: dict[str, list[object]] = vars(self).setdefault("brokers_seen", {})
        topics = {}
        for topic, node in snapshot.topics.items():
            lists = seen.setdefault(topic, [node.partitions])
            if lists[-1] != node.partitions:
                lists.append(node.partitions)
            topics[topic] = replace(node, incarnation=behind_all + len(lists))
        return list(right(self, replace(snapshot, topics=topics)))

    return wrong


def largest_for_late_partitions(right: Any) -> Any:
    """`auto.offset.reset` counts for partitions that appear after the start of a member, too."""
    return lambda self, partition: self._reset_policy


def one_partition_a_broker(right: Any) -> Any:
    """The number of a broker's partitions is not read."""

    def wrong(self: BrokersReading, path: str, broker: int, data: bytes | None) -> None:
        right(self, path, broker, b"1")

    return wrong


def _bug(owner: Any, name: str, make: Any, profile: str = "everything", members: str = "ours") -> Bug:
    return Bug(owner, name, make, profile, members, "0.7")


BUGS_07: Mapping[str, Bug] = {
    "0.7 partitions sorted as numbers": _bug(
        subscription, "sort_partitions_07", partitions_sorted_as_numbers, "membership", "mixed"
    ),
    "0.7 topic children not watched": _bug(BrokersReading, "start", topic_children_not_watched, "topics"),
    "0.7 registers as in 0.8": _bug(type(GENERATION_07), "format_registration", registers_as_in_08),
    "0.7 next message committed": _bug(PartitionQueue, "done_position", next_message_committed),
    "0.7 begun entry counts as done": _bug(PartitionQueue, "done_position", begun_entry_counts_as_done, "membership"),
    "0.7 begun entry not finished": _bug(PartitionQueue, "is_inside_entry", begun_entry_not_finished, "membership"),
    "0.7 position within an entry believed": _bug(EntryChecks, "doubts", position_within_an_entry_believed, "hands"),
    "0.7 entry around a position skipped": _bug(EntryChecks, "_start_at", entry_around_a_position_skipped, "hands"),
    "0.7 stored offset of another log counts": _bug(
        OffsetRecord, "out_of_range", stored_offset_of_another_log_counts, "topics"
    ),
    "0.7 a log that is back counts as another": _bug(
        EntryChecks, "_compare", a_log_that_is_back_counts_as_another, "topics"
    ),
    "0.7 another log counts as the same": _bug(EntryChecks, "_compare", another_log_counts_as_the_same, "topics"),
    "0.7 last entry forgotten": _bug(Delivery, "_compare_with_before", last_entry_forgotten, "topics"),
    "0.7 larger entry not asked for": _bug(FetchState, "grow", larger_entry_not_asked_for),
    "0.7 other brokers are another incarnation": _bug(
        KnownTopics, "update", other_brokers_are_another_incarnation, "topics"
    ),
    "0.7 one stream of a filter gets all": _bug(Delivery, "_stream_of", one_stream_of_a_filter_gets_all),
    "0.7 largest for late partitions": _bug(KnownTopics, "policy", largest_for_late_partitions, "topics"),
    "0.7 one partition a broker": _bug(BrokersReading, "_take", one_partition_a_broker),
}
