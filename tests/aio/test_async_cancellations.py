"""A cancellation at each await of each call of `zkconsumer.aio` repeats and loses nothing.

A call suspends its task at some awaits. The task is cancelled at the first of them, then at the second one, until the
call ends before that; each time right when it has suspended, and right before it goes on, when the result is there.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from itertools import count
from types import coroutine
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerConfig
from zkconsumer.aio import AsyncConsumerConnector, AsyncKafkaConsumer
from zkconsumer.testing import EmbeddedCluster, load

PATIENCE_S = 60.0
COUNT = 90
TOPIC = "ninety"
NAME = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="3.9", zookeeper=False, settings=settings) as running:
        running.create_topic(TOPIC, 1)
        load(running, TOPIC, COUNT)
        yield running


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main

    asyncio.run(bounded())


def consumer_of(cluster: EmbeddedCluster, *topics: str, **more: Any) -> AsyncKafkaConsumer:
    settings: dict[str, Any] = {"group_id": f"g-{uuid.uuid4().hex}", "auto_offset_reset": "earliest",
                                "heartbeat_interval_ms": 200, "enable_auto_commit": False,
                                "fetch_max_wait_ms": 20}  # fmt: skip
    return AsyncKafkaConsumer(*topics, bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", **settings | more)


@coroutine
def _stepped(call: Coroutine[Any, Any, Any], number: int, is_late: bool) -> Any:
    """Go through a call, and cancel its task at one of the awaits that suspend it."""
    task = asyncio.current_task()
    assert task is not None
    loop = task.get_loop()
    raised: BaseException | None = None
    for at in count(1):
        try:
            awaited = call.send(None) if raised is None else call.throw(raised)
        except StopIteration as end:
            return end.value
        if at == number and is_late and awaited is not None:
            awaited.add_done_callback(lambda _: task.cancel())  # before the callback that lets the task go on
        elif at == number:
            loop.call_soon(task.cancel)
        try:
            yield awaited
            raised = None
        except BaseException as error:  # noqa: BLE001 - the call gets it
            raised = error


class Cancellations:
    """Makes calls whose tasks are cancelled at one await after the other, early and late, again from the first one."""

    def __init__(self) -> None:
        self.number, self.is_late = 1, False
        self.rounds = self.count = 0

    async def call(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return what the call has returned, None if it was cancelled."""

        async def run() -> Any:
            return await _stepped(call, self.number, self.is_late)

        try:
            found = await asyncio.create_task(run())
        except asyncio.CancelledError:
            self.count += 1
            self.number, self.is_late = self.number + self.is_late, not self.is_late
            return None
        self.rounds += 1
        self.number, self.is_late = 1, False
        return found


@asynccontextmanager
async def company(consumer: AsyncKafkaConsumer, is_wanted: bool) -> AsyncIterator[None]:
    """Have another task call all the time, so that calls wait for each other."""

    async def calls() -> None:
        while True:
            await consumer.position(NAME)

    others = [asyncio.create_task(calls()) for _ in range(is_wanted)]
    try:
        yield
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def join(consumer: AsyncKafkaConsumer) -> None:
    while not await consumer.assignment():
        await consumer.poll(100)
    await consumer.seek(NAME, 0)


async def one(consumer: AsyncKafkaConsumer) -> list[int]:
    return [(await anext(consumer)).offset]


async def polled(consumer: AsyncKafkaConsumer) -> list[int]:
    return [record.offset for record in await consumer.poll(5000)]


async def batches(consumer: AsyncKafkaConsumer) -> list[int]:
    found = await consumer.poll_batches(5000)
    return [offset for batch in found for offset in batch.record_batch.column("offset").to_pylist()]


@pytest.mark.parametrize("has_company", [False, True])
@pytest.mark.parametrize("take", [one, polled, batches])
def test_what_is_taken_comes_once_and_in_order(
    cluster: EmbeddedCluster, take: Callable[[AsyncKafkaConsumer], Coroutine[Any, Any, list[int]]], has_company: bool
) -> None:
    async def main() -> None:
        cancellations = Cancellations()
        async with consumer_of(cluster, TOPIC, max_poll_records=5) as consumer, company(consumer, has_company):
            await join(consumer)
            found: list[int] = []
            while len(found) < COUNT:
                found += await cancellations.call(take(consumer)) or []
            assert found == list(range(COUNT))
            assert await consumer.position(NAME) == COUNT
        assert cancellations.count > COUNT / 5

    run(main())


@pytest.mark.parametrize("has_company", [False, True])
def test_a_commit_that_is_cancelled_stores_what_was_returned_before_it_or_nothing(
    cluster: EmbeddedCluster, has_company: bool
) -> None:
    async def main() -> None:
        cancellations = Cancellations()
        async with consumer_of(cluster, TOPIC, max_poll_records=5) as consumer, company(consumer, has_company):
            await join(consumer)
            before = 0
            for offset in range(30):
                assert (await anext(consumer)).offset == offset
                await cancellations.call(consumer.commit())
                stored = (await consumer.committed([NAME]))[NAME]
                at = 0 if stored is None else stored.offset
                assert at in (before, offset + 1)
                before = at
            await consumer.commit()
            assert [each and each.offset for each in (await consumer.committed([NAME])).values()] == [30]
        assert cancellations.count > 10

    run(main())


Call = Callable[[AsyncKafkaConsumer], Coroutine[Any, Any, Any]]
OTHERS: dict[str, Call] = {
    "pause": lambda k: k.pause(NAME),
    "resume": lambda k: k.resume(NAME),
    "position": lambda k: k.position(NAME),
    "committed": lambda k: k.committed([NAME]),
    "commit_async": lambda k: k.commit_async(),
    "assignment": lambda k: k.assignment(),
    "subscription": lambda k: k.subscription(),
    "paused": lambda k: k.paused(),
    "beginning_offsets": lambda k: k.beginning_offsets([NAME]),
    "end_offsets": lambda k: k.end_offsets([NAME]),
    "offsets_for_times": lambda k: k.offsets_for_times({NAME: 0}),
    "partitions_for_topic": lambda k: k.partitions_for_topic(TOPIC),
    "list_topics": lambda k: k.list_topics(),
    "group_metadata": lambda k: k.group_metadata(),
    "current_lag": lambda k: k.current_lag(NAME),
    "metrics": lambda k: k.metrics(),
    "subscribe": lambda k: k.subscribe([TOPIC]),
}


def test_other_calls_that_are_cancelled_move_nothing(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        cancellations = Cancellations()
        async with consumer_of(cluster, TOPIC, max_poll_records=5) as consumer:
            await join(consumer)
            found: list[int] = []
            async with company(consumer, True):
                for call in OTHERS.values():
                    rounds = cancellations.rounds
                    while cancellations.rounds == rounds:
                        if len(found) < COUNT:
                            found += await one(consumer)
                        await cancellations.call(call(consumer))
                        await consumer.resume(NAME)
            while len(found) < COUNT:
                found += await polled(consumer)
            assert found == list(range(COUNT))

    run(main())


@pytest.mark.parametrize("take", [one, polled])
def test_a_first_call_that_is_cancelled_keeps_the_topics(
    cluster: EmbeddedCluster, take: Callable[[AsyncKafkaConsumer], Coroutine[Any, Any, list[int]]]
) -> None:
    async def main() -> None:
        for number in range(1, 4):
            for is_late in (False, True):
                cancellations = Cancellations()
                cancellations.number, cancellations.is_late = number, is_late
                async with closing(consumer_of(cluster, TOPIC)) as consumer:
                    found = await cancellations.call(take(consumer)) or []
                    while not found:
                        found = await take(consumer)
                    assert found[0] == 0

    run(main())


@asynccontextmanager
async def closing(consumer: AsyncKafkaConsumer) -> AsyncIterator[AsyncKafkaConsumer]:
    """Close a consumer at the end; no call is made at the start."""
    try:
        yield consumer
    finally:
        await consumer.close()


def test_a_first_call_that_waits_for_another_and_is_cancelled_keeps_the_topics(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with closing(consumer_of(cluster, TOPIC)) as consumer:
            goes_on = threading.Event()
            before = asyncio.ensure_future(consumer._calls.call(lambda: goes_on.wait(PATIENCE_S)))
            await asyncio.sleep(0)
            first = asyncio.create_task(consumer.poll(100))
            while not consumer._calls._waiting:
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            goes_on.set()
            await before
            assert await one(consumer) == [0]

    run(main())


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_close_that_is_cancelled_leaves_and_commits(cluster: EmbeddedCluster, number: int, is_late: bool) -> None:
    group = f"g-{uuid.uuid4().hex}"

    async def main() -> None:
        cancellations = Cancellations()
        cancellations.number, cancellations.is_late = number, is_late
        consumer = consumer_of(cluster, TOPIC, group_id=group, enable_auto_commit=True, auto_commit_interval_ms=60_000)
        assert [(await anext(consumer)).offset for _ in range(7)] == list(range(7))
        await cancellations.call(consumer.close())
        await consumer.close()
        assert consumer._consumer._poller.has_left
        async with closing(consumer_of(cluster, TOPIC, group_id=group)) as other:
            assert await one(other) == [7]

    run(main())


# -- streams -----------------------------------------------------------------------------------------------------------


def connector_of(cluster: EmbeddedCluster) -> AsyncConsumerConnector:
    return AsyncConsumerConnector(ConsumerConfig(
        group_id=f"g-{uuid.uuid4().hex}", bootstrap_servers=f"127.0.0.1:{cluster.port(0)}",
        auto_offset_reset="smallest", auto_commit_enable=False, heartbeat_interval_ms=200, fetch_message_max_bytes=200,
    ))  # fmt: skip


@pytest.mark.parametrize("kind", ["messages", "batches"])
def test_what_streams_take_comes_once_and_in_order(cluster: EmbeddedCluster, kind: str) -> None:
    async def main() -> None:
        cancellations = Cancellations()
        async with connector_of(cluster) as connector:
            [stream] = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
            source: Any = stream if kind == "messages" else stream.batches(max_messages=3)
            found: list[int] = []
            while len(found) < COUNT:
                took = await cancellations.call(anext(source))
                if took is not None:
                    found += [took.offset] if kind == "messages" else range(took.offset, took.next_offset)
                    await cancellations.call(connector.commit_offsets())
            assert found == list(range(COUNT))

    run(main())


@pytest.mark.parametrize("is_late", [False, True])
def test_pauses_and_looks_at_a_connector_that_are_cancelled_change_nothing_else(
    cluster: EmbeddedCluster, is_late: bool
) -> None:
    async def main() -> None:
        async with connector_of(cluster) as connector:
            [stream] = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
            for offset, call in enumerate((connector.pause, connector.resume, connector.status, connector.statistics)):
                assert (await anext(stream)).offset == offset
                cancellations = Cancellations()
                cancellations.is_late = is_late
                await cancellations.call(call([NAME]) if offset < 2 else call())  # type: ignore[operator]
                await connector.resume([NAME])
            assert (await anext(stream)).offset == 4

    run(main())
