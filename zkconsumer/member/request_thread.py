"""A thread that makes requests over a connection of its own, one after the other, in the order in which they came.

Rule: a request whose answer nobody waits for any more does not hold up the next one (`restart`): a JoinGroup waits at
the coordinator for as long as the other members take.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from simpleconsumer.coordinator_client import CoordinatorClient

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
        self._requests: queue.SimpleQueue[tuple[Request, Callable[[], None]] | None] = queue.SimpleQueue()
        self._client: CoordinatorClient | None = None
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
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._requests.put((request, unknown))

    def restart(self) -> None:
        """End the connection, and with it the request under way; the next request makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def give_up_present(self) -> None:
        """End the request under way, and its connection, if there is one: its answer is of no use any more."""
        if self._is_busy:
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
                request, unknown = asked
                client = self._client
                if client is None:
                    client = self._client = self._connect()
                if self._is_closed:
                    self.restart()
                if client is None:
                    unknown()
                else:
                    self._is_busy = True
                    request(client)
                    self._is_busy = False
        except BaseException as error:  # noqa: BLE001 - nobody else would answer what the coordinator waits for
            self._died(error)
