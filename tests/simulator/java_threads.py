"""Threads of a simulated JVM: blocking code as generators, and what Java code waits for: locks, queues, sleep. Pure.

A thread is a generator. What blocks in the Java source is a step that it yields, `reply = yield step`: a function that
is given the call to go on with, which it makes once, with the result. After that the thread goes on a little later, as
threads of a busy machine do. Two threads run in turns between steps, never at once.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

from tests.simulator.pipe import Latency
from tests.simulator.process import Process

__all__ = ["Body", "BoundedQueue", "JavaFailure", "JavaThread", "Lock", "Monitor", "Step", "Threads", "USUAL_PACE"]

T = TypeVar("T")

GoOn: TypeAlias = Callable[[Any], None]
Step: TypeAlias = Callable[[GoOn], object]
Body: TypeAlias = Generator[Step, Any, T]

USUAL_PACE = Latency(0.00002, 0.0015)
"""How long a thread takes to go on, and for what it does before the next step."""


class JavaFailure(Exception):  # noqa: N818 - it stands for errors and exceptions of another language
    """An exception of the Java code: it ends what the Java source says that it ends."""


class Threads:
    """The threads of one process.

    Args:
        pace: how long each takes to go on after a step.

    Attributes:
        current: the thread that runs, None outside of any.
        failures: what ended a thread, by exceptions that nobody caught.
    """

    def __init__(self, process: Process, rng: random.Random, pace: Latency = USUAL_PACE) -> None:
        self.process = process
        self.rng = rng
        self.pace = pace
        self.current: JavaThread | None = None
        self.failures: list[str] = []

    def start(self, name: str, body: Body[None]) -> JavaThread:
        """Start a thread."""
        return JavaThread(self, name, body)

    def sleep(self, delay_s: float) -> Step:
        """The step that takes `delay_s` seconds."""
        return lambda go_on: self.process.after(delay_s, go_on, None)


class JavaThread:
    """One thread; it runs as soon as it is made.

    Attributes:
        is_alive: until its body has returned, failed, or was stopped.
    """

    def __init__(self, threads: Threads, name: str, body: Body[None]) -> None:
        self.name = name
        self.is_alive = True
        self._threads = threads
        self._body = body
        self._steps = 0
        self._wake(0, None)

    def stop(self) -> None:
        """Interrupt it for good: whatever it waits for, it never goes on. It must not hold or await a `Lock`."""
        self.is_alive = False
        if self._threads.current is not self:
            self._body.close()

    def _wake(self, step: int, result: Any) -> None:
        if step == self._steps and self.is_alive:
            self._steps += 1  # a second call of the same step counts no more
            threads = self._threads
            threads.process.after(threads.pace.draw(threads.rng), self._run, result)

    def _run(self, result: Any) -> None:
        if not self.is_alive:
            return
        threads = self._threads
        threads.current = self
        try:
            step = self._body.send(result)
            number = self._steps
            if self.is_alive:
                step(lambda value: self._wake(number, value))
        except StopIteration:
            self.is_alive = False
        except JavaFailure as failure:
            self.is_alive = False
            threads.failures.append(f"{self.name}: {failure!r}")
        finally:
            threads.current = None


class Monitor:
    """Where threads wait until something may have changed."""

    def __init__(self) -> None:
        self._waiting: list[GoOn] = []

    def wait(self, go_on: GoOn) -> None:
        """The step that lasts until the next `notify_all`; what was waited for must be looked at again."""
        self._waiting.append(go_on)

    def notify_all(self) -> None:
        """Let all threads go on that wait now."""
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on(None)


class Lock:
    """A lock that goes to the thread that has waited longest. It is not reentrant."""

    def __init__(self) -> None:
        self.is_held = False
        self._waiting: deque[GoOn] = deque()

    def acquire(self) -> Body[None]:
        """Wait until it is free, and take it."""
        if self.is_held:
            yield self._waiting.append
        self.is_held = True

    def release(self) -> None:
        """Give it up."""
        if self._waiting:
            self._waiting.popleft()(None)  # it stays held: no other thread can come between
        else:
            self.is_held = False


class BoundedQueue(Generic[T]):
    """A `LinkedBlockingQueue`.

    Args:
        capacity: `put` waits while so many are in it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = Monitor()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> Body[None]:
        """Add an item, as soon as there is room."""
        while len(self._items) >= self._capacity:
            yield self._changed.wait
        self._items.append(item)
        self._changed.notify_all()

    def take(self) -> Body[T]:
        """Take the oldest item, as soon as there is one."""
        while not self._items:
            yield self._changed.wait
        item = self._items.popleft()
        self._changed.notify_all()
        return item

    def clear(self) -> None:
        """Drop all items."""
        self._items.clear()
        self._changed.notify_all()
