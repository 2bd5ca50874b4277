"""Which broker leads a partition: asked of the brokers themselves, and of ZooKeeper where their answer will not do.

Rules, and which failure each prevents:
- A metadata request names topics, always, and only topics that stand in ZooKeeper: an empty list means all of them,
  and brokers create a topic that they are asked about (KAFKA-1087, KAFKA-101).
- Addresses come from ZooKeeper: a broker that came back on another port has registered the new one, while its peers
  may still tell the old one (KAFKA-474).
- A leader that has just denied leading the partition is believed only if ZooKeeper names it, too (KAFKA-1367).
- Each broker has a few seconds to answer; those that lately did not are asked last (KAFKA-714).

Source: kafka.consumer.ConsumerFetcherManager.LeaderFinderThread, kafka.client.ClientUtils (0.8.2.2).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from rebalance.errors import RebalanceError
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Broker, ClusterMetadata, PartitionMetadata, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.flow import Wakeup

__all__ = ["BrokerDirectory", "LeaderFinder"]

log = logging.getLogger(__name__)

METADATA_TIMEOUT_S: Final = 3.0
"""Longest wait for one broker's metadata; there are others to ask."""
_USABLE_CODES: Final = (0, 9)  # 9: a replica is down, the leader serves all the same
_SHORTEST_BACKOFF_S: Final = 0.02
_LONGEST_BACKOFF_S: Final = 1.0


class BrokerDirectory:
    """Finds the leaders of partitions.

    Args:
        read_brokers: The brokers registered in ZooKeeper.
        topic_exists: Whether a topic stands in ZooKeeper.
        read_leader: Broker id in the state node of (topic, partition), None without a leader.
        rng: Chooses the order in which brokers are asked.

    The three readers have deadlines of their own and raise RebalanceError when ZooKeeper does not answer.

    Threads: One at a time (the leader finder).
    """

    def __init__(
        self,
        config: ConsumerConfig,
        read_brokers: Callable[[], list[Broker]],
        topic_exists: Callable[[str], bool],
        read_leader: Callable[[str, int], int | None],
        rng: random.Random | None = None,
    ) -> None:
        self._read_brokers = read_brokers
        self._topic_exists = topic_exists
        self._read_leader = read_leader
        self._rng = rng or random.Random()
        self._client_id = config.client_id
        self._timeout_s = min(config.socket_timeout_ms / 1000, METADATA_TIMEOUT_S)
        self._silent: set[Broker] = set()

    def leaders(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        """Return the leaders that could be found, in one round of questions.

        Args:
            wanted: Partition -> the broker id that lately denied leading it, or None.

        Raises:
            RebalanceError: ZooKeeper does not answer.
        """
        topics = [topic for topic in sorted({name for name, _ in wanted}) if self._topic_exists(topic)]
        if not topics:
            return {}
        brokers = {broker.id: broker for broker in self._read_brokers()}
        self._silent.intersection_update(brokers.values())
        told = _leaders_told(self._metadata(topics, brokers.values()))
        found: dict[TopicPartition, Broker] = {}
        for partition, denied_by in wanted.items():
            if partition.topic not in topics:
                continue
            leader = told.get(partition)
            if leader is None or leader == denied_by or leader not in brokers:
                leader = self._read_leader(partition.topic, int(partition.partition))
            if leader is not None and leader in brokers:
                found[partition] = brokers[leader]
        return found

    def _metadata(self, topics: list[str], brokers: Collection[Broker]) -> ClusterMetadata | None:
        """Return what the first broker that answers knows of the topics; None when none answers."""
        order = sorted(brokers, key=lambda broker: (broker in self._silent, self._rng.random()))
        for broker in order:
            try:
                with SimpleConsumer(broker.host, broker.port, self._timeout_s, self._client_id) as consumer:
                    metadata = consumer.topic_metadata(topics)
            except SimpleConsumerError as error:
                if broker not in self._silent:
                    log.warning("broker %d does not tell who leads: %s", broker.id, error)
                self._silent.add(broker)
            else:
                self._silent.discard(broker)
                return metadata
        return None


def _leaders_told(metadata: ClusterMetadata | None) -> dict[TopicPartition, int]:
    """Return the usable leaders of a metadata answer."""
    if metadata is None:
        return {}
    return {
        TopicPartition(topic.topic, row.partition): row.leader
        for topic in metadata.topics.values()
        for row in topic.partitions
        if row.leader is not None and _is_usable(row)
    }


def _is_usable(row: PartitionMetadata) -> bool:
    return row.error_code in _USABLE_CODES


class LeaderFinder:
    """The thread that looks for leaders; it sleeps while no partition lacks one.

    A partition that is new is looked for at once, one that was lost or not found after `refresh.leader.backoff.ms`,
    and, as long as nothing at all is found, after ever longer times up to a second.

    Args:
        found: Called with each partition and its leader, on the finder's thread.

    Threads: `look_for`, `forget` and `stop` from any thread.
    """

    def __init__(
        self,
        directory: BrokerDirectory,
        found: Callable[[TopicPartition, Broker], None],
        backoff_ms: int,
        clock: Callable[[], float],
        name: str,
    ) -> None:
        self._directory = directory
        self._found = found
        self._backoff_s = max(backoff_ms / 1000, _SHORTEST_BACKOFF_S)
        self._clock = clock
        self._rng = random.Random()
        # Reentrant: a signal handler may shut down on a thread that is inside.
        self._lock = threading.RLock()
        self._missing: dict[TopicPartition, tuple[float, int | None]] = {}
        self._fruitless = 0
        self._wakeup = Wakeup()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"leader-finder-{name}", daemon=True)

    def look_for(self, partition: TopicPartition, denied_by: int | None = None, *, is_new: bool = False) -> None:
        """Find the leader of a partition; `denied_by` is the broker id that is not it."""
        due = self._clock() + (0.0 if is_new else self._jittered(self._backoff_s))
        with self._lock:
            if self._is_stopped:
                return
            self._missing[partition] = (due, denied_by)
            if self._thread.ident is None:
                self._thread.start()
        self._wakeup.wake()

    def forget(self, partition: TopicPartition) -> None:
        """Stop looking for a partition's leader."""
        with self._lock:
            self._missing.pop(partition, None)

    def missing(self) -> list[TopicPartition]:
        """Return the partitions without a leader."""
        with self._lock:
            return list(self._missing)

    def stop(self) -> None:
        """End the thread after its present question."""
        with self._lock:
            self._is_stopped = True
        self._wakeup.wake()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._step()
            except Exception:
                log.exception("the leader finder failed; going on after a pause")
                self._wakeup.wait(_LONGEST_BACKOFF_S)

    def _step(self) -> None:
        """Look for what is due, or sleep until something is."""
        now = self._clock()
        with self._lock:
            due = {partition: denied_by for partition, (at, denied_by) in self._missing.items() if at <= now}
            next_at = min((at for at, _ in self._missing.values()), default=None)
        if not due:
            self._wakeup.wait(None if next_at is None else next_at - now)
            return
        try:
            found = self._directory.leaders(due)
        except RebalanceError as error:
            if self._is_stopped:  # the connection was closed under this question: no news
                return
            log.warning("leaders cannot be looked for: %s", error)
            found = {}
        self._fruitless = 0 if found else self._fruitless + 1
        self._note(due, found)
        for partition, broker in found.items():
            self._found(partition, broker)

    def _note(self, due: Mapping[TopicPartition, int | None], found: Mapping[TopicPartition, Broker]) -> None:
        backoff_s = min(self._backoff_s * 1.5 ** min(self._fruitless, 20), max(_LONGEST_BACKOFF_S, self._backoff_s))
        again_at = self._clock() + self._jittered(backoff_s)
        with self._lock:
            for partition, denied_by in due.items():
                if partition not in self._missing:
                    continue
                if partition in found:
                    del self._missing[partition]
                else:
                    self._missing[partition] = (again_at, denied_by)

    def _jittered(self, backoff_s: float) -> float:
        return backoff_s * self._rng.uniform(0.75, 1.25)
