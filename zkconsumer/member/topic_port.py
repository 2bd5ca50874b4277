"""Reads topics in the metadata of brokers, on a thread of its own, for a member of a group of brokers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from typing import Final

from rebalance.brokers.group_port import TopicsRead
from rebalance.errors import RebalanceError
from rebalance.subscription import INTERNAL_TOPICS
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicMetadata
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.errors import ZkConsumerError

__all__ = ["BrokerTopics"]

_USABLE: Final = (0, 5)
"""Codes of topics that exist; with 5 some partitions have no leader at the moment."""
_KAFKAS_OWN: Final = INTERNAL_TOPICS | {"__transaction_state", "__share_group_state"}
"""Brokers before Kafka 0.10 do not say which topics are their own."""

Done = Callable[[TopicsRead | str], None]


class BrokerTopics:
    """Topics, as the brokers of a cluster know them; see `rebalance.brokers.group_port.TopicPort`.

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
