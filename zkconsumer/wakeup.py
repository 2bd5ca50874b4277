"""Flags that threads wait for and signal handlers may set: `Wakeup` for one sleeper, `Latch` for any number.

`threading.Event` holds a lock while it checks its flag: a signal handler that interrupts a thread there, and waits for
the same event, waits for its own thread for ever. Here the lock is the flag.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["Latch", "Wakeup"]

_SLICE_S: Final = 0.5
"""Longest single sleep: Python handles a signal that comes right before a sleep only when the sleep ends."""


class Wakeup:
    """A flag that one thread waits for. `wake` waits for no lock, so signal handlers may call it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # The lock is a binary semaphore: releasing it sets the flag, acquiring it is the wait. Unlike a Condition it
        # needs no second lock, and unlike a queue it cannot grow.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """End the current wait, or the next one."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:  # another thread was first
                pass

    def wait(self, timeout_s: float | None) -> bool:
        """Return True when woken, False at the time-out; None waits for ever, and signals are handled meanwhile."""
        while timeout_s is None or timeout_s > _SLICE_S:
            if self._lock.acquire(timeout=_SLICE_S):
                return True
            if timeout_s is not None:
                timeout_s -= _SLICE_S
        return self._lock.acquire(timeout=max(timeout_s, 0.0))


class Latch:
    """A flag that is set once, which any number of threads may wait for. Threads: Any; signal handlers, too."""

    __slots__ = ("_is_set", "_lock")

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Set the flag: all waits end, and later ones return at once."""
        self._is_set = True
        self._let_pass()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Return whether the flag is set within the time."""
        while not self._is_set:
            if timeout_s <= 0.0:
                return False
            if self._lock.acquire(timeout=min(timeout_s, _SLICE_S)):
                self._let_pass()  # the next waiting thread
            timeout_s -= _SLICE_S
        return True

    def _let_pass(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # it is open already
            pass
