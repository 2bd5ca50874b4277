"""Asynchronous members in real groups: commits, ends, listeners, handovers beside Java, and storms of cancellations."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from consuming import PATIENCE_S, config, owners, produce, produce_each, stored

from zkconsumer import (
    CommitFailed,
    ConnectorClosed,
    ConsumerConfig,
    ForeignEventLoop,
    ListenerRefused,
    MessageStreamsExist,
    PauseFailed,
    TopicPartition,
    ZooKeeperUnavailable,
)
from zkconsumer.aio import AsyncConsumerConnector, AsyncKafkaStream
from zkconsumer.prometheus import ConnectorCollector
from zkconsumer.testing import LastingLoad
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

PATIENT = {"consumer_timeout_ms": -1, "rebalance_drain_timeout_ms": 20_000}


@pytest.fixture
def ten(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of one partition with the messages "0" to "9"."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=1)
    produce(kafka_0822, name, 0, [str(n) for n in range(10)])
    return name


def run(main: Awaitable[None], timeout_s: float = 3 * PATIENCE_S) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(timeout_s):
            await main

    asyncio.run(bounded())


def member(
    cluster: KafkaCluster, group: str, listener: object | None = None, **settings: Any
) -> AsyncConsumerConnector:
    return AsyncConsumerConnector(config(cluster, group, **(PATIENT | settings)), listener)


async def stream_of(connector: AsyncConsumerConnector, topic: str) -> AsyncKafkaStream[bytes, bytes]:
    [stream] = (await connector.create_message_streams({topic: 1}))[topic]
    return stream


@asynccontextmanager
async def loop_runs() -> AsyncIterator[None]:
    """Fails if the loop stands still for longer than half a second in the block."""
    longest_s = 0.0

    async def tick() -> None:
        nonlocal longest_s
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
    assert longest_s < 0.5, f"the loop stood still for {longest_s:.2f} s"


# -- commits ----------------------------------------------------------------------------------------------------------


def test_a_commit_counts_what_the_calling_task_has_in_hand_and_nothing_of_other_tasks(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    async def main() -> None:
        async with member(kafka_0822, fresh_group, auto_commit_enable=False) as connector:
            async with loop_runs():
                stream = await stream_of(connector, ten)
                for _ in range(3):
                    await anext(stream)
                await asyncio.create_task(_commit(connector))  # of another task: the message in hand is not done
                assert stored(kafka_0822, fresh_group, ten, 0) == b"2"
                await connector.commit_offsets()
                assert stored(kafka_0822, fresh_group, ten, 0) == b"3"
                await anext(stream)
                await asyncio.wait_for(connector.commit_offsets(), PATIENCE_S)
                assert stored(kafka_0822, fresh_group, ten, 0) == b"4"
                await connector.commit_offsets({TopicPartition(ten, 0): 1})
                assert stored(kafka_0822, fresh_group, ten, 0) == b"1"
            with pytest.raises(CommitFailed):
                await connector.commit_offsets({TopicPartition(ten, 7): 1})
            with pytest.raises(ValueError, match="must be an integer"):
                await connector.commit_offsets({TopicPartition(ten, 0): -1})

    async def _commit(connector: AsyncConsumerConnector) -> None:
        await connector.commit_offsets()

    run(main())


def test_a_commit_stores_what_was_in_hand_when_it_was_called_and_not_what_came_later(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    async def main() -> None:
        async with member(kafka_0822, fresh_group, auto_commit_enable=False) as connector:
            stream = await stream_of(connector, ten)
            await anext(stream)
            commit = asyncio.create_task(connector.commit_offsets())
            await anext(stream)  # asked for before the commit has run
            await commit
            assert stored(kafka_0822, fresh_group, ten, 0) == b"1"

    run(main())


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "expected"), [("clean", 3), ("error", 2), ("cancelled", 2), ("timeout", 2)])
def test_the_end_of_the_block_counts_the_message_in_hand_only_if_it_is_clean(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, how: str, expected: int
) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(None if how != "timeout" else 0) as limit,
            member(kafka_0822, fresh_group, auto_commit_interval_ms=3_600_000) as connector,
        ):
            limit.reschedule(None)
            stream = await stream_of(connector, ten)
            async for message in stream:
                if message.offset == 2:
                    break
            if how == "error":
                raise ValueError("cannot work on it")
            if how == "timeout":
                limit.reschedule(asyncio.get_running_loop().time() + 0.01)
            if how in ("cancelled", "timeout"):
                in_hand.set()
                await asyncio.sleep(PATIENCE_S)

    in_hand = asyncio.Event()

    async def main() -> None:
        async with loop_runs():
            task = asyncio.create_task(work())
            if how == "cancelled":
                await in_hand.wait()
                task.cancel()
            await asyncio.wait([task])
        assert task.cancelled() == (how == "cancelled")
        if not task.cancelled():
            assert type(task.exception()) is {"clean": type(None), "error": ValueError, "timeout": TimeoutError}[how]
        assert stored(kafka_0822, fresh_group, ten, 0) == str(expected).encode()
        assert owners(kafka_0822, fresh_group, ten) == {}

    run(main())


def test_a_shutdown_of_another_task_waits_for_the_message_in_hand_and_ends_the_loop(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    async def main() -> None:
        connector = member(kafka_0822, fresh_group)
        stream = await stream_of(connector, ten)
        in_hand, go_on = asyncio.Event(), asyncio.Event()
        seen = []

        async def work() -> None:
            async for message in stream:
                seen.append(message.offset)
                if message.offset == 4:
                    in_hand.set()
                    await go_on.wait()

        task = asyncio.create_task(work())
        await in_hand.wait()
        async with loop_runs():
            shutdown = asyncio.create_task(connector.shutdown())
            await asyncio.sleep(0.3)
            assert not shutdown.done()
            go_on.set()
            assert await shutdown == {}
            await task
        assert seen == [0, 1, 2, 3, 4]
        assert stored(kafka_0822, fresh_group, ten, 0) == b"5"
        assert await connector.shutdown() == {}
        assert (await connector.status()).state == "closed"
        for call in (connector.commit_offsets, lambda: connector.pause([TopicPartition(ten, 0)])):
            with pytest.raises(ConnectorClosed):
                await call()

    run(main())


@pytest.mark.parametrize("how", ["stopped", "shut down"])
def test_a_loop_that_waits_for_a_message_or_a_stop_loses_none(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, how: str
) -> None:
    """A message that a task took, and that nobody looked at, is not committed at the clean end."""

    async def handled_by_one_member(limit: int) -> list[int]:
        handled: list[int] = []
        stopping = asyncio.Event()
        async with member(kafka_0822, fresh_group, auto_commit_interval_ms=3_600_000) as connector:
            stream = await stream_of(connector, ten)
            stop = asyncio.create_task(stopping.wait())
            get: asyncio.Task[Any] = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
            while True:
                done, _ = await asyncio.wait({get, stop}, return_when=asyncio.FIRST_COMPLETED)
                if stop in done:
                    break
                handled.append(get.result().offset)
                get = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
                if len(handled) == limit:
                    stopping.set()
            if how == "shut down":
                await asyncio.wait({get})
                assert await connector.shutdown() == {}
            await asyncio.sleep(0.05)  # the next message is taken here, if it was not before
            assert get.done()
        return handled

    async def main() -> None:
        found = [await handled_by_one_member(3) for _ in range(3)]
        assert found == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        assert stored(kafka_0822, fresh_group, ten, 0) == b"9"

    run(main())


def test_a_commit_counts_no_message_that_another_task_took(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    async def main() -> None:
        async with member(kafka_0822, fresh_group, auto_commit_enable=False) as connector:
            stream = await stream_of(connector, ten)
            await asyncio.wait_for(anext(stream), PATIENCE_S)
            await connector.commit_offsets()
            assert stored(kafka_0822, fresh_group, ten, 0) == b"1"
            get: asyncio.Task[Any] = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
            await asyncio.wait({get})
            await connector.commit_offsets()
            assert stored(kafka_0822, fresh_group, ten, 0) == b"1"
            await connector.commit_offsets({TopicPartition(ten, 0): get.result().offset + 1})
            assert stored(kafka_0822, fresh_group, ten, 0) == b"2"

    run(main())


def test_the_last_message_of_a_task_that_has_returned_is_not_stored_before_the_next_is_asked_for(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    async def work(stream: AsyncKafkaStream[bytes, bytes]) -> None:
        for _ in range(3):
            await anext(stream)

    async def main() -> None:
        async with member(kafka_0822, fresh_group, auto_commit_enable=False) as connector:
            stream = await stream_of(connector, ten)
            await asyncio.create_task(work(stream))
            await connector.commit_offsets()
            assert stored(kafka_0822, fresh_group, ten, 0) == b"2"
            await asyncio.create_task(work(stream))
            await connector.commit_offsets()
            assert stored(kafka_0822, fresh_group, ten, 0) == b"5"
        async with member(kafka_0822, fresh_group) as connector:
            stream = await stream_of(connector, ten)
            assert (await anext(stream)).offset == 5
            await asyncio.create_task(_returned(connector))
        assert stored(kafka_0822, fresh_group, ten, 0) == b"6"

    async def _returned(connector: AsyncConsumerConnector) -> None:
        await connector.status()

    run(main())


def test_a_dropped_connector_leaves_and_the_log_says_why(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def read_and_drop() -> None:
        stream = await stream_of(member(kafka_0822, fresh_group, rebalance_drain_timeout_ms=1000), ten)
        for _ in range(3):
            await anext(stream)

    async def main() -> None:
        await read_and_drop()
        gc.collect()
        await asyncio.to_thread(wait_until, lambda: owners(kafka_0822, fresh_group, ten) == {}, PATIENCE_S, "the leave")
        assert stored(kafka_0822, fresh_group, ten, 0) == b"2"
        assert "its connector and streams were dropped without shutdown()" in caplog.text
        assert "event loop" not in caplog.text

    run(main())


def test_a_shutdown_that_is_cancelled_goes_on(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    async def main() -> None:
        connector = member(kafka_0822, fresh_group)
        stream = await stream_of(connector, ten)
        await anext(stream)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await connector.shutdown()
        assert [message async for message in stream] == []
        await asyncio.to_thread(wait_until, lambda: owners(kafka_0822, fresh_group, ten) == {}, PATIENCE_S, "the leave")
        assert stored(kafka_0822, fresh_group, ten, 0) == b"1"

    run(main())


def test_a_loop_that_ends_without_a_shutdown_takes_its_member_out_of_the_group(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = []

    async def main() -> None:
        connector = member(kafka_0822, fresh_group)
        kept.append(connector)
        stream = await stream_of(connector, ten)
        for _ in range(3):
            await anext(stream)

    asyncio.run(main())
    assert owners(kafka_0822, fresh_group, ten) == {}
    assert stored(kafka_0822, fresh_group, ten, 0) == b"2"
    assert "its event loop ends without shutdown()" in caplog.text

    async def other() -> None:
        await kept[0].status()

    with pytest.raises(ForeignEventLoop, match="create a connector in each event loop"):
        asyncio.run(other())


def test_a_member_whose_loop_was_closed_leaves_as_soon_as_there_is_something_to_read(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    loop = asyncio.new_event_loop()
    connector = member(kafka_0822, fresh_group)
    stream = loop.run_until_complete(stream_of(connector, ten))
    loop.run_until_complete(anext(stream))
    loop.close()
    produce(kafka_0822, ten, 0, ["more"])
    wait_until(lambda: owners(kafka_0822, fresh_group, ten) == {}, PATIENCE_S, "the member to leave")


PROGRAM = """
import asyncio, sys
from zkconsumer import ConsumerConfig
from zkconsumer.aio import AsyncConsumerConnector

async def main(zookeeper, group, topic):
    config = ConsumerConfig(zookeeper, group, auto_offset_reset="smallest", auto_commit_interval_ms=3_600_000)
    async with AsyncConsumerConnector(config) as connector:
        [stream] = (await connector.create_message_streams({topic: 1}))[topic]
        async for message in stream:
            print(message.offset, flush=True)
            if message.offset == 5:
                await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


def test_ctrl_c_ends_a_program_in_order_and_in_time(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    command = [sys.executable, "-c", PROGRAM, kafka_0822.zookeeper_connect, fresh_group, ten]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert [child.stdout.readline() for _ in range(6)] == [f"{n}\n" for n in range(6)]
            started_at = time.monotonic()
            os.kill(child.pid, signal.SIGINT)
            _, errors = child.communicate(timeout=PATIENCE_S)
        finally:
            child.kill()
    assert time.monotonic() - started_at < 10.0
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert owners(kafka_0822, fresh_group, ten) == {}
    assert stored(kafka_0822, fresh_group, ten, 0) == b"5"


# -- joining ----------------------------------------------------------------------------------------------------------


def test_joining_never_blocks_the_loop_and_can_be_cancelled() -> None:
    async def main() -> None:
        # An address that answers nothing.
        slow = ConsumerConfig("192.0.2.1:2181", "g", zookeeper_connection_timeout_ms=20_000)
        async with loop_runs(), AsyncConsumerConnector(slow) as connector:
            started_at = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await connector.create_message_streams({"t": 1})
            assert time.monotonic() - started_at < 2.0
            with pytest.raises((ConnectorClosed, MessageStreamsExist)):
                await connector.create_message_streams({"t": 1})
        refused = ConsumerConfig("127.0.0.1:1", "g", zookeeper_connection_timeout_ms=500)
        async with AsyncConsumerConnector(refused) as connector:
            with pytest.raises(ZooKeeperUnavailable):
                await connector.create_message_streams({"t": 1})

    run(main())


def test_wrong_calls_are_refused(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    class Misspelled:
        async def on_partition_revoked(self, partitions: list[TopicPartition]) -> None: ...

    with pytest.raises(ListenerRefused, match="on_partition_revoked"):
        AsyncConsumerConnector(config(kafka_0822, fresh_group), Misspelled())
    with pytest.raises(TypeError, match="must be a ConsumerConfig"):
        AsyncConsumerConnector({"group.id": "g"})  # type: ignore[arg-type]

    async def main() -> None:
        async with member(kafka_0822, fresh_group) as connector:
            with pytest.raises(TypeError, match="must map topics"):
                await connector.create_message_streams([ten])  # type: ignore[arg-type]
            with pytest.raises(PauseFailed, match="has not joined"):
                await connector.pause([TopicPartition(ten, 0)])
            with pytest.raises(TypeError, match="number of seconds"):
                await connector.shutdown("soon")  # type: ignore[arg-type]

    run(main())


# -- listeners, pauses, statistics -------------------------------------------------------------------------------------


def test_callbacks_run_on_the_loop_and_may_await_commits(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    calls: list[tuple[str, threading.Thread]] = []

    class Listener:
        connector: AsyncConsumerConnector

        def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
            calls.append(("assigned", threading.current_thread()))
            return {TopicPartition(ten, 0): 4}

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            calls.append(("revoked", threading.current_thread()))
            await asyncio.sleep(0.05)
            await self.connector.commit_offsets()
            assert await self.connector.shutdown() is not None  # it is under way: returns at once

    async def main() -> None:
        listener = Listener()
        async with member(kafka_0822, fresh_group, listener, auto_commit_enable=False) as connector:
            listener.connector = connector
            stream = await stream_of(connector, ten)
            assert [(await anext(stream)).offset for _ in range(3)] == [4, 5, 6]
            started_at = time.monotonic()
        assert time.monotonic() - started_at < 10.0
        here = threading.current_thread()
        assert calls == [("assigned", here), ("revoked", here)]
        assert stored(kafka_0822, fresh_group, ten, 0) == b"7"

    run(main())


def test_a_listener_may_shut_down(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    outcome: list[object] = []

    class Listener:
        connector: AsyncConsumerConnector

        async def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
            started_at = time.monotonic()
            outcome.append(await self.connector.shutdown(5.0))
            outcome.append(time.monotonic() - started_at < 4.0)

    async def main() -> None:
        listener = Listener()
        listener.connector = member(kafka_0822, fresh_group, listener)
        try:
            stream = await stream_of(listener.connector, ten)
            assert [message async for message in stream] == []
        except ConnectorClosed:
            pass
        await listener.connector.shutdown()
        assert outcome == [{}, True]

    run(main())


def test_pauses_and_statistics(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    seen = []

    async def on_statistics(statistics: Any) -> None:
        seen.append((statistics.group, threading.current_thread()))

    async def main() -> None:
        settings = config(kafka_0822, fresh_group, **PATIENT, statistics_interval_ms=50)
        async with AsyncConsumerConnector(settings, on_statistics=on_statistics) as connector, loop_runs():
            stream = await stream_of(connector, ten)
            await anext(stream)
            await connector.pause([TopicPartition(ten, 0)])
            assert connector.paused() == {TopicPartition(ten, 0)}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(stream)
            await connector.resume([TopicPartition(ten, 0)])
            assert (await anext(stream)).offset == 1
            assert (await connector.status()).owned[0].position == 1
            assert (await connector.statistics()).group == fresh_group
            metrics = list(ConnectorCollector(connector).collect())
            assert any(sample.labels.get("topic") == ten for metric in metrics for sample in metric.samples)
        assert seen[0] == (fresh_group, threading.current_thread())

    run(main())


# -- groups -----------------------------------------------------------------------------------------------------------


def test_tasks_with_a_stream_each_share_the_partitions(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=4)
    sent = produce_each(kafka_0822, topic, 4, 50)

    async def main() -> None:
        found: list[Counter[str]] = [Counter(), Counter()]
        async with member(kafka_0822, fresh_group) as connector:
            streams = (await connector.create_message_streams({topic: 2}, value_decoder=bytes.decode))[topic]

            async def work(number: int) -> None:
                async for message in streams[number]:
                    found[number][message.value or ""] += 1
                    await asyncio.sleep(0)
                    if sum(map(Counter.total, found)) == sent.total():
                        await connector.shutdown()

            async with asyncio.TaskGroup() as group:
                for number in range(2):
                    group.create_task(work(number))
        assert found[0] + found[1] == sent
        assert [each.total() for each in found] == [100, 100]
        assert [stored(kafka_0822, fresh_group, topic, number) for number in range(4)] == [b"50"] * 4

    run(main())


@pytest.mark.real
def test_partitions_move_to_a_java_member_and_back_and_nothing_is_lost(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=4)
    ours: Counter[tuple[int, int]] = Counter()

    async def main() -> None:
        async with member(kafka_0822, fresh_group, auto_commit_interval_ms=300) as connector:
            stream = await stream_of(connector, topic)

            async def work() -> None:
                async for message in stream:
                    await asyncio.sleep(0.001)
                    ours[int(message.partition), message.offset] += 1

            working = asyncio.create_task(work())
            with JavaMember(kafka_0822, fresh_group, topics={topic: 1}) as java:
                await asyncio.to_thread(java.wait_owned, 2)
                await asyncio.to_thread(load.grow, 150)
                await asyncio.to_thread(java.wait_messages, 30)
                java.stop()
                theirs = Counter((int(each.partition), each.offset) for each in java.messages)
                assert java.gave_up == 0
            await asyncio.to_thread(load.grow, 100)
            await asyncio.to_thread(load.stop)
            acked = {(int(event.partition), event.offset) for event in load.acked}
            async with asyncio.timeout(PATIENCE_S):
                while not acked <= ours.keys() | theirs.keys():
                    await asyncio.sleep(0.05)
            assert await connector.shutdown() == {}
            await working
        assert max(ours.values()) == 1
        # Ours hand over at the next message. Java's streams still deliver what they hold while it commits for the last
        # time: of each partition that it released, only its last messages may be delivered again.
        for partition in {partition for partition, _ in theirs}:
            delivered = sorted(offset for each, offset in theirs if each == partition)
            again = sorted(offset for each, offset in ours.keys() & theirs.keys() if each == partition)
            assert again == delivered[len(delivered) - len(again) :], f"partition {partition}"
            assert delivered[0] not in again, f"partition {partition}"

    with LastingLoad(kafka_0822, [topic], partitions=4, rate_per_s=200) as load:
        run(main())


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_cancellations_loses_nothing_and_commits_nothing_unprocessed(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], seed: int
) -> None:
    """Tasks, commits and whole members are cancelled at random; the stored offsets are read all the time."""
    rng = random.Random(seed)
    topic, partitions, each = fresh_topic(), 2, 400
    kafka_0822.create_topic(topic, partitions=partitions)
    produce_each(kafka_0822, topic, partitions, each)
    processed: list[set[int]] = [set() for _ in range(partitions)]
    early: list[str] = []
    over = threading.Event()

    def check_stored() -> None:
        for number in range(partitions):
            found = stored(kafka_0822, fresh_group, topic, number)  # before the look at what is processed by then
            if found is not None and not set(processed[number]) >= set(range(int(found))):
                early.append(f"{number}: {found!r} is stored, {len(processed[number])} are processed")

    def watch() -> None:
        while not over.wait(0.01):
            check_stored()

    async def work(connector: AsyncConsumerConnector, stream: AsyncKafkaStream[bytes, bytes]) -> None:
        async for message in stream:
            if rng.random() < 0.1:
                await asyncio.sleep(rng.choice([0, 0.001, 0.005]))
            processed[int(message.partition)].add(message.offset)
            if rng.random() < 0.02:
                await connector.commit_offsets()

    async def life() -> None:
        async with member(kafka_0822, fresh_group, auto_commit_interval_ms=20) as connector:
            stream = await stream_of(connector, topic)
            for _ in range(rng.randrange(5, 25)):
                task = asyncio.create_task(work(connector, stream))
                await asyncio.sleep(rng.choice([0, 0.002, 0.01]))
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled(), task
            if rng.random() < 0.5:
                raise ValueError("the program fails")

    async def main() -> None:
        while min(map(len, processed)) < each:
            task = asyncio.create_task(life())
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.5)
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and not isinstance(task.exception(), ValueError | None):
                raise AssertionError(repr(task.exception()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        run(main())
    finally:
        over.set()
        watcher.join()
    check_stored()
    assert not early, early[:5]
