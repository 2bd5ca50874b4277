"""The registry of an embedded cluster's brokers and topics: in ZooKeeper or, for tests without Java, in memory.

`Registry` is the interface; `MemoryRegistry` keeps everything in this process; `zookeeper.ZooKeeperRegistry` keeps
it where a Java broker of version 0.8.2 keeps it.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from zkconsumer.testing.embedded.leadership import PartitionState
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer.testing.errors import KitError

Assignment = Mapping[int, Sequence[int]]


def id_text(data: bytes) -> str:
    """Return an id of 16 bytes as Kafka writes it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TopicExists(Exception):  # noqa: N818
    """A topic of that name exists."""


class RegistryUnavailable(KitError):  # noqa: N818
    """The registry cannot be asked now."""


class TopicEntry(NamedTuple):
    """A topic as registered: partition -> replicas, its settings, and its id of 16 bytes where brokers have ids."""

    assignment: dict[int, tuple[int, ...]]
    config: dict[str, object]
    topic_id: bytes | None = None


class Registry(Protocol):
    """Names, addresses, assignments, leaders, offsets of one cluster.

    All methods that ask raise RegistryUnavailable when there is no answer.

    Threads: every method from any thread; `changed` is called on a thread of the registry and must only take note.
    """

    @property
    def reachable(self) -> bool:
        """True if it can be asked now."""

    def start(self, changed: Callable[[], None]) -> None:
        """Connect; `changed` is called whenever another look may show something new."""

    def register(self, broker: BrokerAddress) -> None:
        """Make a broker known; also again after its session was lost."""

    def needs_registration(self, broker_id: int) -> bool:
        """True if a registered broker lost its session since."""

    def unregister(self, broker_id: int, *, abruptly: bool) -> None:
        """Make a broker unknown; `abruptly` leaves its registration to the session time-out."""

    def live_brokers(self) -> dict[int, BrokerAddress]:
        """The registered brokers."""

    def controller_epoch(self, candidates: Sequence[int]) -> int:
        """Epoch of the controller, after one of the candidates was elected if there was none."""

    def topics(self) -> dict[str, TopicEntry]:
        """All topics."""

    def create_topic(self, topic: str, assignment: Assignment, config: Mapping[str, object]) -> None:
        """Register a topic; TopicExists if there is one."""

    def set_assignment(self, topic: str, assignment: Assignment) -> None:
        """Change the replicas, or the number of partitions, of a topic."""

    def set_config(self, topic: str, config: Mapping[str, object]) -> None:
        """Replace the settings of a topic."""

    def doomed_topics(self) -> list[str]:
        """Topics that are to be deleted."""

    def doom_topic(self, topic: str) -> None:
        """Ask for the deletion of a topic."""

    def forget_topic(self, topic: str) -> None:
        """Remove a topic and the wish to delete it."""

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """State of a partition as registered."""

    def set_state(self, topic: str, partition: int, state: PartitionState) -> None:
        """Register the state of a partition."""

    def cluster_id(self) -> str:
        """Id of the cluster, which is made at the first call."""

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Store the offset of a group, as its consumers do."""

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """The stored offset of a group."""

    def close(self) -> None:
        """Disconnect."""


class MemoryRegistry:
    """A registry that lives as long as its cluster object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: Callable[[], None] = lambda: None
        self._brokers: dict[int, BrokerAddress] = {}
        self._topics: dict[str, TopicEntry] = {}
        self._doomed: set[str] = set()
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._cluster_id = id_text(uuid.uuid4().bytes)
        self._controller = -1
        self._epoch = 0

    @property
    def reachable(self) -> bool:
        """Always."""
        return True

    def start(self, changed: Callable[[], None]) -> None:
        """Take the callback."""
        self._changed = changed

    def register(self, broker: BrokerAddress) -> None:
        """Make a broker known."""
        with self._lock:
            self._brokers[broker.broker_id] = broker
        self._changed()

    def needs_registration(self, broker_id: int) -> bool:
        """Never: there are no sessions."""
        return False

    def unregister(self, broker_id: int, *, abruptly: bool) -> None:
        """Make a broker unknown at once, in both cases."""
        with self._lock:
            self._brokers.pop(broker_id, None)
        self._changed()

    def live_brokers(self) -> dict[int, BrokerAddress]:
        """The registered brokers."""
        with self._lock:
            return dict(self._brokers)

    def controller_epoch(self, candidates: Sequence[int]) -> int:
        """Epoch, after an election if the controller is gone."""
        with self._lock:
            if self._controller not in self._brokers and candidates:
                self._controller = min(candidates)
                self._epoch += 1
            return max(self._epoch, 1)

    def topics(self) -> dict[str, TopicEntry]:
        """All topics."""
        with self._lock:
            return dict(self._topics)

    def create_topic(self, topic: str, assignment: Assignment, config: Mapping[str, object]) -> None:
        """Register a topic."""
        with self._lock:
            if topic in self._topics:
                raise TopicExists(topic)
            replicas = {p: tuple(r) for p, r in assignment.items()}
            self._topics[topic] = TopicEntry(replicas, dict(config), uuid.uuid4().bytes)
        self._changed()

    def set_assignment(self, topic: str, assignment: Assignment) -> None:
        """Change replicas or partitions."""
        with self._lock:
            replicas = {p: tuple(r) for p, r in assignment.items()}
            self._topics[topic] = self._topics[topic]._replace(assignment=replicas)
        self._changed()

    def set_config(self, topic: str, config: Mapping[str, object]) -> None:
        """Replace the settings of a topic."""
        with self._lock:
            self._topics[topic] = self._topics[topic]._replace(config=dict(config))
        self._changed()

    def doomed_topics(self) -> list[str]:
        """Topics that are to be deleted."""
        with self._lock:
            return sorted(self._doomed)

    def doom_topic(self, topic: str) -> None:
        """Ask for the deletion of a topic."""
        with self._lock:
            self._doomed.add(topic)
        self._changed()

    def forget_topic(self, topic: str) -> None:
        """Remove a topic."""
        with self._lock:
            self._doomed.discard(topic)
            self._topics.pop(topic, None)
            for key in [key for key in self._states if key[0] == topic]:
                del self._states[key]

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """State of a partition."""
        with self._lock:
            return self._states.get((topic, partition))

    def set_state(self, topic: str, partition: int, state: PartitionState) -> None:
        """Register the state of a partition."""
        with self._lock:
            self._states[topic, partition] = state

    def cluster_id(self) -> str:
        """Id of the cluster."""
        return self._cluster_id

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Store an offset."""
        with self._lock:
            self._offsets[group, topic, partition] = offset

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """The stored offset."""
        with self._lock:
            return self._offsets.get((group, topic, partition))

    def close(self) -> None:
        """Nothing is open."""
