"""Flags that wake threads up, and the notice that a process was forked.

Flags that threads wait for and signal handlers may set: `Wakeup` for one sleeper, `Latch` for any number.

`threading.Event` holds a lock while it checks its flag: a signal handler that interrupts a thread there, and waits for
the same event, waits for its own thread for ever. Here the lock is the flag.

Notifies connectors and producers in a forked child process, where none of their threads runs.

A connector belongs to the process that made it. The child has a copy whose lease nothing renews and whose sockets are
those of the parent: using it would deliver again what the parent delivers, and closing it would end the session of the
parent. A copy of a producer would never send what it takes. Rule: code that runs here takes no lock, because a thread
of the parent may have held any of them at the fork.

Source: os.register_at_fork; failures of PyKafka and kafka-python under multiprocessing.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

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


class ForkAware(Protocol):
    """An object that belongs to one process."""

    def _on_fork(self) -> None:
        """This process is a fork of the owner's. Takes no lock."""


_objects: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def notify_after_fork(owned: ForkAware) -> None:
    """Have `_on_fork` called in every child that is forked while `owned` exists."""
    _objects.add(owned)


def _notify_all() -> None:
    for owned in list(_objects):
        owned._on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_all)
