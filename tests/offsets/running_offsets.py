"""Offsets in Kafka with a running loop, as the coordinator's thread runs it, for tests that call from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rebalance.loop import Loop
from rebalance.subscription import Partition
from rebalance.zookeeper.claims import Fence
from zkconsumer.cluster.registry import ClusterReader
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.offsets.kafka_offsets import KafkaOffsets, KafkaOffsetTimes
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager
from zkconsumer.testing.cluster import Cluster

__all__ = ["FENCE", "RunningOffsets", "running_offsets"]

FENCE = Fence("/consumers/g/ids/me", 0, 1)
SETTINGS = ChannelSettings("test", backoff_s=0.05, timeout_s=2.0, max_retries=100)
ANSWER_S = 30.0


class RunningOffsets:
    """Calls the offsets on the loop's thread and waits for their answers."""

    def __init__(self, offsets: KafkaOffsets, loop: Loop) -> None:
        self.offsets = offsets
        self.fence = FENCE
        self.has_lease = True
        self._loop = loop

    def call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a call on the loop's thread returns."""
        results: list[Any] = []
        done = threading.Event()

        def run() -> None:
            results.append(call(*arguments))
            done.set()

        self._loop.post(run)
        assert done.wait(ANSWER_S)
        return results[0]

    def answer(self, call: Callable[..., None], *arguments: Any, **named: Any) -> Any:
        """Return what `done`, the last positional argument of a call, is called with."""
        return self.begin(call, *arguments, **named)()

    def begin(self, call: Callable[..., None], *arguments: Any, **named: Any) -> Callable[[], Any]:
        """Start a call; return what waits for its answer."""
        answers: list[Any] = []
        done = threading.Event()

        def answered(answer: Any) -> None:
            answers.append(answer)
            done.set()

        self._loop.post(lambda: call(*arguments, answered, **named))

        def wait() -> Any:
            assert done.wait(ANSWER_S), f"no answer to {call.__name__}{arguments}"
            return answers[0]

        return wait

    def load(self, partition: Partition) -> int | None:
        """Return the answer to a load."""
        answer: int | None = self.answer(self.offsets.load, self.fence, partition)
        return answer

    def commit(self, positions: dict[Partition, int], *, explicit: bool = False) -> dict[Partition, str]:
        """Return what a commit could not store."""
        answer: dict[Partition, str] = self.answer(self.offsets.commit, self.fence, positions, explicit=explicit)
        return answer


@contextmanager
def running_offsets(
    cluster: Cluster,
    group: str,
    times: KafkaOffsetTimes | None = None,
    *,
    is_registered: bool = True,
    is_fenced: bool = False,
) -> Iterator[RunningOffsets]:
    """The offsets of a member that is registered, until the end of the block."""
    loop = Loop(time.monotonic)
    with zookeeper_connection(cluster.zookeeper_connect, 10.0) as port:
        manager = OffsetManager(group, ClusterReader(port, 10.0).brokers, SETTINGS)
        running: RunningOffsets
        offsets = KafkaOffsets(manager, loop, lambda: running.has_lease, times, is_fenced=is_fenced)
        thread = threading.Thread(target=loop.run, args=(0.01,), daemon=True)
        thread.start()
        running = RunningOffsets(offsets, loop)
        try:
            if is_registered:
                running.call(offsets.session_opened, FENCE)
            yield running
        finally:
            offsets.close(ANSWER_S)
            loop.post(loop.stop)
            thread.join(ANSWER_S)
