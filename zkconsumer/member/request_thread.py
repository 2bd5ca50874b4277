"""A thread that makes requests over a connection of its own, one after the other, in the order in which they came.

Rule: a request whose answer nobody waits for any more does not hold up the next one (`restart`): a JoinGroup waits at
the coordinator for as long as the other members take.

Reads topics in the metadata of brokers, on a thread of its own, for a member of a group of brokers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from typing import Final

from rebalance.brokers.events import TopicsRead
from rebalance.errors import RebalanceError
from rebalance.subscription import INTERNAL_TOPICS
from simpleconsumer.calls.coordinator_client import CoordinatorClient
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicMetadata
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.errors import ZkConsumerError

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
        """End the request under way, with its connection, and drop the waiting ones: nobody needs an answer."""
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


_USABLE: Final = (0, 5)
"""Codes of topics that exist; with 5 some partitions have no leader at the moment."""
_KAFKAS_OWN: Final = INTERNAL_TOPICS | {"__transaction_state", "__share_group_state"}
"""Brokers before Kafka 0.10 do not say which topics are their own."""
Done = Callable[[TopicsRead | str], None]


class BrokerTopics:
    """Topics, as the brokers of a cluster know them; see `rebalance.brokers.events.TopicPort`.

    Args:
        reader: Asks the brokers.
        name: Of the thread.
        failed: Called with an error that ends the member for good: refused credentials.
        died: Called with an error that is a fault of this library, on the thread.

    Threads: Any.
    """

    def __init__(
        self,
        reader: MetadataReader,
        name: str,
        failed: Callable[[Exception], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._reader = reader
        self._name = name
        self._failed = failed
        self._died = died
        self._asked: queue.SimpleQueue[tuple[list[str] | None, Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def read(self, topics: Collection[str] | None, done: Done) -> None:
        """Read some topics, or all."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._asked.put((None if topics is None else sorted(topics), done))

    def close(self, timeout_s: float = 0.0) -> None:
        """End the request under way, and the thread, and wait for that."""
        self._asked.put(None)
        self._reader.close()
        thread = self._thread
        if timeout_s > 0 and thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while (asked := self._asked.get()) is not None:
                topics, done = asked
                done(self._read(topics))
                del topics, done, asked
        except BaseException as error:  # noqa: BLE001 - nobody else would answer what the coordinator waits for
            self._died(error)

    def _read(self, topics: list[str] | None) -> TopicsRead | str:
        try:
            if topics is None:
                found = self._reader.metadata(None)[0].topics
                existing = {name: each for name, each in found.items() if _exists(each)}
            else:
                existing = self._reader.existing_topics(topics)
        except AuthenticationFailed as error:
            self._failed(error)
            return str(error)
        except (RebalanceError, ZkConsumerError) as error:
            return str(error)
        partitions = {name: len(each.partitions) for name, each in existing.items() if each.partitions}
        internal = frozenset(name for name, each in existing.items() if each.is_internal or name in _KAFKAS_OWN)
        ids = {name: int(each.topic_id, 16) for name, each in existing.items() if each.topic_id is not None}
        return TopicsRead(partitions, internal, ids)


def _exists(topic: TopicMetadata) -> bool:
    return topic.error_code in _USABLE and bool(topic.partitions)
