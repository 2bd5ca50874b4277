"""The path from an owned partition to a message in the Java consumer of Kafka 0.7.2. Pure.

What matters to a group:

- A message counts as consumed as soon as the application gets it, at the offset that it reports: for messages of a
  compressed entry where the entry starts, for the last one where it ends.
- One thread fetches from each broker, all partitions in one request. An answer without messages is followed by a pause
  of a second. A broken connection, or bytes that are no message, ends the thread until the next rebalance.
- Bytes that are no message, as those from a position within an entry, are an exception of the stream as well, which
  throws at each call from then on.
- An offset out of range is reset, and written into ZooKeeper at once.

Source: kafka.consumer.Fetcher, FetcherRunnable, ConsumerIterator, PartitionTopicInfo,
kafka.message.ByteBufferMessageSet, kafka.utils.IteratorTemplate (0.7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import BrokenFraming, MessageError
from tests.simulator.actor import Surroundings
from tests.simulator.brokers import OUT_OF_RANGE, Ends, Fetched, StoredMessage
from tests.simulator.brokers_07 import Brokers07
from tests.simulator.java_delivery import Chunk, Delivered, Fetchers, PartitionInfo, Stream
from tests.simulator.java_threads import Body, JavaFailure, Threads

__all__ = ["Fetchers07", "Stream07"]

_BACKOFF_S: Final = 1.0
_FETCH_SIZE: Final = 1000
_SIZE_BYTES: Final = 4


class Stream07(Stream):
    """ConsumerIterator over one queue."""

    _failure = ""

    def next(self) -> Body[Delivered | None]:
        """The next message, which counts as consumed by that; None at the end.

        Raises:
            JavaFailure: what was fetched is no message, now or earlier.
        """
        if self._failure:
            raise JavaFailure("IllegalStateException: Iterator is in failed state")
        chunk = self._chunk
        if chunk is None or self._at >= len(chunk.messages):
            chunk = yield from self.queue.take()
            if chunk is None:
                return None
            chunk.info.consumed = chunk.fetch_offset
            if chunk.failure:
                self._failure = chunk.failure
                raise JavaFailure(chunk.failure)
            self._chunk, self._at = chunk, 0
        message = chunk.messages[self._at]
        chunk.info.consumed = chunk.behind[self._at]
        self._at += 1
        return Delivered(chunk.place, message)


class Fetchers07(Fetchers):
    """Fetcher: a thread for each broker.

    Args:
        surroundings: of the member; `reset` is written down there.
        reset: `autooffset.reset`.
        store: writes an offset into ZooKeeper.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        threads: Threads,
        reset: str,
        store: Callable[[str, int | str, int], Body[None]],
    ) -> None:
        super().__init__(surroundings, threads, reset, _no_brokers)
        self._store = store

    def start_on(self, infos: Iterable[PartitionInfo], brokers: Iterable[int]) -> None:
        """Begin to fetch; JavaFailure if the broker of a partition was not there when the cluster was read."""
        by_broker: dict[int, list[PartitionInfo]] = {}
        for info in infos:
            by_broker.setdefault(broker_and_number(info.partition)[0], []).append(info)
        for number in by_broker:
            if number not in brokers:
                raise JavaFailure(f"IllegalStateException: broker {number} is unavailable")
        for number, group in by_broker.items():
            self._fetching.append(self._threads.start(f"fetcher {number}", self._fetch_all(group)))

    def _fetch_all(self, infos: list[PartitionInfo]) -> Body[None]:
        """The loop of one thread."""
        brokers = self._brokers
        assert isinstance(brokers, Brokers07)

        def ask(go_on: Callable[[list[Fetched]], None]) -> None:
            wanted = [(info.topic, info.partition, info.fetched) for info in infos]
            brokers.multifetch(self._threads.process, wanted, _FETCH_SIZE, go_on)

        while True:
            answers: list[Fetched] = yield ask
            read = 0
            for info, answer in zip(infos, answers, strict=True):
                if answer.error == OUT_OF_RANGE:
                    if not (yield from self._reset_at_once(info)):
                        return
                elif answer.error:
                    return  # the connection is broken
                else:
                    taken = yield from self._enqueue(info, answer)
                    if taken is None:
                        return
                    read += taken
            if not read:
                yield self._threads.sleep(_BACKOFF_S)

    def _reset_at_once(self, info: PartitionInfo) -> Body[bool]:
        def ask(go_on: Callable[[Ends], None]) -> None:
            self._brokers.ask_ends(self._threads.process, info.topic, info.partition, go_on)

        ends: Ends = yield ask
        if ends.error:
            return False
        offset = ends.earliest if self._reset == "smallest" else ends.latest
        yield from self._store(info.topic, info.partition, offset)
        info.reset(offset)
        self._record("reset", ends.place, offset)
        return True

    def _enqueue(self, info: PartitionInfo, answer: Fetched) -> Body[int | None]:
        """Queue what is whole; returns how many bytes that takes, None where the thread ends by what came."""
        start = info.fetched
        if len(answer.data) < _SIZE_BYTES:
            return 0
        messages: list[StoredMessage] = []
        behind: list[int] = []
        try:
            for each in KAFKA07.decode_messages(answer.data, info.topic, info.partition, start, data_offset=start):
                assert each.value is not None
                messages.append(StoredMessage(each.offset + each.index, bytes(each.value).decode(), b""))
                behind.append(each.next_offset)
        except (BrokenFraming, MessageError):
            messages.clear()
        if info.queue is None:
            return None  # NullPointerException, until the rebalance that follows
        if not messages:
            # Another size, or another sum, than that of a message.
            yield from info.queue.put(Chunk(info, start, answer.place, [], failure="InvalidMessageSizeException"))
            return None
        yield from info.queue.put(Chunk(info, start, answer.place, messages, behind))
        info.fetched = behind[-1]
        return behind[-1] - start


def _no_brokers() -> Body[list[str]]:
    """Nobody looks for leaders."""
    yield from ()
    return []
