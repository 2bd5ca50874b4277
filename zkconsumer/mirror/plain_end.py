"""When the end of a log may be believed that brokers without sequence numbers keep. Pure.

A request whose answer was lost may be stored later: it may wait in the broker, or be on its way to it. So may the last
one of a process that was killed.
"""

from __future__ import annotations

from typing import Final

QUIET_S: Final = 3.0
"""How long the end stays the same before it is believed. A broker that works stores what has come within milliseconds;
one that was frozen for longer, with a request in its hands, may store it later."""


class LogEndWatch:
    """Readings of the end of one log.

    Args:
        quiet_s: How long the end has to stay the same while a request may be on its way.

    Attributes:
        reason: Why the end is not believed yet, a clause.
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._is_doubted = True
        self._seen: int | None = None
        self._since_s = 0.0
        self.reason = ""

    def doubt(self) -> None:
        """Note that a request was sent, and that its answer is lost."""
        self._is_doubted = True
        self._seen = None

    def see(self, end: int, appended: int, now_s: float) -> int | None:
        """Return the end of the log if it is to be believed; None: read it again.

        Args:
            end: What all in-sync replicas have.
            appended: What the leader has.
            now_s: When that was read.
        """
        if self._seen != appended:
            self._seen, self._since_s = appended, now_s
        if end != appended:
            self.reason = f"replicas have the offsets before {end}, the leader those before {appended}"
            return None
        left_s = self._since_s + self._quiet_s - now_s
        if self._is_doubted and left_s > 0:
            self.reason = f"a request may still arrive: the log has to end at {end} for {left_s:.1f} s more"
            return None
        self._is_doubted = False
        return end
