"""Which broker leads a partition: asked of the brokers themselves, and of ZooKeeper where their answer will not do.

Rules, and which failure each prevents:
- A metadata request names topics, always, and only topics that stand in ZooKeeper: an empty list means all of them,
  and brokers create a topic that they are asked about (KAFKA-1087, KAFKA-101).
- Addresses come from ZooKeeper: a broker that came back on another port has registered the new one, while its peers
  may still tell the old one (KAFKA-474).
- A leader that has just denied leading the partition is believed only if ZooKeeper names it, too (KAFKA-1367).
- Each broker has a few seconds to answer; those that lately did not are asked last (KAFKA-714).
- An answer names all partitions of its topics, and serves those that are looked for within a second: thousands of
  partitions that are started one by one cost a few answers, not one each.

Source: kafka.consumer.ConsumerFetcherManager.LeaderFinderThread, kafka.client.ClientUtils (0.8.2.2).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from rebalance.errors import RebalanceError
from rebalance.tally import Tally
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Broker, ClusterMetadata, PartitionMetadata, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.wakeup import Wakeup

__all__ = ["REMEMBERED_S", "BrokerDirectory", "LeaderFinder"]

log = logging.getLogger(__name__)

METADATA_TIMEOUT_S: Final = 3.0
"""Longest wait for one broker's metadata; there are others to ask."""
REMEMBERED_S: Final = 1.0
"""How long an answer serves partitions that are looked for after it, unless their leader was lost."""
_USABLE_CODES: Final = (0, 9)  # 9: a replica is down, the leader serves all the same
_SHORTEST_BACKOFF_S: Final = 0.02
_LONGEST_BACKOFF_S: Final = 1.0


class BrokerDirectory:
    """Finds the leaders of partitions.

    Args:
        read_brokers: The brokers registered in ZooKeeper.
        existing_topics: Those of some topics that stand in ZooKeeper.
        read_leaders: Broker ids in the state nodes of partitions, without those that have no leader.
        rng: Chooses the order in which brokers are asked.
        tally: Counts requests and errors.

    The three readers have deadlines of their own and raise RebalanceError when ZooKeeper does not answer.

    Attributes:
        told: Leaders of all partitions of the topics that were asked about last, as a broker named them.

    Threads: One at a time (the leader finder).
    """

    def __init__(
        self,
        config: ConsumerConfig,
        read_brokers: Callable[[], list[Broker]],
        existing_topics: Callable[[Sequence[str]], Collection[str]],
        read_leaders: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
        rng: random.Random | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._read_brokers = read_brokers
        self._existing_topics = existing_topics
        self._read_leaders = read_leaders
        self._rng = rng or random.Random()
        self._tally = tally or Tally()
        self._client_id = config.client_id
        self._timeout_s = min(config.socket_timeout_ms / 1000, METADATA_TIMEOUT_S)
        self._silent: set[Broker] = set()
        self.told: dict[TopicPartition, Broker] = {}

    def leaders(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        """Return the leaders that could be found, in one round of questions.

        Args:
            wanted: Partition -> the broker id that lately denied leading it, or None.

        Raises:
            RebalanceError: ZooKeeper does not answer.
        """
        self.told = {}
        topics = sorted(self._existing_topics(sorted({name for name, _ in wanted})))
        if not topics:
            return {}
        brokers = {broker.id: broker for broker in self._read_brokers()}
        self._silent.intersection_update(brokers.values())
        leaders = _leaders_told(self._metadata(topics, brokers.values()))
        self.told = {partition: brokers[leader] for partition, leader in leaders.items() if leader in brokers}
        found: dict[TopicPartition, Broker] = {}
        doubtful: list[TopicPartition] = []
        known = set(topics)
        for partition, denied_by in wanted.items():
            told = self.told.get(partition)
            if told is not None and told.id != denied_by:
                found[partition] = told
            elif partition.topic in known:
                doubtful.append(partition)
        for partition, leader in self._read_leaders(doubtful).items():
            if leader in brokers:
                found[partition] = brokers[leader]
        return found

    def _metadata(self, topics: list[str], brokers: Collection[Broker]) -> ClusterMetadata | None:
        """Return what the first broker that answers knows of the topics; None when none answers."""
        order = sorted(brokers, key=lambda broker: (broker in self._silent, self._rng.random()))
        for broker in order:
            self._tally.add("broker_requests", "metadata")
            try:
                with SimpleConsumer(broker.host, broker.port, self._timeout_s, self._client_id) as consumer:
                    metadata = consumer.topic_metadata(topics)
            except SimpleConsumerError as error:
                self._tally.add("errors", "broker_connection")
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


class _Search(NamedTuple):
    """A partition that lacks a leader: when to ask, who is not it, and whether a recent answer will do."""

    due: float
    denied_by: int | None
    is_new: bool = False


class LeaderFinder:
    """The thread that looks for leaders; it sleeps while no partition lacks one.

    A partition that is new is looked for at once, one that was lost or not found after `refresh.leader.backoff.ms`,
    and, as long as nothing at all is found, after ever longer times up to a second. For a new one an answer of the
    last second will do.

    Args:
        found: Called with each partition and its leader, on the finder's thread.
        died: Called with a name and the fault when the thread has ended by one, on that thread.

    Threads: `look_for`, `forget` and `stop` from any thread.
    """

    def __init__(
        self,
        directory: BrokerDirectory,
        found: Callable[[TopicPartition, Broker], None],
        backoff_ms: int,
        clock: Callable[[], float],
        name: str,
        died: Callable[[str, BaseException], None] = lambda name, error: None,
    ) -> None:
        self._died = died
        self._directory = directory
        self._found = found
        self._backoff_s = max(backoff_ms / 1000, _SHORTEST_BACKOFF_S)
        self._clock = clock
        self._rng = random.Random()
        # Reentrant: a signal handler may shut down on a thread that is inside.
        self._lock = threading.RLock()
        self._missing: dict[TopicPartition, _Search] = {}
        self._told: dict[TopicPartition, Broker] = {}
        self._told_at = float("-inf")
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
            self._missing[partition] = _Search(due, denied_by, is_new)
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
        try:
            while not self._is_stopped:
                try:
                    self._step()
                except Exception:
                    log.exception("the leader finder failed; going on after a pause")
                    self._wakeup.wait(_LONGEST_BACKOFF_S)
        except BaseException as error:  # noqa: BLE001 - whatever ends the thread, its partitions would wait for ever
            if not self._is_stopped:
                self._died("the leader finder", error)

    def _step(self) -> None:
        """Look for what is due, or sleep until something is."""
        now = self._clock()
        with self._lock:
            due = {partition: search for partition, search in self._missing.items() if search.due <= now}
            next_at = min((search.due for search in self._missing.values()), default=None)
        if not due:
            self._wakeup.wait(None if next_at is None else next_at - now)
            return
        found = self._remembered(due, now)
        asked = {partition: search.denied_by for partition, search in due.items() if partition not in found}
        if asked:
            answered = self._ask(asked, now)
            if self._is_stopped:
                return
            self._fruitless = 0 if answered else self._fruitless + 1
            found |= answered
        self._note(due, found)
        failure: Exception | None = None
        for partition, broker in found.items():
            try:
                self._found(partition, broker)
            except Exception as error:  # noqa: BLE001 - it is raised when the others were told
                failure = error
                self.look_for(partition)
        if failure is not None:
            raise failure

    def _remembered(self, due: Mapping[TopicPartition, _Search], now: float) -> dict[TopicPartition, Broker]:
        """Return the leaders of new partitions that an answer of the last second named."""
        if now - self._told_at > REMEMBERED_S:
            self._told = {}
        return {name: self._told[name] for name, search in due.items() if search.is_new and name in self._told}

    def _ask(self, wanted: Mapping[TopicPartition, int | None], now: float) -> dict[TopicPartition, Broker]:
        """Return what a round of questions finds."""
        try:
            found = self._directory.leaders(wanted)
        except RebalanceError as error:
            if not self._is_stopped:  # else the connection was closed under this question: no news
                log.warning("leaders cannot be looked for: %s", error)
            return {}
        if not self._told:
            self._told_at = now
        self._told |= {**self._directory.told, **found}
        return found

    def _note(self, due: Mapping[TopicPartition, _Search], found: Mapping[TopicPartition, Broker]) -> None:
        backoff_s = min(self._backoff_s * 1.5 ** min(self._fruitless, 20), max(_LONGEST_BACKOFF_S, self._backoff_s))
        again_at = self._clock() + self._jittered(backoff_s)
        with self._lock:
            for partition, search in due.items():
                if partition not in self._missing:
                    continue
                if partition in found:
                    del self._missing[partition]
                else:
                    self._missing[partition] = _Search(again_at, search.denied_by)

    def _jittered(self, backoff_s: float) -> float:
        return backoff_s * self._rng.uniform(0.75, 1.25)
