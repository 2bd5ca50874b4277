"""Waits for a condition with a deadline: the only way the kit waits, so that nothing hangs or sleeps too long.

Also the common part of servers, clusters and members: a `with` block starts them, and closes them at its end.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self, TypeVar

from simpleconsumer.closing import Closing
from zkconsumer.testing.errors import WaitTimeout

T = TypeVar("T")


class Deadline:
    """A moment on the monotonic clock, `timeout_s` seconds after its construction."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self._end - time.monotonic())

    @property
    def expired(self) -> bool:
        """True once no time is left."""
        return time.monotonic() >= self._end

    def receive(self, connection: socket.socket, count: int) -> bytes:
        """So many bytes that a connection receives before the deadline.

        Raises:
            TimeoutError: they have not come in time.
            ConnectionResetError: the peer has closed the connection before.
        """
        data = b""
        while len(data) < count:
            connection.settimeout(max(self.remaining_s, 0.001))
            chunk = connection.recv(count - len(data))
            if not chunk:
                raise ConnectionResetError(f"closed after {len(data)} of {count} bytes")
            data += chunk
        return data


def wait_until(
    condition: Callable[[], T],
    timeout_s: float,
    what: str,
    *,
    interval_s: float = 0.02,
    state: Callable[[], object] | None = None,
) -> T:
    """The first true value that `condition` returns.

    Args:
        condition: asked again every `interval_s` seconds; its errors pass through.
        timeout_s: longest wait in seconds; the condition is asked at least once, and once more at the end.
        what: completes the sentence "waited N s for ..." of the error.
        state: asked on failure only; its result is put into the sentence.

    Raises:
        WaitTimeout: the condition stayed false.
    """
    deadline = Deadline(timeout_s)
    while True:
        last_try = deadline.expired
        result = condition()
        if result:
            return result
        if last_try:
            seen = f"; last seen: {state()}" if state is not None else ""
            raise WaitTimeout(f"waited {timeout_s:g} s for {what}{seen}")
        time.sleep(min(interval_s, max(deadline.remaining_s, 0.001)))


class WithBlock(Closing, ABC):
    """Something that runs from the start of a `with` block to its end; closed too if its start fails."""

    @abstractmethod
    def _enter(self) -> object:
        """Start it; what this returns is not used."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove what it has left in temporary folders; it may be closed again."""

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self.close()
            raise
        return self
