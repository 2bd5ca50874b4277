"""The sessions of the simulated ZooKeeper as its leader keeps them: which are alive, and until when.

Source: SessionTrackerImpl of ZooKeeper 3.4: a session that was refreshed at `t` ends at the first tick after
`t + timeout`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.simulator.schedule import Schedule
from tests.simulator.zookeeper_server import Server

__all__ = ["Session", "SessionTable"]


class Session:
    """One session: its granted time-out, when it ends unless it is refreshed, and the server its client is at."""

    __slots__ = ("expires_at", "owner", "session_id", "timeout_s")

    def __init__(self, session_id: int, timeout_s: float, owner: Server | None) -> None:
        self.session_id = session_id
        self.timeout_s = timeout_s
        self.owner = owner
        self.expires_at = 0.0


class SessionTable:
    """The living sessions.

    Args:
        schedule: virtual time.
        tick_s: how often the leader looks for sessions that are over.
        expired: called with a session whose time is up; it stays in the table until `close`.
    """

    def __init__(self, schedule: Schedule, tick_s: float, expired: Callable[[Session], None]) -> None:
        self._schedule = schedule
        self._tick_s = tick_s
        self._expired = expired
        self._sessions: dict[int, Session] = {}

    def ids(self) -> list[int]:
        """The ids of all, the oldest first."""
        return list(self._sessions)

    def get(self, session_id: int) -> Session | None:
        """The session, None if it is over or never was."""
        return self._sessions.get(session_id)

    def open(self, session_id: int, timeout_s: float, owner: Server | None) -> None:
        """Take a session in."""
        session = self._sessions[session_id] = Session(session_id, timeout_s, owner)
        self._touch(session)
        self._watch(session)

    def close(self, session_id: int) -> None:
        """Forget a session."""
        self._sessions.pop(session_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._sessions.clear()

    def touch(self, session_id: int) -> None:
        """Refresh a session: its client has sent something."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._touch(session)

    def _touch(self, session: Session) -> None:
        tick_s = self._tick_s
        expires_at = (math.floor((self._schedule.now + session.timeout_s) / tick_s) + 1) * tick_s
        if expires_at > session.expires_at:
            session.expires_at = expires_at

    def restart(self) -> None:
        """Give every session its whole time-out anew and forget where its client is: a leader has just started."""
        for session in self._sessions.values():
            session.owner = None
            self._touch(session)

    def _watch(self, session: Session) -> None:
        self._schedule.at(session.expires_at, self.check, session)

    def check(self, session: Session) -> None:
        """End the session if its time is up, else look again when it will be."""
        if self._sessions.get(session.session_id) is not session:
            return
        if self._schedule.now < session.expires_at:
            self._watch(session)
        else:
            self._expired(session)
