"""The offsets of a member of ours in Kafka: the production stores, with steps in place of the thread that asks.

Shared: `KafkaOffsets` with its jobs, fences and records, `TwoStores` with dual commit and `offsets.intent`. Simulated:
`OffsetManager` and `OffsetComparison`, which block; their attempts, back-offs and limits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from rebalance.loop import Loop
from simpleconsumer.types import TopicPartition
from tests.simulator.offset_storage import BACKOFF_S, TIMEOUT_S, OffsetChannel, OffsetStorage, Partition
from tests.simulator.process import Process
from zkconsumer.offsets.commit_batch import SESSION_OVER
from zkconsumer.offsets.kafka_offsets import CommitJob, KafkaOffsets, KafkaOffsetTimes, LoadJob, SurveyJob
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer, OffsetManager
from zkconsumer.offsets.two_stores import Intent, TwoStores
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets

__all__ = ["MAX_RETRIES", "SteppedKafkaOffsets", "Storage", "stores_of"]

Storage = Literal["", "zookeeper", "dual", "kafka"]
"""Where a member keeps its offsets; empty: in ZooKeeper, in a cluster that keeps none in Kafka."""

MAX_RETRIES: Final = 5
"""`offsets.commit.max.retries` of all members."""
_COMPARE_S: Final = 1.0
_TIMES: Final = KafkaOffsetTimes(TIMEOUT_S, TIMEOUT_S + MAX_RETRIES * BACKOFF_S, TIMEOUT_S)


class SteppedKafkaOffsets(KafkaOffsets):
    """The store in Kafka of one member.

    Args:
        label: the member's name in the history.
        is_compared: whether the store is only read: an offset that cannot be read counts as none.
    """

    def __init__(
        self, process: Process, loop: Loop, storage: OffsetStorage, label: str, has_lease: Callable[[], bool],
        is_compared: bool,
    ) -> None:  # fmt: skip
        super().__init__(OffsetManager("g", list, ChannelSettings("")), loop, has_lease, _TIMES)
        self._process = process
        self._channel = OffsetChannel(storage, process)
        self._label = label
        self._is_compared = is_compared

    def _request(self, send: Callable[[], None]) -> None:
        self._process.after(0.0, send)

    def _fetch(self, job: LoadJob | SurveyJob, names: list[TopicPartition]) -> None:
        clock, storage = self._process.clock, self._channel.storage
        deadline = clock() + (_COMPARE_S if self._is_compared else self._times.load_s)

        def attempt() -> None:
            self._channel.exchange(lambda: {name: storage.stored.get(_numbered(name)) for name in names}, answered)

        def answered(found: Mapping[TopicPartition, int | None] | None, reason: str) -> None:
            if found is not None:
                self._loop.post(self._fetched, job, OffsetAnswer(found, {}))
            elif clock() + BACKOFF_S < deadline:
                self._process.after(BACKOFF_S, attempt)
            elif self._is_compared:
                self._loop.post(self._fetched, job, OffsetAnswer(dict.fromkeys(names), {}))
            else:
                self._loop.post(self._fetched, job, OffsetAnswer({}, dict.fromkeys(names, reason)))

        attempt()

    def _store(self, job: CommitJob, offsets: Mapping[TopicPartition, int]) -> None:
        clock, storage = self._process.clock, self._channel.storage
        deadline = clock() + self._times.commit_s
        tries = 0

        def refusal() -> str | None:
            if job.fence not in self._standing:
                return SESSION_OVER
            return None if self._has_lease() else "ZooKeeper has not confirmed the session in time"

        left = dict(offsets)
        failed: dict[TopicPartition, str] = {}

        def finish(rest: Mapping[TopicPartition, str]) -> None:
            refused = {(name.topic, name.partition): why for name, why in {**failed, **rest}.items()}
            self._loop.post(self._committed, job, refused)

        def serve() -> bool:
            storage.store(self._label, {_numbered(name): at for name, at in left.items()})
            return True

        def attempt() -> None:
            for name in list(left):
                why = self._why_not(name)
                if why is not None:
                    failed[name] = why
                    del left[name]
            reason = refusal()
            if reason is not None or not left:
                finish(dict.fromkeys(left, reason or ""))
            else:
                self._channel.exchange(serve, answered, lambda: refusal() is None)

        def answered(is_stored: bool | None, reason: str) -> None:
            nonlocal tries
            tries += 1
            if is_stored:
                finish({})
            elif tries > MAX_RETRIES or clock() + BACKOFF_S >= deadline:
                finish(dict.fromkeys(left, reason))
            else:
                self._process.after(BACKOFF_S, attempt)

        attempt()


def stores_of(
    storage: Storage, intent: str, kafka: SteppedKafkaOffsets, zookeeper: ZooKeeperOffsets, loop: Loop
) -> TwoStores:
    """The stores of a member, as `zkconsumer.offsets.offset_stores.member_offsets` puts them together."""
    written: dict[str, tuple[ZooKeeperOffsets | KafkaOffsets, ...]] = {
        "zookeeper": (zookeeper,),
        "kafka": (kafka,),
        "dual": (kafka, zookeeper),
    }
    return TwoStores(kafka, zookeeper, Intent(intent), written[storage], loop)


def _numbered(name: TopicPartition) -> Partition:
    return name.topic, int(name.partition)
