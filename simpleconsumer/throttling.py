"""Brokers that throttle a client whose quota is used up: their throttle time, the log line, and smaller fetches.

From Kafka 2.0 on a broker answers at once (a fetch without any partition), and reads no request of the connection until
the throttle time is over. Before that it does the request, and holds the answer back. Rules, and which failure each
prevents:
- Nothing is sent over a connection during its throttle time: the request would be unread, and time out.
- A fetch of which all is throttled again and again is made smaller: brokers of 2.0 to 2.5 never answer one that is
  larger than the quota of one window (KAFKA-9677).
- A fetch whose answer was held back for long is made smaller: its answer would come later than the client waits.

Source: KIP-13, KIP-124, KIP-219; kafka.server.ClientQuotaManager (1.1, 2.0, 2.8), KafkaApis.handleFetchRequest.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from simpleconsumer.errors import Throttled

log = logging.getLogger(__name__)

HELD_S: Final = 300.0
"""How much longer than its time-out a fetch waits for a broker that holds its answer back and answers other requests:
Java's consumers of those versions waited 305 s (`request.timeout.ms`)."""
LONGEST_THROTTLE_S: Final = 3600.0
"""Longest throttle time that is obeyed; after that the broker is asked again."""
_LOG_AGAIN_S: Final = 600.0
_ASK_AGAIN_S: Final = 5.0
_LEAST_BYTES: Final = 1024
_ALL_BYTES: Final = 64 * 1024 * 1024
_LONG_MS: Final = 5000
_IN_A_ROW: Final = 2
_GROW_AFTER: Final = 8


class Throttle(NamedTuple):
    """A broker has throttled a client.

    Attributes:
        host, port: The broker.
        api: Name of the request, as in Kafka's documentation in lower case: fetch, produce, list_offsets.
        throttle_ms: For how long; of an answer that has not come yet, for how long it is held back so far.
        is_held: The answer was held back so long, or is now; otherwise no further request is read until the time is
            over.
        is_answered: False while the answer is held back.
    """

    host: str
    port: int
    api: str
    throttle_ms: int
    is_held: bool
    is_answered: bool = True

    def __str__(self) -> str:
        seconds = self.throttle_ms / 1000
        if self.is_answered and not self.is_held:
            return f"throttles this client for {seconds:g} s: its quota is used up ({self.api})"
        if self.is_answered:
            return f"throttles this client: its quota was used up, and the answer came {seconds:g} s late ({self.api})"
        return (
            f"throttles this client, or is slow: an answer is {seconds:.0f} s late, while the broker answers other "
            f"requests ({self.api})"
        )


def throttled_beyond(host: str, port: int, left_s: float) -> Throttled:
    """Return the error of a call that may not last as long as the broker throttles the client."""
    reason = f"throttles this client, whose quota is used up, for {left_s:.0f} s, beyond the deadline of the call"
    return Throttled(host, port, reason, False)


class Patience(NamedTuple):
    """How long a call waits for an answer that a broker before Kafka 2.0 may hold back.

    Attributes:
        first_s: When to ask for the first time whether it is held back, in seconds after the request.
        timeout_s: How long the call waits on after the broker was found to hold it back.
        longest_s: How much longer than its time-out the call may take.
        is_held: Called with the seconds since the request; returns whether the broker holds the answer back.
    """

    first_s: float
    timeout_s: float
    longest_s: float
    is_held: Callable[[float], bool]

    def wait(self, wait_readable: Callable[[float], bool], deadline: float, closed: threading.Event) -> float:
        """Wait for the first byte of an answer; return the deadline of the rest, later if the answer is held back.

        Raises:
            TimeoutError: The deadline is over, and the broker answers nothing else either.
        """
        sent_at = time.monotonic()
        last, ask_at = deadline + self.longest_s, sent_at + self.first_s
        while not wait_readable(min(ask_at, deadline) - time.monotonic()):
            if closed.is_set():
                raise OSError("closed")
            if time.monotonic() >= min(ask_at, deadline):
                if self.is_held(time.monotonic() - sent_at):
                    deadline = min(max(deadline, time.monotonic() + self.timeout_s), last)
                ask_at = time.monotonic() + _ASK_AGAIN_S
            if time.monotonic() >= deadline and not wait_readable(0.0):  # it may have come meanwhile
                raise TimeoutError
        return deadline


class FetchPace:
    """How large a fetch may be for a client that is throttled. Pure; nothing is limited until a broker throttles.

    Attributes:
        most_bytes: Of a whole answer; None while there is no limit.
    """

    __slots__ = ("_asked_bytes", "_good", "_refused", "most_bytes")

    def __init__(self) -> None:
        self.most_bytes: int | None = None
        self._asked_bytes = _ALL_BYTES
        self._refused = self._good = 0

    def limit(self, wanted_bytes: int) -> int:
        """Return how many of the wanted bytes may be asked for, and take note of it."""
        self._asked_bytes = wanted_bytes if self.most_bytes is None else min(wanted_bytes, self.most_bytes)
        return self._asked_bytes

    def refused(self) -> None:
        """Take note that the broker has sent nothing, since the client is throttled."""
        self._good = 0
        self._refused += 1
        if self._refused >= _IN_A_ROW:
            self._ask_less(self._asked_bytes // 2)

    def unanswered(self) -> None:
        """Take note that no answer has come in time: perhaps it was held back."""
        self._good = 0
        self._ask_less(min(self._asked_bytes, _ALL_BYTES) // 8)

    def answered(self, size_bytes: int, held_ms: int = 0) -> None:
        """Take note of an answer, and of how long the broker has held it back."""
        self._refused = 0
        if held_ms > _LONG_MS:
            self._good = 0
            if size_bytes >= _LEAST_BYTES:
                self._ask_less(size_bytes * _LONG_MS // held_ms)
        elif self.most_bytes is not None and held_ms < _LONG_MS // 4 and size_bytes >= self.most_bytes // 2:
            self._good += 1
            if self._good >= _GROW_AFTER:
                self._good = 0
                self.most_bytes = self.most_bytes * 2 if self.most_bytes < _ALL_BYTES else None

    def _ask_less(self, size_bytes: int) -> None:
        size_bytes = max(size_bytes, _LEAST_BYTES)
        self.most_bytes = size_bytes if self.most_bytes is None else min(size_bytes, self.most_bytes)


def counting(add: Callable[[str, str, int], None]) -> Callable[[Throttle], None]:
    """Return what counts throttles and their times by request: `on_throttle` of a client.

    Args:
        add: Called with "throttled" and "throttle_ms", the request, and by how much.
    """

    def count(throttle: Throttle) -> None:
        if throttle.is_answered:
            add("throttled", throttle.api, 1)
            add("throttle_ms", throttle.api, throttle.throttle_ms)

    return count


class ThrottleLog:
    """Logs that brokers throttle: once for each broker and request, and again when that goes on after ten minutes.

    Threads: any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[tuple[str, int, str], float] = {}

    def renew_lock(self) -> None:
        """Take a new lock, in a forked child: another thread of the parent may have held the old one."""
        self._lock = threading.Lock()

    def note(self, throttle: Throttle, client_id: str) -> None:
        """Log a throttle that is new."""
        key, now = (throttle.host, throttle.port, throttle.api), time.monotonic()
        with self._lock:
            if now - self._logged.get(key, float("-inf")) < _LOG_AGAIN_S:
                return
            self._logged = {each: at for each, at in self._logged.items() if now - at < _LOG_AGAIN_S}
            self._logged[key] = now
        log.warning(
            "broker %s:%d %s; quotas are set for the user or for client.id %r (kafka-configs.sh); this is not logged "
            "again for %d minutes", throttle.host, throttle.port, throttle, client_id, _LOG_AGAIN_S // 60,
        )  # fmt: skip


THROTTLE_LOG: Final = ThrottleLog()
"""That of this process."""
os.register_at_fork(after_in_child=THROTTLE_LOG.renew_lock)
