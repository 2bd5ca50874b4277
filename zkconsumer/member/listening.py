"""Calls the rebalance listener of the application, on a thread of its own.

User code may commit, block or fail in a callback; none of that may stop the coordinator. Rules, and which failure each
prevents:
- The coordinator queues a call and continues; it is notified when the callback has returned. A callback that blocks
  costs no session.
- Calls come in pairs: a partition reported as assigned is reported as revoked or lost once, and no other one is.
  Listeners open and close resources by them, and a partition can be lost before its assignment was reported.

Source: docs/SEMANTICS.md, "The rebalance listener".
"""

from __future__ import annotations

import inspect
import logging
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rebalance.ports import Starts
from rebalance.subscription import Partition
from simpleconsumer.types import TopicPartition
from zkconsumer.config.tables.foreign_names import nearest_name
from zkconsumer.errors import ListenerRefused
from zkconsumer.offsets.offset_records import read_starts

log = logging.getLogger(__name__)


class RebalanceListener:
    """Is notified of rebalances; every method is optional.

    Threads: called on the connector's listener thread, one call at a time.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Called before partitions are released, also at shutdown; nothing more is delivered, commits still count."""

    def on_partitions_assigned(
        self, positions: dict[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None] | None:
        """Called when partitions are owned; each is delivered from the offset given, after this returns.

        A returned mapping gives other start offsets, for some of them or all: for applications that store offsets
        themselves, with their data. A value that is no offset of the log, None too, stops its partition
        (`PartitionStopped`).
        """
        return None

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Called when partitions were lost with the session; a commit is no longer possible."""

    def on_partitions_blocked(self, partitions: list[TopicPartition]) -> None:
        """Called when another member has held assigned partitions for a long time; the claim continues to wait."""


LISTENER_METHODS: Final = tuple(name for name in vars(RebalanceListener) if name.startswith("on_"))
_CALLED: Final = (*LISTENER_METHODS, "on_statistics")
"""One object may also have the callback for statistics, which is an argument of its own."""


def check_listener(listener: object, *, may_await: bool = False) -> None:
    """Refuse a listener with a method that would never be called: offsets would be committed or sought nowhere.

    Args:
        may_await: Whether methods may be coroutine functions.

    Raises:
        ListenerRefused: It has no method of `RebalanceListener`, has another `on_...` method, or has one that cannot be
            called with one argument.
    """
    if isinstance(listener, type):
        raise ListenerRefused(f"is the class {listener.__name__}", f"give an object: {listener.__name__}(...)")
    kind = type(listener).__name__
    for name in dir(listener):
        if name.startswith("on_") and name not in _CALLED and _is_method(listener, name):
            nearest = nearest_name(name, LISTENER_METHODS)
            instead = f"did you mean {nearest!r}? " if nearest else ""
            raise ListenerRefused(
                f"{kind} has a method {name!r}, which is never called",
                f"{instead}methods are {', '.join(LISTENER_METHODS)}; "
                "other methods need names that do not start with 'on_'",
            )
    known = {name: method for name in LISTENER_METHODS if (method := getattr(listener, name, None)) is not None}
    if not known or (type(listener) is not RebalanceListener and not any(map(_is_own, known.values()))):
        names = ", ".join(LISTENER_METHODS)
        raise ListenerRefused(f"{kind} has none of the methods that are called", f"define one of {names}")
    for name, method in known.items():
        _check_method(f"{kind}.{name}", method, may_await)


def _is_method(listener: object, name: str) -> bool:
    """Return whether a name is a method, without evaluating properties, which may raise errors."""
    found = inspect.getattr_static(listener, name, None)
    return callable(found) or isinstance(found, classmethod)


def _is_own(method: object) -> bool:
    """Return whether it is not one of the empty methods of `RebalanceListener`."""
    return getattr(method, "__func__", method) not in vars(RebalanceListener).values()


def _check_method(name: str, method: object, may_await: bool) -> None:
    if not callable(method):
        raise ListenerRefused(f"has {name}, which is not a method", "make it a method with one argument")
    if _is_coroutine_function(method) and not may_await:
        remedy = "make it `def`, because nothing awaits it; zkconsumer.aio awaits listeners"
        raise ListenerRefused(f"has {name}, a coroutine function", remedy)
    try:
        inspect.signature(method).bind(None)
    except TypeError as error:
        raise ListenerRefused(f"has {name}, which does not take one argument ({error})",
                              "give it one argument, as RebalanceListener does") from None  # fmt: skip
    except ValueError:  # a method in C without a signature
        pass


def _is_coroutine_function(method: object) -> bool:
    """Return whether a call returns a coroutine; also for an object whose `__call__` is `async def`."""
    flags = getattr(getattr(method, "__code__", None), "co_flags", 0)
    is_code = isinstance(flags, int)  # inspect of Python 3.11 takes each autospecced mock for a coroutine function
    called = type(method).__call__ if callable(method) else None
    return (is_code and inspect.iscoroutinefunction(method)) or inspect.iscoroutinefunction(called)


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(*partition)


class HeldListener:
    """A listener that lives as long as who made it holds this: threads must not keep an application's objects alive.

    A listener that knows its consumer would else keep one from ending that was dropped without a close.

    Attributes:
        listener: The listener.
    """

    __slots__ = ("__weakref__", "listener")

    def __init__(self, listener: object) -> None:
        self.listener = listener


class ListenerThread:
    """Calls a listener, which may be any object with some of the methods of `RebalanceListener`.

    Args:
        listener: The listener; None for none; or a HeldListener, which this does not keep alive.
        wake: Calls wait for `run_waiting` instead of running on a thread of their own; this is called for each.

    Attributes:
        failures: how many calls have failed so far.

    Threads: the methods are the coordinator's and return at once.
    """

    def __init__(self, listener: object | None, wake: Callable[[], None] | None = None) -> None:
        self._held = weakref.ref(listener) if isinstance(listener, HeldListener) else None
        self._own = None if self._held is not None else listener
        self._wake = wake
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._reported: set[Partition] = set()
        self._is_leaving = self._has_left = False
        self._after_leave: deque[Callable[[], None]] = deque()
        self.failures = 0
        self._interrupt: BaseException | None = None
        if listener is not None and wake is None:
            self._thread = threading.Thread(target=self._run, name="zkconsumer-listener", daemon=True)
            self._thread.start()

    @property
    def thread(self) -> threading.Thread | None:
        """The thread on which the callbacks run."""
        return self._thread

    @property
    def _listener(self) -> object | None:
        held = None if self._held is None else self._held()
        return self._own if held is None else held.listener

    @property
    def has_listener(self) -> bool:
        """Whether there is a listener."""
        return self._listener is not None

    def is_on(self, thread: threading.Thread) -> bool:
        """Whether the callbacks run on that thread."""
        return self._thread is thread

    def assigned(self, positions: Mapping[Partition, int], done: Callable[[Starts], None]) -> None:
        """Call `on_partitions_assigned`, then `done` with what it answered; after `leave` only `done`."""
        if self._is_leaving:
            done(Starts())
            return
        self._reported.update(positions)
        named = {_name(partition): at for partition, at in positions.items()}
        self._notify("on_partitions_assigned", named, lambda answer: done(read_starts(answer, positions.keys())))

    def revoked(self, partitions: Iterable[Partition], done: Callable[[], None]) -> None:
        """Call `on_partitions_revoked` with the partitions that were reported as assigned, then `done`.

        While the listener is being notified of the leave, `done` waits for its return: it commits there, before the
        release.
        """
        known = self._forget(partitions)
        if known:
            self._notify("on_partitions_revoked", known, lambda _: done())
            return
        self._after_leave.append(done)
        if self._has_left or not self._is_leaving:
            self._go_on()

    def leave(self, done: Callable[[], None]) -> None:
        """Call `on_partitions_revoked` with all that the listener has, then `done`; nothing is assigned any more."""
        self._is_leaving = True

        def returned(_: object) -> None:
            done()
            self._has_left = True
            self._go_on()

        known = self._forget(list(self._reported))
        if known:
            self._notify("on_partitions_revoked", known, returned)
        else:
            returned(None)

    def _go_on(self) -> None:
        """Make the calls that had to wait for the notification of the leave, each once."""
        while self._after_leave:
            try:
                call = self._after_leave.popleft()
            except IndexError:  # another thread was faster
                return
            call()

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Call `on_partitions_lost` with the partitions that were reported as assigned."""
        known = self._forget(partitions)
        if known:
            self._notify("on_partitions_lost", known)

    def all_lost(self) -> None:
        """Call `on_partitions_lost` with all that the listener has: nothing is left that could release it."""
        self.lost(list(self._reported))

    def _forget(self, partitions: Iterable[Partition]) -> list[TopicPartition]:
        known = self._reported.intersection(partitions)
        self._reported -= known
        return [_name(partition) for partition in sorted(known, key=str)]

    def blocked(self, partitions: list[Partition]) -> None:
        """Call `on_partitions_blocked`."""
        self._notify("on_partitions_blocked", [_name(partition) for partition in sorted(partitions, key=str)])

    def _notify(self, name: str, argument: Any, done: Callable[[object], None] = lambda answer: None) -> None:
        """Call a method; `done` gets what it returned, None without such a method and when it failed."""
        if getattr(self._listener, name, None) is None:
            done(None)
            return

        def call() -> None:
            answer = None
            try:
                method = getattr(self._listener, name, None)  # again: what waits here keeps no listener alive
                answer = None if method is None else method(argument)
            except BaseException as error:  # sys.exit() too: the releases wait for this thread
                self.failures += 1
                if self._wake is not None and not isinstance(error, Exception):
                    self._interrupt = error  # of the application's own thread
                else:
                    log.exception("%s of the rebalance listener failed; continuing", name)
            finally:
                done(answer)

        self._calls.put(call)
        if self._wake is not None:
            self._wake()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._run_call(call)
            del call

    def run_waiting(self) -> None:
        """Make the calls that wait, on this thread.

        Raises:
            KeyboardInterrupt, SystemExit: One of them has raised it; the rebalance has gone on.
        """
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            if call is None:
                return
            self._thread = threading.current_thread()
            try:
                self._run_call(call)
            finally:
                self._thread = None
            interrupt, self._interrupt = self._interrupt, None
            if interrupt is not None:
                raise interrupt

    def _run_call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            if self._wake is not None and not isinstance(error, Exception):
                self._interrupt = error
                return
            log.exception("the rebalance listener returned a value that cannot be used; continuing")

    def close(self, timeout_s: float) -> None:
        """Make no further call; back when the present one returns, or after `timeout_s`."""
        self._calls.put(None)
        thread = self._thread
        if timeout_s > 0.0 and thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
