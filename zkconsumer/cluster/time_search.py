"""Asks a broker for offsets by time: exactly if it indexes timestamps, otherwise by segment.

A broker of Kafka 0.10.1 or later finds the first message with a timestamp at or after a time. An older one knows only
when the files of its segments were written. The same is true of newer ones for topics and messages without timestamps;
Kafka 4 does not tell even that, and such logs are read whole.

Threads: one at a time.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.errors import BrokerError, ConnectionFailed, DecodeError, MessageError, VersionNotServed
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.segment_times import AtTime, segment_end, segment_start, written_by_ms
from zkconsumer.errors import shown_broker

__all__ = ["TimeSearch", "log_segments"]

log = logging.getLogger(__name__)

_BY_SEGMENT_CODES: Final = (35, 43)
"""The broker does not support the request; the topic is stored in a format without timestamps."""
_ALL: Final = 2**31 - 1
Codes = dict[TopicPartition, int]


@dataclass
class TimeSearch:
    """A search for one time in each of some partitions.

    Attributes:
        times_ms: The time of each partition.
        is_end: The offsets are ends, not starts.
        fetch_bytes: Most bytes to fetch of the last message of a log.
        found: The answers so far.
        by_segment: Partitions that were searched by segment.
    """

    times_ms: Mapping[TopicPartition, int]
    is_end: bool
    fetch_bytes: int
    found: dict[TopicPartition, AtTime] = field(default_factory=dict)
    by_segment: set[TopicPartition] = field(default_factory=set)

    def ask(self, consumer: SimpleConsumer, broker: Broker, names: Sequence[TopicPartition]) -> Codes:
        """Ask the leader of some partitions; return the error codes of those that have no answer.

        Raises:
            SimpleConsumerError: The broker does not answer.
        """
        ends, refused = _first_offsets(consumer, names, LATEST)
        unclear = list(ends)
        if ends and _finds_messages(consumer, broker):
            unclear = self._ask_for_messages(consumer, broker, ends, refused)
        if unclear:
            known = {name: ends[name] for name in unclear}
            try:
                refused |= self._ask_for_segments(consumer, known)
            except VersionNotServed:  # Kafka 4 lists no segments
                refused |= self._take_whole_logs(consumer, known)
            self.by_segment.update(name for name in unclear if name not in refused)
        return refused

    def _ask_for_messages(
        self, consumer: SimpleConsumer, broker: Broker, ends: Mapping[TopicPartition, int], refused: Codes
    ) -> list[TopicPartition]:
        """Return the partitions that have to be searched by segment."""
        unclear: list[TopicPartition] = []
        times = {name: self.times_ms[name] for name in ends}
        for name, (code, answer) in zip(times, consumer.offsets_for_times(times), strict=True):
            if code in _BY_SEGMENT_CODES:
                unclear.append(name)
            elif code:
                refused[name] = code
            elif answer.offset >= 0:
                self.found[name] = AtTime(answer.offset, ends[name])
            elif _is_without_times(consumer, broker, name, ends[name], times[name], self.fetch_bytes):
                unclear.append(name)
            else:
                self.found[name] = AtTime(None, ends[name])
        return unclear

    def _take_whole_logs(self, consumer: SimpleConsumer, ends: Mapping[TopicPartition, int]) -> Codes:
        """Start at the starts of logs, or end at their ends: nothing is left out."""
        if self.is_end:
            self.found |= {name: AtTime(end, end) for name, end in ends.items()}
            return {}
        starts, refused = _first_offsets(consumer, list(ends), EARLIEST)
        self.found |= {name: AtTime(start, ends[name]) for name, start in starts.items()}
        return refused

    def _ask_for_segments(self, consumer: SimpleConsumer, ends: Mapping[TopicPartition, int]) -> Codes:
        by_time: defaultdict[int | None, list[TopicPartition]] = defaultdict(list)
        for name in ends:
            by_time[written_by_ms(self.times_ms[name], self.is_end)].append(name)
        refused: Codes = {}
        for time_ms, names in by_time.items():
            none: dict[TopicPartition, list[int]] = {name: [] for name in names}
            before = none if time_ms is None else _offsets(consumer, names, time_ms, 1, refused)
            starts = _offsets(consumer, list(before), LATEST, _ALL, refused) if self.is_end else {}
            if self.is_end:
                offsets = {name: segment_end(before[name], starts[name]) for name in starts}
            else:
                offsets = {name: segment_start(before[name], ends[name]) for name in before}
            self.found |= {name: AtTime(offset, ends[name]) for name, offset in offsets.items()}
        return refused


def log_segments(by_segment: Collection[TopicPartition]) -> None:
    """Log how many partitions were searched by segment, if there are any."""
    if by_segment:
        topic, number = min(by_segment)
        more = len(by_segment) - 1
        others = f" and {more} more partition{'s' if more > 1 else ''}" if more else ""
        log.warning("%s/%s%s: searched by segments, because brokers or messages have no timestamps: no message is "
                    "left out, but messages from before the time may be read, too", topic, number, others)


def _finds_messages(consumer: SimpleConsumer, broker: Broker) -> bool:
    """Return True if the broker reports that it finds messages by time.

    Only a broker that is registered as 0.10 or later is asked: 0.9 would not answer.
    """
    if not broker.fetch_version:
        return False
    try:
        return consumer.dialect.serves_offsets_for_times(_served(consumer))
    except (BrokerError, ConnectionFailed) as error:
        log.debug("%s does not say which requests it serves: %s", shown_broker(broker), error)
        return False


def _served(consumer: SimpleConsumer) -> dict[int, range]:
    """Ask twice, because a broker that restarts closes the connection, too."""
    try:
        return consumer.api_versions()
    except ConnectionFailed:
        return consumer.api_versions()


def _is_without_times(
    consumer: SimpleConsumer, broker: Broker, name: TopicPartition, end: int, time_ms: int, fetch_bytes: int
) -> bool:
    """Return True if a broker that finds no message at or after a time has ignored the last message.

    Producers before 0.10 send no timestamps, and brokers ignore such messages.
    """
    topic, number = name.topic, int(name.partition)
    if not end:
        return False
    try:
        last = consumer.fetch(topic, number, end - 1, fetch_bytes, max_wait_ms=0, min_bytes=0,
                              version=broker.fetch_version)  # fmt: skip
    except (BrokerError, DecodeError, MessageError) as error:
        log.debug("the last message of %s/%d cannot be read: %s", topic, number, error)
        return False
    if not last:
        return False
    stamp_ms = last[0].timestamp_ms
    return stamp_ms is None or stamp_ms < 0 or stamp_ms >= time_ms


def _first_offsets(
    consumer: SimpleConsumer, names: Sequence[TopicPartition], time_ms: int
) -> tuple[dict[TopicPartition, int], Codes]:
    refused: Codes = {}
    answers = _offsets(consumer, names, time_ms, 1, refused)
    refused |= {name: -1 for name, offsets in answers.items() if not offsets or offsets[0] < 0}
    return {name: offsets[0] for name, offsets in answers.items() if name not in refused}, refused


def _offsets(
    consumer: SimpleConsumer, names: Sequence[TopicPartition], time_ms: int, most: int, refused: Codes
) -> dict[TopicPartition, list[int]]:
    if not names:
        return {}
    answers = dict(zip(names, consumer.multi_offsets_before(names, time_ms, most), strict=True))
    refused |= {name: code for name, (code, _) in answers.items() if code}
    return {name: offsets for name, (code, offsets) in answers.items() if not code}
