"""Writer: sends batches to partitions of a test cluster with a `Producer`, and says where each message is stored.

All that the kit writes goes through it: `Cluster.produce`, `load`, and the loads at a steady rate. Brokers are reached
at their own ports, also where they advertise that of a proxy: a fault on the way of consumers does not hit the load.

Finds where messages are stored in a log of Kafka 0.7, whose brokers acknowledge nothing.

A set is stored as it was sent, as a whole and in one segment. So the log is read from its end before the request, until
the same messages start at an entry: that is where they are, and by then consumers see them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, Protocol

from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.closing import Closing
from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Broker, FetchRequest
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.outcome import BatchFuture
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.sending import FoundCluster
from zkconsumer.producer.sending.topic_lookup import FoundTopic
from zkconsumer.testing.errors import KitError, check_codec, version_tuple
from zkconsumer.testing.waiting import Deadline

_SIZE: Final = Struct(">i")
_OUT_OF_RANGE: Final = 1
_MORE_BYTES: Final = 2 * 1024 * 1024
"""Read beyond the length of a set: room for the largest entry of another producer before it."""
_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05


class PositionFinder07:
    """Finds sets in the log of one partition.

    Threads: one at a time.
    """

    def __init__(self, port: int, topic: str, partition: int | str, timeout_s: float) -> None:
        """Prepare; the connection is made when it is needed.

        Args:
            port: of the partition's broker.
            timeout_s: Longest time until a set is seen.
        """
        self._broker = SimpleConsumer("127.0.0.1", port, timeout_s=timeout_s, dialect=KAFKA07)
        self._topic = topic
        self._partition = partition
        self._timeout_s = timeout_s
        self._end: int | None = None

    def prepare(self) -> None:
        """Note where the log ends; call it before messages are sent."""
        if self._end is None:
            [self._end] = self._broker.get_offsets_before(self._topic, self._partition, LATEST)

    def places(self, data: bytes, is_compressed: bool, count: int) -> list[tuple[int, int]]:
        """Return position of its entry, and number in the entry, of each message of a set, once consumers see them.

        Args:
            data: The set as it was sent.
            is_compressed: It is one entry.
            count: How many messages it has.

        Raises:
            KitError: They are not seen in time: the broker has dropped them, because one is too large, or has died.
            simpleconsumer's errors: The broker did not answer; the messages may be stored or not.
        """
        start, self._end = self._end, None
        assert start is not None
        position, self._end = self._find(start, data, _values(data) if is_compressed else None)
        if is_compressed:
            return [(position, number) for number in range(count)]
        return [(position + each, 0) for each in _entry_starts(data)]

    def _find(self, start: int, data: bytes, values: list[bytes | None] | None) -> tuple[int, int]:
        """Return where a set is and where it ends, from a position on at which an entry starts; see `_look`."""
        deadline, pause_s, at = Deadline(self._timeout_s), _SHORTEST_PAUSE_S, start
        place = f"{self._topic}/{self._partition}"
        while True:
            found, next_position = self._look(at, data, values)
            if found is not None:
                return found, next_position
            if next_position > at:
                at = next_position
                continue
            if deadline.expired:
                raise KitError(
                    f"{len(data)} bytes for {place} are not seen {self._timeout_s:g} s after they were sent: a broker "
                    "of Kafka 0.7 drops a message above max.message.size without an answer, and one that dies loses "
                    "what it has not flushed"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _look(self, at: int, data: bytes, values: list[bytes | None] | None) -> tuple[int | None, int]:
        """Return where a set is in what can be read from `at` on, if it is, and its end, or where to look next.

        Args:
            data: Its bytes, as they are stored if it is not compressed.
            values: Of its messages, if it is compressed; the same messages do not always compress to the same bytes.
        """
        log = self._read(at, len(data) + _MORE_BYTES)
        inside = 0
        needed = len(data) if values is None else _SIZE.size
        while len(log) - inside >= needed:
            if values is None and log.startswith(data, inside):
                return at + inside, at + inside + len(data)
            (size,) = _SIZE.unpack_from(log, inside)
            end = inside + _SIZE.size + size
            if end > len(log):
                break
            if values is not None and _values(log[inside:end]) == values:
                return at + inside, at + end
            inside = end
        return None, at + inside

    def _read(self, at: int, max_bytes: int) -> bytes:
        request = FetchRequest(self._topic, self._partition, at, max_bytes)
        [answer] = self._broker.multifetch([request])
        place = f"{self._topic}/{self._partition}"
        if answer.error_code == _OUT_OF_RANGE:
            raise KitError(f"{place} has no position {at} any more: another log is there now")
        if answer.error_code:
            raise KitError(f"{place} cannot be read at {at}: error {answer.error_code}")
        return bytes(answer.message_set)

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()


def _values(entry: bytes) -> list[bytes | None] | None:
    """The values of the messages of one entry; None if it is damaged."""
    try:
        return [message.value for message in KAFKA07.decode_messages(entry, "", 0, 0)]
    except SimpleConsumerError:
        return None


def _entry_starts(data: bytes) -> list[int]:
    """Where each entry of a set starts."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += _SIZE.size + int(_SIZE.unpack_from(data, at)[0])
    return starts


_BACKOFF_S: Final = 0.1
_QUEUE_MESSAGES: Final = 100_000
_REQUEST_BYTES: Final = 256 * 1024
"""Less than the producer's default: a broker that works on a request while the next one is made is done sooner."""
_ANY_SIZE: Final = 2**31 - 1
"""Brokers refuse what is too large, so that a test sees their refusal."""
KeyValue = tuple[bytes | None, bytes | None]
Places = Mapping[str, Sequence[int | str]]
Leaders = Mapping[int | str, int | None]


class TargetBroker(Protocol):
    """The part of a broker that a writer needs."""

    @property
    def running(self) -> bool:
        """True between its start and its end."""


class Target(Protocol):
    """The part of a `Cluster` that a writer needs.

    Attributes:
        version: of Kafka.
    """

    version: str

    @property
    def is_written_as_08(self) -> bool:
        """Whether it is written to with the requests of Kafka 0.8."""

    @property
    def brokers(self) -> Mapping[int, TargetBroker]:
        """The brokers by id."""

    def create_topic(self, name: str, partitions: int | None = None) -> dict[int | str, int]:
        """Create a topic."""

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order; KitError if there is no such topic."""

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition; None without one."""

    def port(self, broker_id: int) -> int:
        """The port a broker listens on."""


class Sent(NamedTuple):
    """A batch that was sent.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        outcome: Its outcome.
        data: Its bytes, where its place has to be found by them; else nothing.
    """

    topic: str
    partition: int | str
    outcome: BatchFuture
    data: bytes


class Writer(Closing):
    """Writes batches to partitions.

    Threads: one at a time for each partition.
    """

    def __init__(
        self,
        cluster: Target,
        places: Places,
        *,
        codec: str = "none",
        timeout_s: float = 30.0,
        acks: int = 1,
        tries_again: bool = True,
        leaders: Callable[[Target, str, Sequence[int | str]], Leaders] | None = None,
        known: Mapping[str, Leaders] | None = None,
    ) -> None:
        """Prepare; connections are made when they are needed.

        Args:
            places: the partitions that are written to, by topic.
            codec: none, gzip, snappy, lz4.
            timeout_s: deadline of one request, and of the tries of a batch that was refused.
            acks: 1: the leader; -1: all replicas that are in sync.
            tries_again: a batch that a broker refused is sent again; one without an answer never is.
            leaders: returns the leaders of partitions of a topic; None: `registered_leaders`.
            known: what that would return at first, by topic.

        Raises:
            NotSupported: the brokers' version does not know the codec.
            ValueError: there is no such codec.
        """
        check_codec(cluster.version, codec)
        self._is_07 = version_tuple(cluster.version) < (0, 8)
        self._cluster = cluster
        self._codec = codec
        self._timeout_s = timeout_s
        self._finders: dict[tuple[str, int | str], PositionFinder07] = {}
        config = _config(codec, timeout_s, 1 if self._is_07 else acks, tries_again)
        self._lookup = _Lookup(cluster, places, leaders or registered_leaders, known or {})
        self._producer = Producer(config, cluster=FoundCluster(self._lookup, not self._is_07, _nothing))

    def renew(self, topic: str, leaders: Leaders) -> bool:
        """Whether the next batches for these partitions go to these leaders.

        In Kafka 0.7 never: the places of batches are looked for after the last one, and others may have sent the same.
        """
        return not self._is_07 and self._lookup.renew(topic, leaders)

    def send(self, topic: str, partition: int | str, messages: Sequence[KeyValue]) -> Sent:
        """Send a batch; `places` waits for it, batch after batch of a partition.

        Raises:
            MessageNotSent: no broker names a leader of the topic.
            simpleconsumer's errors: in Kafka 0.7, the broker does not say where its log ends.
        """
        data = b""
        if self._is_07:
            self._finder(topic, partition).prepare()
            data = bytes(KAFKA07.encode_messages(messages, self._codec, None, None))
        return Sent(topic, partition, self._producer.send_batch(topic, messages, partition), data)

    def places(self, sent: Sent) -> list[tuple[int, int]]:
        """Offset of each message of a batch, and number in its entry, once the partition's leader has stored it.

        The number is 0 but in compressed entries of Kafka 0.7, whose messages share a position.

        Raises:
            MessageNotSent: they were refused, or not answered: then they may be stored or not.
            KitError: in Kafka 0.7, consumers do not see them in time.
        """
        stored = sent.outcome.result()
        if not self._is_07:
            return [(each.offset, 0) for each in stored if each.offset is not None]
        finder = self._finder(sent.topic, sent.partition)
        return finder.places(sent.data, self._codec != "none", len(stored))

    def write(self, topic: str, partition: int | str, messages: Sequence[KeyValue]) -> list[tuple[int, int]]:
        """`send` and `places`, with what both raise."""
        try:
            return self.places(self.send(topic, partition, messages))
        except (MessageNotSent, KitError, SimpleConsumerError):
            finder = self._finders.pop((topic, partition), None)
            if finder is not None:
                finder.close()
            raise

    def _finder(self, topic: str, partition: int | str) -> PositionFinder07:
        place = topic, partition
        if place not in self._finders:
            port = self._cluster.port(broker_and_number(str(partition))[0])
            self._finders[place] = PositionFinder07(port, topic, partition, self._timeout_s)
        return self._finders[place]

    def close(self) -> None:
        """Close the connections; messages without an outcome fail."""
        self._producer.close(0.0)
        for finder in list(self._finders.values()):
            finder.close()


@lru_cache
def _config(codec: str, timeout_s: float, acks: int, tries_again: bool) -> ProducerConfig:
    """The settings of a producer; kept, as making them takes longer than one message."""
    request_ms = max(int(timeout_s * 500), 1)  # the answer may take as long again
    return ProducerConfig(
        metadata_broker_list="127.0.0.1:1", producer_type="async", client_id="zkconsumer-kit",
        request_required_acks=acks, request_timeout_ms=request_ms, connect_timeout_ms=2 * request_ms,
        message_send_max_retries=int(timeout_s / _BACKOFF_S) if tries_again else 0, message_max_bytes=_ANY_SIZE,
        retry_backoff_ms=int(_BACKOFF_S * 1000), retry_unanswered_batches=False,
        queue_buffering_max_messages=_QUEUE_MESSAGES, request_max_bytes=_REQUEST_BYTES,
        topic_metadata_refresh_interval_ms=-1,  # a writer that is kept asks ZooKeeper nothing while it is idle
        compression_codec=codec,  # type: ignore[arg-type]  # the writer has checked it
    )  # fmt: skip


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have the block raise the refusal of a broker, or the failure of its connection, as it is.

    Raises:
        simpleconsumer's errors: that was why messages were not sent.
        KitError: it was something else.
    """
    try:
        yield
    except MessageNotSent as error:
        if isinstance(error.__cause__, SimpleConsumerError):
            raise error.__cause__ from None
        raise KitError(str(error)) from None


def check_leaders(cluster: Target, topic: str, partitions: Sequence[int | str]) -> Leaders:
    """The leaders of these partitions, if all of them have one; a producer would wait for it.

    Raises:
        KitError: One has none.
    """
    found = registered_leaders(cluster, topic, partitions)
    for partition, leader in found.items():
        if leader is None:
            raise KitError(f"{topic}/{partition} has no leader")
    return found


# -- leaders -----------------------------------------------------------------------------------------------------------


def registered_leaders(cluster: Target, topic: str, partitions: Sequence[int | str]) -> Leaders:
    """Partition -> leader as it is registered, None without one."""
    return {partition: cluster.leader(topic, partition) for partition in partitions}


class _Lookup:
    """Finds the leaders of partitions for a producer."""

    def __init__(
        self,
        cluster: Target,
        places: Places,
        leaders: Callable[[Target, str, Sequence[int | str]], Leaders],
        known: Mapping[str, Leaders],
    ) -> None:
        self._known = dict(known)
        self._latest: dict[str, Mapping[int | str, Broker | None]] = {}
        self._cluster = cluster
        self._places = dict(places)
        self._leaders = leaders
        self._kind = _generation(cluster)

    def renew(self, topic: str, leaders: Leaders) -> bool:
        """Whether that is what was found at last; true for a topic that was never looked up."""
        if topic not in self._latest:
            self._places[topic], self._known[topic] = list(leaders), leaders
            return True
        latest = self._latest[topic]
        return all(latest.get(name) == self._broker(leader) for name, leader in leaders.items())

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """The state of each of the topics."""
        return {topic: self._found(topic) for topic in topics}

    def _found(self, topic: str) -> FoundTopic:
        try:
            leaders = self._known.pop(topic, None) or self._leaders(self._cluster, topic, self._places[topic])
        except Exception as error:  # noqa: BLE001 - of the cluster's own ZooKeeper client; the producer asks again
            return FoundTopic({}, f"its leaders are not known: {error!r}")
        self._latest[topic] = {name: self._broker(leader) for name, leader in leaders.items()}
        return FoundTopic(self._latest[topic])

    def _broker(self, broker_id: int | None) -> Broker | None:
        if broker_id is None:
            return None
        return Broker(broker_id, "127.0.0.1", self._cluster.port(broker_id), generation=self._kind)


def _nothing() -> None:
    pass


def _generation(cluster: Target) -> str:
    """The generation of requests that brokers are sent: the oldest that suit them."""
    if version_tuple(cluster.version) < (0, 8):
        return "kafka07"
    return "kafka08" if cluster.is_written_as_08 else "kafka011"
