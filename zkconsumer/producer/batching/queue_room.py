"""QueueRoom: whoever waits for room in the queue gets it in the order of coming.

Rules, and which failure each prevents:

- Only the first one that waits looks for room, and nobody overtakes it. So a large batch, which needs much room at
  once, is not kept waiting by small messages that take each place as it becomes free; later ones come next.
- One whose time is over lets the next one look.
- A call that may not wait takes free room: it has no turn to wait for.

Threads: any; the caller holds the lock for every method.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

_LONGEST_SLEEP_S: Final = 60.0


class QueueRoom:
    """The turns of calls that wait for room.

    Args:
        lock: Guards the queue.
        fullness: Messages and bytes -> what there is no room for in words; None if there is room.
        make_room: Called whenever the first one finds none: has what fills the queue sent.

    Attributes:
        turns: The waiting calls, in their order.
    """

    def __init__(
        self, lock: threading.Lock, fullness: Callable[[int, int], str | None], make_room: Callable[[], None]
    ) -> None:
        self._lock = lock
        self._fullness = fullness
        self._make_room = make_room
        self.turns: deque[threading.Condition] = deque()

    def wait(self, messages: int, size: int, wait_s: float | None, check: Callable[[], None]) -> str | None:
        """Wait for one's turn and for room; return what the queue is full of when the time is over, None for room.

        Args:
            messages: How many come.
            size: Their bytes.
            wait_s: Longest wait; None waits for ever.
            check: Called after each wait; its error ends the wait.
        """
        may_wait = wait_s is None or wait_s > 0.0
        if not self.turns or not may_wait:
            full = self._fullness(messages, size)
            if full is None:
                return None
            self._make_room()
            if not may_wait:
                return full
        deadline = None if wait_s is None else time.monotonic() + wait_s
        turn = threading.Condition(self._lock)
        self.turns.append(turn)
        try:
            return self._wait_for_turn(turn, messages, size, deadline, check)
        finally:  # whatever ended it, an interrupt too: the next one is not to wait for somebody who has gone
            self.turns.remove(turn)
            self.look()

    def _wait_for_turn(
        self, turn: threading.Condition, messages: int, size: int, deadline: float | None, check: Callable[[], None]
    ) -> str | None:
        while True:
            full = self._fullness(messages, size)
            is_first = self.turns[0] is turn
            if is_first and full is None:
                return None
            left_s = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0.0:
                return full or "earlier messages that wait for room"
            if is_first:
                self._make_room()
            turn.wait(min(left_s, _LONGEST_SLEEP_S))
            check()

    def look(self) -> None:
        """Have the first one look for room: there may be some."""
        if self.turns:
            self.turns[0].notify()

    def look_all(self) -> None:
        """Have everybody check whether to go on waiting."""
        for turn in self.turns:
            turn.notify()
