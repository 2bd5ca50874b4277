"""Until when this member may still deliver and commit.

Knows the session, its negotiated time-out and when the newest answered question was *sent*. Refuses to know sockets
and threads. Rule: only an answer that proves the session, counted from the moment its question left, extends the
lease; watch events, connect answers and replies read after a pause prove nothing about now.

A follower answers at once, but reports to its leader whom it has heard of only twice a tick. Asked while the lease
holds, the report comes in time. Asked later, the leader may end the session before it knows: such an answer counts
only when another one confirms it, asked so much later that the report has reached the leader.

Source: docs/SEMANTICS.md, "The lease".
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable

__all__ = ["CONFIRM_FRACTION", "LEASE_FRACTION", "Lease", "lease_clock"]

LEASE_FRACTION = 2 / 3
"""Share of the session time-out that a proof of the session is good for; the rest covers clock drift and one tick."""

CONFIRM_FRACTION = 1 / 3
"""Share of the session time-out after which a question confirms one that was asked without a lease.

Half a tick is a quarter of the shortest session that servers grant unless told otherwise; the rest is for the way.
"""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# A partial of a C function: the streams call it once a message, and a Python function would cost half as much again.
lease_clock: Callable[[], float] = functools.partial(time.clock_gettime, _CLOCK)
"""Seconds on a clock that never jumps and, where the system has one, runs on through suspend."""


class Lease:
    """The promise of one ZooKeeper session to this member, as a point in time.

    Attributes:
        until: clock value (`lease_clock`) up to which messages may be handed over; minus infinity when there is none.

    Threads: written by the coordinator alone; `until` is read by every stream at each hand-over (one attribute, so
        no lock).
    """

    __slots__ = ("_late_since", "_session_id", "_timeout_s", "renewed_at", "until")

    def __init__(self) -> None:
        self.until = -math.inf
        self.renewed_at = -math.inf
        self._session_id: int | None = None
        self._timeout_s = 0.0
        self._late_since: float | None = None

    def begin(self, session_id: int, timeout_s: float) -> None:
        """Take the lease of a session; a session other than the last one starts without any proof."""
        if session_id != self._session_id:
            self._forget()
        self._session_id = session_id
        self._timeout_s = timeout_s

    def renew(self, session_id: int, sent_at: float) -> bool:
        """Whether the answer to a question sent at `sent_at` belongs to the leased session; extends the lease then.

        One that was asked without a lease extends nothing before it is confirmed; the first of a session needs none.
        """
        if session_id != self._session_id:
            return False
        if sent_at > self.renewed_at:
            if self.renewed_at > -math.inf and sent_at >= self.renewed_at + self._timeout_s * LEASE_FRACTION:
                self._late_since = sent_at
            self.renewed_at = sent_at
            confirmed_at = self.confirmed_at
            if confirmed_at is None or sent_at >= confirmed_at:
                self._late_since = None
                self.until = sent_at + self._timeout_s * LEASE_FRACTION
        return True

    @property
    def confirmed_at(self) -> float | None:
        """From when on a question confirms the one that was asked without a lease; `None` if none waits for that."""
        return None if self._late_since is None else self._late_since + self._timeout_s * CONFIRM_FRACTION

    def end(self) -> None:
        """End the lease at once: the session or the registration is gone."""
        self._forget()
        self._session_id = None

    def _forget(self) -> None:
        self.until = self.renewed_at = -math.inf
        self._late_since = None

    def valid(self, now: float) -> bool:
        """Whether `now` lies within the lease."""
        return now < self.until

    def age_s(self, now: float) -> float | None:
        """Seconds since the newest proof was asked for, `None` without any."""
        return None if self.renewed_at == -math.inf else now - self.renewed_at
