"""Asks a broker for offsets by time: exactly if it indexes timestamps, otherwise by segment.

A broker of Kafka 0.10.1 or later finds the first message with a timestamp at or after a time. An older one knows only
when the files of its segments were written. The same is true of newer ones for topics and messages without timestamps;
Kafka 4 does not tell even that, and such logs are read whole.

Threads: one at a time.

Finds offsets by time for messages without timestamps: from the times when the segments of a log were written.

A broker reports the last segment that was last written before some time, and the first offsets of segments. A message
counts as written at the moment when the broker wrote it. Rules, and what each prevents:
- A start is never after the first message at or after the time, and an end never before the last message before it: all
  messages that were asked for are read, with up to two more segments.
- File times may be whole seconds, and their clock is a little slow. So a start is searched two seconds before its time:
  otherwise messages of the segment before, written within the same second, would be missed.

Source: kafka.server.KafkaApis (fetchOffsetsBefore, 0.8.2.2).

Finds the entry of a log of Kafka 0.7 that a byte position is in, from the start of its segment on.

No byte of a log shows where an entry starts. So the segment's start is asked for, and the sizes of the entries are
walked through from there.

Rule: a search has a deadline and reads a limited number of bytes. Its result at the end names how far it came.

Threads: One at a time.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import Boundary, PositionIs
from simpleconsumer.errors import (
    BrokenFraming,
    BrokerError,
    ConnectionFailed,
    DecodeError,
    MessageError,
    SimpleConsumerError,
    VersionNotServed,
)
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, FetchRequest, TopicPartition
from zkconsumer.errors import shown_broker

_FILE_TIMES_MS: Final = 2000
_SECONDS_BELOW: Final = 100_000_000_000
"""Milliseconds since 1970 in March 1973: a smaller number is a time in seconds."""


class AtTime(NamedTuple):
    """The answer of a leader about a time.

    Attributes:
        offset: The first message at or after the time, or an earlier one if it is known by segment only; None if there
            is no such message.
        end: Where the log ended just before the question; later messages have higher offsets.
    """

    offset: int | None
    end: int


def refuse_seconds(stamp: str) -> None:
    """Return if a number can be milliseconds since 1970.

    Args:
        stamp: Decimal digits; 0 is allowed, and stands for all times.

    Raises:
        ValueError: It is one in seconds, as `date +%s` prints them: read as milliseconds it would mean everything.
    """
    if 0 < int(stamp) < _SECONDS_BELOW:
        from datetime import UTC, datetime

        read_as = datetime.fromtimestamp(int(stamp) / 1000, UTC).isoformat(timespec="seconds")
        raise ValueError(
            f"@{stamp} is {read_as}, because it counts milliseconds; for seconds since 1970 append "
            f"three zeros: @{stamp}000"
        )


def written_by_ms(time_ms: int, is_end: bool) -> int | None:
    """Return the time to ask for: the segment was last written by then. None for a time before 1970.

    Negative times must not be asked for, because -1 and -2 mean the ends of the log.

    Args:
        time_ms: Where to start, or to end.
    """
    written_ms = time_ms - (1 if is_end else _FILE_TIMES_MS)
    return None if written_ms < 0 else written_ms


def segment_start(written_before: Sequence[int], end: int) -> int | None:
    """Return where to start; None if the time is in the future, or the log is empty.

    Args:
        written_before: First offset of the last segment that was written by then; empty if all were written later.
        end: End of the log. A broker assigns the present time to it.
    """
    if not written_before:
        return 0  # this may be before the start of the log: no message is that old
    return None if written_before[0] >= end else written_before[0]


def segment_end(written_before: Sequence[int], starts: Sequence[int]) -> int | None:
    """Return the end of the first segment that was written at the time or later; None for the end of the log.

    Args:
        written_before: As for `segment_start`.
        starts: First offsets of all segments, in any order; the end of the log may be among them.
    """
    last = written_before[0] if written_before else -1
    later = sorted(start for start in starts if start > last)
    return later[1] if len(later) > 1 else None


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
        """Ask the leader of some partitions; return the error codes of partitions without an answer.

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
        log.warning(
            "%s/%s%s: searched by segments, because brokers or messages have no timestamps: no message is "
            "left out, but messages from before the time may be read, too",
            topic,
            number,
            others,
        )


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


MOST_BYTES: Final = 2 * 1024**3
"""How many bytes of logs a search reads at most: two segments of the default size."""
_ANSWER_S: Final = 10.0
_FETCH_BYTES: Final = 4 * 1024 * 1024
_MOST_SEGMENTS: Final = 100_000
_SIZE_BYTES: Final = 4
_MOST_TRIES: Final = 3


class SearchLimits:
    """The time and bytes that one or more searches may take together.

    Args:
        deadline: On the clock `time.monotonic`.
        most_bytes: How many bytes of logs they may read.
    """

    def __init__(self, deadline: float, most_bytes: int = MOST_BYTES) -> None:
        self._deadline = deadline
        self._left_bytes = most_bytes

    @property
    def are_reached(self) -> bool:
        """True if nothing more may be read."""
        return self._left_bytes <= 0 or time.monotonic() > self._deadline

    def add(self, count: int) -> None:
        """Count bytes that were read."""
        self._left_bytes -= count


def connect(broker: Broker, client_id: str = "zkconsumer-admin", *, security: Security | None = None) -> SimpleConsumer:
    """Return a connection to a broker for searches in its logs."""
    dialect = dialect_of(broker)
    return SimpleConsumer(broker.host, broker.port, _ANSWER_S, client_id, dialect=dialect, security=security)


def find_entry(consumer: SimpleConsumer, name: TopicPartition, position: int, limits: SearchLimits) -> Boundary | str:
    """Return whether a position is within an entry, and where that one starts; or why that is not known, a clause.

    Args:
        consumer: Connected to the broker of the partition.
        name: The partition.
        position: A position within the bounds of its log.
    """
    if limits.are_reached:
        return "there was no time left to search for the start of its entry"
    try:
        [(code, starts)] = consumer.multi_offsets_before([name], LATEST, _MOST_SEGMENTS)
        below = [start for start in starts if start <= position]
        if code or not below:
            return f"the log has no position {position}"
        return _walk(consumer, name, max(below), position, limits)
    except SimpleConsumerError as error:
        return f"the start of its entry is not known ({error})"


def _walk(
    consumer: SimpleConsumer, name: TopicPartition, start: int, position: int, limits: SearchLimits
) -> Boundary | str:
    at, tries = start, 0
    while at < position:
        if limits.are_reached:
            return f"the start of its entry was not found from {start}, where its segment starts, to {at}"
        wanted = FetchRequest(name.topic, name.partition, at, min(_FETCH_BYTES, position - at + _SIZE_BYTES))
        [answer] = consumer.multifetch([wanted], max_wait_ms=0)
        if answer.error_code:
            raise BrokerError(answer.error_code, name.topic, name.partition, at)
        limits.add(len(answer.message_set))
        try:
            found = consumer.dialect.find_boundary(answer.message_set, at, position)
        except BrokenFraming as error:
            return f"the start of its entry is not known (in the log from position {at} on: {error})"
        if found.position_is is not PositionIs.UNKNOWN:
            return found
        tries = 0 if found.start > at else tries + 1
        if tries == _MOST_TRIES:
            return f"the log ends at {at}, before position {position}"
        at = found.start
    return Boundary(PositionIs.BOUNDARY, position, position)
