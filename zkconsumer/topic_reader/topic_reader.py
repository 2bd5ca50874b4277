"""`read_topic`: reads the messages of a topic without joining a group, as an iterator."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import Final, Literal, Self

from rebalance.subscription import check_topic
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists
from rebalance.zookeeper.znodes_07 import is_partition
from simpleconsumer.closing import Closing
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.cluster.cluster import Cluster, open_cluster
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import read_all
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.errors import ReadFailed
from zkconsumer.topic_reader.partition_reads import PartitionReads
from zkconsumer.topic_reader.read_bounds import BoundsSearch, TopicWatch, Wanted
from zkconsumer.topic_reader.start_at import StartAt, check_start

_BROKER_S: Final = 5.0
"""Longest wait for a broker that is asked about the ends of its logs."""
_CLOSE_S: Final = 2.0
_NOTHING: Final[Iterator[Message]] = iter(())
LONGEST_STALL_S: Final = 31_536_000.0
"""A year; waits of more than some 292 years raise `OverflowError`."""
_NO_CHUNK: Final = object()
"""Stands for a chunk that is not the open one."""


class TopicReader(Closing):
    """Iterator of the messages of a topic, as `read_topic` returns it.

    Messages come in the order of their offsets in each partition; partitions come as their brokers answer. Fetched
    messages wait in at most `queued.max.bytes`. The threads and connections end with the iteration, with `close()`, at
    the end of a `with` block, or when the iterator is dropped.

    Raises by `next()`:
        MessageError: One message is unreadable; iterating again continues after it (`on.message.error`).
        PartitionStopped: One partition cannot be read further: its leader is missing, its messages or its topic were
            deleted. Iterating again continues with the others.
        ConsumerTimeout: No message came within `consumer.timeout.ms`, if that is set; iterating again continues.
        StreamFailed: A thread of the reader has ended by a fault.

    Threads: One at a time; `close` from any.
    """

    def __init__(self, wanted: Wanted, config: ConsumerConfig, count: int | None, stall_timeout_s: float) -> None:
        with ExitStack() as stack:
            # The reader must not be referenced from below: it is closed when the application drops it.
            watch = TopicWatch(wanted.topic, lambda: None)
            answer_s = min(config.socket_timeout_ms / 1000, _BROKER_S)
            cluster, port = stack.enter_context(open_cluster(config, answer_s, watch.session_changed, pins_topics=True))
            stat = None if port is None else read_all(port, [Exists(znodes.topic_path(wanted.topic))])[0]
            cluster.refuse_other_generation()
            bounds = BoundsSearch(wanted, cluster, config, stall_timeout_s).find()
            reads = PartitionReads(
                config, cluster, bounds, stall_timeout_s, time.monotonic, _gone(wanted.topic, cluster, watch)
            )
            if port is not None and stat is not None:
                watch.start(port, stat.czxid)
            stack.callback(reads.join, _CLOSE_S)
            stack.callback(reads.stop)
            reads.start()
            opened = stack.pop_all()
        self._reads = reads
        self._left = count
        self._items = _NOTHING
        self._chunk: object = None
        self._last: Message | None = None
        self._finalizer = weakref.finalize(self, opened.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[bytes, bytes]:
        while True:
            try:
                message = self._last = next(self._items)
                return message
            except StopIteration:
                pass
            except (MessageError, BrokenFraming) as error:
                self._leave_items()
                self._reads.take_error(error, self._last)
            except BaseException:
                self._leave_items()
                raise
            items = None if self._left == 0 else self._reads.next_items(self._chunk, self._last)
            if items is None:
                self.close()
                raise StopIteration
            # In this order: an interrupt in between has the chunk opened again, and not left.
            self._items = items if self._left is None else self._counted(items)
            self._chunk = self._reads.chunk

    def _leave_items(self) -> None:
        """Have the rest of the open chunk opened again, after the last message or the last error."""
        self._chunk = _NO_CHUNK
        self._items = _NOTHING

    def next_messages(self, most: int = 1000) -> list[Message]:
        """Return the next message, and those after it that are already fetched and decoded; all of one partition.

        It waits and raises as `next()` does, and returns an empty list at the end of the iteration. It takes less time
        for each message than `next()`.

        Args:
            most: Most messages to return.
        """
        before = self._last
        try:
            batch = [next(self)]
        except StopIteration:
            return []
        left = self._left
        try:
            batch.extend(islice(self._items, most - 1))
        except (MessageError, BrokenFraming) as error:
            self._items = _Raising(error)
        except BaseException:
            self._leave_items()
            self._last, self._left = before, left
            raise
        self._last = batch[-1]
        return batch

    def _counted(self, items: Iterator[Message]) -> Iterator[Message]:
        for message in items:
            yield message
            assert self._left is not None
            self._left -= 1
            if not self._left:
                return

    @property
    def failed(self) -> int:
        """How many messages and partitions could not be read."""
        return self._reads.failed

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset after the last delivered message of each partition, or its start if there is none.

        `{name.partition: offset for name, offset in reader.positions().items()}` is a `start` for the next
        `read_topic`.
        """
        return self._reads.positions(self._last)

    def close(self) -> None:
        """End the iteration, the threads and the connections; a second call does nothing."""
        self._items = _NOTHING
        self._finalizer()


def _gone(topic: str, cluster: Cluster, watch: TopicWatch) -> Callable[[], str]:
    """Return what says why the topic is not there any more: its node in ZooKeeper, or its id in metadata."""
    reader = cluster.reader
    if isinstance(reader, MetadataReader):
        ids = reader.topic_ids
        return lambda: ids.why_gone(topic)
    return lambda: watch.reason


class _Raising:
    """An iterator that raises an error instead of the next message."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        raise self._error


def read_topic(
    zookeeper: str | None,
    topic: str,
    partitions: Iterable[int | str] | None = None,
    *,
    start: StartAt = "earliest",
    until: Literal["end"] | None = "end",
    count: int | None = None,
    properties: Mapping[str, object] | None = None,
    stall_timeout_s: float = 60.0,
    client_id: str = "zkconsumer-read",
) -> TopicReader:
    """Return an iterator of the messages of a topic; no group is joined, and no offset is stored.

    Args:
        zookeeper: `host:port,host:port/chroot`, as `zookeeper.connect`; None: `properties` name some brokers of the
            cluster as `bootstrap.servers`, and no ZooKeeper is needed.
        topic: Its name.
        partitions: Numbers of the partitions to read, in Kafka 0.7 names such as `0-3`; None for all that the topic has
            now.
        start: `earliest`, `latest`, an offset, a negative number (so many offsets before the end of each partition, in
            Kafka 0.7 bytes), a `datetime` with a time zone, or a mapping of partitions to offsets, which also chooses
            the partitions. A time is exact to the message with brokers of Kafka 0.10.1 and later and messages with
            timestamps. Otherwise it is exact to the segment of the log: reading starts earlier than asked for, and
            never later.
        until: `end`: end where the logs ended when this was called. None: wait for new messages, for ever.
        count: End after so many messages of all partitions together.
        properties: Settings of the consumer by their names in Kafka; those about groups and commits do not matter.
        stall_timeout_s: Longest time, in seconds, that a partition may not be readable (its leader is missing, its
            broker does not answer) before `PartitionStopped` is raised; also the longest wait for the leaders at the
            start.
        client_id: The name under which brokers log and count the requests.

    Raises:
        ReadFailed: The topic, a partition, or an offset that was named does not exist; or leaders do not answer.
        ConfigError: A property has a value that is not allowed, or the brokers are of another generation than
            `kafka.generation` says.
        ValueError: An argument has a value that is not allowed.
        BrokersSilent: None of the brokers of `bootstrap.servers` answers.
        ZooKeeperUnavailable: No server of the ensemble opened a session in time.
        ZooKeeperRefused: ZooKeeper refuses the credentials, or access to a node.
    """
    check_topic(topic)
    numbers = None if partitions is None else tuple(partitions)
    if numbers is not None and (not numbers or not all(map(is_partition, numbers))):
        raise ValueError(f"partitions is {list(numbers)}; it must name at least one partition, by numbers from 0")
    if until not in ("end", None):
        raise ValueError(f"until is {until!r}; it must be 'end' or None")
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ValueError(f"count is {count}; it must be a whole number of at least 1, or None for no limit")
    if not 0 < stall_timeout_s <= LONGEST_STALL_S:
        raise ValueError(f"stall_timeout_s is {stall_timeout_s}; it must be above 0 and at most {LONGEST_STALL_S:g}")
    config = config_without_group(zookeeper, properties, client_id)
    checked = check_start(start)
    if isinstance(checked, Mapping) and not checked:
        raise ReadFailed("start names no partition", "name at least one, or start at 'earliest'")
    return TopicReader(Wanted(topic, numbers, checked, until == "end"), config, count, stall_timeout_s)
