"""Keeps connections to brokers between tasks: one worker process of Spark reads many ranges from the same brokers.

Rule: a connection is kept only while it is idle, and only after an answer that was read completely.

Threads: any.

Finds the leader of a partition for tasks that lost their broker: in ZooKeeper, and from the brokers.

ZooKeeper is read first, because a broker that is asked about a deleted topic would create it again; where brokers alone
are known, they are asked so that they create none.

Threads: one at a time.

Fetches one step ahead: while a task decodes an answer, a thread of its own sends the next request.

At most one item waits. The next one is requested when it is taken.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from typing import Final, Generic, TypeVar

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import coordinates_groups, dialect_of
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import HELD_S, Throttle
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config import READ_COMMITTED, ConsumerConfig
from zkconsumer.errors import ZkConsumerError
from zkconsumer.spark.settings_files import open_source, security_here

MOST_KEPT: Final = 32
"""Most idle connections of one process; the one that was idle longest is closed first."""
_Key = tuple[str, int, str, int, int, Security, bool]
_lock = threading.Lock()
_idle: OrderedDict[tuple[_Key, int], SimpleConsumer] = OrderedDict()
_numbers = itertools.count()


def _nobody(throttle: Throttle) -> None:
    """Report a throttle to nobody; the log has it."""


def take(broker: Broker, config: ConsumerConfig, on_throttle: Callable[[Throttle], None] = _nobody) -> SimpleConsumer:
    """Return a connection that belongs to the caller until `give_back`, or until the caller closes it.

    Args:
        on_throttle: Called when the broker throttles this client, on the thread of the call.
    """
    key = _key(broker.host, broker.port, config)
    with _lock:
        for found in reversed(_idle):
            if found[0] == key:
                kept = _idle.pop(found)
                kept.report_throttles(on_throttle)
                return kept
    return SimpleConsumer(
        broker.host, broker.port, config.socket_timeout_ms / 1000, config.client_id, config.socket_receive_buffer_bytes,
        dialect=dialect_of(broker), security=security_here(config),
        read_committed=config.isolation_level == READ_COMMITTED,
        held_s=HELD_S if coordinates_groups(broker) else 0.0, on_throttle=on_throttle,
    )  # fmt: skip


def give_back(consumer: SimpleConsumer, config: ConsumerConfig) -> None:
    """Keep a connection on which no request is pending."""
    consumer.report_throttles(_nobody)
    key = _key(consumer.host, consumer.port, config)
    surplus = None
    with _lock:
        _idle[key, next(_numbers)] = consumer
        if len(_idle) > MOST_KEPT:
            surplus = _idle.popitem(last=False)[1]
    if surplus is not None:
        surplus.close()


def close_all() -> None:
    """Close all idle connections."""
    with _lock:
        idle = list(_idle.values())
        _idle.clear()
    for consumer in idle:
        consumer.close()


def _key(host: str, port: int, config: ConsumerConfig) -> _Key:
    waits = config.socket_timeout_ms, config.socket_receive_buffer_bytes
    is_committed = config.isolation_level == READ_COMMITTED
    return host.strip("[]"), port, config.client_id, *waits, config.security, is_committed


class FoundLeader:
    """The result of a search.

    Attributes:
        broker: The leader, None if it was not found.
        is_gone: There is no such topic any more.
        reason: Why it was not found, a clause.
        epoch: In which it leads; -1: not known.
    """

    __slots__ = ("broker", "epoch", "is_gone", "reason")

    def __init__(
        self, broker: Broker | None = None, *, is_gone: bool = False, reason: str = "", epoch: int = -1
    ) -> None:
        self.broker = broker
        self.epoch = epoch
        self.is_gone = is_gone
        self.reason = reason


LeaderSearch = Callable[[TopicPartition, int | None], FoundLeader]
"""Called with a partition and the id of the broker that replied that it does not lead it."""


def search_leader(config: ConsumerConfig) -> LeaderSearch:
    """Return a search that connects each time: it is needed rarely, and tasks should keep no sessions."""

    def search(name: TopicPartition, denied_by: int | None) -> FoundLeader:
        try:
            with open_source(config) as source:
                timeout_s, security = config.socket_timeout_ms / 1000, security_here(config)
                cluster = Cluster(source, config.client_id, timeout_s, security=security)
                if not cluster.reader.topic_exists(name.topic):
                    return FoundLeader(is_gone=True, reason=f"topic {name.topic!r} no longer exists")
                broker = cluster.leaders({name: denied_by}).get(name)
                epoch = cluster.directory.epochs.get(name, -1)
                return FoundLeader(broker, reason="" if broker else cluster.why_unled([name])[name], epoch=epoch)
        except ZkConsumerError as error:
            return FoundLeader(reason=f"its leader cannot be looked up: {error}")

    return search


T = TypeVar("T")
_JOIN_S: Final = 5.0


class Prefetcher(Generic[T]):
    """An iterator whose items are produced one step ahead. An error in producing one is raised in its place.

    Args:
        items: Runs in the thread.
        interrupt: Ends a wait inside `items`; called by `close`.

    Threads: one iterates and closes.
    """

    def __init__(self, items: Generator[T, None, None], interrupt: Callable[[], None], name: str) -> None:
        self._items = items
        self._interrupt = interrupt
        self._ready: queue.SimpleQueue[tuple[bool, T | BaseException | None]] = queue.SimpleQueue()
        self._permits = threading.Semaphore(1)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __iter__(self) -> Iterator[T]:
        self._thread.start()
        while True:
            is_item, value = self._ready.get()
            if not is_item:
                if value is not None:
                    raise value  # type: ignore[misc]
                return
            self._permits.release()
            yield value  # type: ignore[misc]

    def close(self) -> None:
        """End the thread; return when it has ended, or after a few seconds."""
        self._is_closed = True
        self._interrupt()
        self._permits.release()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while True:
                self._permits.acquire()
                if self._is_closed:
                    break
                try:
                    item = next(self._items)
                except StopIteration:
                    break
                self._ready.put((True, item))
                del item  # it may be large, and the next one takes a while
            self._ready.put((False, None))
        except BaseException as error:  # noqa: BLE001 - raised again where the items are taken
            self._ready.put((False, error))
        finally:
            self._items.close()
