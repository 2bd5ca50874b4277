"""A thread that makes requests over a connection of its own, one after the other, in the order in which they came.

Rule: a request whose answer nobody waits for any more does not hold up the next one (`restart`): a JoinGroup waits at
the coordinator for as long as the other members take.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from simpleconsumer.calls.coordinator_client import CoordinatorClient

__all__ = ["RequestThread"]

Request = Callable[[CoordinatorClient], None]


class RequestThread:
    """Requests of one member to its coordinator.

    Args:
        name: Of the thread.
        connect: Makes a connection to the coordinator; None while it is not known, which `unknown` is told.
        died: Called with an error that is a fault of this library, on the thread.

    Threads: Any.
    """

    def __init__(
        self, name: str, connect: Callable[[], CoordinatorClient | None], died: Callable[[BaseException], None]
    ) -> None:
        self._connect = connect
        self._died = died
        self._requests: queue.SimpleQueue[tuple[int, Request, Callable[[], None]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of what follows
        self._client: CoordinatorClient | None = None
        self._asked = 0
        self._given_up = 0
        self._restarts = 0
        self._is_closed = False
        self._is_busy = False
        self._name = name
        self._thread: threading.Thread | None = None

    def ask(self, request: Request, unknown: Callable[[], None]) -> None:
        """Make a request as soon as those before it are answered.

        Args:
            request: Called with the connection, on the thread; it handles what is raised.
            unknown: Called instead if no coordinator is known.
        """
        with self._lock:
            self._asked += 1
            number = self._asked
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._requests.put((number, request, unknown))

    def restart(self) -> None:
        """End the connection, and with it the request under way; the next request makes a new one."""
        with self._lock:
            self._restarts += 1
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def give_up_present(self) -> None:
        """End the request under way, with its connection, and make none of those that wait: nobody needs an answer."""
        with self._lock:
            self._given_up = self._asked
            is_busy = self._is_busy
        if is_busy:
            self.restart()

    def close(self, timeout_s: float) -> None:
        """End the connection and the thread, and wait for that."""
        self._is_closed = True
        self.restart()
        self._requests.put(None)
        if timeout_s > 0 and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while (asked := self._requests.get()) is not None:
                number, request, unknown = asked
                with self._lock:
                    if number <= self._given_up:
                        continue
                    self._is_busy = True
                client = self._connection()
                if client is None:
                    unknown()
                else:
                    request(client)
                with self._lock:
                    self._is_busy = False
        except BaseException as error:  # noqa: BLE001 - nobody else would answer what the coordinator waits for
            self._died(error)

    def _connection(self) -> CoordinatorClient | None:
        """Return the connection, a new one if there is none; it is closed if it was to end while it was made."""
        with self._lock:
            if self._client is not None:
                return self._client
            restarts = self._restarts
        made = self._connect()
        with self._lock:
            is_of_use = restarts == self._restarts and not self._is_closed
            if is_of_use:
                self._client = made
        if made is not None and not is_of_use:
            made.close()
        return made
