"""Sends messages that are given as columns: many keys, values and partitions of one topic at a time.

A program with columns, such as a Spark task with its record batches, need not make an object of every message. Messages
are grouped by partition and sent in batches; those of a batch share one outcome.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat
from typing import Final, NamedTuple

from rebalance.subscription import check_topic
from simpleconsumer.types import Headers, TopicPartition
from zkconsumer.producer.batching.batch_queues import MESSAGE_OVERHEAD_BYTES, Limits, Pair, message_size
from zkconsumer.producer.batching.bulk import BulkSend, SendSummary
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.placing import Placer
from zkconsumer.producer.sending.delivery import Delivery

_Place = int | str | None
_REFUSED: Final = ""
"""In place of a partition: the message failed."""


class MessageColumns(NamedTuple):
    """Messages of one topic; all columns have the same length.

    Attributes:
        topic: Their topic.
        values: Their values, encoded; None is a null.
        keys: Their keys, encoded; None for no keys at all. Kafka 0.7 stores none.
        partitions: Their partitions; None for one that the key chooses, or that may be any.
        choose: Number of partitions -> for each message the index of its partition among those of the topic, in order,
            and -1 for one that may go to any; without it the partitioner gets each key.
        numbers: Their numbers for errors, ascending; without it they are counted on from the last ones.
        headers: Their headers, empty for a message without any; None for none at all.
        timestamps_ms: Their times in ms since 1970, None for one that has the time when it is sent; None for no times.
    """

    topic: str
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    partitions: Sequence[int | str | None] | None = None
    choose: Callable[[int], Sequence[int]] | None = None
    numbers: Sequence[int] | None = None
    headers: Sequence[Headers] | None = None
    timestamps_ms: Sequence[int | None] | None = None


class ColumnSend:
    """Sends columns until `finish`; at most what the queue takes is sent ahead of the brokers.

    Args:
        placer: Knows the partitioner and the largest message.
        delivery: Takes the batches.
        limits: Those of a batch.
        bulk: Counts outcomes.
        stall_s: Longest wait for the partitions of a topic; None waits as often as a batch is tried.

    Threads: one at a time.
    """

    def __init__(
        self, placer: Placer, delivery: Delivery, limits: Limits, bulk: BulkSend, stall_s: float | None
    ) -> None:
        self._stall_s = stall_s
        self._placer = placer
        self._delivery = delivery
        self._limits = limits
        self._bulk = bulk
        self._next_number = 0

    @property
    def failed(self) -> int:
        """How many messages failed so far."""
        return self._bulk.failed

    @property
    def sent_to(self) -> dict[TopicPartition, int]:
        """How many messages each partition has acknowledged so far."""
        return dict(self._bulk.sent_to)

    def add(self, columns: MessageColumns) -> None:
        """Send messages in the background; wait while the queue is full.

        Messages that cannot be sent count as failed: those that are too large, or have no partition, for example.

        Raises:
            ValueError: The topic has no legal name.
            ProducerClosed: The producer is closed.
        """
        try:
            self._add(columns)
        except BaseException as error:
            self._delivery.refused(error)
            raise

    def _add(self, columns: MessageColumns) -> None:
        count = len(columns.values)
        if not count:
            return
        check_topic(columns.topic)
        numbers = range(self._next_number, self._next_number + count) if columns.numbers is None else columns.numbers
        self._next_number = numbers[-1] + 1
        known = self._delivery.partitions(columns.topic, self._stall_s)
        if isinstance(known, str):
            error = MessageNotSent(columns.topic, None, known)
            for number in numbers:
                self._bulk.refuse(number, error)
            return
        stored = columns.keys if columns.keys is not None and self._placer.has_keys else repeat(None, count)
        pairs: list[Pair] = list(zip(stored, columns.values, strict=True))
        sizes = [MESSAGE_OVERHEAD_BYTES + (0 if value is None else len(value)) for value in columns.values]
        if columns.keys is not None and self._placer.has_keys:
            sizes = [size if key is None else size + len(key) for size, key in zip(sizes, columns.keys, strict=True)]
        for row, headers in enumerate(columns.headers or ()):
            if headers:
                pairs[row] = pair = (*pairs[row][:2], headers)
                sizes[row] = message_size(pair)
        places = self._places(columns, list(known), numbers)
        if columns.timestamps_ms is not None:
            self._add_times(columns.topic, columns.timestamps_ms, pairs, places, numbers)
        if None in columns.values or max(sizes) - MESSAGE_OVERHEAD_BYTES > self._placer.max_bytes:
            self._refuse(columns.topic, pairs, places, numbers)
        rows: Sequence[int]
        for place, rows in self._in_order(columns.topic, _groups(places)).items():
            if place == _REFUSED:
                continue
            partition = self._delivery.sticky_partition(columns.topic) if place is None else place
            name = TopicPartition(columns.topic, partition)
            if len(rows) == count:
                self._send(name, pairs, sizes, numbers, place is None)
            else:
                self._send(name, [pairs[row] for row in rows], [sizes[row] for row in rows],
                           [numbers[row] for row in rows], place is None)  # fmt: skip

    def finish(self) -> SendSummary:
        """Return when every message has its outcome.

        Raises:
            MessagesNotSent: Some failed; all others were sent.
        """
        return self._bulk.finish().checked()

    def _places(self, columns: MessageColumns, known: list[int | str], numbers: Sequence[int]) -> list[_Place]:
        """Return the partition of each message; None for any, and `_REFUSED` for those that failed here."""
        count = len(columns.values)
        given: Sequence[int | str | None] = columns.partitions or [None] * count
        if columns.choose is None and None in given and columns.keys is not None:
            return [self._place(columns.topic, *each) for each in zip(numbers, columns.keys, given, strict=True)]
        chosen: Sequence[_Place] = [None] * count
        if columns.choose is not None and None in given:
            chosen = [known[index] if index >= 0 else None for index in columns.choose(len(known))]
        if columns.partitions is None:
            return list(chosen)
        is_known = set(given) <= {*known, None}
        places: list[_Place] = [by_key if place is None else place for by_key, place in zip(chosen, given, strict=True)]
        if is_known:
            return places
        for row, place in enumerate(given):
            if place is not None:
                places[row] = self._place(columns.topic, numbers[row], None, place)
        return places

    def _place(self, topic: str, number: int, key: bytes | None, partition: int | str | None) -> _Place:
        if key is None and partition is None:
            return None
        try:
            return self._placer.partition(topic, key, partition)
        except (MessageNotSent, TypeError, ValueError) as error:
            self._bulk.refuse(number, error)
            return _REFUSED

    def _add_times(
        self, topic: str, times_ms: Sequence[int | None], pairs: list[Pair], places: list[_Place],
        numbers: Sequence[int],
    ) -> None:  # fmt: skip
        """Give the messages their times; fail those whose time cannot be stored."""
        timed = self._placer.timed
        for row, (time_ms, place) in enumerate(zip(times_ms, places, strict=True)):
            if time_ms is None or place == _REFUSED:
                continue
            try:
                pairs[row] = timed(topic, pairs[row], time_ms)
            except (TypeError, ValueError) as error:
                self._bulk.refuse(numbers[row], error)
                places[row] = _REFUSED

    def _refuse(self, topic: str, pairs: Sequence[Pair], places: list[_Place], numbers: Sequence[int]) -> None:
        """Fail the messages that brokers would not take."""
        for row, pair in enumerate(pairs):
            if places[row] == _REFUSED:
                continue
            try:
                self._placer.check(topic, pair, places[row])
            except (MessageNotSent, TypeError) as error:
                self._bulk.refuse(numbers[row], error)
                places[row] = _REFUSED

    def _in_order(self, topic: str, groups: dict[_Place, Sequence[int]]) -> dict[_Place, Sequence[int]]:
        """Return the groups with messages for any partition among those of the one that they go to, in their order."""
        if None in groups and len(groups) > 1:
            chosen = self._delivery.sticky_partition(topic)
            if chosen in groups:
                groups[chosen] = sorted([*groups[chosen], *groups.pop(None)])
        return groups

    def _send(
        self, name: TopicPartition, pairs: list[Pair], sizes: list[int], numbers: Sequence[int], is_movable: bool
    ) -> None:
        """Send messages of one partition in batches."""
        sums = list(accumulate(sizes, initial=0))
        first = 0
        while first < len(sizes):
            fitting = bisect_right(sums, sums[first] + self._limits.batch_bytes) - 1
            end = max(first + 1, min(fitting, first + self._limits.batch_messages))
            self._bulk.send_batch(name, pairs[first:end], numbers[first:end], sums[end] - sums[first], is_movable)
            first = end


def _groups(places: Sequence[_Place]) -> dict[_Place, Sequence[int]]:
    """Return partition -> the messages that go there, in order."""
    if places.count(places[0]) == len(places):
        return {places[0]: range(len(places))}
    groups: dict[_Place, Sequence[int]] = {}
    for row, place in enumerate(places):
        found = groups.get(place)
        if found is None:
            found = groups[place] = []
        found.append(row)  # type: ignore[attr-defined]
    return groups
