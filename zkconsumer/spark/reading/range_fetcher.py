"""Fetches the range of a task from the leader of its partition, until the end of the range or until a deadline.

Rules, and which failure each prevents:
- Only message sets, and a range that the leader has confirmed, move the position: a leader that moves or comes back
  costs time and no message.
- Every wait counts against one deadline, which starts again with each message set: a task never hangs. The time for
  which a broker throttles the client counts against a longer one (`_LONGEST_THROTTLED_S`): nothing is wrong then.
- "Out of range", and an end that is not reached, count only if they last: a broker that has just become leader replies
  so for valid positions. Messages before the start of the log are gone, which counts at once.
- A message that does not fit is fetched with its own size.
- A leader of a later epoch than the plan's is asked whether its log has what was planned, before it is read: after an
  unclean election it may have other messages at the same offsets.

The dialect (`simpleconsumer.dialect`) decides the meaning of an answer.

Threads: one runs it; `interrupt` from any other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import BrokerError, DamagedOffset, MessageTooLarge, SimpleConsumerError, broker_error
from simpleconsumer.throttling import Throttle
from simpleconsumer.types import MAX_INT64, AbortedTransaction, Broker, Buffer, FetchedPartition, FetchRequest
from zkconsumer.backoff import Backoff
from zkconsumer.config import READ_COMMITTED, ConsumerConfig
from zkconsumer.errors import shown_broker
from zkconsumer.fetching.fetch_state import BROKEN_TRIES
from zkconsumer.spark.errors import DataLoss, PartitionUnreadable
from zkconsumer.spark.reading import connections
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.connections import LeaderSearch
from zkconsumer.spark.reading.leader_queries import OTHER_EPOCH, LogMark, ask_cuts, ends_before

log = logging.getLogger(__name__)

DOUBT_S: Final = 10.0
"""How long a log must seem to end too early before that counts."""
_LONGEST_BACKOFF_S: Final = 2.0
_EMPTY_TRIES: Final = 3
_LONGEST_THROTTLED_S: Final = 3600.0
"""How long a range may make no progress since brokers throttle the client."""


@dataclass(frozen=True, slots=True)
class FetchedSet:
    """Messages: a set of whole entries, or the whole answer if its framing is broken.

    Attributes:
        start: First offset that was asked for; a wrapper may start before it.
        high_watermark: The end of the log at that time; negative if the broker did not report it.
        aborted: The aborted transactions among the messages, which are left out.
        end: Offset after the last message that is wanted.
    """

    message_set: Buffer
    start: int
    high_watermark: int
    broker: Broker
    aborted: Sequence[AbortedTransaction] = ()
    end: int = MAX_INT64


@dataclass(frozen=True, slots=True)
class UnfetchableMessage:
    """A message that is larger than the largest fetch, or cannot be found at its offset."""

    error: DamagedOffset | MessageTooLarge
    broker: Broker


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets that are omitted, because the log does not have them."""

    loss: DataLoss


Fetched = FetchedSet | UnfetchableMessage | LostOffsets


class Interrupted(Exception):  # noqa: N818 - not an error: the rest is not needed
    """`interrupt` was called."""


class RangeFetcher:
    """Fetches one range; `fetch()` may be called once.

    Args:
        search: Finds the leader if the one of the plan does not answer.
        patience_s: How long the range may make no progress.
        max_bytes: Largest fetch.
        fail_on_data_loss: Raise `DataLoss`; otherwise yield `LostOffsets`.
        doubt_s: See `DOUBT_S`.
    """

    def __init__(
        self,
        wanted: PlannedRange,
        config: ConsumerConfig,
        search: LeaderSearch,
        *,
        patience_s: float,
        max_bytes: int,
        fail_on_data_loss: bool,
        doubt_s: float = DOUBT_S,
    ) -> None:
        self._wanted = wanted
        self._config = config
        self._search = search
        self._patience_s = patience_s
        self._max_bytes = max_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._doubt_s = min(doubt_s, patience_s / 2)
        self._position = wanted.start
        self._size_bytes = config.fetch_message_max_bytes
        self._end = wanted.end
        self._broker = wanted.leader
        self._leader_epoch = wanted.epoch
        self._denied_by: int | None = None
        self._consumer: SimpleConsumer | None = None
        self._interrupted = threading.Event()
        self._backoff = Backoff.of_ms(config.refresh_leader_backoff_ms, _LONGEST_BACKOFF_S, 1.5)
        self._progress_at = time.monotonic()
        self._doubted_at: float | None = None
        self._failures = self._empty = self._broken = 0
        self._throttled_s = 0.0

    def fetch(self) -> Generator[Fetched, None, None]:
        """Yield the messages of the range, in order; the last set may contain messages after the range.

        Raises:
            DataLoss: Offsets are not in the log, with `fail_on_data_loss`.
            PartitionUnreadable: No message arrived before the deadline, or the broker refused permanently.
            Interrupted: `interrupt` was called.
        """
        self._progress_at = time.monotonic()
        try:
            while self._position < self._end:
                if self._interrupted.is_set():
                    raise Interrupted
                for fetched in self._step():
                    yield fetched
                    self._progress_at = time.monotonic()  # the time that the query needed for it does not count
            self._keep_connection()
        finally:
            self._drop_connection()

    def interrupt(self) -> None:
        """End `fetch` soon, in the middle of a request if there is one."""
        self._interrupted.set()
        consumer = self._consumer
        if consumer is not None:
            consumer.close()

    # -- one request ---------------------------------------------------------------------------------------------------

    def _step(self) -> Iterator[Fetched]:
        if self._broker is None:
            yield from self._find_leader()
            return
        broker, asked_bytes = self._broker, self._asked_bytes(self._connection(self._broker))
        request = FetchRequest(*self._wanted.name, self._position, asked_bytes, self._leader_epoch)
        try:
            answers = self._connection(broker).multifetch_once(
                [request], max_wait_ms=min(self._config.fetch_wait_max_ms, self._config.socket_timeout_ms - 1),
                min_bytes=1, version=broker.fetch_version,
            )  # fmt: skip
        except SimpleConsumerError as error:
            self._lose_broker(str(error), None)
            return
        if not answers:
            self._wait_out_throttle(self._connection(broker).throttled_s)
            return
        [answer] = answers
        result = dialect_of(broker).classify(answer, self._position, asked_bytes, self._max_bytes, broker.fetch_version)
        yield from self._take(answer, broker, result)

    def _asked_bytes(self, consumer: SimpleConsumer) -> int:
        """Return how many bytes to ask for: less while a broker throttles that knows no limit of a whole answer."""
        most_bytes, is_usual = consumer.pace.most_bytes, self._size_bytes <= self._config.fetch_message_max_bytes
        if most_bytes is None or consumer.limits_answers or not is_usual:
            return self._size_bytes
        return min(self._size_bytes, most_bytes)

    def _take(self, answer: FetchedPartition, broker: Broker, result: FetchResult) -> Iterator[Fetched]:
        match result.outcome:
            case Outcome.CHUNK:
                message_set = answer.message_set[result.first_byte : result.valid_bytes]
                fetched = FetchedSet(
                    message_set, self._position, answer.high_watermark, broker, answer.aborted, self._end
                )
                # The message after a large one is likely to be large, too.
                self._moved_on(result.next_offset, result.valid_bytes)
                yield fetched
            case Outcome.NOTHING:
                yield from self._nothing(answer)
            case Outcome.GROW:
                self._size_bytes = max(self._size_bytes, result.size_bytes)
            case Outcome.LEFT_OUT | Outcome.DAMAGED if self._broken < BROKEN_TRIES:
                self._broken += 1
                self._pause(result.reason)
            case Outcome.TOO_LARGE | Outcome.LEFT_OUT | Outcome.DAMAGED:
                yield self._unfetchable(broker, result)
            case Outcome.BROKEN:
                yield from self._broken_set(answer, broker, result.reason)
            case Outcome.CHECK_RANGE:
                yield from self._check_range(result.reason)
            case Outcome.FIND_LEADER:
                self._lose_broker(result.reason, None if answer.error_code in OTHER_EPOCH else broker.id)
            case Outcome.BACK_OFF if answer.error_code in OTHER_EPOCH:
                self._lose_broker(result.reason, None)
            case _:
                if not broker_error(answer.error_code).retriable and answer.error_code != -1:
                    raise self._unreadable(result.reason)
                self._pause(result.reason)

    def _moved_on(self, next_offset: int, size_bytes: int = 0) -> None:
        self._position = next_offset
        self._size_bytes = min(max(self._config.fetch_message_max_bytes, size_bytes), self._max_bytes)
        self._progress_at = time.monotonic()
        self._doubted_at = None
        self._failures = self._empty = self._broken = 0
        self._throttled_s = 0.0

    def _unfetchable(self, broker: Broker, result: FetchResult) -> UnfetchableMessage:
        kind = DamagedOffset if result.outcome is Outcome.DAMAGED else MessageTooLarge
        error = kind(self._wanted.topic, self._wanted.partition, result.offset, result.next_offset, result.reason)
        self._moved_on(result.next_offset)
        return UnfetchableMessage(error, broker)

    def _nothing(self, answer: FetchedPartition) -> Iterator[Fetched]:
        """Handle an empty answer: the rest was compacted, or the leader does not have it yet, or not any more."""
        log_end = answer.log_end(read_committed=self._config.isolation_level == READ_COMMITTED)
        if log_end >= self._end:
            self._empty += 1
            if self._empty >= _EMPTY_TRIES:
                log.warning(
                    "%s/%s: the broker sends nothing from offset %d on, although the log ends at %d: either "
                    "compaction has removed the rest, or an entry has a damaged offset; continuing after %d",
                    self._wanted.topic, self._wanted.partition, self._position, log_end,
                    self._end - 1,
                )  # fmt: skip
                self._moved_on(self._end)
                return
            self._pause(f"no message arrived, and the log ends at {log_end}")
            return
        yield from self._check_range(f"no message arrived, and the log ends at {log_end}")

    def _broken_set(self, answer: FetchedPartition, broker: Broker, reason: str) -> Iterator[Fetched]:
        """Fetch again, in case the error was temporary; at last yield what can be read of the set."""
        self._broken += 1
        if self._broken <= BROKEN_TRIES:
            self._pause(f"broken message set: {reason}")
            return
        yield FetchedSet(answer.message_set, self._position, answer.high_watermark, broker, answer.aborted, self._end)
        raise self._unreadable(f"broken message set: {reason}; nothing after it can be found")

    # -- ranges --------------------------------------------------------------------------------------------------------

    def _check_range(self, reason: str) -> Iterator[Fetched]:
        """Ask the leader for the range of its log, and report the offsets that it does not have as lost."""
        if self._broker is None:
            return
        try:
            earliest = self._end_of_log(self._broker, EARLIEST)
            latest = self._end_of_log(self._broker, LATEST)
        except BrokerError as error:
            is_denied = error.code in dialect_of(self._broker).not_leader_codes
            self._lose_broker(str(error), self._broker.id if is_denied else None)
            return
        except SimpleConsumerError as error:
            self._lose_broker(str(error), None)
            return
        has = f"the log has {earliest} to {latest} on {shown_broker(self._broker)}"
        if self._position < earliest:
            yield from self._lose(min(earliest, self._end), has)
        elif latest < self._end and self._lasts() and self._position >= latest and self._ends_before():
            yield from self._lose(self._end, has)
        else:
            self._pause(f"{reason}; {has}")

    def _end_of_log(self, broker: Broker, time_ms: int) -> int:
        offsets = self._connection(broker).get_offsets_before(self._wanted.topic, self._wanted.partition, time_ms)
        if not offsets:
            raise BrokerError(-1, self._wanted.topic, self._wanted.partition)
        return offsets[0]

    def _ends_before(self) -> bool:
        """Return True if the log itself ends before the end of the range, not only its part for consumers."""
        assert self._broker is not None
        name = self._wanted.name
        try:
            return name in ends_before(self._connection(self._broker), {name: self._end})
        except SimpleConsumerError:
            return False  # the next request will show what is wrong with the broker

    def _lasts(self) -> bool:
        """Return True if the log has seemed too short for `doubt_s`."""
        now = time.monotonic()
        if self._doubted_at is None:
            self._doubted_at = now
        return now - self._doubted_at >= self._doubt_s

    def _lose(self, behind: int, reason: str) -> Iterator[Fetched]:
        loss = DataLoss(self._wanted.topic, self._wanted.partition, self._position, behind, reason)
        if self._fail_on_data_loss:
            raise loss
        self._moved_on(behind)
        yield LostOffsets(loss)

    # -- leaders and connections ---------------------------------------------------------------------------------------

    def _find_leader(self) -> Iterator[Fetched]:
        found = self._search(self._wanted.name, self._denied_by)
        if found.is_gone:
            yield from self._lose(self._end, found.reason)
        elif found.broker is None:
            self._pause(found.reason)
        else:
            yield from self._led_by(found.broker, found.epoch)

    def _led_by(self, broker: Broker, epoch: int) -> Iterator[Fetched]:
        """Go on with a leader, after one of another epoch once it has said whether its log has what was planned."""
        if self._wanted.epoch < 0 or epoch == self._leader_epoch:
            self._broker = broker
            return
        if 0 <= epoch < self._leader_epoch:
            reason = f"its leader has epoch {epoch}, but had {self._leader_epoch} before"
            if self._lasts():
                yield from self._lose(self._end, f"{reason}: its topic was deleted and created again")
            else:
                self._pause(reason)
            return
        name, mark = self._wanted.name, LogMark(self._wanted.end, self._wanted.epoch)
        try:
            cuts = ask_cuts(self._connection(broker), {name: mark}, {name: epoch})
        except SimpleConsumerError as error:
            self._lose_broker(str(error), None)
            return
        if name in cuts.refused:
            self._lose_broker(str(BrokerError(cuts.refused[name], *name)), None)
            return
        self._broker, self._leader_epoch = broker, epoch
        if name in cuts.at:
            yield from self._lose_tail(cuts.at[name], broker)

    def _lose_tail(self, cut: int, broker: Broker) -> Iterator[Fetched]:
        """Read no further than the place where the log was cut: later messages were not planned."""
        if cut >= self._end:
            return
        reason = (f"the log was truncated at {cut}, when its leader changed ({shown_broker(broker)} now, epoch "
                  f"{self._leader_epoch} after {self._wanted.epoch})")  # fmt: skip
        loss = DataLoss(*self._wanted.name, cut, self._end, reason)
        if self._fail_on_data_loss:
            raise loss
        self._end = max(cut, self._position)
        yield LostOffsets(loss)

    def _lose_broker(self, reason: str, denied_by: int | None) -> None:
        """Search the leader after a pause."""
        if denied_by is None:
            self._drop_connection()
        else:
            self._keep_connection()
        self._pause(reason)
        self._broker, self._denied_by = None, denied_by

    def _connection(self, broker: Broker) -> SimpleConsumer:
        if self._consumer is None:
            self._consumer = connections.take(broker, self._config, self._note_throttle)
        if self._interrupted.is_set():  # it was called while there was no connection to close
            raise Interrupted
        return self._consumer

    def _keep_connection(self) -> None:
        if self._consumer is not None and not self._interrupted.is_set():
            connections.give_back(self._consumer, self._config)
            self._consumer = None

    def _drop_connection(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    # -- waits ---------------------------------------------------------------------------------------------------------

    def _wait_out_throttle(self, throttled_s: float) -> None:
        """Wait while the broker throttles this client, which counts not as time without progress.

        Raises:
            PartitionUnreadable: It has throttled everything for an hour.
            Interrupted: `interrupt` was called.
        """
        started_at = time.monotonic()
        if self._interrupted.wait(throttled_s):
            raise Interrupted
        self._is_throttled_for(time.monotonic() - started_at)

    def _is_throttled_for(self, seconds: float) -> None:
        self._progress_at += seconds
        self._throttled_s += seconds
        if self._throttled_s > _LONGEST_THROTTLED_S:
            raise self._unreadable(
                f"no message arrived for {_LONGEST_THROTTLED_S:g} s, because the broker throttles this client, whose "
                f"client.id is {self._config.client_id!r}: a client quota is smaller than the next record batch"
            )

    def _note_throttle(self, throttle: Throttle) -> None:
        """Do not count the time for which a broker holds an answer back."""
        if not throttle.is_answered:
            self._progress_at = time.monotonic()

    def _pause(self, reason: str) -> None:
        """Wait before the next try, longer after each failure in a row.

        Raises:
            PartitionUnreadable: The deadline is reached.
            Interrupted: `interrupt` was called.
        """
        pause_s = self._backoff.wait_s(self._failures)
        self._failures += 1
        if time.monotonic() + pause_s > self._progress_at + self._patience_s:
            raise self._unreadable(f"no message arrived for {self._patience_s:g} s: {reason}")
        if self._interrupted.wait(pause_s):
            raise Interrupted

    def _unreadable(self, reason: str) -> PartitionUnreadable:
        return PartitionUnreadable(self._wanted.topic, self._wanted.partition, self._position, self._broker, reason)
