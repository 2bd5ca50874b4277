"""The state machine of an assigned partition's position: looked for, valid, or to be reset.

Pure: it takes events and says whether they counted. Rules, and which failure each prevents:
- An answer counts only while it is waited for: a seek of the application must not be undone by an answer to what was
  asked before it.
- A reset has a number, and the answer names it: after two seeks to the end the earlier answer would be too old.

Fetching compares positions with the logs of leaders, and the epochs of both. It reports the offset where a log goes on.

The transition table stands at the end of the file; a pair of state and event that is not in it is a bug and raises.

Source: SubscriptionState.TopicPartitionState (Kafka 3.9).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class PositionState(enum.Enum):
    """The states of a position."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAITING_RESET = "awaiting reset"


class OffsetReset(enum.Enum):
    """Where a reset moves a position."""

    EARLIEST = "earliest"
    LATEST = "latest"


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
    """The application has chosen a position, or the log goes on elsewhere."""

    offset: int


@dataclass(frozen=True, slots=True)
class ResetRequested:
    """The application wants the first or the last offset."""

    request: ResetRequest


@dataclass(frozen=True, slots=True)
class CommittedFound:
    """The partition starts at this offset, which the group has committed or the policy says."""

    offset: int


@dataclass(frozen=True, slots=True)
class ResetAnswered:
    """A broker has named the offset of a reset."""

    request: ResetRequest
    offset: int


@dataclass(frozen=True, slots=True)
class Postponed:
    """A request about the position was sent or has failed: it is not sent again before `until`."""

    until: float


@dataclass(frozen=True, slots=True)
class Advanced:
    """Records up to this offset were returned to the application."""

    offset: int


Event = Seek | ResetRequested | CommittedFound | ResetAnswered | Postponed | Advanced


class PartitionPosition:
    """The position of one partition, from its assignment on.

    Attributes:
        state: The present state.
        position: The next offset to be returned; None while there is none.
        reset: The reset that is waited for; None in other states.
        retry_at: Before this time nothing is asked; None: it may be asked now.
    """

    __slots__ = ("position", "reset", "retry_at", "state")

    def __init__(self) -> None:
        self.state = PositionState.INITIALIZING
        self.position: int | None = None
        self.reset: ResetRequest | None = None
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

    def _go(self, state: PositionState, position: int | None = None, reset: ResetRequest | None = None) -> bool:
        self.state = state
        self.position = position
        self.reset = reset
        self.retry_at = None
        return True

    def _ignore(self, _: Event) -> bool:
        return False

    def _start(self, event: Seek | CommittedFound) -> bool:
        return self._go(PositionState.FETCHING, event.offset)

    def _request_reset(self, event: ResetRequested) -> bool:
        return self._go(PositionState.AWAITING_RESET, reset=event.request)

    def _finish_reset(self, event: ResetAnswered) -> bool:
        return event.request == self.reset and self._go(PositionState.FETCHING, event.offset)

    def _postpone(self, event: Postponed) -> bool:
        self.retry_at = event.until
        return True

    def _advance(self, event: Advanced) -> bool:
        self.position = event.offset
        return True


_P = PartitionPosition
_S = PositionState


# Records are returned of partitions alone that are fetched: `Advanced` cannot come in the other states.
_ANY_TIME: dict[type, Callable[..., bool]] = {
    Seek: _P._start,
    ResetRequested: _P._request_reset,
    # Answers that come too late: to what was asked before a seek, or before the partition was assigned anew.
    CommittedFound: _P._ignore,
    ResetAnswered: _P._ignore,
    Postponed: _P._ignore,
}
_BY_STATE: dict[PositionState, dict[type, Callable[..., bool]]] = {
    _S.INITIALIZING: {CommittedFound: _P._start},
    _S.FETCHING: {Advanced: _P._advance},
    _S.AWAITING_RESET: {ResetAnswered: _P._finish_reset, Postponed: _P._postpone},
}

_TABLE: dict[tuple[PositionState, type], Callable[..., bool]] = {
    (state, event): step for state, rows in _BY_STATE.items() for event, step in {**_ANY_TIME, **rows}.items()
}
