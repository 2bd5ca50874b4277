"""Shared by the tests against real brokers: quick members, reading with a deadline, reads of ZooKeeper nodes.

A stream is read with `consumer.timeout.ms` set, so that a missing message fails a test and never hangs it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.kafka08.message_encode import Encodable
from simpleconsumer.types import Message
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, KafkaStream
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.history.events import partition_of
from zkconsumer.testing.waiting import Deadline, wait_until

COUNT = 50
"""Messages in each partition of the fixture `topic`."""
PATIENCE_S = 30.0


def config(cluster: Cluster, group: str, **settings: Any) -> ConsumerConfig:
    """Settings as in the tests of the Java consumer, with a time-out that makes reading bounded."""
    quick = {
        "auto_offset_reset": "smallest",
        "auto_commit_interval_ms": 1000,
        "consumer_timeout_ms": 100,
        "rebalance_quiet_ms": 20,
    }
    return ConsumerConfig(cluster.zookeeper_connect, group, **(quick | settings))


def member(
    cluster: Cluster, group: str, consumer_id: str | None = None, listener: object | None = None, **settings: Any
) -> ConsumerConnector:
    """A connector that has not joined yet."""
    return ConsumerConnector(config(cluster, group, consumer_id=consumer_id, **settings), listener)


def read(streams: KafkaStream | Sequence[KafkaStream], count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
    """The next `count` messages of one stream, or of several taken in turn."""
    sources = [streams] if isinstance(streams, KafkaStream) else list(streams)
    deadline = Deadline(timeout_s)
    found: list[Message] = []
    while len(found) < count:
        for stream in sources:
            try:
                found.append(next(stream))
            except ConsumerTimeout:
                pass
            if len(found) == count:
                break
        if deadline.expired and len(found) < count:
            raise AssertionError(f"{len(found)} of {count} messages in {timeout_s:g} s: {texts(found)[:20]}")
    return found


def read_available(stream: KafkaStream) -> list[Message]:
    """What comes until the stream is silent for `consumer.timeout.ms`."""
    found: list[Message] = []
    while True:
        try:
            found.append(next(stream))
        except ConsumerTimeout:
            return found


def texts(messages: Iterable[Message]) -> list[str]:
    """The values as text."""
    return [message.value.decode() for message in messages]


def multiset(messages: Iterable[Message]) -> Counter[str]:
    """The values as text, without order."""
    return Counter(texts(messages))


def produce(
    cluster: Cluster, topic: str, partition: int, values: Iterable[str | Encodable], codec: str = "none"
) -> list[Any]:
    """The values, appended to a partition on its leader; text is encoded."""
    leader = wait_until(lambda: _leader(cluster, topic, partition), PATIENCE_S, f"a leader of {topic}/{partition}")
    sent = list(values)
    payloads = [value.encode() if isinstance(value, str) else value for value in sent]
    with SimpleConsumer("127.0.0.1", cluster.port(leader[0])) as broker:
        broker.produce(topic, partition, payloads, codec=codec)
    return sent


def _leader(cluster: Cluster, topic: str, partition: int) -> tuple[int] | None:
    leader = cluster.leader(topic, partition)
    return None if leader is None or leader < 0 else (leader,)


def produce_each(
    cluster: Cluster, topic: str, partitions: int, each: int, codec: str = "none", tag: str = "test"
) -> Counter[str]:
    """`each` messages `<tag>-<partition>-<i>` in every partition."""
    sent: list[Any] = []
    for partition in range(partitions):
        sent += produce(cluster, topic, partition, [f"{tag}-{partition}-{i}" for i in range(each)], codec)
    return Counter(sent)


def owners(cluster: Cluster, group: str, topic: str) -> dict[int | str, str]:
    """Partition -> thread id, as the owner nodes have it."""
    path = f"/consumers/{group}/owners/{topic}"
    try:
        names = cluster.client.get_children(path)
        return {partition_of(name): cluster.client.get(f"{path}/{name}")[0].decode() for name in names}
    except NoNodeError:
        return {}


def wait_owners(cluster: Cluster, group: str, topic: str, expected: Mapping[int, str] | Mapping[str, str]) -> None:
    """Returns when the owner nodes are exactly these."""
    wait_until(
        lambda: owners(cluster, group, topic) == expected,
        PATIENCE_S,
        f"the owners of {topic} to be {expected}",
        state=lambda: owners(cluster, group, topic),
    )


def owner_node_transactions(cluster: Cluster, group: str, topic: str) -> dict[str, int]:
    """Partition -> transaction that created its owner node: equal means never released."""
    path = f"/consumers/{group}/owners/{topic}"
    return {name: cluster.client.exists(f"{path}/{name}").czxid for name in cluster.client.get_children(path)}


def offset_node(group: str, topic: str, partition: int) -> str:
    """Path of the offset of a partition."""
    return f"/consumers/{group}/offsets/{topic}/{partition}"


def stored(cluster: Cluster, group: str, topic: str, partition: int) -> bytes | None:
    """The content of the offset node; None without one."""
    try:
        return bytes(cluster.client.get(offset_node(group, topic, partition))[0])
    except NoNodeError:
        return None


def wait_stored(cluster: Cluster, group: str, topic: str, partition: int, expected: int) -> None:
    """Returns when the offset node has this value."""
    wait_until(
        lambda: stored(cluster, group, topic, partition) == str(expected).encode(),
        PATIENCE_S,
        f"offset {expected} of {topic}/{partition}",
        state=lambda: stored(cluster, group, topic, partition),
    )


def preset_offset(cluster: Cluster, group: str, topic: str, partition: int, data: bytes) -> None:
    """Writes an offset node as an operator."""
    path = offset_node(group, topic, partition)
    cluster.client.ensure_path(path)
    cluster.client.set(path, data)


def owned(connector: ConsumerConnector) -> list[tuple[str, int | str]]:
    """Topic and partition of everything the member holds, by its own account."""
    return [(each.topic, each.partition) for each in connector.status().owned]


def wait_owned(connector: ConsumerConnector, expected: Iterable[tuple[str, int]]) -> None:
    """Returns when the member holds exactly these."""
    wanted = sorted(expected)
    wait_until(
        lambda: sorted(owned(connector)) == wanted,
        PATIENCE_S,
        f"{wanted} to be owned",
        state=lambda: connector.status(),
    )


def position(connector: ConsumerConnector, topic: str, partition: int) -> int | None:
    """Next offset that is not done."""
    found = [each.position for each in connector.status().owned if (each.topic, each.partition) == (topic, partition)]
    return found[0] if found else None


class BackgroundReader:
    """Reads streams on one thread each until they end; what came is in `messages`, what was raised in `errors`.

    Args:
        handle: called with each message before the next one is asked for.
    """

    def __init__(self, *streams: KafkaStream, handle: Callable[[Message], object] | None = None) -> None:
        self.messages: list[Message] = []
        self.errors: list[Exception] = []
        self._handle = handle
        self._threads = [threading.Thread(target=self._run, args=(stream,), daemon=True) for stream in streams]
        for thread in self._threads:
            thread.start()

    def _run(self, stream: KafkaStream) -> None:
        while True:
            try:
                for message in stream:
                    self.messages.append(message)
                    if self._handle is not None:
                        self._handle(message)
                return
            except ConsumerTimeout:
                continue
            except Exception as error:  # noqa: BLE001 - top of the thread: the tests look at what came
                self.errors.append(error)
                if len(self.errors) > 100:
                    return

    @property
    def alive(self) -> int:
        """How many streams are still being read."""
        return sum(thread.is_alive() for thread in self._threads)

    def wait(self, count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
        """Everything read, once it is `count` messages or more."""
        wait_until(
            lambda: len(self.messages) >= count,
            timeout_s,
            f"{count} messages",
            state=lambda: (len(self.messages), self.errors[-1:]),
        )
        return list(self.messages)

    def join(self, timeout_s: float = PATIENCE_S) -> None:
        """Returns when every stream has ended."""
        wait_until(lambda: not self.alive, timeout_s, "the streams to end")


def offsets_of(messages: Iterable[Message], partition: int) -> list[int]:
    """The offsets of one partition in the order of delivery."""
    return [message.offset for message in messages if message.partition == partition]
