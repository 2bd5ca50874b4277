"""A signal handler that closes what the program iterates ends the loop, at whatever step of the call it comes.

The signal is raised before a line of the consumer that is chosen by its number. What the loop has not seen is not
committed: the next member of the group gets it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zkconsumer
from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerClosed, ConsumerConfig, ConsumerConnector, KafkaConsumer, read_topic
from zkconsumer.testing import EmbeddedCluster, load

CODE = str(Path(zkconsumer.__file__ or "").parent)
TOPIC = "thirty"
NAME = TopicPartition(TOPIC, 0)
COUNT = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="3.9", zookeeper=False, settings=settings) as running:
        running.create_topic(TOPIC, 1)
        load(running, TOPIC, COUNT)
        yield running


def address(cluster: EmbeddedCluster) -> str:
    return f"127.0.0.1:{cluster.port(0)}"


class Signalled:
    """Raises a signal before a line of the consumer, once; after a while if the consumer waits before that line."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.seen = 0
        self.is_raised = False
        self.timer = threading.Timer(0.5, self._raise_late)
        self.timer.start()

    def _raise_late(self) -> None:
        if not self.is_raised:
            self.is_raised = True
            os.kill(os.getpid(), signal.SIGUSR1)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line" and not self.is_raised:
            self.seen += 1
            if self.seen == self.line:
                self.is_raised = True
                self.timer.cancel()
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
        return self._trace

    def call(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns during which the signal may be raised."""
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(None)


@contextmanager
def handled(handler: Callable[[], object]) -> Iterator[None]:
    """Have a function called by the signal."""
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def read_to_end(reading: Iterator[Any], signalled: Signalled) -> list[int]:
    """Return the offsets that an iteration has returned until it has ended."""
    found: list[int] = []
    while (item := signalled.call(lambda: next(reading, None))) is not None:
        found += range(item.offset, getattr(item, "next_offset", item.offset + 1))
    assert next(reading, None) is None
    return found


def committed(cluster: EmbeddedCluster, group: str) -> int:
    with KafkaConsumer(bootstrap_servers=address(cluster), group_id=group) as consumer:
        found = consumer.committed([NAME])[NAME]
    return 0 if found is None else found.offset


def consumer_of(cluster: EmbeddedCluster, group: str) -> KafkaConsumer:
    """Return a consumer that has all records fetched, of which none was returned."""
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=address(cluster), group_id=group, auto_offset_reset="earliest",
                             heartbeat_interval_ms=200, max_poll_records=7, fetch_max_wait_ms=10)  # fmt: skip
    while not consumer.poll(20):
        pass
    consumer.seek(NAME, 0)
    return consumer


SOME = (7, 31, 120, 360, 1300)
LINES = [pytest.param(line, marks=() if line in SOME else pytest.mark.slow) for line in sorted({*range(1, 400), *SOME})]
FEWER = [each for each in LINES if each.values[0] in SOME[::2] or each.values[0] % 7 == 0]  # type: ignore[operator]


@pytest.mark.parametrize("line", LINES)
def test_an_iteration_over_a_consumer_ends(cluster: EmbeddedCluster, line: int) -> None:
    group = f"g-{uuid.uuid4().hex}"
    consumer, signalled = consumer_of(cluster, group), Signalled(line)
    with handled(consumer.close):
        found = read_to_end(consumer, signalled)
    assert signalled.is_raised
    assert found == list(range(len(found)))
    assert committed(cluster, group) == len(found)


@pytest.mark.parametrize("line", LINES)
def test_a_poll_raises_that_the_consumer_is_closed(cluster: EmbeddedCluster, line: int) -> None:
    group = f"g-{uuid.uuid4().hex}"
    consumer, signalled = consumer_of(cluster, group), Signalled(line)
    found: list[int] = []

    def poll_on() -> None:
        while True:
            found.extend(record.offset for record in signalled.call(lambda: consumer.poll(1000)))

    with handled(consumer.close), pytest.raises(ConsumerClosed):
        poll_on()
    assert found == list(range(len(found)))
    assert committed(cluster, group) == len(found)


@pytest.mark.parametrize("line", FEWER)
@pytest.mark.parametrize("way", ["messages", "batches"])
def test_an_iteration_over_a_stream_ends(cluster: EmbeddedCluster, way: str, line: int) -> None:
    group = f"g-{uuid.uuid4().hex}"
    config = ConsumerConfig(group_id=group, bootstrap_servers=address(cluster), auto_offset_reset="smallest",
                            heartbeat_interval_ms=200, fetch_message_max_bytes=200)  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
        signalled = Signalled(line)
        with handled(connector.shutdown):
            found = read_to_end(stream if way == "messages" else stream.batches(max_messages=4), signalled)
    assert signalled.is_raised
    assert found == list(range(len(found)))
    # What was just being handed over may come again.
    assert 0 <= len(found) - committed(cluster, group) <= (1 if way == "messages" else 4)


@pytest.mark.parametrize("line", FEWER)
def test_an_iteration_over_a_topic_ends(cluster: EmbeddedCluster, line: int) -> None:
    properties = {"bootstrap.servers": address(cluster), "fetch.message.max.bytes": 200}
    with read_topic(None, TOPIC, until=None, properties=properties) as reader:
        signalled = Signalled(line)
        with handled(reader.close):
            found = read_to_end(reader, signalled)
    assert signalled.is_raised
    assert found == list(range(len(found)))
