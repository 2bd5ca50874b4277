"""Flags that threads wait for and signal handlers may set: `Wakeup` for one sleeper, `Latch` for any number.

`threading.Event` keeps a lock while it looks at its flag: a signal handler that interrupts a thread there, and waits
for the same event, waits for itself for ever. Here the lock is the flag.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["Latch", "Wakeup"]

_SLICE_S: Final = 0.5
"""Longest sleep at a stretch: of a signal that strikes in the moment before it, Python hears when it ends."""


class Wakeup:
    """A flag to sleep on, for one sleeper. `wake` takes no lock that anybody holds: signal handlers may call it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # A lock as binary semaphore: releasing it is the flag, acquiring it is the sleep. Unlike a Condition it needs
        # no second lock, and unlike a queue it cannot pile up.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """End the sleep, the present one or the next one."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:  # another waker was faster
                pass

    def wait(self, timeout_s: float | None) -> bool:
        """Return True when woken, False at the time-out; None waits without end and is interruptible by signals."""
        while timeout_s is None or timeout_s > _SLICE_S:
            if self._lock.acquire(timeout=_SLICE_S):
                return True
            if timeout_s is not None:
                timeout_s -= _SLICE_S
        return self._lock.acquire(timeout=max(timeout_s, 0.0))


class Latch:
    """Shut until `set`, open for ever after. Threads: any; signal handlers, too."""

    __slots__ = ("_is_set", "_lock")

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let everybody pass, now and later."""
        self._is_set = True
        self._let_pass()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Return whether it is set by then."""
        while not self._is_set:
            if timeout_s <= 0.0:
                return False
            if self._lock.acquire(timeout=min(timeout_s, _SLICE_S)):
                self._let_pass()  # the next sleeper
            timeout_s -= _SLICE_S
        return True

    def _let_pass(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # it is open already
            pass
