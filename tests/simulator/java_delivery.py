"""The path from an owned partition to a message that the application works on, as in the Java consumer. Pure.

What matters to a group:

- A message counts as consumed as soon as the application gets it: that is what is committed.
- It is not checked that the partition is still owned. Fetchers go on, and streams deliver what is queued and the
  chunk that they are at, until a rebalance stops the ones and empties the others.
- Without a stored offset a partition starts where `auto.offset.reset` says, as it does when its offset is out of range.
- A partition without a leader is looked for every 0.2 s, by a thread that reads all broker nodes each time.

Left out: the fetchers of a broker do not hold up each other here when one stream's queue is full.

Source: kafka.consumer.ConsumerFetcherManager, ConsumerFetcherThread, ConsumerIterator, PartitionTopicInfo,
kafka.server.AbstractFetcherThread (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from tests.simulator.actor import Surroundings
from tests.simulator.brokers import OUT_OF_RANGE, Ends, Fetched, StoredMessage
from tests.simulator.java_threads import Body, BoundedQueue, JavaFailure, JavaThread, Monitor, Threads
from tests.simulator.pipe import Latency
from zkconsumer.testing.history import Place

__all__ = ["Chunk", "Delivered", "Fetchers", "PartitionInfo", "Stream"]

NO_OFFSET: Final = -1

_REFRESH_LEADER_BACKOFF_S: Final = 0.2
_FETCH_WAIT_S: Final = 1.0
_METADATA: Final = Latency(0.0005, 0.01)
_STOPPING: Final = Latency(0.0, 0.02)


class PartitionInfo:
    """PartitionTopicInfo: how far one owned partition is; both offsets are the next ones.

    A topic that a filter has matched since the last look at the topics has no queue yet.
    """

    __slots__ = ("consumed", "fetched", "partition", "queue", "thread_id", "topic")

    def __init__(self, topic: str, partition: int | str, offset: int, thread_id: str, queue: Queue | None) -> None:
        self.topic = topic
        self.partition = partition
        self.consumed = self.fetched = offset
        self.thread_id = thread_id
        self.queue = queue

    def reset(self, offset: int) -> None:
        """Go on from an offset."""
        self.consumed = self.fetched = offset


class Chunk(NamedTuple):
    """FetchedDataChunk: what one fetch brought for one partition.

    Attributes:
        behind: the offset that a message reports, in Kafka 0.7; else empty.
        failure: the exception that Kafka 0.7 throws instead of messages; empty for none.
    """

    info: PartitionInfo
    fetch_offset: int
    place: Place
    messages: list[StoredMessage]
    behind: list[int] = []  # noqa: RUF012 - never changed
    failure: str = ""


Queue: TypeAlias = BoundedQueue[Chunk | None]
"""Of chunks; None is the command to end."""


class Delivered(NamedTuple):
    """A message that the application works on."""

    place: Place
    message: StoredMessage


class Stream:
    """ConsumerIterator over one queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._chunk: Chunk | None = None
        self._at = 0

    def clear(self) -> None:
        """Drop what is left of the chunk that it is at."""
        self._chunk = None

    def next(self) -> Body[Delivered | None]:
        """The next message, which counts as consumed by that; None at the end."""
        chunk = self._chunk
        if chunk is None or self._at >= len(chunk.messages):
            chunk = yield from self.queue.take()
            if chunk is None:
                return None
            chunk.info.consumed = max(chunk.info.consumed, chunk.fetch_offset)
            self._chunk, self._at = chunk, 0
        message = chunk.messages[self._at]
        while message.offset < chunk.info.consumed and self._at + 1 < len(chunk.messages):
            self._at += 1
            message = chunk.messages[self._at]
        self._at += 1
        chunk.info.consumed = message.offset + 1
        return Delivered(chunk.place, message)


class Fetchers:
    """ConsumerFetcherManager: finds leaders and fetches.

    Args:
        surroundings: of the member; `reset` is written down there.
        reset: `auto.offset.reset`.
        read_brokers: reads all broker nodes in ZooKeeper.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        threads: Threads,
        reset: str,
        read_brokers: Callable[[], Body[list[str]]],
    ) -> None:
        self._brokers = surroundings.brokers
        self._record = surroundings.record
        self._rng = surroundings.rng
        self._threads = threads
        self._reset = reset
        self._read_brokers = read_brokers
        self._finder: JavaThread | None = None
        self._fetching: list[JavaThread] = []
        self._leaderless: dict[tuple[str, int | str], PartitionInfo] = {}
        self._leader_lost = Monitor()

    def start(self, infos: Iterable[PartitionInfo]) -> None:
        """Begin to fetch."""
        self._finder = self._threads.start("leader finder", self._find_leaders())
        self._leaderless = {(info.topic, info.partition): info for info in infos}
        self._leader_lost.notify_all()

    def stop(self) -> Body[None]:
        """End all fetching; what was fetched and not queued is dropped."""
        for thread in (self._finder, *self._fetching):
            if thread is not None:
                thread.stop()
        self._finder = None
        self._fetching.clear()
        self._leaderless.clear()
        yield self._threads.sleep(_STOPPING.draw(self._rng))

    def _find_leaders(self) -> Body[None]:
        while True:
            while not self._leaderless:
                yield self._leader_lost.wait
            try:
                yield from self._read_brokers()
                yield self._threads.sleep(_METADATA.draw(self._rng))
                yield from self._add_fetchers()
            except JavaFailure:
                pass  # logged; the next round tries again
            yield self._threads.sleep(_REFRESH_LEADER_BACKOFF_S)

    def _add_fetchers(self) -> Body[None]:
        found = [
            (key, info) for key, info in self._leaderless.items() if self._brokers.leader(info.topic, info.partition)
            is not None
        ]  # fmt: skip
        for key, _ in found:
            del self._leaderless[key]
        for number, (_, info) in enumerate(found):
            if info.fetched < 0 and not (yield from self._reset_offset(info)):
                self._leaderless.update(found[number:])
                raise JavaFailure("failed to add leader for partitions")
            self._fetching = [thread for thread in self._fetching if thread.is_alive]
            self._fetching.append(self._threads.start("fetcher", self._fetch(info)))

    def _reset_offset(self, info: PartitionInfo) -> Body[bool]:
        """Ask the leader for the start offset; False without an answer."""

        def ask(go_on: Callable[[Ends], None]) -> None:
            self._brokers.ask_ends(self._threads.process, info.topic, info.partition, go_on)

        ends: Ends = yield ask
        if ends.error:
            return False
        info.reset(ends.earliest if self._reset == "smallest" else ends.latest)
        self._record("reset", ends.place, info.fetched)
        return True

    def _fetch(self, info: PartitionInfo) -> Body[None]:
        """The loop of a fetcher thread, for one of its partitions."""

        def ask(go_on: Callable[[Fetched], None]) -> None:
            self._brokers.fetch(
                self._threads.process, info.topic, info.partition, info.fetched, go_on, wait_s=_FETCH_WAIT_S
            )

        while True:
            fetched: Fetched = yield ask
            if fetched.messages:
                if info.queue is None:
                    return  # NullPointerException, until the rebalance that follows
                yield from info.queue.put(Chunk(info, info.fetched, fetched.place, fetched.messages))
                info.fetched = fetched.messages[-1].offset + 1
            elif fetched.error and not (fetched.error == OUT_OF_RANGE and (yield from self._reset_offset(info))):
                self._leaderless[info.topic, info.partition] = info
                self._leader_lost.notify_all()
                return
