"""Counts the requests that a process sends to ZooKeeper and to brokers, for benchmarks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.requests import Exists
from simpleconsumer.calls import broker_client
from simpleconsumer.dialect_types import Request

__all__ = ["RequestsSent"]

_API_NAMES: Final = {1: "fetch", 2: "offsets", 3: "metadata"}


class RequestsSent:
    """Requests that this process has sent since the counter was made or cleared. Make one for each process.

    Attributes:
        zookeeper: Their number by kind; a multi is one. Reads that are sent together count one by one.
        brokers: Their number by API.
        zookeeper_at: When the last one to ZooKeeper was sent that does more than see whether a node exists.
    """

    def __init__(self) -> None:
        self.zookeeper: Counter[str] = Counter()
        self.brokers: Counter[str] = Counter()
        self.zookeeper_at = time.monotonic()
        send, read, chosen = KazooPort.send, KazooPort.read, broker_client.chosen_request

        def counted_send(port: KazooPort, request: Any, done: Any) -> None:
            self._note(request)
            send(port, request, done)

        def counted_read(port: KazooPort, requests: Sequence[Any], done: Any) -> None:
            if port._reads_together:  # those of old servers are sent one by one
                for request in requests:
                    self._note(request)
            read(port, requests, done)

        def counted_request(*arguments: Any) -> Request[Any]:
            request: Request[Any] = chosen(*arguments)
            self.brokers[_API_NAMES.get(request.api_key, str(request.api_key))] += 1
            return request

        replace: Callable[[object, str, object], None] = setattr
        replace(KazooPort, "send", counted_send)
        replace(KazooPort, "read", counted_read)
        replace(broker_client, "chosen_request", counted_request)

    def clear(self) -> None:
        """Count from zero."""
        self.zookeeper, self.brokers = Counter(), Counter()

    def _note(self, request: object) -> None:
        self.zookeeper[type(request).__name__] += 1
        if not isinstance(request, Exists):
            self.zookeeper_at = time.monotonic()
