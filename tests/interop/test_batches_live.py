"""Batches in hand whose work fails, is interrupted, takes too long, or is paused."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from consuming import PATIENCE_S, member, produce, stored, wait_owned, wait_stored

from zkconsumer import ConsumerTimeout, ForkedConnector, MessageBatch, TopicPartition
from zkconsumer.streams.batches import StreamBatches
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import Deadline, wait_until

NEVER_MS = 600_000
LONG_MS = 30_000


@pytest.fixture
def ten(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic with one partition and ten messages."""
    name = fresh_topic()
    embedded_cluster.create_topic(name)
    produce(embedded_cluster, name, 0, [str(n) for n in range(10)])
    return name


@contextmanager
def on_user_signal(function: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: function() and None)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def offsets_of(batch: MessageBatch) -> list[int]:
    found: list[int] = batch.record_batch.column("offset").to_pylist()
    return found


def first_of(batches: StreamBatches) -> list[int]:
    deadline = Deadline(PATIENCE_S)
    while True:
        try:
            return offsets_of(next(batches))
        except ConsumerTimeout:
            assert not deadline.expired, "no batch came"


def test_work_that_fails_leaves_its_batch_uncommitted_and_a_break_counts_it(
    embedded_cluster: EmbeddedCluster, fresh_group: str, ten: str
) -> None:
    settings = {"consumer_timeout_ms": LONG_MS, "auto_commit_interval_ms": NEVER_MS}

    def fail_at_the_second() -> None:
        with member(embedded_cluster, fresh_group, **settings) as consumer:
            for batch in consumer.create_message_streams({ten: 1})[ten][0].batches(max_messages=4):
                if batch.offset:
                    raise RuntimeError("the work on the second batch fails")

    with pytest.raises(RuntimeError, match="second batch"):
        fail_at_the_second()
    assert stored(embedded_cluster, fresh_group, ten, 0) == b"4"
    with member(embedded_cluster, fresh_group, **settings) as consumer:
        for batch in consumer.create_message_streams({ten: 1})[ten][0].batches(max_messages=4):
            assert offsets_of(batch) == [4, 5, 6, 7]
            break
    assert stored(embedded_cluster, fresh_group, ten, 0) == b"8"


@pytest.mark.parametrize("fails", [False, True], ids=["the work ends well", "the work fails"])
def test_shutdown_in_a_signal_handler_ends_the_loop_behind_the_batch_in_hand(
    embedded_cluster: EmbeddedCluster, fresh_group: str, ten: str, fails: bool
) -> None:
    received: list[int] = []
    settings = {"consumer_timeout_ms": LONG_MS, "auto_commit_interval_ms": NEVER_MS}

    def consume() -> None:
        with (
            member(embedded_cluster, fresh_group, **settings) as consumer,
            on_user_signal(consumer.shutdown),
        ):
            for batch in consumer.create_message_streams({ten: 1})[ten][0].batches(max_messages=3):
                received.extend(offsets_of(batch))
                if batch.offset == 3:
                    signal.raise_signal(signal.SIGUSR1)
                    if fails:
                        raise RuntimeError("the work on the second batch fails")

    if fails:
        with pytest.raises(RuntimeError):
            consume()
    else:
        consume()
    assert received == list(range(6))
    assert stored(embedded_cluster, fresh_group, ten, 0) == (b"3" if fails else b"6")


def test_a_pause_lets_the_batch_in_hand_finish_and_goes_on_at_the_next_message(
    embedded_cluster: EmbeddedCluster, fresh_group: str, ten: str
) -> None:
    with member(embedded_cluster, fresh_group) as consumer:
        batches = consumer.create_message_streams({ten: 1})[ten][0].batches(max_messages=4)
        assert first_of(batches) == [0, 1, 2, 3]
        partition = [TopicPartition(ten, 0)]
        consumer.pause(partition)
        for _ in range(2):
            with pytest.raises(ConsumerTimeout):
                next(batches)
        consumer.resume(partition)
        assert first_of(batches) == [4, 5, 6, 7]
        consumer.pause(partition)
        consumer.resume(partition)  # while it is in hand
        assert first_of(batches) == [8, 9]
    assert stored(embedded_cluster, fresh_group, ten, 0) == b"10"


def test_past_the_time_for_a_drain_exactly_the_batch_in_hand_comes_again(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=2)
    for partition in (0, 1):
        produce(embedded_cluster, topic, partition, [str(n) for n in range(10)])
    with member(embedded_cluster, fresh_group, "ann", rebalance_drain_timeout_ms=300) as ann:
        batches = ann.create_message_streams({topic: 1})[topic][0].batches(max_messages=4)
        wait_owned(ann, [(topic, 0), (topic, 1)])
        deadline = Deadline(PATIENCE_S)
        while not deadline.expired:  # until the first of what bob will get is in hand
            with suppress(ConsumerTimeout):
                if next(batches).partition == 1:
                    break
        with member(embedded_cluster, fresh_group, "bob") as bob:
            others = bob.create_message_streams({topic: 1})[topic][0].batches()
            wait_owned(bob, [(topic, 1)])
            assert first_of(others) == list(range(10)), "the four that ann has in hand, and the rest"
            assert {batch.partition for batch in rest_of(batches)} <= {0}
        wait_stored(embedded_cluster, fresh_group, topic, 1, 10)


def rest_of(batches: StreamBatches) -> Iterator[MessageBatch]:
    try:
        yield from batches
    except ConsumerTimeout:
        return


def test_two_streams_hand_over_batches_on_two_threads_and_shutdown_waits_for_both(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=2)
    for partition in (0, 1):
        produce(embedded_cluster, topic, partition, [str(n) for n in range(10)])
    in_hand, may_go_on = threading.Barrier(3), threading.Event()
    seen: list[tuple[int, list[int]]] = []

    def work(batches: StreamBatches) -> None:
        for batch in batches:
            seen.append((int(batch.partition), offsets_of(batch)))
            in_hand.wait(PATIENCE_S)
            may_go_on.wait(PATIENCE_S)

    consumer = member(embedded_cluster, fresh_group, consumer_timeout_ms=-1, auto_commit_interval_ms=NEVER_MS)
    streams = consumer.create_message_streams({topic: 2})[topic]
    threads = [threading.Thread(target=work, args=[stream.batches(max_messages=6)], daemon=True) for stream in streams]
    for thread in threads:
        thread.start()
    in_hand.wait(PATIENCE_S)
    leaving = threading.Thread(target=consumer.shutdown, daemon=True)
    leaving.start()
    wait_until(lambda: all(stream._is_ended for stream in streams), PATIENCE_S, "the shutdown to have begun")
    assert stored(embedded_cluster, fresh_group, topic, 0) in (None, b"0")
    may_go_on.set()
    for thread in [*threads, leaving]:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert sorted(seen) == [(0, list(range(6))), (1, list(range(6)))]
    assert [stored(embedded_cluster, fresh_group, topic, partition) for partition in (0, 1)] == [b"6", b"6"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_gets_no_batch_and_the_parent_goes_on(
    embedded_cluster: EmbeddedCluster, fresh_group: str, ten: str
) -> None:
    with member(embedded_cluster, fresh_group) as consumer:
        batches = consumer.create_message_streams({ten: 1})[ten][0].batches(max_messages=4)
        assert first_of(batches) == [0, 1, 2, 3]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                next(batches)
            except ForkedConnector:
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert first_of(batches) == [4, 5, 6, 7]
