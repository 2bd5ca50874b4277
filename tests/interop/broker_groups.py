"""Members of groups that brokers coordinate, in this process; what they were told, and what the brokers have stored."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from consuming import BackgroundReader

from rebalance.brokers.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from simpleconsumer.calls.coordinator_client import GroupsClient
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.probe import probed_broker
from simpleconsumer.types import Broker, GenerationMember, JoiningMember, LeavingMember
from zkconsumer import ConsumerConfig, ConsumerConnector, Message, TopicPartition, Whitelist
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
SHORT_SESSIONS: Mapping[str, object] = {"group.min.session.timeout.ms": 500}
"""Of brokers: members may have sessions that tests can wait for."""
SESSION_S = 20.0
"""Of members: a test that waits for the end of a session by mistake waits too long."""
SETTINGS: Mapping[str, Any] = {
    "auto_offset_reset": "smallest",
    "auto_commit_interval_ms": 1000,
    "consumer_timeout_ms": 100,
    "session_timeout_ms": int(SESSION_S * 1000),
    "heartbeat_interval_ms": 300,
    "rebalance_timeout_ms": 20_000,
    "metadata_max_age_ms": 1000,
}


def addresses(cluster: Cluster) -> str:
    """Where clients find the cluster."""
    return ",".join(f"127.0.0.1:{cluster.port(each)}" for each in cluster.brokers)


def config(cluster: Cluster, group: str, **settings: Any) -> ConsumerConfig:
    """Settings of a member, with a time-out that makes reading bounded."""
    return ConsumerConfig(bootstrap_servers=addresses(cluster), group_id=group, **(dict(SETTINGS) | settings))


class Told:
    """A listener that writes down what it is told; `act` is called with each revocation before it counts as done."""

    def __init__(self, act: Callable[[list[TopicPartition]], None] | None = None) -> None:
        self.events: list[tuple[str, frozenset[tuple[str, int | str]]]] = []
        self.starts: dict[tuple[str, int | str], int] = {}
        self._act = act

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self.starts.update({(each.topic, each.partition): at for each, at in positions.items()})
        self._note("assigned", positions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        if self._act is not None:
            self._act(partitions)
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, kind: str, partitions: Iterable[TopicPartition]) -> None:
        self.events.append((kind, frozenset((each.topic, each.partition) for each in partitions)))

    def all(self, kind: str, since: int = 0) -> list[tuple[str, int | str]]:
        """The partitions of all events of a kind, from an event on, in order."""
        return sorted(each for found, names in self.events[since:] if found == kind for each in names)


class Running:
    """A member that has joined, whose streams are read on threads of their own.

    Attributes:
        told: What its listener was told.
        reader: What its streams have delivered.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: str | Whitelist | Mapping[str, int],
        *,
        streams: int = 1,
        told: Told | None = None,
        handle: Callable[[Message], object] | None = None,
        **settings: Any,
    ) -> None:
        self.told = told or Told()
        self.connector = ConsumerConnector(config(cluster, group, **settings), self.told)
        if isinstance(topics, Whitelist):
            self.streams = self.connector.create_message_streams_by_filter(topics, streams)
        else:
            wanted = {topics: streams} if isinstance(topics, str) else topics
            made = self.connector.create_message_streams(wanted)
            self.streams = [stream for all_of_topic in made.values() for stream in all_of_topic]
        self.reader = BackgroundReader(*self.streams, handle=handle)

    @property
    def owned(self) -> list[tuple[str, int | str]]:
        """The partitions in delivery, of which the listener has been told."""
        told: set[tuple[str, int | str]] = set()
        for kind, partitions in list(self.told.events):
            told = told | partitions if kind == "assigned" else told - partitions
        held = [(each.topic, each.partition) for each in self.connector.status().owned if each.state == "owned"]
        return sorted(each for each in held if each in told)

    def leave(self) -> dict[TopicPartition, str]:
        """Leave in order; what was not stored."""
        return self.connector.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connector.shutdown(0.0 if kind is not None else None)


def wait_shares(members: Sequence[Running], *shares: int, timeout_s: float = PATIENCE_S) -> None:
    """Return when the members deliver so many partitions each, in any order, and none of them two."""

    def shared() -> bool:
        owned = [each.owned for each in members]
        is_once = len({name for names in owned for name in names}) == sum(map(len, owned))
        return is_once and sorted(map(len, owned)) == sorted(shares)

    wait_until(shared, timeout_s, f"shares of {shares}", state=lambda: [each.connector.status() for each in members])


def wait_owned(member: Running, expected: Iterable[tuple[str, int]], timeout_s: float = PATIENCE_S) -> None:
    """Return when a member delivers exactly these."""
    wanted = sorted(expected)
    wait_until(
        lambda: member.owned == wanted, timeout_s, f"{wanted} to be delivered",
        state=lambda: member.connector.status(),
    )  # fmt: skip


def read_by(members: Iterable[Running]) -> Counter[tuple[str, int | str, int]]:
    """How often each message was delivered, by all members together."""
    return Counter(
        (each.topic, each.partition, each.offset) for member in members for each in list(member.reader.messages)
    )


def wait_read(members: Sequence[Running], count: int, timeout_s: float = PATIENCE_S) -> None:
    """Return when the members together have read so many different messages."""
    wait_until(
        lambda: len(read_by(members)) >= count, timeout_s, f"{count} messages",
        state=lambda: (len(read_by(members)), [each.connector.status() for each in members]),
    )  # fmt: skip


def repeated(members: Iterable[Running]) -> list[tuple[str, int | str, int]]:
    """The messages that were delivered more than once."""
    return sorted((each for each, count in read_by(members).items() if count > 1), key=str)


@functools.cache
def _broker_at(port: int) -> Broker:
    """The broker at a port, probed once.

    A broker of Kafka 0.9 that is asked for its versions may drop what others ask in the same moment (KAFKA-3547).
    """
    return probed_broker("127.0.0.1", port)


def client_of(cluster: KafkaCluster, timeout_s: float = 40.0) -> GroupsClient:
    """A connection to the first broker, which coordinates all groups of a cluster of one broker."""
    broker = _broker_at(cluster.port(0))
    return GroupsClient(broker.host, broker.port, timeout_s, "test", dialect=dialect_of(broker))


def stored(cluster: KafkaCluster, group: str, topic: str, partitions: Collection[int]) -> list[int]:
    """The stored offsets, -1 for none."""
    names = [TopicPartition(topic, each) for each in partitions]
    with client_of(cluster) as client:
        found = client.fetch_offsets(group, names)
    return [found[name][1].offset for name in names]


def wait_stored(cluster: KafkaCluster, group: str, topic: str, expected: Sequence[int]) -> None:
    """Return when the stored offsets of partition 0 and so on are these."""
    numbers = range(len(expected))
    wait_until(
        lambda: stored(cluster, group, topic, numbers) == list(expected), PATIENCE_S, f"stored offsets {expected}",
        state=lambda: stored(cluster, group, topic, numbers),
    )  # fmt: skip


class SlowMember:
    """A member whose requests the test makes: while it does not join again, the group waits for it."""

    def __init__(self, cluster: KafkaCluster, group: str, topic: str, assignor: str, version: int) -> None:
        self._group = group
        self._topic = topic
        self._assignor = assignor
        self._version = version
        self._client = client_of(cluster)
        self._beats = client_of(cluster, 2.0)
        self._id = ""
        self._generation = NO_GENERATION
        self.mine: tuple[tuple[str, int], ...] = ()
        self._stop = threading.Event()

    @property
    def _now(self) -> GenerationMember:
        return GenerationMember(self._group, self._generation, self._id)

    def join(self) -> None:
        """Join until it has an assignment; it never leads, as others are there before it."""
        metadata = encode_subscription(Subscription((self._topic,), None, self.mine, self._generation), self._version)
        while True:
            asked = JoiningMember(self._group, self._id)
            found = self._client.join_group(asked, [(self._assignor, metadata)], 20_000, 20_000)
            self._id = found.member_id or self._id
            if found.error_code:
                assert found.error_code == 79, found
                continue
            self._generation = found.generation
            code, data = self._client.sync_group(self._now, {})
            if code == 0:
                self.mine = decode_assignment(data).partitions
                return
            assert code == 27, code

    def is_asked_to_rejoin(self) -> bool:
        """Whether the group is being assigned anew; it is a heartbeat, too.

        A broker of Kafka 0.9 may lose it: somebody who joins asks for its versions; see `_broker_at`.
        """
        try:
            return self._beats.heartbeat(self._now) == 27
        except ConnectionFailed:
            return False

    def has_come_to_rest(self, other: Running, count: int) -> bool:
        """Whether it has so many partitions and the group rests; joins again where it is asked to."""
        if self.is_asked_to_rejoin():
            self.join()
            return False
        return other.connector.status().state == "stable" and len(self.mine) == count

    def leave(self) -> None:
        """Leave the group."""
        assert self._client.leave_group(self._group, LeavingMember(self._id)) == 0

    def close(self) -> None:
        """End its connections."""
        self._client.close()
        self._beats.close()
