"""Offsets of a group whose members may keep them in Kafka, in ZooKeeper or in both: reads both, writes one or both.

Rules, and which failure each prevents:
- Where the two stores differ, both offsets are logged and `offsets.intent` decides: a group whose other members keep
  their offsets elsewhere would skip or repeat messages in silence.
- With `refuse` a partition whose offsets differ is not started; its offsets are read again until they agree.
- Stored offsets are compared, not what this member has done since: an operator who makes the stores equal cannot change
  that, and the partition would never be started.
- With dual commit Kafka is written first, and ZooKeeper only what Kafka has stored: the newer offset is never the one
  that Java members of the next step of a migration do not read.

Source: kafka.consumer.ZookeeperConsumerConnector.fetchOffsets and commitOffsets (0.8.2.2); docs/SEMANTICS.md.

Reads the offsets in Kafka of a group that keeps its offsets in ZooKeeper, to compare the two.

Rule: a broker that does not answer must not delay each rebalance of a group that does not need its answer.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from rebalance import ports
from rebalance.loop import Loop, Timer
from rebalance.ports import Fence
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Partition
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.kafka_offsets import KafkaOffsets, Loaded
from zkconsumer.offsets.member_offsets import Done, OnCommit, telling
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer, OffsetManager

log = logging.getLogger(__name__)
_READ_AGAIN_S: Final = 5.0


class Intent(enum.Enum):
    """Which offset is taken where Kafka and ZooKeeper differ (`offsets.intent`)."""

    MAX = "max"
    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    REFUSE = "refuse"


class OffsetStore(ports.Offsets, Protocol):
    """The interface of a store of offsets for a member; it has more than the coordination needs."""

    @property
    def failures(self) -> int: ...

    @property
    def refused(self) -> Mapping[Partition, str]: ...

    def committed(self) -> dict[Partition, int]: ...

    def stored(self, partition: Partition) -> int | None: ...

    def behind(self) -> dict[Partition, int]: ...

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None: ...


class TwoStores:
    """The offsets of one group in two stores, for one member.

    Args:
        kafka: The store in Kafka.
        zookeeper: The store in ZooKeeper.
        intent: Which offset is taken where they differ.
        written: The stores that commits go to, in this order; another one is only read, and compared.
        loop: The coordinator's.
        reset: Where a partition without an offset is read from, `smallest` or `largest`, for messages.

    Attributes:
        refused: Partition -> why it is not started, as a sentence.
        on_commit: As of each of the stores.

    Threads: As for each of the stores.
    """

    def __init__(
        self, kafka: KafkaOffsets, zookeeper: OffsetStore, intent: Intent, written: tuple[OffsetStore, ...], loop: Loop,
        reset: str = "largest",
    ) -> None:  # fmt: skip
        self._kafka = kafka
        self._zookeeper = zookeeper
        self._both = (kafka, zookeeper)
        self._intent = intent
        self._reset = reset
        self._written = written
        self._loop = loop
        self._differing: dict[Partition, str] = {}
        self.on_commit: OnCommit | None = None
        # Partitions that are not started: why, and when their offsets are read again.
        self._refused: dict[Partition, str] = {}
        self._reads: dict[Partition, Timer] = {}

    @property
    def failures(self) -> int:
        """How many positions could not be committed so far."""
        return sum(store.failures for store in self._written)

    @property
    def answering(self) -> str:
        """Who answers a commit, for messages."""
        return "the offset manager" if self._kafka in self._written else "ZooKeeper"

    @property
    def commit_wait_s(self) -> float:
        """How long the answer to a commit may take in addition to the ZooKeeper session's time-out, in seconds."""
        return self._kafka.commit_wait_s if self._kafka in self._written else 0.0

    @property
    def release_tries(self) -> int:
        """How often a failed commit is tried again before a release."""
        return self._written[0].release_tries

    @property
    def refused(self) -> dict[Partition, str]:
        """Partition -> why it is not started, as a sentence."""
        return {**self._zookeeper.refused, **self._kafka.refused, **self._refused}

    @property
    def warnings(self) -> set[str]:
        """Warnings about the stores for the application, as sentences."""
        differing = dict(self._differing)
        if not differing or (len(self._written) > 1 and self._intent is not Intent.REFUSE):
            return set()
        (topic, number), figures = min(differing.items())
        return {
            f"the offsets of {len(differing)} partitions differ between Kafka and ZooKeeper, first of "
            f"{topic}-{number}: {figures}; members of this group may store their offsets elsewhere (offsets.storage)"
        }

    # -- load ----------------------------------------------------------------------------------------------------------

    def load(self, fence: Fence | None, partition: Partition, done: Loaded) -> None:
        """Read both offsets of a partition that was claimed under `fence`; `done` gets the one that the intent takes.

        Without an answer when the session ends first: the claim ended with it.
        """
        self._end_read(partition)
        found: dict[str, int | None] = {}

        def loaded(name: str, offset: int | None) -> None:
            found[name] = offset
            if len(found) == len(self._both):
                self._choose(fence, partition, found["kafka"], found["zookeeper"], done)

        self._kafka.load(fence, partition, lambda offset: loaded("kafka", offset))
        self._zookeeper.load(fence, partition, lambda offset: loaded("zookeeper", offset))

    def _choose(
        self, fence: Fence | None, partition: Partition, kafka: int | None, zookeeper: int | None, done: Loaded
    ) -> None:
        self._differing.pop(partition, None)
        refused_before = self._refused.pop(partition, None)
        own, other = (kafka, zookeeper) if self._written[0] is self._kafka else (zookeeper, kafka)
        # An offset of an earlier incarnation of the topic is stored, and there is none to start from.
        in_kafka = None if kafka is None else self._kafka.stored(partition)
        in_zookeeper = None if zookeeper is None else self._zookeeper.stored(partition)
        # A group does not store where it only compares: there, no offset is no difference.
        if own == other or in_kafka == in_zookeeper or (other is None and len(self._written) == 1):
            done(own)
            return
        figures = f"{_shown(in_kafka)} in Kafka and {_shown(in_zookeeper)} in ZooKeeper"
        self._differing[partition] = figures
        if self._intent is Intent.REFUSE:
            reason = f"its offset is {figures}, and offsets.intent is refuse"
            if reason != refused_before:
                log.error("%s-%s is not started: %s", *partition, reason)
            self._refused[partition] = reason
            self._reads[partition] = self._loop.call_later(_READ_AGAIN_S, self.load, fence, partition, done)
            return
        taken = chosen(self._intent, kafka, zookeeper)
        log.warning(
            "offset of %s-%s is %s; starting from %s (offsets.intent is %s)%s",
            *partition,
            figures,
            self._start(taken),
            self._intent.value,
            "" if taken is not None else self._consequence("Kafka" if zookeeper is None else "ZooKeeper"),
        )
        for store, offset in zip(self._written, (own, other), strict=False):
            if offset is not None and (taken is None or taken < offset):
                store.start_at(partition, 0 if taken is None else taken)  # the offset stored there may be lowered
        done(taken)

    def _start(self, taken: int | None) -> str:
        place = "start" if self._reset == "smallest" else "end"
        return str(taken) if taken is not None else f"the {place} of the log"

    def _consequence(self, store: str) -> str:
        """Return what a start without an offset does, and how to start from the stored offset.

        Args:
            store: Where the offset is that is not taken.
        """
        what = "messages that were read are read again" if self._reset == "smallest" else "unread messages are skipped"
        return (f": auto.offset.reset is {self._reset}, so {what}; to start from the offset in {store}, set "
                f"offsets.intent=max, or offsets.storage={store.lower()} if the group stores its offsets "
                "there")  # fmt: skip

    def _end_read(self, partition: Partition) -> None:
        timer = self._reads.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def released(self, partition: Partition) -> None:
        """Note that the member is about to release a partition: its offsets are not read again, and not written."""
        for store in self._both:
            store.released(partition)
        self._end_read(partition)
        self._refused.pop(partition, None)
        self._differing.pop(partition, None)

    # -- commit --------------------------------------------------------------------------------------------------------

    def commit(
        self, fence: Fence | None, positions: Mapping[Partition, int], done: Done, explicit: bool = False
    ) -> None:
        """Store positions in each store that is written, in the second one only what the first has stored.

        Also without any position: `done` is then called after those of all earlier commits. A release waits for it.
        """

        def store_in(stores: tuple[OffsetStore, ...], left: dict[Partition, int], failed: dict[Partition, str]) -> None:
            if not stores:
                done(failed)
            else:
                stores[0].commit(fence, left, lambda refused: stored(stores, left, failed, refused), explicit)

        def stored(
            stores: tuple[OffsetStore, ...],
            left: dict[Partition, int],
            failed: dict[Partition, str],
            refused: Mapping[Partition, str],
        ) -> None:
            rest = {partition: at for partition, at in left.items() if partition not in refused}
            store_in(stores[1:], rest, {**failed, **refused})

        if not explicit:
            done = telling(self.on_commit, self._written[0].stored, positions, done)
        store_in(self._written, dict(positions), {})

    def commit_start(self, fence: Fence | None, partition: Partition, offset: int, done: Done) -> None:
        """Store where reading starts, in each store that is written and has no offset."""

        told = telling(self.on_commit, self._written[0].stored, {partition: offset}, done)

        def store_in(stores: tuple[OffsetStore, ...], failed: Mapping[Partition, str]) -> None:
            if not stores or failed:
                told(failed)
            else:
                stores[0].commit_start(fence, partition, offset, lambda refused: store_in(stores[1:], refused))

        store_in(self._written, {})

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool:
        """Return whether a commit of a position would change nothing in the stores that are written. Threads: any."""
        return all(store.is_stored(partition, position, explicit) for store in self._written)

    def committed(self) -> dict[Partition, int]:
        """Return the stored offsets as last seen, of the store that is written first."""
        return self._written[0].committed()

    def behind(self) -> dict[Partition, int]:
        """Return the done positions of ended ownerships which are not stored everywhere. Threads: any."""
        found: dict[Partition, int] = {}
        for store in self._written:
            found.update(store.behind())
        return found

    # -- both are notified --------------------------------------------------------------------------------------------

    # Done positions of this member count in the stores that it writes: in another one they would pass for stored
    # offsets.

    def remember(self, partition: Partition, position: int) -> None:
        """Keep the done position of an ownership that ends, for the next claim by this member."""
        for store in self._written:
            store.remember(partition, position)

    def start_at(self, partition: Partition, position: int) -> None:
        """Note that the application chose where to start."""
        for store in self._written:
            store.start_at(partition, position)

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None:
        """Note that the position of a partition was outside its log, which offsets that lacks, and where it goes on."""
        for store in self._written:
            store.out_of_range(partition, gone, restart)

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str] = ()) -> None:
        """Note that the topic was created anew, with these partitions."""
        for store in self._both:
            store.forget_topic(topic, incarnation, partitions)

    def session_opened(self, fence: Fence) -> None:
        """Send from now on what this registration allows."""
        for store in self._both:
            store.session_opened(fence)

    def session_over(self) -> None:
        """Send nothing more of what was decided until now."""
        for partition in list(self._reads):
            self.released(partition)
        for store in self._both:
            store.session_over()

    def close(self, timeout_s: float) -> None:
        """End the thread and the connection of the store in Kafka, and wait for that. Threads: any."""
        self._kafka.close(timeout_s)


def chosen(intent: Intent, kafka: int | None, zookeeper: int | None) -> int | None:
    """Return the offset that an intent takes.

    The store that is meant counts even where it has no offset, so that the reset policy decides; with `max` a store
    without an offset does not count, as in Java.
    """
    match intent:
        case Intent.KAFKA:
            return kafka
        case Intent.ZOOKEEPER:
            return zookeeper
        case _:
            return max((each for each in (kafka, zookeeper) if each is not None), default=None)


def _shown(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


_AGAIN_S: Final = 60.0
"""How long nothing is read after a failure, and how long an answer without offsets in Kafka holds."""


class OffsetComparison(OffsetManager):
    """An offset manager that is only read, and only if the cluster keeps offsets in Kafka.

    Args:
        has_offsets: Returns whether the cluster keeps offsets in Kafka at all; may block, and may raise a
            ZkConsumerError. A broker that is asked for an offset manager would create the topic.
        is_required: False: an offset that cannot be read counts as none, and no offset is read for a minute.

    Other arguments and threads as for `OffsetManager`.
    """

    def __init__(
        self,
        group: str,
        read_brokers: Callable[[], Sequence[Broker]],
        settings: ChannelSettings,
        counters: Counters,
        *,
        has_offsets: Callable[[], bool],
        is_required: bool,
    ) -> None:
        super().__init__(group, read_brokers, settings, counters)
        self._has_offsets = has_offsets
        self._is_required = is_required
        self._exists = False
        self._not_before = float("-inf")

    def fetch(self, partitions: Iterable[TopicPartition], deadline: float) -> OffsetAnswer:
        """Return the stored offsets, None for all where there is nothing to compare with."""
        names = list(partitions)
        try:
            if not self._is_due():
                return OffsetAnswer(dict.fromkeys(names), {})
            answer = super().fetch(names, deadline)
        except ZkConsumerError as error:
            answer = OffsetAnswer({}, dict.fromkeys(names, str(error)))
        self._drop()  # nobody else uses the connection until the next rebalance
        if not answer.unknown or self._is_required:
            return answer
        self._not_before = time.monotonic() + _AGAIN_S
        # Otherwise a group whose other members store in Kafka would skip or repeat messages without a word in the log.
        log.warning(
            "the offsets of %d partitions are not compared with those in Kafka: %s; if other members of the "
            "group store their offsets there (offsets.storage), messages are skipped or repeated",
            len(answer.unknown),
            next(iter(answer.unknown.values())),
        )
        return OffsetAnswer({**answer.offsets, **dict.fromkeys(answer.unknown)}, {})

    def _is_due(self) -> bool:
        if not self._exists and time.monotonic() >= self._not_before:
            self._exists = self._has_offsets()
            self._not_before = float("-inf") if self._exists else time.monotonic() + _AGAIN_S
        return self._exists and time.monotonic() >= self._not_before
