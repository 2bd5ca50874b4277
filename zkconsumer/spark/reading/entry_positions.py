"""Finds the starts of entries around byte positions, for queries on Kafka 0.7.

A broker of Kafka 0.7 serves any position, and from one within an entry it sends bytes from the middle of
messages. So every position at which a task or a micro-batch starts or ends is the start of an entry. Rules:
- The starts of segments are starts of entries, and the broker names them. From the nearest one that is known the
  driver walks from entry to entry, by their sizes.
- A position that an option or a group names is looked at first: if an entry with the right CRC starts there, nothing
  is walked.
- A walk reads a limited number of bytes, and asks a limited number of times for bytes that do not come.

Threads: one at a time.

Moves the starts and ends of tasks to the starts of entries, where offsets are byte positions (Kafka 0.7).

Rules, and which failure each prevents:
- An offset that an option names by number, and that is within an entry, is refused with both ends of the entry: whoever
  set it has counted from another place, or for another log.
- One that a group has stored is moved to the start of the entry: its messages are read again, and none is lost.
- A place at which a partition is only split is moved to the end of the entry around it.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Final, NamedTuple, TypeVar

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import Boundary, Outcome, PositionIs
from simpleconsumer.errors import BrokenFraming, BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, FetchedPartition, FetchRequest, TopicPartition
from zkconsumer.cluster.log_ends import in_requests
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import shown_broker
from zkconsumer.spark.errors import NoEntryFound, OptionRefused, PlanningFailed
from zkconsumer.spark.options.option_table import OffsetSpec
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.bounds import Bounds, LogEnds, PlannedRange

log = logging.getLogger(__name__)
MOST_WALKED_BYTES: Final = 2 * 1024**3
"""How many bytes are walked at most to find one start: four segments of the default size."""
_MOST_SEGMENTS: Final = 100_000
_SIZE_BYTES: Final = 4
_FIRST_BYTES: Final = 64 * 1024
"""Of the fetch that shows whether an entry starts at a position."""
_EMPTY_TRIES: Final = 5
_PAUSE_S: Final = 0.2
T = TypeVar("T")


class Tail(NamedTuple):
    """The last bytes of a log before a position, by which the log is recognized.

    Attributes:
        start: Where they start.
        position: Where they end.
        crc: Their CRC-32.
    """

    start: int
    position: int
    crc: int


class EntryPositions:
    """Asks brokers where entries start.

    Args:
        largest_bytes: Of a fetch.
    """

    def __init__(self, config: ConsumerConfig, largest_bytes: int) -> None:
        self._config = config
        self._largest_bytes = largest_bytes

    def around(self, name: TopicPartition, broker: Broker, position: int) -> Boundary:
        """Return the entry around a position of the log, which is not its end: BOUNDARY or INSIDE.

        Raises:
            PlanningFailed: The broker does not answer, or no entry is found within the limit; the text says why.
        """
        return self._asked(name, broker, lambda consumer: self._around(consumer, name, position))

    def behind(self, name: TopicPartition, broker: Broker, start: int, position: int) -> int:
        """Return the position, or the end of the entry around it.

        Args:
            start: The start of an entry, not after the position.

        Raises:
            PlanningFailed: As for `around`.
        """
        return self._asked(name, broker, lambda consumer: self._walk(consumer, name, start, position).end)

    def cuts(self, name: TopicPartition, broker: Broker, start: int, end: int, wanted: Sequence[int]) -> list[int]:
        """Return where to cut the log between two starts of entries: sorted starts of entries near the wanted places.

        The start of a segment is preferred to a wanted place if it is at most a quarter of a part away, as it need not
        be searched. A place that is further than the limit after the last known start makes no cut.

        Raises:
            PlanningFailed: As for `around`.
        """
        return self._asked(name, broker, lambda consumer: self._cuts(consumer, name, start, end, wanted))

    def tails(self, broker: Broker, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Tail]:
        """Return the bytes of logs of one broker between two positions, without bytes that a log does not have.

        Args:
            wanted: Partition -> where they start and end.

        Raises:
            PlanningFailed: The broker does not answer.
        """
        consumer = connections.take(broker, self._config)
        found: dict[TopicPartition, Tail] = {}
        try:
            for names in in_requests(list(wanted)):
                found.update(_tails(consumer, {name: wanted[name] for name in names}))
        except SimpleConsumerError as error:
            consumer.close()
            raise PlanningFailed(f"{shown_broker(broker)}: {error}") from error
        connections.give_back(consumer, self._config)
        return found

    # -- on one connection ---------------------------------------------------------------------------------------------

    def _asked(self, name: TopicPartition, broker: Broker, ask: Callable[[SimpleConsumer], T]) -> T:
        consumer = connections.take(broker, self._config)
        where = f"{name.topic}/{name.partition} on {shown_broker(broker)}"
        try:
            found = ask(consumer)
        except SimpleConsumerError as error:
            consumer.close()
            raise PlanningFailed(f"{where}: {error}") from error
        except PlanningFailed as error:
            connections.give_back(consumer, self._config)
            raise type(error)(f"{where}: {error}") from error
        connections.give_back(consumer, self._config)
        return found

    def _around(self, consumer: SimpleConsumer, name: TopicPartition, position: int) -> Boundary:
        if self._starts_entry(consumer, name, position):
            return Boundary(PositionIs.BOUNDARY, position, position)
        below = [start for start in self._segments(consumer, name) if start <= position]
        if not below:
            raise NoEntryFound(f"no segment of the log has position {position}")
        return self._walk(consumer, name, max(below), position)

    def _starts_entry(self, consumer: SimpleConsumer, name: TopicPartition, position: int) -> bool:
        """Return whether a whole entry with the right CRC starts there."""
        size_bytes = min(_FIRST_BYTES, self._config.fetch_message_max_bytes)
        while True:
            answer = _fetch(consumer, name, position, size_bytes)
            result = consumer.dialect.classify(answer, position, size_bytes, self._largest_bytes)
            if result.outcome is Outcome.GROW and result.size_bytes > size_bytes:
                size_bytes = result.size_bytes
                continue
            return result.outcome is Outcome.CHUNK and consumer.dialect.first_entry_fault(answer.message_set) is None

    def _segments(self, consumer: SimpleConsumer, name: TopicPartition) -> list[int]:
        [(code, starts)] = consumer.multi_offsets_before([name], LATEST, _MOST_SEGMENTS)
        if code:
            raise BrokerError(code, *name)
        return sorted(starts)

    def _walk(self, consumer: SimpleConsumer, name: TopicPartition, start: int, position: int) -> Boundary:
        """Return where a position is, from the start of an entry before it on."""
        at, empty = start, 0
        while at - start <= MOST_WALKED_BYTES:
            size_bytes = max(_SIZE_BYTES, min(self._config.fetch_message_max_bytes, position - at + _SIZE_BYTES))
            answer = _fetch(consumer, name, at, size_bytes)
            try:
                found = consumer.dialect.find_boundary(answer.message_set, at, position)
            except BrokenFraming as error:
                raise NoEntryFound(
                    f"{error}, counted from position {at}: {start} is not the start of an entry, or the log is damaged"
                ) from error
            if found.position_is is not PositionIs.UNKNOWN:
                return found
            if found.start > at:
                at, empty = found.start, 0
                continue
            empty += 1
            if empty >= _EMPTY_TRIES:
                raise PlanningFailed(f"the broker sends nothing from {at} on, before position {position}")
            time.sleep(_PAUSE_S)
        raise NoEntryFound(
            f"no entry is found around position {position} within {MOST_WALKED_BYTES} bytes from {start} on"
        )

    def _cuts(
        self, consumer: SimpleConsumer, name: TopicPartition, start: int, end: int, wanted: Sequence[int]
    ) -> list[int]:
        segments = [each for each in self._segments(consumer, name) if start < each < end]
        near = (end - start) // (len(wanted) + 1) // 4
        found: list[int] = []
        for place in sorted(wanted):
            here = min(segments, key=lambda each: abs(each - place), default=None)
            known = max([start, *found, *(each for each in segments if each <= place)])
            if here is not None and abs(here - place) <= near:
                cut = here
            elif place - known > MOST_WALKED_BYTES:
                log.info("%s/%s is not split at %d: the last known start of an entry is %d", *name, place, known)
                continue
            elif place <= known:
                continue
            else:
                cut = self._walk(consumer, name, known, place).end
            if start < cut < end and cut not in found:
                found.append(cut)
        return sorted(found)


def _tails(consumer: SimpleConsumer, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Tail]:
    data = dict.fromkeys(wanted, b"")
    missing = dict(wanted)
    while missing:
        requests = [FetchRequest(*name, start, end - start) for name, (start, end) in missing.items()]
        answers = consumer.multifetch(requests, max_wait_ms=0, min_bytes=0)
        for name, answer in zip(list(missing), answers, strict=True):
            start, end = missing.pop(name)
            got = bytes(answer.message_set)[: end - start]
            data[name] += got
            if not answer.error_code and 0 < len(got) < end - start:
                missing[name] = (start + len(got), end)  # the next segment has the rest
    return {name: Tail(*wanted[name], zlib.crc32(held)) for name, held in data.items()
            if len(held) == wanted[name][1] - wanted[name][0]}  # fmt: skip


def _fetch(consumer: SimpleConsumer, name: TopicPartition, position: int, size_bytes: int) -> FetchedPartition:
    [answer] = consumer.multifetch([FetchRequest(*name, position, size_bytes)], max_wait_ms=0, min_bytes=0)
    if answer.error_code:
        raise BrokerError(answer.error_code, *name, position)
    return answer


def entry_positions(options: SourceOptions) -> EntryPositions:
    """Return what finds the starts of entries, with the limits of the options."""
    return EntryPositions(options.config, options.max_message_bytes)


def at_entries(
    options: SourceOptions,
    bounds: Bounds,
    starting: OffsetSpec,
    ending: OffsetSpec,
    ends: Mapping[TopicPartition, LogEnds],
) -> Bounds:
    """Return the bounds with each start and end at an entry; the same where offsets count messages.

    Raises:
        OptionRefused: An option names a position within an entry.
        PlanningFailed: A broker does not answer, or no entry is found.
    """
    starts, lasts = dict(bounds.starts), dict(bounds.ends)
    entries = entry_positions(options)
    for spec, positions in ((starting, starts), (ending, lasts)):
        if spec.kind not in ("each", "group"):
            continue  # the ends of logs and the starts of segments
        for name, log_ends in ends.items():
            if dialect_of(log_ends.leader).has_byte_positions and starts[name] < lasts[name]:
                positions[name] = _at_entry(entries, spec, name, positions[name], log_ends)
    return replace(bounds, starts=starts, ends=lasts)


def _at_entry(entries: EntryPositions, spec: OffsetSpec, name: TopicPartition, position: int, log_ends: LogEnds) -> int:
    if position in (log_ends.earliest, log_ends.latest):
        return position
    found = entries.around(name, log_ends.leader, position)
    if found.position_is is PositionIs.BOUNDARY:
        return position
    place = f"{name.topic}/{name.partition}: position {position} is inside the entry from {found.start} to {found.end}"
    if spec.kind == "each":
        raise OptionRefused(spec.option, f"{place}; {found.start} and {found.end} are possible")
    log.warning(
        "%s; reading starts at %d instead of the group's offset, so messages may be read again", place, found.start
    )
    return found.start


def cut_at_entries(options: SourceOptions, ranges: list[PlannedRange]) -> list[PlannedRange]:
    """Return the ranges of tasks with all cuts at starts of entries; each partition starts and ends where it did.

    A partition without a leader is not split, as nobody can say where its entries start.

    Args:
        ranges: By partition and offset, without gaps within a partition.

    Raises:
        PlanningFailed: A broker does not answer, or no entry is found.
    """
    entries = entry_positions(options)
    found: list[PlannedRange] = []
    for name, group in groupby(ranges, key=lambda each: each.name):
        parts = list(group)
        first, end = parts[0], parts[-1].end
        cuts: list[int] = []
        if first.leader is not None and len(parts) > 1:
            cuts = entries.cuts(name, first.leader, first.start, end, [each.start for each in parts[1:]])
        found += [replace(first, start=start, end=until) for start, until in pairwise([first.start, *cuts, end])]
    return found
