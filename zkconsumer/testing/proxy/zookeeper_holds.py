"""Holds a chosen request of a ZooKeeper client back, so that a fault can happen at exactly that point.

    with TcpProxy(server.connect, count_zookeeper=True) as link:
        with Hold(link, "get_data", "/offsets/") as hold:   # between claim and offset read
            ...                                             # a member joins through the link
            hold.wait()
            server.end_session(session_id)
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from zkconsumer.testing.proxy.tcp_proxy import TcpProxy
from zkconsumer.testing.proxy.zookeeper_requests import ZooKeeperRequest
from zkconsumer.testing.waiting import wait_until


class Hold:
    """Stops a link towards the server when a request of a kind is read, before it is sent on.

    What the client sends from then on waits too, pings included; answers and events go on coming. What was read in one
    piece with the request is held with it.

    Threads: every method from any thread.
    """

    def __init__(self, link: TcpProxy, kind: str, path: str = "", *, number: int = 1) -> None:
        """Lie in wait at once.

        Args:
            link: with `count_zookeeper`.
            kind: as `TcpProxy.requests` names it, such as `create`; a part of a multi is as good.
            path: a part of the path of the request.
            number: the first, second ... such request; parts of one multi are one.
        """
        self.held: ZooKeeperRequest | None = None
        self._link = link
        self._kind = kind
        self._path = path
        self._left = number
        self._last_frame: int | None = None
        self._lock = threading.Lock()
        link.add_listener(self._see)

    def _see(self, request: ZooKeeperRequest) -> None:
        with self._lock:
            if self._left == 0 or request.kind != self._kind or self._path not in request.path:
                return
            if request.frame != self._last_frame:
                self._last_frame = request.frame
                self._left -= 1
            if self._left == 0:
                self.held = request
                self._link.stall("up")

    def wait(self, timeout_s: float = 30.0) -> ZooKeeperRequest:
        """The request that is held, once it has come.

        Raises:
            WaitTimeout: it did not in time.
        """
        what = f"request {self._kind} {self._path} on the link at {self._link.address}"
        wait_until(lambda: self.held is not None, timeout_s, what, state=lambda: self._link.seen_requests()[-5:])
        assert self.held is not None
        return self.held

    def release(self) -> None:
        """Let everything pass, now and later; a second call does nothing."""
        self._link.remove_listener(self._see)
        with self._lock:
            was_held, self._left = self.held is not None, 0
        if was_held:
            self._link.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
