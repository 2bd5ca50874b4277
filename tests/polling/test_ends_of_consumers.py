"""How a KafkaConsumer ends: in callbacks, beside brokers that do not answer, dropped; on brokers in this process."""

from __future__ import annotations

import gc
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerClosed, KafkaConsumer, RebalanceCallbacks
from zkconsumer.testing import EmbeddedCluster, Fault, load, wait_until

TOPIC = "hundred"
NAME = TopicPartition(TOPIC, 0)
PATIENCE_S = 20.0
SOON_S = 10.0
"""Generous for what waits for nothing, and a third of the time of `close`."""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(1, generation="3.9", zookeeper=False, settings=settings) as running:
        running.create_topic(TOPIC, 1)
        load(running, TOPIC, 100)
        yield running


def consumer_of(cluster: EmbeddedCluster, listener: object | None = None, **more: Any) -> KafkaConsumer:
    """Return a consumer that has polled records."""
    settings: dict[str, Any] = {"group_id": f"g-{uuid.uuid4().hex}", "auto_offset_reset": "earliest",
                                "heartbeat_interval_ms": 200, "fetch_max_wait_ms": 20,
                                "max_poll_records": 10}  # fmt: skip
    consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", **settings | more)
    consumer.subscribe([TOPIC], listener=listener)
    wait_until(lambda: bool(consumer.poll(50)), PATIENCE_S, "records")
    return consumer


class Ends(RebalanceCallbacks):
    """Ends the consumer when its partitions are given up."""

    def __init__(self) -> None:
        self.end: Callable[[], object] | None = None
        self.took_s: list[float] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self.end is not None:
            began = time.monotonic()
            self.end()
            self.took_s.append(time.monotonic() - began)


@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
def test_an_end_within_the_callback_of_unsubscribe_does_not_wait_for_itself(
    cluster: EmbeddedCluster, inner: str
) -> None:
    listener = Ends()
    consumer = consumer_of(cluster, listener)
    listener.end = getattr(consumer, inner)
    began = time.monotonic()
    consumer.unsubscribe()
    assert time.monotonic() - began < SOON_S
    assert len(listener.took_s) == 1
    assert consumer._poller.member is None
    consumer.close()
    with consumer_of(cluster, group_id=consumer.config.group_id) as other:  # at once: the first one has left
        assert other.assignment() == {NAME}
    assert time.monotonic() - began < 3 * SOON_S


def test_a_broker_that_does_not_name_the_end_of_a_log_does_not_keep_close(cluster: EmbeddedCluster) -> None:
    consumer = consumer_of(cluster)
    cluster.faults.add(Fault.stall(60.0, "offsets"), times=None)
    consumer.seek_to_end()
    consumer.poll(300)
    began = time.monotonic()
    assert consumer.close(30_000) == {}
    assert time.monotonic() - began < SOON_S
    cluster.faults.clear()


@pytest.mark.parametrize("api", ["metadata", "heartbeat", "fetch", "join_group"])
def test_close_leaves_no_thread_that_waits_for_a_broker(cluster: EmbeddedCluster, api: str) -> None:
    consumer = consumer_of(cluster, metadata_max_age_ms=100)
    cluster.faults.add(Fault.stall(60.0, api), times=None)
    if api == "join_group":
        consumer.enforce_rebalance()
    time.sleep(0.5)  # a request of each kind is under way
    began = time.monotonic()
    consumer.close(30_000)
    assert time.monotonic() - began < SOON_S
    wait_until(lambda: not threads(), 2.0, "the threads to end", state=threads)


def test_a_consumer_that_closes_before_it_is_named_leaves_no_member_behind(cluster: EmbeddedCluster) -> None:
    """The broker has created a member that the consumer does not know yet; the group would wait for its session."""
    group = f"g-{uuid.uuid4().hex}"
    fault = Fault.stall(1.0, "join_group")
    cluster.faults.add(fault)
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", group_id=group)
    wait_until(lambda: not consumer.poll(20) and cluster.faults.used(fault), PATIENCE_S, "JoinGroup")
    began = time.monotonic()
    consumer.close(30_000)
    with consumer_of(cluster, group_id=group) as other:
        assert other.assignment() == {NAME}
    assert time.monotonic() - began < SOON_S


def test_close_in_a_callback_leaves_no_thread(cluster: EmbeddedCluster) -> None:

    class Closes(RebalanceCallbacks):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            cluster.faults.add(Fault.stall(60.0, "metadata"), times=None)
            consumer.close(5000)

    consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", group_id=f"g-{uuid.uuid4().hex}")
    consumer.subscribe([TOPIC], listener=Closes())
    with pytest.raises(ConsumerClosed):
        consumer.poll(1000 * PATIENCE_S)
    wait_until(lambda: not threads(), 2.0, "the threads to end", state=threads)


# -- dropped without a close -------------------------------------------------------------------------------------------


_of_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests() -> None:
    """Other tests of the process may have left some."""
    _of_others.clear()
    _of_others.update(threading.enumerate())


def threads() -> list[str]:
    """Those of the consumers of this test: the test kit keeps idle producers."""
    return [each.name for each in set(threading.enumerate()) - _of_others
            if each.name.startswith(("zkconsumer-", "fetcher-", "leader-finder-"))
            and not each.name.startswith("zkconsumer-producer")]  # fmt: skip


class App:
    """An application whose consumer knows it in every way: listener, deserializer, callback of a commit."""

    def __init__(self, cluster: EmbeddedCluster, group: str) -> None:
        self.records = 0
        self.consumer = consumer_of(cluster, self, group_id=group, value_deserializer=self.value, max_poll_records=3)

    def value(self, data: bytes | None) -> bytes | None:
        self.records += 1
        return data

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.records = 0

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        raise AssertionError("an application that is gone is called")


def test_a_consumer_that_is_dropped_leaves_and_warns(cluster: EmbeddedCluster) -> None:
    group = f"g-{uuid.uuid4().hex}"
    app = App(cluster, group)
    assert app.records
    assert threads()
    gone = weakref.ref(app.consumer)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del app
        gc.collect()
    assert gone() is None
    assert [(each.category, f"KafkaConsumer of group {group} was dropped" in str(each.message)) for each in said] == [
        (ResourceWarning, True)
    ]
    wait_until(lambda: not threads(), PATIENCE_S, "its threads to end", state=threads)
    with consumer_of(cluster, group_id=group) as other:  # nobody waits for its session
        assert other.assignment() == {NAME}
        stored = other.committed([NAME])[NAME]
        assert stored is None or stored.offset == 0  # what was in hand was not done


@pytest.mark.parametrize("way", ["joining", "assigned", "asking", "subscribed"])
def test_a_consumer_that_is_dropped_at_another_time_leaves_nothing(cluster: EmbeddedCluster, way: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{cluster.port(0)}", group_id=f"g-{uuid.uuid4().hex}")
    if way == "assigned":
        consumer.assign([NAME])
        consumer.poll(50)
    elif way == "asking":
        assert consumer.partitions_for_topic(TOPIC) == {0}
    else:
        consumer.subscribe([TOPIC])
    if way == "joining":
        cluster.faults.add(Fault.delay(1.0, "join_group"), times=None)
        consumer.poll(0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del consumer
        gc.collect()
    assert [each.category for each in said] == ([] if way == "subscribed" else [ResourceWarning])
    wait_until(lambda: not threads(), PATIENCE_S, "its threads to end", state=threads)
