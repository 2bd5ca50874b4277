"""The state machine of a lane: which batches of a producer go to the leader of a partition, and which are stored.

Pure: it takes events and returns actions. `zkconsumer.mirror.lanes.lane_sender` has sockets and clocks.

While the leader knows a producer id, its sequence number is a compare-and-set on the end of the log: offset and number
rise together in a run, so a batch is stored at its own offset or not at all. A leader may forget the id. Rules, and
which failure each prevents:

- The leader must have appended nothing after the end that replicas have: after a lost connection that is often a batch
  of this lane, which a leader that has forgotten the producer would store once more.
- The end of the log, its last batch, and from Kafka 2.8 on what the leader knows of the producer must agree with the
  run before anything is sent on a connection: a position is never taken from the end of the log alone.
- The first request after that goes alone, and up to five are under way after its answer had the right offset: a leader
  that has forgotten the id accepts whatever comes, so it stores what follows a batch that it refuses.
- Nothing is sent unless the end was read, or a request was sent that was answered, on this connection within a minute:
  a process that slept does not go on with what it knew. That is judged again right before each request, as the end of a
  throttle may have been waited for. The request may then take as long as a call may.
- Where the leader may have forgotten the producer, nothing is sent either unless this process is known to own the lane:
  of two that write, one would repeat what the other has written.
- The offset of every answer is compared: the last batch once more gets an answer without any error.
- After any error and any lost connection the end is read again: only that says what was stored.
- One request is under way at a time where times of records may make the leader forget the id: it goes by these.

    state      waits for                           then
    away       Connected                           reading
    reading    EndRead                             alone; reading, if more is appended than replicas have; stopped
               ReadRefused                         reading or away, with a back-off; stopped
               PutOff                              reading
    alone      Offered, and one answer             flowing; draining, by an error or another offset
    flowing    Offered, and up to five answers     flowing; draining, by an error or another offset
    draining   the other answers under way         reading or away, with a back-off; stopped
    last three PutOff                              as before, with less under way; reading, if nothing is
    stopped    nothing
    any        Lost                                away, with a back-off

The transition table stands at the end of the file; a pair of state and event that is not in it is a bug and raises.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import broker_error
from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.mirror.errors import (
    AnotherWriter,
    BatchRefused,
    BelowRun,
    LaneStopped,
    LaterEpoch,
    Misplaced,
    MisplacedBatch,
    NumberRefused,
)
from zkconsumer.mirror.lanes.lane_events import (
    SEQUENCES,
    Action,
    Answered,
    Cause,
    Connect,
    Connected,
    EndRead,
    Event,
    GoOn,
    Lost,
    Moment,
    Offered,
    PutOff,
    ReadEnd,
    ReadRefused,
    Run,
    Send,
    Stop,
    Stored,
)
from zkconsumer_error import ErrorCode

MOST_UNDER_WAY: Final = 5
"""So many batches of a producer a broker remembers."""
FRESH_S: Final = 60.0
LEASE_WAIT_S: Final = 0.2
"""How long a lane waits that may belong to another process now."""
FORGOTTEN_AFTER_MS: Final = 86_400_000 - 3_600_000
"""A day, which is `producer.id.expiration.ms` by default, less an hour."""
REFUSED_S: Final = 15.0
"""How long the right next number is refused before that is final: new leaders of Kafka 0.11 name ends that are old, and
replicas may be out of sync for so long."""
_LEAST_REFUSALS: Final = 3
_MOST_DAMAGED: Final = 3
"""How often a batch is sent that the broker says is damaged, or fails at without any code."""
_BACKOFF: Final = Backoff(0.05, 2.0)
_LAG_BACKOFF: Final = Backoff(0.02, 0.5)
_NUMBER_CODES: Final = frozenset((
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID,
))  # fmt: skip
_FENCED_CODES: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))
_UNKNOWN_FAULT: Final = -1
_DOUBTFUL_CODES: Final = frozenset((_UNKNOWN_FAULT, ErrorCode.CORRUPT_MESSAGE))
_NO_TIME: Final = -1


class LaneState(enum.Enum):
    """The states of a lane."""

    AWAY = "away"
    READING = "reading"
    ALONE = "alone"
    FLOWING = "flowing"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass
class _Held:
    """A batch that was offered and is not known to be stored."""

    offset: int
    records: int
    newest_ms: int
    sent_at: float = 0.0

    @property
    def end(self) -> int:
        return self.offset + self.records


@dataclass
class _Refusal:
    """The number of a batch is refused."""

    offset: int
    code: int
    since_s: float
    count: int = 0


class LaneMachine:
    """The machine of one lane.

    Args:
        name: The partition.
        run: What is written.
        follows_others: Whether it goes on after what others have written under the same run; otherwise it stops.
        forgotten_after_ms: When leaders forget the producer, counted from the newest time of its last batch: the
            smallest `producer.id.expiration.ms` of the brokers, less a margin.

    Attributes:
        state: Its state.
        stored: The end of what all replicas in sync are known to have; None before the end was read.
    """

    def __init__(
        self,
        name: TopicPartition,
        run: Run,
        *,
        follows_others: bool = False,
        forgotten_after_ms: int = FORGOTTEN_AFTER_MS,
    ) -> None:
        self._name = name
        self._run = run
        self._follows_others = follows_others
        self._forgotten_after_ms = forgotten_after_ms
        self.state = LaneState.AWAY
        self.stored: int | None = None
        self._held: deque[_Held] = deque()
        self._under_way = 0  # so many of the held ones, the first
        self._drained = 0  # so many of those are answered, when draining
        self._sent_to = 0  # the largest end that was ever sent
        self._fresh_at = 0.0
        self._asked_at = 0.0
        self._newest_ms: int | None = None  # of what is stored last; None: nothing of this run
        self._failures = 0
        self._lags = 0
        self._refusal: _Refusal | None = None
        self._doubtful: _Refusal | None = None
        self._fault: LaneStopped | None = None  # with which the draining ends
        self._misplaced: list[MisplacedBatch] = []
        self._must_find_leader = False
        self._now = Moment(0.0, 0)

    def take(self, event: Event, now: Moment) -> list[Action]:
        """Return what is to be done about an event.

        Raises:
            LookupError: The table has no row for the event in the present state.
        """
        self._now = now
        row = _TABLE.get((self.state, type(event)))
        if row is None:
            raise LookupError(f"no transition for {type(event).__name__} in state {self.state.value}")
        return row(self, event)

    def start(self) -> list[Action]:
        """Return what is to be done first."""
        return [Connect(0.0)]

    @property
    def position(self) -> int | None:
        """For which offset a batch may be offered next; None while the end of the log is not known."""
        if self.stored is None:
            return None
        return self._held[-1].end if self._held else self.stored

    @property
    def is_ready(self) -> bool:
        """Whether a batch may be offered now."""
        return self.state in (LaneState.ALONE, LaneState.FLOWING) and len(self._held) < MOST_UNDER_WAY

    @property
    def is_settled(self) -> bool:
        """Whether all that was offered is stored."""
        return not self._held

    # -- connections ---------------------------------------------------------------------------------------------------

    def _connected(self, _: Connected) -> list[Action]:
        return self._read()

    def _lost(self, _: Lost) -> list[Action]:
        if self._misplaced:
            return self._stop(Misplaced(self._name, self._misplaced))
        self._under_way = 0
        self._fault = None  # what was refused is sent again, after the end was read
        self._must_find_leader = False
        self.state = LaneState.AWAY
        return [Connect(self._wait_s())]

    def _read(self, after_s: float = 0.0, lag: str = "") -> list[Action]:
        self.state = LaneState.READING
        self._asked_at = self._now.boot_s
        return [ReadEnd(after_s, lag)]

    def _wait_s(self) -> float:
        self._failures += 1
        return _BACKOFF.wait_s(self._failures - 1)

    # -- the end of the log --------------------------------------------------------------------------------------------

    def _read_put_off(self, _: PutOff) -> list[Action]:
        return self._read()

    def _read_refused(self, event: ReadRefused) -> list[Action]:
        if not broker_error(event.code).retriable and event.code not in _DOUBTFUL_CODES:
            return self._stop(BatchRefused(self._name, event.code, None))
        if event.code == ErrorCode.OFFSET_NOT_AVAILABLE:  # it leads, and will know
            return self._read(self._wait_s())
        self.state = LaneState.AWAY
        return [Connect(self._wait_s(), is_denied=event.code in KAFKA011.not_leader_codes)]

    def _end_read(self, event: EndRead) -> list[Action]:
        if event.end < self._run.first_offset:
            return self._stop(BelowRun(self._name, self._run.first_offset, event.end))
        foreign = self._foreign(event)
        if foreign is not None:
            return self._stop(foreign)
        appended = max(event.appended, event.end + self._unreplicated(event))
        if self.stored is None:
            self._sent_to = appended
        if appended > self._sent_to and not self._follows_others:
            expected = f"the end of the log at {self._sent_to} or before"
            return self._stop(AnotherWriter(self._name, expected, f"it at {appended}"))
        if appended > event.end:  # replicas lag behind; a leader that forgot the producer would store it twice
            self._lags += 1
            lag = f"replicas have the offsets before {event.end}, the leader those before {appended}"
            return self._read(_LAG_BACKOFF.wait_s(self._lags - 1), lag)
        self._lags = 0
        if self._is_refused_for_good(event.end):
            assert self._refusal is not None
            sequence = self._run.sequence_at(event.end)
            return self._stop(NumberRefused(self._name, self._refusal.code, event.end, sequence))
        return self._go_on(event)

    def _foreign(self, event: EndRead) -> AnotherWriter | None:
        """Return what shows that somebody else has written to the partition; None for nothing."""
        run, end = self._run, event.end
        producer, known, tail = run.producer, event.known, event.tail
        if known is not None and known.epoch > producer.epoch:
            expected = f"producer {producer.producer_id} in epoch {producer.epoch}"
            return LaterEpoch(self._name, expected, f"it in epoch {known.epoch}")
        if end > run.first_offset and tail is not None:
            expected_tail = (producer, run.sequence_at(end - 1), end - 1)
            if (tail.producer, tail.last_sequence, tail.last_offset) != expected_tail:
                return AnotherWriter(self._name, _batch_text(*expected_tail), _batch_text(*tail[:3]))
        if self._unreplicated(event) > SEQUENCES // 2:
            assert known is not None
            expected = f"producer {producer.producer_id} at sequence {run.sequence_at(end - 1)} or later"
            return AnotherWriter(self._name, expected, f"it at {known.last_sequence}")
        return None

    def _unreplicated(self, event: EndRead) -> int:
        """Return how many records the leader has after the end, as not all replicas have them, as far as it says."""
        known = event.known
        if known is None or known.epoch != self._run.producer.epoch or known.last_sequence < 0:
            return 0
        return (known.last_sequence + 1 - self._run.sequence_at(event.end)) % SEQUENCES

    def _is_refused_for_good(self, end: int) -> bool:
        """Return whether the right next number is refused, although the log has not changed for some time."""
        refusal = self._refusal
        if refusal is None:
            return False
        if refusal.offset != end:
            self._refusal = None
            return False
        is_over = refusal.code == ErrorCode.UNKNOWN_PRODUCER_ID or self._now.boot_s - refusal.since_s >= REFUSED_S
        return is_over and refusal.count >= _LEAST_REFUSALS

    def _go_on(self, event: EndRead) -> list[Action]:
        """Take over what is stored, and send what is not."""
        end, before = event.end, self.stored
        self.state = LaneState.ALONE
        self.stored = end
        self._fresh_at = self._asked_at
        self._sent_to = max(self._sent_to, end)
        self._newest_ms = self._stored_newest_ms(event)
        if before is None or end < before:
            self._held.clear()
            return [GoOn(end, Cause.START if before is None else Cause.CUT)]
        actions: list[Action] = [Stored(before, end)] if end > before else []
        reached = before
        while self._held and self._held[0].end <= end:
            reached = self._held.popleft().end
        if reached != end:  # others have written, or this lane before the log was cut off
            self._held.clear()
            actions.append(GoOn(end, Cause.MOVED))
        return actions + self._fill()

    def _stored_newest_ms(self, event: EndRead) -> int | None:
        """Return the newest time of the last batch of the run; None if there is no batch of it."""
        if event.end == self._run.first_offset:
            return None
        if event.tail is not None:
            return event.tail.newest_ms
        return _NO_TIME if event.known is None else event.known.last_timestamp_ms

    # -- batches -------------------------------------------------------------------------------------------------------

    def _offered(self, event: Offered) -> list[Action]:
        if not self.is_ready:
            raise LookupError(f"a batch was offered to a lane that holds {len(self._held)}")
        assert self.position is not None
        self._held.append(_Held(self.position, event.records, event.newest_ms))
        return self._fill()

    def _fill(self) -> list[Action]:
        """Return what sends the batches that may be sent now; a read of the end first, if that is too long ago."""
        actions: list[Action] = []
        while self._under_way < min(len(self._held), self._most_under_way()):
            if not self.may_send(self._now):
                return actions if self._under_way else self._read_again()
            batch = self._held[self._under_way]
            batch.sent_at = self._now.boot_s
            self._under_way += 1
            self._sent_to = max(self._sent_to, batch.end)
            actions.append(Send(batch.offset))
        return actions

    def may_send(self, now: Moment) -> bool:
        """Return whether what is known of the end of the log is young enough to send something upon it."""
        return now.boot_s - self._fresh_at <= FRESH_S and (self.is_guarded or now.boot_s < now.leased_until_s)

    def _read_again(self) -> list[Action]:
        """Read the end once more, after a wait if the lane may belong to another process."""
        if self.is_guarded or self._now.boot_s < self._now.leased_until_s:
            return self._read()
        return self._read(LEASE_WAIT_S, "another process of the mirror may have the lane now")

    def _send_put_off(self, event: PutOff) -> list[Action]:
        """Take back what is said to be under way from an offset on, and send it later."""
        self._under_way = next(index for index, batch in enumerate(self._held) if batch.offset == event.offset)
        if self.state is LaneState.DRAINING:
            return self._end_drain() if self._drained == self._under_way else []
        return self._fill()

    def _most_under_way(self) -> int:
        return MOST_UNDER_WAY if self.state is LaneState.FLOWING and self.is_guarded else 1

    @property
    def is_guarded(self) -> bool:
        """Whether the times of what is stored last, or offered, are young enough for leaders to know the producer."""
        oldest_ms = self._now.time_ms - self._forgotten_after_ms
        held = [each.newest_ms for each in self._held]
        return all(newest_ms >= oldest_ms for newest_ms in (*held, self._newest_ms) if newest_ms is not None)

    def _answered(self, event: Answered) -> list[Action]:
        if not self._under_way:
            raise LookupError("an answer came, and no request is under way")
        batch = self._held[0]
        if event.code or event.base_offset != batch.offset:
            self.state = LaneState.DRAINING
            self._drained = 0
            self._judge(batch, event)
            return self._drain(event)
        self._held.popleft()
        self._under_way -= 1
        self.stored = batch.end
        self._newest_ms = batch.newest_ms
        self._fresh_at = batch.sent_at  # and not now: the answer may have waited here
        self._failures = 0
        self._refusal = self._doubtful = None
        self.state = LaneState.FLOWING
        return [Stored(batch.offset, batch.end), *self._fill()]

    # -- faults --------------------------------------------------------------------------------------------------------

    def _judge(self, batch: _Held, event: Answered) -> None:
        """Take note of what the first error of several means."""
        code, producer = event.code, self._run.producer
        self._fault, self._must_find_leader = None, False
        if code in _FENCED_CODES:
            expected = f"producer {producer.producer_id} in epoch {producer.epoch}"
            self._fault = LaterEpoch(self._name, expected, f"a later epoch (code {code})")
        elif code in _NUMBER_CODES:
            self._refusal = self._counted(self._refusal, batch, code)
        elif code in KAFKA011.not_leader_codes:
            self._must_find_leader = True
        elif code in _DOUBTFUL_CODES:
            self._doubtful = self._counted(self._doubtful, batch, code)
            if self._doubtful.count >= _MOST_DAMAGED:
                self._fault = BatchRefused(self._name, code, batch.offset)
        elif code and not broker_error(code).retriable:
            self._fault = BatchRefused(self._name, code, batch.offset)

    def _counted(self, before: _Refusal | None, batch: _Held, code: int) -> _Refusal:
        if before is None or (before.offset, before.code) != (batch.offset, code):
            before = _Refusal(batch.offset, code, self._now.boot_s)
        before.count += 1
        return before

    def _drain(self, event: Answered) -> list[Action]:
        """Take the answers to what was sent with a batch that was refused; the end of the log says what is stored."""
        batch = self._held[self._drained]
        if event.code == 0 and event.base_offset != batch.offset:
            self._misplaced.append(MisplacedBatch(batch.offset, event.base_offset, batch.records))
        self._drained += 1
        return self._end_drain() if self._drained == self._under_way else []

    def _end_drain(self) -> list[Action]:
        if self._misplaced:
            return self._stop(Misplaced(self._name, self._misplaced))
        if self._fault is not None:
            return self._stop(self._fault)
        self._under_way = 0
        if not self._must_find_leader:
            return self._read(self._wait_s())
        self.state = LaneState.AWAY
        return [Connect(self._wait_s(), is_denied=True)]

    def _stop(self, error: LaneStopped) -> list[Action]:
        self.state = LaneState.STOPPED
        return [Stop(error)]


def _batch_text(producer: ProducerId, last_sequence: int, last_offset: int) -> str:
    if producer.producer_id < 0:
        return f"a batch without a producer id that ends at offset {last_offset}"
    return (
        f"a batch of producer {producer.producer_id} in epoch {producer.epoch} that ends at offset {last_offset} "
        f"with sequence {last_sequence}"
    )


_M = LaneMachine
_S = LaneState


# What is not in the table cannot happen: an answer counts only on the connection of its question, and a lane that has
# stopped is told nothing more.
_BY_STATE: dict[LaneState, dict[type, Callable[[Any, Any], list[Action]]]] = {
    _S.AWAY: {Connected: _M._connected, Lost: _M._lost},
    _S.READING: {EndRead: _M._end_read, ReadRefused: _M._read_refused, PutOff: _M._read_put_off, Lost: _M._lost},
    _S.ALONE: {Offered: _M._offered, Answered: _M._answered, PutOff: _M._send_put_off, Lost: _M._lost},
    _S.FLOWING: {Offered: _M._offered, Answered: _M._answered, PutOff: _M._send_put_off, Lost: _M._lost},
    _S.DRAINING: {Answered: _M._drain, PutOff: _M._send_put_off, Lost: _M._lost},
    _S.STOPPED: {},
}

_TABLE: dict[tuple[LaneState, type], Callable[[Any, Any], list[Action]]] = {
    (state, event): step for state, rows in _BY_STATE.items() for event, step in rows.items()
}
