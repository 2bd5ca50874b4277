"""The lease: until when this member may deliver and commit.

It knows the session, the time-out that the server granted, and when the newest answered request was *sent*; it knows
neither sockets nor threads. Rule: only an answer that proves the session extends the lease, and it counts from the
moment its request was sent. Watch events, connect replies and replies read after a pause prove nothing about the
present.

A follower answers at once, but reports active sessions to its leader only twice a tick. If a request is sent while the
lease holds, this report comes in time. If it is sent later, the leader may end the session before it gets the report:
such an answer counts only when a second answer confirms it, to a request sent so much later that the report has reached
the leader.

Source: docs/SEMANTICS.md, "The lease".
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable

LEASE_FRACTION = 2 / 3
"""Share of the session time-out for which a proof is valid; the rest covers clock drift and one tick."""

CONFIRM_FRACTION = 1 / 3
"""Share of the session time-out after which a request confirms one that was sent without a lease.

Half a tick is a quarter of the shortest session that servers grant by default; the rest covers the network.
"""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# A partial of a C function: the streams call it once a message, and a Python function would cost half as much again.
lease_clock: Callable[[], float] = functools.partial(time.clock_gettime, _CLOCK)
"""Seconds on a clock that never jumps and, where the system has one, runs on through suspend."""


class Lease:
    """The point in time until which one ZooKeeper session is proved to last.

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

    def start(self, session_id: int, timeout_s: float) -> None:
        """Start the lease of a session; a session other than the last one starts without any proof."""
        if session_id != self._session_id:
            self._forget()
        self._session_id = session_id
        self._timeout_s = timeout_s

    def renew(self, session_id: int, sent_at: float) -> bool:
        """Whether the answer to a request sent at `sent_at` belongs to the leased session; extends the lease if so.

        A request that was sent without a lease extends nothing until it is confirmed; the first of a session needs no
        confirmation.
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

    def prove(self, sent_at: float, until: float) -> None:
        """Extend the lease to `until`: the answer to a request that was sent at `sent_at` needs no confirmation."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self.until = max(self.until, until)

    @property
    def confirmed_at(self) -> float | None:
        """From when on a request confirms the one that was sent without a lease; `None` if none waits for that."""
        return None if self._late_since is None else self._late_since + self._timeout_s * CONFIRM_FRACTION

    def end(self) -> None:
        """End the lease at once: the session or the registration is gone."""
        self._forget()
        self._session_id = None

    def _forget(self) -> None:
        self.until = self.renewed_at = -math.inf
        self._late_since = None

    def age_s(self, now: float) -> float | None:
        """Seconds since the request of the newest proof was sent, `None` without one."""
        return None if self.renewed_at == -math.inf else now - self.renewed_at
