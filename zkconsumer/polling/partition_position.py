"""The state machine of an assigned partition's position: looked for, valid, to be reset, or to be validated.

Pure: it takes events and says whether they counted. Rules, and which failure each prevents:
- An answer counts only while it is waited for: a seek of the application must not be undone by an answer to what was
  asked before it.
- A reset has a number, and the answer names it: after two seeks to the end the earlier answer would be too old.
- A position is compared with the leader's log before it is fetched from, if the epochs of both are known: records
  behind it may be others than those that were read.
- Where no policy says what to do, the state stays, and the caller raises: the next poll finds the same.

The transition table stands at the end of the file; a pair of state and event that is not in it is a bug and raises.

Source: SubscriptionState.TopicPartitionState, OffsetFetcherUtils (Kafka 3.9).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "Advanced",
    "CommittedFound",
    "CommittedMissing",
    "Event",
    "FetchPosition",
    "LeaderEpochKnown",
    "OffsetReset",
    "OutOfRange",
    "PartitionPosition",
    "PositionState",
    "Postponed",
    "ResetAnswered",
    "ResetRequest",
    "ResetRequested",
    "Seek",
    "Truncated",
    "Validated",
]


class PositionState(enum.Enum):
    """The states of a position."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAITING_RESET = "awaiting reset"
    AWAITING_VALIDATION = "awaiting validation"


class OffsetReset(enum.Enum):
    """Where a partition starts without a valid position."""

    EARLIEST = "earliest"
    LATEST = "latest"


class FetchPosition(NamedTuple):
    """The next offset to be returned, and what it was compared with.

    Attributes:
        offset: The offset.
        offset_epoch: The leader epoch of the record before it; None when it is not known.
        leader_epoch: The epoch of the leader that is asked; None when it is not known.
    """

    offset: int
    offset_epoch: int | None = None
    leader_epoch: int | None = None


class ResetRequest(NamedTuple):
    """A reset that is to be done.

    Attributes:
        policy: Where to.
        number: Distinguishes it from all others of the consumer.
    """

    policy: OffsetReset
    number: int


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seek:
    """The application has chosen a position."""

    offset: int
    offset_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ResetRequested:
    """The application wants the first or the last offset."""

    request: ResetRequest


@dataclass(frozen=True, slots=True)
class CommittedFound:
    """The group has committed this offset."""

    offset: int
    offset_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedMissing:
    """The group has committed nothing; `request` follows from the policy, None without one."""

    request: ResetRequest | None


@dataclass(frozen=True, slots=True)
class ResetAnswered:
    """A broker has named the offset of a reset."""

    request: ResetRequest
    offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The log does not have the offset that was fetched from; `request` as in `CommittedMissing`."""

    offset: int
    request: ResetRequest | None


@dataclass(frozen=True, slots=True)
class LeaderEpochKnown:
    """The leader has this epoch; reported for leaders alone that validate positions."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Validated:
    """The leader's log has the position."""

    position: FetchPosition


@dataclass(frozen=True, slots=True)
class Truncated:
    """The leader's log has other records before the position.

    Attributes:
        position: What was asked about.
        end: Where the log is still the one that was read, with its epoch; None when it is not known.
        request: As in `CommittedMissing`.
    """

    position: FetchPosition
    end: FetchPosition | None
    request: ResetRequest | None


@dataclass(frozen=True, slots=True)
class Postponed:
    """A request about the position was sent or has failed: it is not sent again before `until`."""

    until: float


@dataclass(frozen=True, slots=True)
class Advanced:
    """Records up to this offset were returned to the application."""

    offset: int
    offset_epoch: int | None = None


Event = (
    Seek
    | ResetRequested
    | CommittedFound
    | CommittedMissing
    | ResetAnswered
    | OutOfRange
    | LeaderEpochKnown
    | Validated
    | Truncated
    | Postponed
    | Advanced
)


class PartitionPosition:
    """The position of one partition, from its assignment on.

    Attributes:
        state: The present state.
        position: The position; None while there is none.
        reset: The reset that is waited for; None in other states.
        leader_epoch: The epoch of the leader; None when it is not known.
        retry_at: Before this time nothing is asked; None: it may be asked now.
    """

    __slots__ = ("leader_epoch", "position", "reset", "retry_at", "state")

    def __init__(self) -> None:
        self.state = PositionState.INITIALIZING
        self.position: FetchPosition | None = None
        self.reset: ResetRequest | None = None
        self.leader_epoch: int | None = None
        self.retry_at: float | None = None

    def handle(self, event: Event) -> bool:
        """Take an event; return whether it counted, False for an answer that came too late.

        Raises:
            LookupError: The table has no row for the event in the present state.
        """
        row = _TABLE.get((self.state, type(event)))
        if row is None:
            raise LookupError(f"no transition for {type(event).__name__} in state {self.state.value}")
        return row(self, event)

    def is_due(self, now: float) -> bool:
        """Return whether nothing keeps the state from being asked about now."""
        return self.retry_at is None or self.retry_at <= now

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go(
        self, state: PositionState, position: FetchPosition | None = None, reset: ResetRequest | None = None
    ) -> bool:
        self.state = state
        self.position = position
        self.reset = reset
        self.retry_at = None
        return True

    def _ignore(self, _: Event) -> bool:
        return False

    def _start(self, event: Seek | CommittedFound) -> bool:
        position = FetchPosition(event.offset, event.offset_epoch, self.leader_epoch)
        if position.offset_epoch is not None and position.leader_epoch is not None:
            return self._go(PositionState.AWAITING_VALIDATION, position)
        return self._go(PositionState.FETCHING, position)

    def _request_reset(self, event: ResetRequested) -> bool:
        return self._go(PositionState.AWAITING_RESET, reset=event.request)

    def _start_without_commit(self, event: CommittedMissing) -> bool:
        if event.request is None:
            return True
        return self._go(PositionState.AWAITING_RESET, reset=event.request)

    def _finish_reset(self, event: ResetAnswered) -> bool:
        if event.request != self.reset:
            return False
        # Both ends are offsets of the leader's present log: there is nothing to validate.
        return self._go(PositionState.FETCHING, FetchPosition(event.offset, None, self.leader_epoch))

    def _leave_range(self, event: OutOfRange) -> bool:
        if self.position is None or event.offset != self.position.offset:
            return False
        if event.request is None:
            return True
        return self._go(PositionState.AWAITING_RESET, reset=event.request)

    def _note_epoch(self, event: LeaderEpochKnown) -> bool:
        self.leader_epoch = event.epoch
        return True

    def _change_epoch(self, event: LeaderEpochKnown) -> bool:
        """Validate the position, unless the epoch of the record before it is not known."""
        self.leader_epoch = event.epoch
        position = self.position
        if position is None or position.leader_epoch == event.epoch:
            return False
        position = position._replace(leader_epoch=event.epoch)
        if position.offset_epoch is None:
            return self._go(PositionState.FETCHING, position)
        return self._go(PositionState.AWAITING_VALIDATION, position)

    def _validate_again(self, event: LeaderEpochKnown) -> bool:
        """Ask under the new epoch; an answer about the one before does not count any more."""
        self.leader_epoch = event.epoch
        position = self.position
        if position is None or position.leader_epoch == event.epoch:
            return False
        return self._go(PositionState.AWAITING_VALIDATION, position._replace(leader_epoch=event.epoch))

    def _validate(self, event: Validated) -> bool:
        if event.position != self.position:
            return False
        return self._go(PositionState.FETCHING, self.position)

    def _truncate(self, event: Truncated) -> bool:
        if event.position != self.position:
            return False
        if event.request is None:
            return True
        if event.end is None:
            return self._go(PositionState.AWAITING_RESET, reset=event.request)
        return self._go(PositionState.FETCHING, event.end._replace(leader_epoch=self.leader_epoch))

    def _postpone(self, event: Postponed) -> bool:
        self.retry_at = event.until
        return True

    def _advance(self, event: Advanced) -> bool:
        self.position = FetchPosition(event.offset, event.offset_epoch, self.leader_epoch)
        return True


_P = PartitionPosition
_S = PositionState


# Records are returned of partitions alone that are fetched: `Advanced` cannot come in the other states.
_ANY_TIME: dict[type, Callable[..., bool]] = {
    Seek: _P._start,
    ResetRequested: _P._request_reset,
    # Answers that come too late: to what was asked before a seek, or before the partition was assigned anew.
    CommittedFound: _P._ignore,
    CommittedMissing: _P._ignore,
    ResetAnswered: _P._ignore,
    OutOfRange: _P._ignore,
    LeaderEpochKnown: _P._note_epoch,
    Validated: _P._ignore,
    Truncated: _P._ignore,
    Postponed: _P._ignore,
}
_BY_STATE: dict[PositionState, dict[type, Callable[..., bool]]] = {
    _S.INITIALIZING: {CommittedFound: _P._start, CommittedMissing: _P._start_without_commit},
    _S.FETCHING: {LeaderEpochKnown: _P._change_epoch, OutOfRange: _P._leave_range, Advanced: _P._advance},
    _S.AWAITING_RESET: {ResetAnswered: _P._finish_reset, Postponed: _P._postpone},
    _S.AWAITING_VALIDATION: {
        LeaderEpochKnown: _P._validate_again,
        Validated: _P._validate,
        Truncated: _P._truncate,
        Postponed: _P._postpone,
    },
}

_TABLE: dict[tuple[PositionState, type], Callable[..., bool]] = {
    (state, event): step for state, rows in _BY_STATE.items() for event, step in {**_ANY_TIME, **rows}.items()
}
