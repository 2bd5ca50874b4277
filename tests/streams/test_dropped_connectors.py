"""A connector that is dropped without a shutdown leaves its group; its streams keep it."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.aio import AsyncConsumerConnector
from zkconsumer.testing import EmbeddedCluster, load, wait_until

PATIENCE_S = 20.0
TOPIC = "hundred"


@pytest.fixture(params=["brokers", pytest.param("zookeeper", marks=pytest.mark.real)])
def config(request: pytest.FixtureRequest) -> Iterator[ConsumerConfig]:
    by_brokers = request.param == "brokers"
    kind: dict[str, Any] = (
        {"generation": "3.9", "settings": {"group.min.session.timeout.ms": 100}, "zookeeper": False} if by_brokers
        else {}
    )  # fmt: skip
    with EmbeddedCluster(1, **kind) as cluster:
        cluster.create_topic(TOPIC, 1)
        load(cluster, TOPIC, 100)
        place: dict[str, Any] = (
            {"bootstrap_servers": f"127.0.0.1:{cluster.port(0)}"} if by_brokers
            else {"zookeeper_connect": cluster.zookeeper_connect}
        )  # fmt: skip
        yield ConsumerConfig(group_id=f"g-{uuid.uuid4().hex}", auto_offset_reset="smallest",
                             statistics_interval_ms=100, **place)  # fmt: skip


def threads() -> list[threading.Thread]:
    """Those of consumers that are not of tests before: the test kit keeps idle producers."""
    return [each for each in threading.enumerate()
            if each.name.startswith(("zkconsumer-", "fetcher-", "leader-finder-"))
            and not each.name.startswith("zkconsumer-producer") and each not in before]  # fmt: skip


before: set[threading.Thread] = set()
"""The threads that were there when the test began."""


@pytest.fixture(autouse=True)
def remember_threads() -> None:
    """Leave out the threads of other tests."""
    before.clear()
    before.update(threading.enumerate())


class App:
    """An application whose connector knows it in every way."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.connector = ConsumerConnector(config, self, self.on_statistics)
        [self.stream] = self.connector.create_message_streams({TOPIC: 1}, value_decoder=self.value)[TOPIC]

    def value(self, data: bytes) -> bytes:
        return data

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        pass

    def on_statistics(self, statistics: object) -> None:
        pass


def test_an_application_that_drops_its_connector_leaves_the_group(config: ConsumerConfig) -> None:
    app = App(config)
    assert [next(app.stream).offset for _ in range(5)] == [0, 1, 2, 3, 4]
    gone = weakref.ref(app)

    def is_gone() -> bool:
        gc.collect()  # a callback may be running just now
        return gone() is None

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del app
        wait_until(is_gone, PATIENCE_S, "the application to be collected")
    assert [each.category for each in said] == [ResourceWarning]
    assert f"ConsumerConnector of group {config.group_id} was dropped without shutdown()" in str(said[0].message)
    wait_until(lambda: not threads(), PATIENCE_S, "its threads to end", state=threads)
    with ConsumerConnector(config) as other:
        [stream] = other.create_message_streams({TOPIC: 1})[TOPIC]
        assert next(stream).offset == 4  # what was in hand comes again, and nothing else


def test_a_stream_keeps_its_connector(config: ConsumerConfig) -> None:
    found = []
    for message in ConsumerConnector(config).create_message_streams({TOPIC: 1})[TOPIC][0]:
        gc.collect()
        found.append(message.offset)
        if len(found) == 10:
            break
    assert found == list(range(10))
    del message
    gc.collect()
    wait_until(lambda: not threads(), PATIENCE_S, "its threads to end", state=threads)


def test_a_connector_of_asyncio_that_is_dropped_warns_and_leaves(config: ConsumerConfig) -> None:
    class Listener:
        connector: AsyncConsumerConnector | None = None

        async def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
            pass

    async def main() -> None:
        listener = Listener()
        listener.connector = connector = AsyncConsumerConnector(config, listener)
        [stream] = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
        assert (await anext(stream)).offset == 0
        del listener, connector, stream
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            async with asyncio.timeout(PATIENCE_S):
                while threads():
                    gc.collect()
                    await asyncio.sleep(0.02)
        assert [each.category for each in said] == [ResourceWarning]

    asyncio.run(main())
